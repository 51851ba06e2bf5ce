//! Searches of one question on several boards as one answer.
//!
//! Each board answers for itself, after a gate of its own: its bad end must fault and its good end must not. An answer is
//! one of all boards only if every board has it, with the same fault; a board that does not decide leaves all undecided.

use serde::{Deserialize, Serialize};

use crate::decide::campaign::{FindingKind, Standing};
use crate::model::words::words;

words! {
    /// What the boards say together.
    Agreement {
        /// Every board has the same answer.
        Same = "same",
        /// Boards have different answers.
        Differs = "differs",
        /// Not every board has one.
        Undecided = "undecided",
    }
}

/// What the boards say together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joint {
    /// In a word.
    pub agreement: Agreement,
    /// In a sentence.
    pub says: String,
}

/// An answer, and the signature of its fault.
type Found = (String, Option<String>);

/// What the boards, each with where its search stands if that is known, say together.
pub fn agree(boards: &[(&str, Option<&Standing>)]) -> Joint {
    let answer = |standing: &Standing| match standing.finding {
        FindingKind::Found => standing.posterior.first().map(|(answer, _)| answer.clone()),
        FindingKind::AlreadyFaulty => Some("the good end faults too".to_owned()),
        FindingKind::NotMonotone => Some("not monotone".to_owned()),
        FindingKind::Open
        | FindingKind::NotReproduced
        | FindingKind::Drift
        | FindingKind::Untestable
        | FindingKind::Inconclusive => None,
    };
    let of = |(name, standing): &(&str, Option<&Standing>)| {
        let answer = standing.and_then(|standing| Some((answer(standing)?, standing.signature.clone())));
        (name.to_string(), answer)
    };
    let answers: Vec<(String, Option<Found>)> = boards.iter().map(of).collect();
    let without: Vec<&str> =
        answers.iter().filter(|(_, answer)| answer.is_none()).map(|(name, _)| name.as_str()).collect();
    let mut kinds: Vec<&Found> = answers.iter().filter_map(|(_, answer)| answer.as_ref()).collect();
    kinds.dedup();
    match (&kinds[..], without.is_empty()) {
        ([_, _, ..], _) => {
            let each = answers.iter().filter_map(|(name, answer)| {
                let (answer, signature) = answer.as_ref()?;
                let fault = signature.as_ref().map(|signature| format!(" ({signature})")).unwrap_or_default();
                Some(format!("{name}: {answer}{fault}"))
            });
            let each = each.collect::<Vec<_>>().join("; ");
            Joint { agreement: Agreement::Differs, says: format!("differs between devices: {each}") }
        }
        ([(answer, _)], true) => {
            let says = match answers.len() {
                1 => format!("on one device alone, after its gate: {answer}"),
                all => format!("the same on all {all} devices, each after its own gate: {answer}"),
            };
            Joint { agreement: Agreement::Same, says }
        }
        ([(answer, _)], false) => {
            let has = answers.len() - without.len();
            let says =
                format!("undecided: {answer} on {has} of {} devices, not on {}", answers.len(), without.join(", "));
            Joint { agreement: Agreement::Undecided, says }
        }
        ([], _) => Joint { agreement: Agreement::Undecided, says: format!("undecided on {}", without.join(", ")) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::campaign::QuestionKind;

    fn standing(finding: FindingKind, answer: &str, signature: &str) -> Standing {
        Standing {
            schema: String::new(),
            question: QuestionKind::Axes,
            finding,
            sentences: Vec::new(),
            posterior: vec![(answer.to_owned(), 0.99)],
            evidence: Vec::new(),
            runs: 20,
            runs_left: None,
            signature: Some(signature.to_owned()),
            other_faults: Vec::new(),
            excluded: 0,
            set_aside: Vec::new(),
        }
    }

    #[test]
    fn an_answer_is_one_of_all_only_if_every_board_passed_its_own_gate_with_the_same_fault() {
        let found = |answer: &str, signature: &str| standing(FindingKind::Found, answer, signature);
        let (one, same, other) = (found("batch", "reboot"), found("batch", "reboot"), found("quant", "reboot"));
        let (fault, gate) = (found("batch", "hang"), standing(FindingKind::NotReproduced, "batch", "reboot"));
        let of = |first: &Standing, second: Option<&Standing>| agree(&[("orin-1", Some(first)), ("orin-2", second)]);
        assert_eq!(of(&one, Some(&same)).says, "the same on all 2 devices, each after its own gate: batch");
        for (second, agreement) in [
            (Some(&other), Agreement::Differs),
            (Some(&fault), Agreement::Differs),
            (Some(&gate), Agreement::Undecided),
            (None, Agreement::Undecided),
        ] {
            assert_eq!(of(&one, second).agreement, agreement, "{second:?}");
        }
        assert_eq!(of(&one, Some(&gate)).says, "undecided: batch on 1 of 2 devices, not on orin-2");
    }
}
