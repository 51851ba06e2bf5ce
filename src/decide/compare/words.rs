//! The words of a comparison: a conclusion never without its reason, a clean level never without its bound.

use std::collections::BTreeMap;

use super::guard::{FactorCheck, Guarded, Standing};
use super::observation::{ORDER, STATE};
use super::{ALPHA, Comparison, Conclusion, Counting, Question, Side, Trials, Unit, drift, of_side};
use crate::decide::report::{Rate, percent};
use crate::decide::stats::{Arms, Confidence, Counts, E_THRESHOLD, fisher, lower_bound, smallest_p};
use crate::model::settings::Start;
use crate::model::units::counted;

/// Puts the words into `comparison`.
pub(super) fn put(comparison: &mut Comparison, trials: &Trials<'_>, guarded: &Guarded, question: &Question) {
    comparison.headline = headline(comparison, guarded, question);
    comparison.a.says = level_says(&comparison.a.rate, &comparison.b.rate, &question.b);
    comparison.b.says = level_says(&comparison.b.rate, &comparison.a.rate, &question.a);
    comparison.notes = notes(comparison, trials.compared, guarded, question);
    if trials.left_out > 0 {
        let left_out = counted(trials.left_out as u64, "trial");
        let axis = &question.factor;
        comparison
            .notes
            .push(format!("left out: {left_out} of cells without a counterpart alike in every axis but {axis}"));
    }
}

fn headline(comparison: &Comparison, guarded: &Guarded, question: &Question) -> String {
    let word = comparison.conclusion.as_str();
    let like = guarded.like_for_like();
    let p = p_words(comparison.tests.p.unwrap_or(1.0));
    let pair = format!("like for like {} against {}", fraction(like.a), fraction(like.b));
    let why = match comparison.conclusion {
        Conclusion::NoData => {
            let side = if guarded.crude.a.counted() == 0 { Side::A } else { Side::B };
            format!("no trial with {} = {} was counted", question.factor, question.label(side))
        }
        Conclusion::Confounded => return format!("{word} {}", confounded(guarded, question)),
        Conclusion::UnknownFactor => {
            let unknown = guarded.factors.iter().filter(|factor| factor.unknown > 0);
            let names: Vec<&str> = unknown.clone().map(|factor| factor.name.as_str()).collect();
            let trials: u64 = unknown.map(|factor| factor.unknown).max().unwrap_or(0);
            return format!(
                "{word}({}): it was not recorded in {}, so that {} cannot be told from it",
                names.join(", "),
                counted(trials, "trial"),
                question.factor
            );
        }
        Conclusion::Underpowered => underpowered(comparison, guarded),
        Conclusion::Uninformative => {
            "in every group of like trials either all fault or none does: there is nothing to compare".to_owned()
        }
        Conclusion::Established if question.peeked => format!("{pair}, {}", e_words(comparison)),
        Conclusion::Established => format!("{pair}, exact p = {p}"),
        Conclusion::OrderConfounded => {
            let order = guarded.separated.iter().find(|separation| separation.name == ORDER);
            let (early, late) = match order.map(|order| order.auc) {
                Some(auc) if auc > 0.5 => (&question.b, &question.a),
                Some(_) | None => (&question.a, &question.b),
            };
            let chance = p_words(order.map_or(1.0, |order| order.p));
            format!(
                "{pair}, exact p = {p}, but the trials of {late} ran after those of {early} (in a random order that \
                 comes with p = {chance}): whatever else changed meanwhile may be the cause"
            )
        }
        Conclusion::Suggestive if question.peeked => format!("{pair}, {}", e_words(comparison)),
        Conclusion::Suggestive => format!("{pair}, exact p = {p}, above {ALPHA}"),
        Conclusion::NotShown => format!("{pair}, exact p = {p}: no difference is shown, nor that there is none"),
    };
    format!("{word}: {why}")
}

fn e_words(comparison: &Comparison) -> String {
    let e = comparison.tests.e_value.unwrap_or(1.0);
    format!("e-value {e:.1} over {} ({E_THRESHOLD} needed)", counted(comparison.tests.blocks, "block"))
}

/// `by state: every 0.46.1 trial was cold and every 0.49.2 trial was warm (overlap 0). This says nothing about version`.
fn confounded(guarded: &Guarded, question: &Question) -> String {
    let aliased: Vec<&FactorCheck> = guarded.standing(Standing::Aliased).collect();
    let Some(first) = aliased.first() else {
        return format!(
            "by several factors together: no trial of {} has a counterpart of {} that is alike in everything else",
            question.a, question.b
        );
    };
    let names: Vec<&str> = aliased.iter().map(|factor| factor.name.as_str()).collect();
    format!(
        "by {}: every {} trial was {} and every {} trial was {} (overlap 0). This says nothing about {}",
        names.join(" and "),
        question.a,
        levels(&first.a),
        question.b,
        levels(&first.b),
        question.factor
    )
}

fn levels(counts: &BTreeMap<String, u64>) -> String {
    counts.keys().map(String::as_str).collect::<Vec<_>>().join(" or ")
}

fn underpowered(comparison: &Comparison, guarded: &Guarded) -> String {
    let like = guarded.like_for_like();
    let smallest = p_words(comparison.tests.smallest_p.unwrap_or(1.0));
    let mut text = format!(
        "with {} and {} like trials the smallest possible p is {smallest}. No result could have shown a difference",
        like.a.counted(),
        like.b.counted()
    );
    if let Some(need) = comparison.needs.first()
        && let Some(p) = need.reaches_p
    {
        text += &format!("; {} more of {} (then p can reach {})", need.trials, need.cell(), p_words(p));
    }
    text
}

/// What may be said of one level, whatever the comparison says.
fn level_says(own: &Rate, other: &Rate, other_label: &str) -> String {
    match (own.faults, own.counted) {
        (_, 0) => "nothing is known of it".to_owned(),
        (0, _) => {
            let counts = Counts { faults: other.faults, clean: other.counted - other.faults };
            let least = lower_bound(counts, Confidence::P95);
            match own.at_most {
                Some(most) if most < least => format!(
                    "BELOW {} %: {own}; {other_label}: {} (at least {} %)",
                    percent(least),
                    other.fraction(),
                    percent(least)
                ),
                Some(_) | None => own.to_string(),
            }
        }
        (1, counted) => format!(
            "FAULTS: 1/{counted}. One matching fault shows that it is there; its rate is not known ({})",
            own.bound()
        ),
        _ => format!("FAULTS: {own}"),
    }
}

fn notes(comparison: &Comparison, trials: &[Unit<'_>], guarded: &Guarded, question: &Question) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(excluded(trials, question));
    for factor in &guarded.factors {
        notes.extend(factor_note(factor));
    }
    if guarded.explained_by_others {
        let names: Vec<&str> = guarded.standing(Standing::Imbalanced).map(|factor| factor.name.as_str()).collect();
        let by = if names.is_empty() { "what else differs".to_owned() } else { names.join(", ") };
        notes.push(format!(
            "all trials in one table look different (p = {}): {by} may explain it",
            p_words(guarded.crude_p)
        ));
    }
    for separation in guarded.separated.iter().filter(|_| comparison.conclusion != Conclusion::OrderConfounded) {
        notes.push(format!("{} separates the levels (p = {})", separation.name, p_words(separation.p)));
    }
    notes.extend(clustering(comparison));
    match comparison.conclusion {
        Conclusion::Confounded | Conclusion::UnknownFactor => notes.extend(too_few(guarded)),
        Conclusion::NoData
        | Conclusion::Underpowered
        | Conclusion::Uninformative
        | Conclusion::Established
        | Conclusion::OrderConfounded
        | Conclusion::Suggestive
        | Conclusion::NotShown => notes.extend(survivorship(trials, question)),
    }
    for side in [Side::A, Side::B] {
        if let Some(p) = drift(trials, side).filter(|p| *p <= ALPHA) {
            let label = question.label(side);
            notes.push(format!(
                "DRIFT: the faults of {label} are not spread evenly over its trials (p = {})",
                p_words(p)
            ));
        }
    }
    notes
}

/// Trials in no rate, and whether one level has more of them than chance gives.
fn excluded(trials: &[Unit<'_>], question: &Question) -> Option<String> {
    let of = |side: Side, wanted: fn(Counting) -> bool| {
        of_side(trials, side).filter(|unit| wanted(unit.counting)).count() as u64
    };
    let out = |counting: Counting| !counting.is_counted();
    let (a, b) = (of(Side::A, out), of(Side::B, out));
    if a + b == 0 {
        return None;
    }
    let others = of(Side::A, |counting| counting == Counting::OtherFault)
        + of(Side::B, |counting| counting == Counting::OtherFault);
    let mut note = format!("in no rate: {} of {} and {} of {}", counted(a, "trial"), question.a, b, question.b);
    if others > 0 {
        note += &format!(", {others} of them with another fault");
    }
    let in_rate = |side| of(side, Counting::is_counted);
    let imbalance =
        Arms { a: Counts { faults: a, clean: in_rate(Side::A) }, b: Counts { faults: b, clean: in_rate(Side::B) } };
    let p = fisher(imbalance).two_sided;
    if p <= ALPHA {
        note += &format!(". EXCLUSION_IMBALANCE: one level lost more than chance gives (p = {})", p_words(p));
    }
    Some(note)
}

fn factor_note(factor: &FactorCheck) -> Option<String> {
    let unknown = match factor.unknown {
        0 => String::new(),
        trials => format!("; not recorded in {}, which are left out", counted(trials, "trial")),
    };
    match factor.standing {
        Standing::Imbalanced => {
            let overlap = factor.overlap.unwrap_or_default();
            Some(format!(
                "{} is not the same on both sides (overlap {overlap:.2}): the test goes by it{unknown}",
                factor.name
            ))
        }
        Standing::Alike if factor.unknown > 0 => Some(format!("{}{unknown}", factor.name)),
        Standing::Alike | Standing::Aliased | Standing::Unknown => None,
    }
}

fn clustering(comparison: &Comparison) -> Option<String> {
    let clustering = comparison.clustering.as_ref()?;
    let trials = counted(clustering.trials, "trial");
    let level = &clustering.level;
    match clustering.boots {
        Some(boots) if boots == clustering.trials => None,
        Some(boots) => Some(format!("{level}: {trials} that were not cold, in {}", counted(boots, "boot"))),
        None => {
            let supposed: Vec<String> =
                clustering.p_by_boots.iter().map(|(boots, p)| format!("{boots} boots p = {}", p_words(*p))).collect();
            let list = match supposed.is_empty() {
                true => String::new(),
                false => format!(". If they came from: {} (one-sided)", supposed.join(", ")),
            };
            Some(format!(
                "{level}: {trials} that were not cold, in how many boots was not recorded, and trials of one boot share \
                 its luck{list}",
            ))
        }
    }
}

/// Whether the trials would be too few even if nothing else differed.
fn too_few(guarded: &Guarded) -> Option<String> {
    let (smallest, crude) = (smallest_p(&[guarded.crude]), guarded.crude);
    (smallest > ALPHA).then(|| {
        format!(
            "and if nothing else differed: with {} and {} trials the smallest possible p is {}",
            crude.a.counted(),
            crude.b.counted(),
            p_words(smallest)
        )
    })
}

/// A warm trial exists only in a boot whose earlier trial survived.
fn survivorship(trials: &[Unit<'_>], question: &Question) -> Option<String> {
    let all = |side: Side, state: Start| {
        let mut of_side = of_side(trials, side).peekable();
        of_side.peek().is_some() && of_side.all(|unit| unit.trial.has(STATE, state.as_str()))
    };
    let warm = match (
        all(Side::A, Start::Cold) && all(Side::B, Start::Warm),
        all(Side::B, Start::Cold) && all(Side::A, Start::Warm),
    ) {
        (true, _) => Side::B,
        (false, true) => Side::A,
        (false, false) => return None,
    };
    Some(format!(
        "conditioned on survival: a {} trial is only there if an earlier one of its boot came through, so a boot that \
         happens to be immune would look the same as a machine that warming cures. A prelude on fresh boots \
         (`prelude`, then the workload) tells the two apart",
        question.label(warm)
    ))
}

fn fraction(counts: Counts) -> String {
    format!("{}/{}", counts.faults, counts.counted())
}

/// A p with two significant digits: `1.0`, `0.20`, `0.029`, `2.9e-6`.
pub fn p_words(p: f64) -> String {
    match p {
        _ if p >= 0.995 => "1.0".to_owned(),
        _ if p >= 0.099_5 => format!("{p:.2}"),
        _ if p >= 0.009_95 => format!("{p:.3}"),
        _ if p >= 0.000_95 => format!("{p:.4}"),
        _ => format!("{p:.1e}"),
    }
}
