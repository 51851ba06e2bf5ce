//! From an outcome to a verdict: what a trial was, when the machine stayed up.
//!
//! A labelled table; exactly one row matches every combination of facts, and a test tries them all.
//! The operating system's facts outrank the child's words.

pub mod facts;

pub mod table;

mod words;

pub use facts::{Ended, Ending, Fitness, GpuSign, Oom, OutcomeFacts, Promise, Word, facts_of, signal_name};
pub use table::{OUTCOME_RULES, OutcomeRule, outcome_rule};
pub use words::COMPANION_FAILURE;

use crate::model::outcome::Outcome;
use crate::model::verdict::{Counted, Judgement};

/// The verdict on `outcome`, and the rule that gave it.
pub fn classify(outcome: &Outcome) -> (Judgement, &'static OutcomeRule) {
    let facts = facts_of(outcome);
    let rule = outcome_rule(&facts);
    let mut judgement = Judgement::of(rule.verdict);
    judgement.detail = words::detail_of(outcome, &facts, rule.verdict);
    judgement.stage = outcome.stage.clone();
    if rule.verdict.counted() == Counted::Fault {
        judgement.signature = Some(words::signature_of(outcome, &facts, rule.verdict));
    }
    judgement.missing = words::missing(outcome, rule.verdict);
    (judgement, rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::outcome::{Exit, LastReply};
    use crate::model::verdict::Verdict;

    #[test]
    fn the_operating_system_outranks_the_words() {
        let lied = Outcome { last_reply: Some(LastReply::Done), ..Outcome::of(Exit::Code(3)) };
        assert_eq!(classify(&lied).0.verdict, Verdict::Error);
        let crashed = Outcome {
            last_reply: Some(LastReply::Running),
            protocol_error: Some("half a line".into()),
            ..Outcome::of(Exit::Signal { number: 11, core: false })
        };
        assert_eq!(classify(&crashed).0.verdict, Verdict::Crash);
        let silent = Outcome { last_reply: Some(LastReply::Silence), ..Outcome::of(Exit::Code(0)) };
        assert_eq!(classify(&silent).0.verdict, Verdict::Void);
    }
}
