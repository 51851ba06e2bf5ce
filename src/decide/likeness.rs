//! Whether the fault of one run is that of another: the same, a different one, or not to be told.
//!
//! Two faults are different if anything differs that both runs saw. They are the same only if both runs saw where it was
//! and that is one place: the same symptom is not the same fault. What only one of them saw settles nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::decide::report::{Report, SignatureCount};
use crate::model::ids::RunId;
use crate::model::verdict::{Signature, StageName, Verdict};
use crate::model::words::words;

/// Name and version of the format.
pub const LIKENESS_SCHEMA: &str = "jetfault.likeness/1";

words! {
    /// What two faults are to each other.
    Likeness {
        /// Class, signal, place and stage are one.
        Same = "the same fault",
        /// At least one of them differs.
        Different = "a different fault",
        /// Nothing that both runs saw differs, and not enough was seen.
        NotComparable = "not comparable",
    }
}

/// A fault of a run beside the fault of the other run that is most like it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultPair {
    /// The fault.
    pub fault: Signature,
    /// How many trials had it.
    pub trials: u64,
    /// The other run's.
    pub other: Signature,
    /// How many trials of that run had it.
    pub other_trials: u64,
    /// What they are to each other.
    pub likeness: Likeness,
    /// What differs, or why it cannot be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
}

/// The faults of one run beside those of another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultPairs {
    /// [`LIKENESS_SCHEMA`].
    pub schema: String,
    /// The runs.
    pub runs: [RunId; 2],
    /// Each kind of fault of the first, the most frequent first.
    pub pairs: Vec<FaultPair>,
    /// What differs between their machines, by name: the first run's, the other's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, [String; 2]>,
}

/// A run without a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} has no counted fault")]
pub struct NoFault(pub RunId);

impl FaultPairs {
    /// The faults of samples in `report` beside those in `other`.
    ///
    /// # Errors
    /// If one of them has none.
    pub fn of(report: &Report, other: &Report) -> Result<Self, NoFault> {
        let (faults, others) = (faults(report)?, faults(other)?);
        let pairs = faults.into_iter().map(|(fault, trials)| pair(fault, trials, &others)).collect();
        let machine = |report: &Report, name: &str| {
            report.run.machine.get(name).cloned().unwrap_or_else(|| "not known".to_owned())
        };
        let names = report.run.machine.keys().chain(other.run.machine.keys());
        let differing = names.filter(|name| report.run.machine.get(*name) != other.run.machine.get(*name));
        Ok(Self {
            schema: LIKENESS_SCHEMA.to_owned(),
            runs: [report.run.id.clone(), other.run.id.clone()],
            pairs,
            machines: differing.map(|name| (name.clone(), [machine(report, name), machine(other, name)])).collect(),
        })
    }

    /// Whether each fault of the first run is known to be one of the other's or none of them.
    pub fn are_decided(&self) -> bool {
        self.pairs.iter().all(|pair| pair.likeness != Likeness::NotComparable)
    }

    /// The answer in a sentence.
    pub fn headline(&self) -> String {
        let [run, other] = &self.runs;
        let count = |likeness| self.pairs.iter().filter(|pair| pair.likeness == likeness).count();
        match (count(Likeness::Same), count(Likeness::NotComparable), self.pairs.len()) {
            (0, 0, _) => format!("not a duplicate: no fault of {run} is one of {other}"),
            (same, 0, all) if same == all => format!("a duplicate: every fault of {run} is one of {other}"),
            (0, unknown, all) => format!("undecided: {unknown} of {all} kinds of fault of {run} cannot be compared"),
            (same, _, all) => format!("{same} of {all} kinds of fault of {run} are faults of {other}"),
        }
    }

    /// As `--format json` prints them.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("pairs have string keys");
        json.push(b'\n');
        json
    }
}

/// Each kind of fault and how many trials had it, the most frequent first.
fn faults(report: &Report) -> Result<Vec<(Signature, u64)>, NoFault> {
    let sampled = report.cells.iter().flat_map(|cell| &cell.samples).flat_map(|sampled| &sampled.signatures);
    let mut faults: Vec<(Signature, u64)> = Vec::new();
    for SignatureCount { signature, count, .. } in sampled {
        match faults.iter_mut().find(|(known, _)| known == signature) {
            Some((_, trials)) => *trials += count,
            None => faults.push((signature.clone(), *count)),
        }
    }
    faults.sort_by_key(|(_, trials)| std::cmp::Reverse(*trials));
    if faults.is_empty() { Err(NoFault(report.run.id.clone())) } else { Ok(faults) }
}

/// The one of `others` that is most like `fault`: the same, else one that may be, else the one with least differences.
fn pair(fault: Signature, trials: u64, others: &[(Signature, u64)]) -> FaultPair {
    let compared = others.iter().map(|(other, trials)| (likeness(&fault, other), other, *trials));
    let distance = |likeness: Likeness| match likeness {
        Likeness::Same => 0,
        Likeness::NotComparable => 1,
        Likeness::Different => 2,
    };
    let ((likeness, because), other, other_trials) = compared
        .min_by_key(|((likeness, because), ..)| (distance(*likeness), because.len()))
        .expect("a run without a fault is refused");
    FaultPair { other: other.clone(), other_trials, fault, trials, likeness, because }
}

/// What two faults are to each other, and what differs, or why it cannot be told.
pub fn likeness(a: &Signature, b: &Signature) -> (Likeness, Vec<String>) {
    let (mut differs, mut unknown) = (Vec::new(), Vec::new());
    if a.verdict != b.verdict {
        differs.push(format!("class: {}, {}", a.verdict, b.verdict));
    }
    let mut compare = |what: &str, a: Option<&str>, b: Option<&str>| match (a, b) {
        (Some(a), Some(b)) if a != b => differs.push(format!("{what}: {a}, {b}")),
        (Some(_), None) | (None, Some(_)) => unknown.push(format!("only one of the runs tells the {what}")),
        (Some(_), Some(_)) | (None, None) => {}
    };
    compare("signal or code", a.status.as_deref(), b.status.as_deref());
    compare("stage", a.stage.as_ref().map(StageName::as_str), b.stage.as_ref().map(StageName::as_str));
    if a.verdict == b.verdict {
        match places(a, b) {
            Place::Same => {}
            Place::Differs(what) => differs.push(what),
            Place::Unknown(why) => unknown.push(why),
        }
    }
    match (differs.is_empty(), unknown.is_empty()) {
        (false, _) => (Likeness::Different, differs),
        (true, false) => (Likeness::NotComparable, unknown),
        (true, true) => (Likeness::Same, Vec::new()),
    }
}

enum Place {
    Same,
    Differs(String),
    Unknown(String),
}

/// How the places of two faults of one class are to each other.
fn places(a: &Signature, b: &Signature) -> Place {
    let is_crash = a.verdict == Verdict::Crash;
    match (a.place.as_deref(), b.place.as_deref()) {
        (Some(a), Some(b)) if is_crash => places_in_files(a, b),
        (Some(a), Some(b)) if a == b => Place::Same,
        (Some(a), Some(b)) => Place::Differs(format!("words: {a}, {b}")),
        (None, None) if !is_crash => Place::Same,
        _ => Place::Unknown(
            "nobody saw where one of them was: observer = \"core\", or limits = \"core=unlimited\"".to_owned(),
        ),
    }
}

/// A place is `MODULE@BUILD+OFFSET`, without `@BUILD` where the file has no build id; anything else is no place.
fn place_in_file(place: &str) -> Option<(&str, Option<&str>, &str)> {
    let (file, offset) = place.rsplit_once('+').filter(|(_, offset)| offset.starts_with("0x"))?;
    Some(match file.rsplit_once('@') {
        Some((module, build)) => (module, Some(build), offset),
        None => (file, None, offset),
    })
}

fn places_in_files(a: &str, b: &str) -> Place {
    let (Some((module_a, build_a, offset_a)), Some((module_b, build_b, offset_b))) =
        (place_in_file(a), place_in_file(b))
    else {
        return Place::Unknown(format!("{a} and {b} are not both places in files"));
    };
    if module_a != module_b {
        return Place::Differs(format!("module: {module_a}, {module_b}"));
    }
    match (build_a, build_b) {
        (Some(build_a), Some(build_b)) if build_a != build_b => Place::Unknown(format!(
            "{module_a} is of two builds, {build_a} and {build_b}, whose offsets mean nothing to each other"
        )),
        (Some(_), Some(_)) if offset_a == offset_b => Place::Same,
        (Some(_), Some(_)) => Place::Differs(format!("place in {module_a}: {offset_a}, {offset_b}")),
        (None, _) | (_, None) => {
            Place::Unknown(format!("{module_a} has no build id: nobody knows whether it is one file"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash(status: &str, place: Option<&str>, stage: Option<&str>) -> Signature {
        let text = |text: &str| text.to_owned();
        let stage = stage.map(|stage| stage.parse().unwrap());
        Signature { verdict: Verdict::Crash, status: Some(text(status)), place: place.map(text), stage }
    }

    #[track_caller]
    fn check(a: &Signature, b: &Signature, expected: Likeness, words: &str) {
        for (a, b) in [(a, b), (b, a)] {
            let (found, because) = likeness(a, b);
            assert_eq!(found, expected, "{a} {b}: {because:?}");
            assert!(because.join("; ").contains(words), "{because:?}");
        }
    }

    #[test]
    fn one_place_in_one_build_is_one_fault_and_everything_else_has_its_reason() {
        let seed = crash("SIGSEGV", Some("libnvinfer.so.10@1234abcd+0x1183"), Some("compiler-backend"));
        let other = |place: &str| Signature { place: Some(place.to_owned()), ..seed.clone() };
        check(&seed, &seed, Likeness::Same, "");
        check(&seed, &other("libnvinfer.so.10@1234abcd+0x2000"), Likeness::Different, "place in libnvinfer.so.10: 0x");
        check(&seed, &other("libcuda.so.1@1234abcd+0x1183"), Likeness::Different, "module: lib");
        check(&seed, &other("libnvinfer.so.10@ffff0000+0x1183"), Likeness::NotComparable, "is of two builds");
        check(&seed, &other("libnvinfer.so.10+0x1183"), Likeness::NotComparable, "has no build id");
        check(&seed, &other("memory of no file"), Likeness::NotComparable, "not both places in files");
        check(&seed, &Signature { place: None, ..seed.clone() }, Likeness::NotComparable, "nobody saw where");
        check(
            &seed,
            &crash("SIGABRT", seed.place.as_deref(), Some("compiler-backend")),
            Likeness::Different,
            "SIGABRT",
        );
        check(&seed, &crash("SIGSEGV", seed.place.as_deref(), Some("autotune")), Likeness::Different, "stage: ");
        check(&seed, &crash("SIGSEGV", seed.place.as_deref(), None), Likeness::NotComparable, "only one of the runs");
        // What differs for certain outweighs what is not known.
        check(&seed, &crash("SIGABRT", None, None), Likeness::Different, "SIGSEGV");
        // The clean error of another report: another class, another stage.
        let clean = Signature {
            verdict: Verdict::Error,
            status: Some("exit 1".to_owned()),
            place: Some("[TRT] Error Code N".to_owned()),
            stage: Some("policy".parse().unwrap()),
        };
        check(&seed, &clean, Likeness::Different, "class: ");
        check(&clean, &clean, Likeness::Same, "");
        let words = Signature { place: Some("another text".to_owned()), ..clean.clone() };
        check(&clean, &words, Likeness::Different, "words: ");
    }

    #[test]
    fn a_fault_stands_beside_the_one_that_is_most_like_it() {
        let seed = crash("SIGSEGV", Some("lib.so@12345678+0x10"), None);
        let near = crash("SIGSEGV", Some("lib.so@12345678+0x20"), None);
        let far = crash("SIGABRT", Some("app@12345678+0x10"), None);
        let of = |others: &[&Signature]| {
            let others: Vec<(Signature, u64)> = others.iter().map(|other| ((*other).clone(), 1)).collect();
            let pair = pair(seed.clone(), 3, &others);
            (pair.likeness, pair.other)
        };
        assert_eq!(of(&[&far, &near]), (Likeness::Different, near.clone()));
        assert_eq!(of(&[&far, &near, &seed]), (Likeness::Same, seed.clone()));
        let unseen = crash("SIGSEGV", None, None);
        assert_eq!(of(&[&near, &unseen]), (Likeness::NotComparable, unseen));
    }
}
