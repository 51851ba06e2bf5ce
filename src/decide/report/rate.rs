//! A rate and the words it may be written in: never without its bound.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::decide::stats::{Confidence, Counts, Interval, Method, upper_bound};

/// Faults in counted trials, with what that says about the rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Trials with a fault.
    pub faults: u64,
    /// Counted trials.
    pub counted: u64,
    /// How the interval is made.
    pub method: Method,
    /// How often such intervals cover the rate.
    pub confidence: f64,
    /// The lower end of the two-sided interval, 0 to 1.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Without a fault: what the rate is at most, with the same confidence. One-sided where the method has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
}

impl Rate {
    /// What `counts` say about the rate, by `method`, with 95 % confidence.
    pub fn of(counts: Counts, method: Method) -> Self {
        let confidence = Confidence::P95;
        let Interval { low, high } = method.interval(counts, confidence);
        let bound = match method {
            Method::ClopperPearson => upper_bound(counts, confidence),
            Method::ConfidenceSequence | Method::Wilson | Method::Jeffreys => high,
        };
        Self {
            faults: counts.faults,
            counted: counts.counted(),
            method,
            confidence: confidence.level(),
            low,
            high,
            at_most: (counts.faults == 0 && counts.clean > 0).then_some(bound),
        }
    }

    /// The observed rate, 0 to 1; `None` without a counted trial.
    pub fn observed(&self) -> Option<f64> {
        (self.counted > 0).then(|| self.faults as f64 / self.counted as f64)
    }

    /// `7/9`.
    pub fn fraction(&self) -> String {
        format!("{}/{}", self.faults, self.counted)
    }

    /// The bound for a column whose heading names the confidence: `40.0–97.2 %`, `at most 63.2 %`, `unknown`.
    pub fn bound(&self) -> String {
        match (self.counted, self.at_most) {
            (0, _) => "unknown".to_owned(),
            (_, Some(most)) => format!("at most {} %", percent(most)),
            (_, None) => format!("{}–{} %", percent(self.low), percent(self.high)),
        }
    }
}

impl fmt::Display for Rate {
    /// `3/40 (7.5 %, 95 % CI 1.6–20.4 %)`, or `0/3 (rate at most 63.2 %, 95 % one-sided)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = percent(self.confidence).trim_end_matches(".0").to_owned();
        let qualifier = match self.method {
            Method::ClopperPearson => "",
            Method::ConfidenceSequence => " at every look",
            Method::Wilson => " (Wilson)",
            Method::Jeffreys => " (Jeffreys)",
        };
        let Some(observed) = self.observed() else { return f.pad("0/0 (nothing is known of the rate)") };
        let text = match (self.at_most, self.method) {
            (Some(most), Method::ClopperPearson) => {
                format!("{} (rate at most {} %, {level} % one-sided)", self.fraction(), percent(most))
            }
            (Some(most), Method::ConfidenceSequence | Method::Wilson | Method::Jeffreys) => {
                format!("{} (rate at most {} %, {level} %{qualifier})", self.fraction(), percent(most))
            }
            (None, _) => format!(
                "{} ({} %, {level} % CI{qualifier} {}–{} %)",
                self.fraction(),
                percent(observed),
                percent(self.low),
                percent(self.high)
            ),
        };
        f.pad(&text)
    }
}

/// A share (0 to 1) in per cent, without the sign: one decimal, more where one would round to 0 or to 100.
pub fn percent(share: f64) -> String {
    if share <= 0.0 {
        return "0".to_owned();
    }
    if share >= 1.0 {
        return "100".to_owned();
    }
    let write = |decimals: usize| format!("{:.decimals$}", share * 100.0);
    let says_all_or_nothing = |text: &str| matches!(text.parse(), Ok(0.0 | 100.0));
    (1..=8).map(write).find(|text| !says_all_or_nothing(text)).unwrap_or_else(|| write(1))
}

/// Rates by their counts: most cells of a large run have the same few, and an interval takes its time.
#[derive(Debug)]
pub(super) struct Rates {
    method: Method,
    known: RefCell<HashMap<Counts, Rate>>,
}

impl Rates {
    /// No rate yet.
    pub(super) fn new(method: Method) -> Self {
        Self { method, known: RefCell::default() }
    }

    /// The rate of `counts`.
    pub(super) fn of(&self, counts: Counts) -> Rate {
        *self.known.borrow_mut().entry(counts).or_insert_with(|| Rate::of(counts, self.method))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rate_is_written_without_its_bound() {
        let write = |faults, counted, method| Rate::of(Counts::of(faults, counted).unwrap(), method).to_string();
        let check = |faults, counted, want: &str| assert_eq!(write(faults, counted, Method::ClopperPearson), want);
        check(3, 40, "3/40 (7.5 %, 95 % CI 1.6–20.4 %)");
        check(7, 9, "7/9 (77.8 %, 95 % CI 40.0–97.2 %)");
        check(1, 1, "1/1 (100 %, 95 % CI 2.5–100 %)");
        check(0, 3, "0/3 (rate at most 63.2 %, 95 % one-sided)");
        check(0, 29, "0/29 (rate at most 9.8 %, 95 % one-sided)");
        check(0, 0, "0/0 (nothing is known of the rate)");
        assert_eq!(write(0, 3, Method::ConfidenceSequence), "0/3 (rate at most 75.0 %, 95 % at every look)");
        assert_eq!(write(7, 9, Method::ConfidenceSequence), "7/9 (77.8 %, 95 % CI at every look 30.1–98.9 %)");
    }

    #[test]
    fn only_all_is_100_and_only_nothing_is_0() {
        for (share, want) in [
            (0.0, "0"),
            (1.0, "100"),
            (0.5, "50.0"),
            (0.000_3, "0.03"),
            (0.999_7, "99.97"),
            (3e-6, "0.0003"),
            (0.999_999_7, "99.99997"),
        ] {
            assert_eq!(percent(share), want);
        }
    }
}
