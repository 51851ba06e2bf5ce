//! Turns any program that makes bounded choices into an exhaustive enumeration of them.

/// One sequence of choices, and the way to the next one.
///
/// The program asks [`Odometer::choose`] wherever it has a choice and is run again after [`Odometer::advance`]. A replayed
/// prefix must ask the same questions: otherwise the program under test is not deterministic, which is itself a failure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Odometer {
    /// (choice, number of alternatives), in the order in which they were asked for.
    digits: Vec<(u32, u32)>,
    position: usize,
    /// Digits before this one stay as they are.
    fixed: usize,
}

impl Odometer {
    /// Enumerates what follows the choices in `prefix`.
    pub(crate) fn after(prefix: &[(u32, u32)]) -> Self {
        Self { digits: prefix.to_vec(), position: 0, fixed: prefix.len() }
    }

    /// Replays exactly `choices`; whatever follows them is 0.
    pub(crate) fn replay(choices: &[u32]) -> Self {
        // The number of alternatives is not known before the program asks: `u32::MAX` stands for "any".
        Self { digits: choices.iter().map(|&c| (c, u32::MAX)).collect(), position: 0, fixed: choices.len() }
    }

    /// One of `0..alternatives`.
    pub(crate) fn choose(&mut self, alternatives: u32) -> u32 {
        if self.position == self.digits.len() {
            self.digits.push((0, alternatives));
        }
        let (choice, asked) = self.digits[self.position];
        assert!(asked == u32::MAX || asked == alternatives, "a replayed prefix asked another question");
        self.position += 1;
        choice
    }

    /// Moves on to the next sequence; false when there is none.
    pub(crate) fn advance(&mut self) -> bool {
        self.digits.truncate(self.position.max(self.fixed));
        self.position = 0;
        while self.digits.len() > self.fixed {
            let last = self.digits.len() - 1;
            let (choice, alternatives) = self.digits[last];
            if choice + 1 < alternatives {
                self.digits[last].0 += 1;
                return true;
            }
            self.digits.pop();
        }
        false
    }

    /// The choices made so far.
    pub(crate) fn digits(&self) -> &[(u32, u32)] {
        &self.digits[..self.position]
    }

    /// The choices as one line that replays them.
    pub(crate) fn line(&self) -> String {
        let end = self.digits().iter().rposition(|&(choice, _)| choice != 0).map_or(0, |i| i + 1);
        self.digits()[..end].iter().map(|(choice, _)| choice.to_string()).collect::<Vec<_>>().join(",")
    }
}

#[test]
fn every_sequence_comes_once() {
    let mut odometer = Odometer::default();
    let mut seen = Vec::new();
    loop {
        let a = odometer.choose(2);
        let b = if a == 1 { odometer.choose(3) } else { 9 };
        seen.push((a, b));
        if !odometer.advance() {
            break;
        }
    }
    assert_eq!(seen, [(0, 9), (1, 0), (1, 1), (1, 2)]);
}
