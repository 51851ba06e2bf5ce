//! What a verdict looks like: a shape, a tone and a word, so that none of them is needed to tell it from another.
//!
//! The shapes are characters without a colourful form in any font. The tones are blue, orange and grey, which every kind
//! of colour blindness tells apart.

use crate::decide::report::Rate;
use crate::model::verdict::{Counted, Verdict};

/// The shape of a verdict.
pub(super) fn shape(verdict: Verdict) -> char {
    match verdict {
        Verdict::Pass => '●',
        Verdict::WrongResult => '≠',
        Verdict::CudaError => '✱',
        Verdict::CudaOom => '◆',
        Verdict::OomKill => '◈',
        Verdict::Crash => '✕',
        Verdict::Hang => '■',
        Verdict::Unkillable => '▣',
        Verdict::Error => '▲',
        Verdict::ArtifactMissing => '◇',
        Verdict::Reboot => '▼',
        Verdict::Killed | Verdict::Planned | Verdict::Operator | Verdict::Void => '○',
    }
}

/// The shape of what was not tested.
pub(super) const UNTESTED: char = '–';

/// The class of a verdict in the style sheet.
pub(super) fn tone(counted: Counted) -> &'static str {
    match counted {
        Counted::Clean => "p",
        Counted::Fault => "f",
        Counted::Excluded => "x",
    }
}

/// The class of a rate: how often it faults, in thirds; of a clean one how much its bound says.
pub(super) fn shade(rate: &Rate) -> &'static str {
    match (rate.observed(), rate.at_most) {
        (None, _) => "n",
        (Some(_), Some(most)) if most > 0.5 => "p1",
        (Some(_), Some(most)) if most > 0.2 => "p2",
        (Some(_), Some(_)) => "p3",
        (Some(observed), None) if observed < 1.0 / 3.0 => "f1",
        (Some(observed), None) if observed < 2.0 / 3.0 => "f2",
        (Some(_), None) => "f3",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::decide::stats::{Counts, Method};

    #[test]
    fn each_counted_verdict_has_a_shape_of_its_own() {
        let counted = Verdict::ALL.into_iter().filter(|verdict| verdict.counted() != Counted::Excluded);
        let shapes: Vec<char> = counted.map(shape).collect();
        assert_eq!(shapes.iter().collect::<BTreeSet<_>>().len(), shapes.len());
        assert!(!shapes.contains(&shape(Verdict::Void)));
    }

    #[test]
    fn three_passes_look_weaker_than_thirty() {
        let shade = |faults, counted| shade(&Rate::of(Counts::of(faults, counted).unwrap(), Method::ClopperPearson));
        assert_eq!(
            [(0, 0), (0, 3), (0, 10), (0, 30), (1, 9), (5, 9), (7, 9)].map(|(f, n)| shade(f, n)),
            ["n", "p1", "p2", "p3", "f1", "f2", "f3"]
        );
    }
}
