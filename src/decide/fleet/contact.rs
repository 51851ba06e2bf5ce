//! The contact of a desk with one board that it follows: up, lost, up again in the same boot or in another.
//!
//! A reboot is proven by another boot id and by nothing else: a board that answers again may be the old boot, which is
//! still going down, and a connection may be lost without any reboot.

use crate::decide::fleet::Trouble;
use crate::model::frame::{FollowEnd, Frame};
use crate::model::ids::BootId;

/// How long a board may say nothing before the connection counts as lost, in milliseconds. It says something every four
/// seconds, whatever it does.
pub const SILENCE_MS: u64 = 20_000;

/// How long a call may take to the first frame, in milliseconds: a machine that takes connections may have stopped
/// otherwise.
const CALL_MS: u64 = 30_000;

/// Pauses between calls, in milliseconds: short while the board may just be booting.
const PAUSE_MS: u64 = 2_000;
const PAUSE_LATER_MS: u64 = 10_000;
const SOON_MS: u64 = 120_000;

/// How far the clocks of desk and board may be apart before it is said, in seconds.
const CLOCKS_APART_S: u64 = 24 * 3600;

/// Where the contact stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// It is called.
    Calling {
        /// Since when it is not reached, in milliseconds of the desk's clock.
        since_ms: u64,
        /// When the last call began.
        called_ms: u64,
    },
    /// It speaks.
    Up {
        /// When it was last heard.
        heard_ms: u64,
    },
    /// Nothing more is followed: the run ended or rests.
    Over(FollowEnd),
    /// The board is left alone; the others go on.
    SetAside,
}

/// What the desk perceives.
#[derive(Debug, Clone, PartialEq)]
pub enum Sign {
    /// A frame came; the desk's own wall clock in seconds since 1970 beside it.
    Frame(Box<Frame>, i64),
    /// The connection ended.
    Ended(Trouble),
    /// Time passed.
    Tick,
}

/// What is to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// It is reached for the first time.
    Reached {
        /// The boot that answers.
        boot: BootId,
    },
    /// Nothing is heard any more.
    Lost {
        /// Why.
        why: Trouble,
        /// What was last known to be open there.
        open: Option<String>,
    },
    /// It answers again, in the same boot: no reboot.
    Back {
        /// How long it was not reached.
        unreachable_ms: u64,
    },
    /// It answers again, in another boot.
    Rebooted {
        /// The boot before.
        from: BootId,
        /// The boot that answers.
        to: BootId,
        /// From the last word of the one to the first of the other.
        unreachable_ms: u64,
    },
    /// Words of the board.
    Said(String),
    /// Its clock is far off.
    Clock {
        /// The board's clock less the desk's, in seconds.
        ahead_s: i64,
    },
    /// The journal is shorter than it was: another run under the same name.
    AnotherRun,
    /// It is set aside.
    SetAside(Trouble),
}

/// What the desk does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Listen.
    Listen,
    /// Close the connection, if it is open, and call again after a pause of so many milliseconds.
    Call {
        /// The pause.
        pause_ms: u64,
    },
    /// Nothing more.
    End,
}

/// The contact with one board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    link: Link,
    /// How long it may be unreachable, in milliseconds.
    patience_ms: u64,
    boot: Option<BootId>,
    /// When it was last heard.
    heard_ms: Option<u64>,
    seq: u64,
    open: Option<String>,
    is_clock_told: bool,
}

impl Contact {
    /// A board that is called for the first time at `now_ms`.
    pub fn new(now_ms: u64, patience_ms: u64) -> Self {
        Self {
            link: Link::Calling { since_ms: now_ms, called_ms: now_ms },
            patience_ms,
            boot: None,
            heard_ms: None,
            seq: 0,
            open: None,
            is_clock_told: false,
        }
    }

    /// Where it stands.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Whether the board speaks.
    pub fn is_up(&self) -> bool {
        matches!(self.link, Link::Up { .. })
    }

    /// The last record of the journal that the board told of.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The boot that spoke last.
    pub fn boot(&self) -> Option<&BootId> {
        self.boot.as_ref()
    }

    /// It may be unreachable for `patience_ms` in any case, from now on.
    pub fn have_patience(&mut self, patience_ms: u64) {
        self.patience_ms = self.patience_ms.max(patience_ms);
    }

    /// Goes on with what was perceived at `now_ms`; says what is to be told, and done.
    pub fn next(&mut self, sign: Sign, now_ms: u64) -> (Vec<Note>, Turn) {
        match (&self.link, sign) {
            (Link::Over(_) | Link::SetAside, _) => (Vec::new(), Turn::End),
            (Link::Calling { .. } | Link::Up { .. }, Sign::Frame(frame, desk_s)) => self.heard(*frame, desk_s, now_ms),
            (Link::Calling { .. } | Link::Up { .. }, Sign::Ended(trouble)) => self.ended(trouble, now_ms),
            (Link::Up { heard_ms }, Sign::Tick) if now_ms.saturating_sub(*heard_ms) > SILENCE_MS => {
                self.ended(Trouble::Silent, now_ms)
            }
            (Link::Calling { called_ms, .. }, Sign::Tick) if now_ms.saturating_sub(*called_ms) > CALL_MS => {
                self.ended(Trouble::Silent, now_ms)
            }
            (Link::Up { .. } | Link::Calling { .. }, Sign::Tick) => (Vec::new(), Turn::Listen),
        }
    }

    fn heard(&mut self, frame: Frame, desk_s: i64, now_ms: u64) -> (Vec<Note>, Turn) {
        let mut notes = Vec::new();
        if matches!(self.link, Link::Calling { .. }) || self.boot.as_ref() != Some(&frame.boot) {
            let unreachable_ms = self.heard_ms.map_or(0, |heard_ms| now_ms.saturating_sub(heard_ms));
            notes.push(match self.boot.take() {
                None => Note::Reached { boot: frame.boot.clone() },
                Some(from) if from != frame.boot => Note::Rebooted { from, to: frame.boot.clone(), unreachable_ms },
                Some(_) => Note::Back { unreachable_ms },
            });
        }
        let ahead_s = frame.wall.unix_seconds() - desk_s;
        if ahead_s.unsigned_abs() > CLOCKS_APART_S && !self.is_clock_told {
            self.is_clock_told = true;
            notes.push(Note::Clock { ahead_s });
        }
        // The first frame of a connection is a beat that comes before the journal was read.
        if frame.say.is_some() || frame.end.is_some() {
            if frame.end.is_some() && frame.seq < self.seq {
                notes.push(Note::AnotherRun);
            }
            self.seq = self.seq.max(frame.seq);
        }
        notes.extend(frame.say.map(Note::Said));
        (self.boot, self.open, self.heard_ms) = (Some(frame.boot), frame.open, Some(now_ms));
        match frame.end {
            Some(end) => {
                self.link = Link::Over(end);
                (notes, Turn::End)
            }
            None => {
                self.link = Link::Up { heard_ms: now_ms };
                (notes, Turn::Listen)
            }
        }
    }

    fn ended(&mut self, why: Trouble, now_ms: u64) -> (Vec<Note>, Turn) {
        let mut notes = Vec::new();
        let since_ms = match self.link {
            Link::Calling { since_ms, .. } => since_ms,
            Link::Up { .. } | Link::Over(_) | Link::SetAside => {
                notes.push(Note::Lost { why: why.clone(), open: self.open.clone() });
                now_ms
            }
        };
        let waited_ms = now_ms.saturating_sub(since_ms);
        if !why.is_passing() || waited_ms > self.patience_ms {
            self.link = Link::SetAside;
            notes.push(Note::SetAside(why));
            return (notes, Turn::End);
        }
        let pause_ms = if waited_ms < SOON_MS { PAUSE_MS } else { PAUSE_LATER_MS };
        self.link = Link::Calling { since_ms, called_ms: now_ms + pause_ms };
        (notes, Turn::Call { pause_ms })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::frame::FRAME_SCHEMA;

    const NOW_S: i64 = 1_750_000_000;

    fn boot(n: u32) -> BootId {
        format!("{n:08x}-9e6f-4d8e-b4cd-0d9449a8b993").parse().unwrap()
    }

    fn frame(n: u32, seq: u64, say: Option<&str>) -> Sign {
        Sign::Frame(
            Box::new(Frame {
                schema: FRAME_SCHEMA.into(),
                run: "a-001".parse().unwrap(),
                boot: boot(n),
                wall: serde_json::from_str("\"2025-06-15T15:06:40.000Z\"").unwrap(),
                seq,
                say: say.map(str::to_owned),
                open: Some("c at A.copy".into()),
                limit_ms: None,
                kernel: Vec::new(),
                kernel_trouble: None,
                end: None,
            }),
            NOW_S,
        )
    }

    fn gone() -> Sign {
        Sign::Ended(Trouble::Unreachable("Connection refused".into()))
    }

    #[test]
    fn another_boot_id_is_a_reboot_and_the_old_boot_that_answers_again_is_none() {
        let mut contact = Contact::new(0, 900_000);
        assert_eq!(contact.next(frame(1, 0, None), 1000).0, [Note::Reached { boot: boot(1) }]);
        let (notes, turn) = contact.next(gone(), 2000);
        assert!(matches!(&notes[..], [Note::Lost { open: Some(open), .. }] if open == "c at A.copy"), "{notes:?}");
        assert_eq!(turn, Turn::Call { pause_ms: PAUSE_MS });
        // The old sshd answers once more, a second after.
        assert_eq!(contact.next(frame(1, 0, None), 3000).0, [Note::Back { unreachable_ms: 2000 }]);
        contact.next(gone(), 4000);
        contact.next(gone(), 6000);
        let to = boot(2);
        let rebooted = Note::Rebooted { from: boot(1), to, unreachable_ms: 60_000 };
        assert_eq!(contact.next(frame(2, 0, None), 63_000).0, [rebooted]);
    }

    #[test]
    fn silence_is_noticed_in_less_than_thirty_seconds() {
        let mut contact = Contact::new(0, 900_000);
        contact.next(frame(1, 0, None), 0);
        let lost = (0..60).map(|half| half * 500).find(|now| !contact.next(Sign::Tick, *now).0.is_empty());
        assert!(lost.is_some_and(|ms| ms < 30_000), "{lost:?}");
        assert!(matches!(contact.link(), Link::Calling { .. }));
        // And a machine that takes the connection and says nothing is called again.
        let again =
            (0..200).map(|half| 30_000 + half * 500).find(|now| contact.next(Sign::Tick, *now).1 != Turn::Listen);
        assert!(again.is_some_and(|ms| ms < 60_000), "{again:?}");
    }

    #[test]
    fn a_board_is_set_aside_at_once_for_a_key_and_after_its_patience_for_silence() {
        let mut contact = Contact::new(0, 900_000);
        let (notes, turn) = contact.next(Sign::Ended(Trouble::HostKeyChanged), 10);
        assert_eq!((&notes[..], turn), (&[Note::SetAside(Trouble::HostKeyChanged)][..], Turn::End));
        let mut contact = Contact::new(0, 900_000);
        let calls = (0..).map(|n| n * 10_000).take_while(|now| contact.next(gone(), *now).1 != Turn::End).count();
        assert_eq!(calls, 91, "fifteen minutes");
    }

    #[test]
    fn a_clock_that_is_years_off_is_said_once_and_changes_nothing() {
        let mut contact = Contact::new(0, 900_000);
        let Sign::Frame(early, _) = frame(1, 0, None) else { unreachable!() };
        let later = NOW_S + 5 * 365 * 24 * 3600;
        let (notes, turn) = contact.next(Sign::Frame(early.clone(), later), 0);
        assert!(matches!(&notes[..], [Note::Reached { .. }, Note::Clock { ahead_s }] if *ahead_s < 0), "{notes:?}");
        assert_eq!(turn, Turn::Listen);
        assert!(contact.next(Sign::Frame(early, later), 0).0.is_empty());
    }

    fn any_sign() -> impl Strategy<Value = Sign> {
        prop_oneof![
            (1u32..4, 0u64..9).prop_map(|(n, seq)| frame(n, seq, Some("x"))),
            Just(gone()),
            Just(Sign::Ended(Trouble::Silent)),
            Just(Sign::Tick),
        ]
    }

    proptest! {
        /// Whatever comes in whatever order: reboots are told exactly where the boot of what is heard changes.
        #[test]
        fn reboots_are_told_where_boot_ids_change_and_nowhere_else(
            signs in prop::collection::vec((any_sign(), 0u64..40_000), 0..60),
        ) {
            let mut contact = Contact::new(0, u64::MAX);
            let (mut now, mut last) = (0, None);
            for (sign, pause) in signs {
                now += pause;
                let heard = match &sign { Sign::Frame(frame, _) => Some(frame.boot.clone()), _ => None };
                let (notes, _) = contact.next(sign, now);
                let told = notes.iter().any(|note| matches!(note, Note::Rebooted { .. }));
                let changed = heard.is_some() && last.is_some() && heard != last;
                prop_assert_eq!(told, changed);
                last = heard.or(last);
            }
        }
    }
}
