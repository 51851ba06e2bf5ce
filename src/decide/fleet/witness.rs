//! What a desk keeps of one board that it follows: when it was last heard, what was open, the last lines of its kernel
//! and of its console, who cut its power.
//!
//! A fold of entries, which the desk writes down as they come: one that is ended and begun again reads them back and
//! knows what the one before knew. A boot is over when another one is heard; what is known of its end is then an
//! observation, which is kept until the board has it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::decide::kernel_log::classify;
use crate::model::ids::{BootId, ContentDigest};
use crate::model::kernel_log::KernelFault;
use crate::model::observed::{CutStage, Cutter, OBSERVED_LINES_MAX, Observed, PowerCut, Reach, bounded_line};
use crate::model::units::WallTime;

/// How many of the last lines of each source are kept: what a kernel prints of a panic, and what a console says until
/// the next kernel starts.
pub const LINES_KEPT: usize = 200;

/// The most observations that wait for a board.
const PENDING_MAX: usize = 16;

/// One thing that was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When, by the desk's clock.
    pub wall: WallTime,
    /// What.
    #[serde(flatten)]
    pub saw: Saw,
}

/// What is seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "saw", rename_all = "snake_case")]
pub enum Saw {
    /// The board speaks.
    Heard {
        /// Its boot.
        boot: BootId,
        /// The open trial and its last stage.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        open: Option<String>,
        /// How long that may take, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit_ms: Option<u64>,
    },
    /// It does not any more.
    Lost {
        /// When it was last heard.
        heard: WallTime,
        /// Why, as far as ssh tells.
        why: String,
    },
    /// Its kernel said this.
    Kernel {
        /// The lines.
        lines: Vec<String>,
    },
    /// Nothing of its kernel comes.
    NoKernel {
        /// Why.
        why: String,
    },
    /// Its console printed this.
    Serial {
        /// The line.
        line: String,
    },
    /// The command that prints the console ended; it is started again.
    SerialEnded {
        /// How.
        how: String,
    },
    /// What it does about the network while it is lost.
    Reached {
        /// What.
        reach: Reach,
    },
    /// Its power was cut.
    Cut {
        /// Why, and how far that came.
        power: PowerCut,
    },
    /// The board has an observation.
    HandedOver {
        /// Which.
        id: ContentDigest,
    },
}

/// A boot that is watched.
#[derive(Debug, Clone, PartialEq)]
struct Watch {
    boot: BootId,
    heard: WallTime,
    open: Option<String>,
    limit_ms: Option<u64>,
    is_lost: bool,
    kernel: VecDeque<String>,
    reach: Option<Reach>,
    power: Option<PowerCut>,
}

/// What is known of one board and one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Witness {
    name: String,
    watch: Option<Watch>,
    /// The console up to the start of the next kernel, and what came after that.
    serial: VecDeque<String>,
    serial_next: Option<VecDeque<String>>,
    pending: Vec<Observed>,
}

impl Witness {
    /// A witness called `name`, who has seen nothing yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The boot that was heard last.
    pub fn boot(&self) -> Option<&BootId> {
        self.watch.as_ref().map(|watch| &watch.boot)
    }

    /// When it was last heard.
    pub fn heard(&self) -> Option<WallTime> {
        self.watch.as_ref().map(|watch| watch.heard)
    }

    /// What the board is to be told.
    pub fn pending(&self) -> &[Observed] {
        &self.pending
    }

    /// What was last known to be open.
    pub fn open(&self) -> Option<&str> {
        self.watch.as_ref()?.open.as_deref()
    }

    /// What it last did about the network.
    pub fn reach(&self) -> Option<Reach> {
        self.watch.as_ref()?.reach
    }

    /// Takes note of `entry`.
    pub fn apply(&mut self, entry: &Entry) {
        match &entry.saw {
            Saw::Heard { boot, open, limit_ms } => self.speaks(entry.wall, boot, open.clone(), *limit_ms),
            Saw::Serial { line } => self.console(line),
            Saw::HandedOver { id } => self.pending.retain(|seen| seen.id() != *id),
            Saw::NoKernel { .. } | Saw::SerialEnded { .. } => {}
            Saw::Lost { heard, .. } => self.on_watch(|watch| (watch.is_lost, watch.heard) = (true, *heard)),
            Saw::Kernel { lines } => self.on_watch(|watch| lines.iter().for_each(|line| keep(&mut watch.kernel, line))),
            Saw::Reached { reach } => self.on_watch(|watch| watch.reach = Some(*reach)),
            Saw::Cut { power } => self.on_watch(|watch| watch.power = Some(power.clone())),
        }
    }

    /// The board was heard at `wall`, which is not worth an entry.
    pub fn beat(&mut self, wall: WallTime) {
        self.on_watch(|watch| watch.heard = wall);
    }

    /// For how long the board has been silent beyond what its open trial may take and `margin_ms`, at `now`: it hangs.
    /// Nobody is said to hang without an open trial that has a timeout, and whose power was cut is waited for.
    pub fn hung_ms(&self, now: WallTime, margin_ms: u64) -> Option<u64> {
        let watch = self.watch.as_ref().filter(|watch| watch.open.is_some() && watch.power.is_none())?;
        let silent_ms = ms_between(watch.heard, now);
        let limit_ms = watch.limit_ms?.saturating_add(margin_ms);
        (watch.is_lost && silent_ms > limit_ms).then_some(silent_ms)
    }

    /// How long the board may be silent before it hangs, in milliseconds.
    pub fn hang_limit_ms(&self, margin_ms: u64) -> Option<u64> {
        Some(self.watch.as_ref()?.limit_ms?.saturating_add(margin_ms))
    }

    fn on_watch(&mut self, change: impl FnOnce(&mut Watch)) {
        if let Some(watch) = &mut self.watch {
            change(watch);
        }
    }

    fn speaks(&mut self, wall: WallTime, boot: &BootId, open: Option<String>, limit_ms: Option<u64>) {
        match &mut self.watch {
            Some(watch) if watch.boot == *boot => {
                (watch.heard, watch.open, watch.limit_ms) = (wall, open, limit_ms);
                // It was out of reach, and has not rebooted: what was seen meanwhile tells of no end.
                (watch.is_lost, watch.reach) = (false, None);
                return;
            }
            Some(_) => self.over(wall),
            None => {}
        }
        self.watch = Some(Watch {
            boot: boot.clone(),
            heard: wall,
            open,
            limit_ms,
            is_lost: false,
            kernel: VecDeque::new(),
            reach: None,
            power: None,
        });
    }

    /// Another boot is heard: what is known of the end of the one before is an observation.
    fn over(&mut self, now: WallTime) {
        let Some(watch) = self.watch.take() else { return };
        let serial = std::mem::replace(&mut self.serial, self.serial_next.take().unwrap_or_default());
        let cut_by = watch.power.as_ref().filter(|power| power.stage == CutStage::Done).map(|power| power.by);
        let what = match (cut_by, watch.open.is_some()) {
            (Some(Cutter::Hang), _) => "it hung",
            (_, true) => "it ended while a trial was open",
            (_, false) => "it ended",
        };
        let observed = Observed {
            boot: Some(watch.boot),
            heard: Some(watch.heard),
            open: watch.open,
            kernel: telling(&watch.kernel),
            serial: telling(&serial),
            unreachable_ms: Some(ms_between(watch.heard, now)),
            reach: watch.reach,
            power: watch.power,
            ..Observed::new(self.name.clone(), what)
        };
        self.pending.push(observed.bounded());
        if self.pending.len() > PENDING_MAX {
            self.pending.remove(0);
        }
    }

    fn console(&mut self, line: &str) {
        if begins_a_boot(line) && self.watch.is_some() && !self.serial.is_empty() {
            self.serial_next.get_or_insert_default();
        }
        keep(self.serial_next.as_mut().unwrap_or(&mut self.serial), line);
    }
}

fn ms_between(from: WallTime, to: WallTime) -> u64 {
    u64::try_from((to.0 - from.0).num_milliseconds()).unwrap_or(0)
}

fn keep(lines: &mut VecDeque<String>, line: &str) {
    if lines.len() == LINES_KEPT {
        lines.pop_front();
    }
    lines.push_back(bounded_line(line));
}

/// Whether a line of the console is of the next boot: the first stage of the boot loader of a Tegra, and the first words
/// of a kernel (arch/arm64/kernel/setup.c, init/main.c).
fn begins_a_boot(line: &str) -> bool {
    ["MB1 (version", "Booting Linux on physical CPU", "] Linux version ", "UEFI firmware (version"]
        .iter()
        .any(|words| line.contains(words))
}

/// The lines that tell most of an end: the last ones, or those from the last panic on if it lies further back.
fn telling(lines: &VecDeque<String>) -> Vec<String> {
    let log = classify(lines.iter().map(String::as_str));
    let mut panic =
        log.findings.iter().filter(|finding| finding.fault == KernelFault::Panic).map(|finding| finding.line);
    let last = lines.len().saturating_sub(OBSERVED_LINES_MAX);
    let from = panic.next_back().and_then(|line| usize::try_from(line).ok()).map_or(last, |line| last.min(line - 1));
    lines.iter().skip(from).take(OBSERVED_LINES_MAX).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn boot(n: u32) -> BootId {
        format!("{n:08x}-9e6f-4d8e-b4cd-0d9449a8b993").parse().unwrap()
    }

    fn at(seconds: i64) -> WallTime {
        let begun: WallTime = serde_json::from_str("\"2025-06-15T15:06:40.000Z\"").unwrap();
        WallTime(begun.0 + Duration::from_secs(u64::try_from(seconds).unwrap()))
    }

    fn heard(n: u32) -> Saw {
        Saw::Heard { boot: boot(n), open: Some("c at C.copy".into()), limit_ms: Some(600_000) }
    }

    fn witness(entries: impl IntoIterator<Item = (i64, Saw)>) -> Witness {
        let mut witness = Witness::new("desk");
        entries.into_iter().for_each(|(s, saw)| witness.apply(&Entry { wall: at(s), saw }));
        witness
    }

    fn lost(s: i64) -> (i64, Saw) {
        (s + 20, Saw::Lost { heard: at(s), why: "silent".into() })
    }

    fn serial(line: &str) -> Saw {
        Saw::Serial { line: line.into() }
    }

    fn cut(s: i64) -> (i64, Saw) {
        (s, Saw::Cut { power: PowerCut { by: Cutter::Hang, stage: CutStage::Done, wall: at(s) } })
    }

    #[test]
    fn the_end_of_a_boot_is_told_with_its_last_lines_and_not_with_those_of_the_next() {
        let entries = [
            (0, heard(1)),
            (1, Saw::Kernel { lines: vec!["nvgpu: 17000000.gpu: a fault".into()] }),
            (2, serial("Kernel panic - not syncing: Fatal exception")),
            (2, serial("---[ end Kernel panic - not syncing: Fatal exception ]---")),
            lost(2),
            (30, Saw::Reached { reach: Reach::NoPing }),
            (40, serial("[0000.059] I> MB1 (version: 1.4.0.2)")),
            (41, serial("[    0.000000] Booting Linux on physical CPU 0x0000000000")),
            (86, heard(2)),
        ];
        let seen = witness(entries);
        let [observed] = seen.pending() else { panic!("{seen:?}") };
        assert_eq!((observed.boot.as_ref(), observed.unreachable_ms), (Some(&boot(1)), Some(84_000)));
        assert_eq!((observed.open.as_deref(), observed.reach), (Some("c at C.copy"), Some(Reach::NoPing)));
        assert_eq!(observed.kernel, ["nvgpu: 17000000.gpu: a fault"]);
        assert_eq!(observed.serial.len(), 2, "{observed:?}");
        let words = observed.in_words();
        assert!(words.contains("unreachable for 84 s") && words.contains("end Kernel panic"), "{words}");
        // The next end is told with what came after.
        let mut seen = seen.clone();
        seen.apply(&Entry { wall: at(90), saw: Saw::HandedOver { id: observed_id(&seen) } });
        assert!(seen.pending().is_empty());
        seen.apply(&Entry { wall: at(100), saw: heard(3) });
        assert!(seen.pending()[0].serial[1].contains("Booting Linux"), "{seen:?}");
    }

    fn observed_id(witness: &Witness) -> ContentDigest {
        witness.pending()[0].id()
    }

    #[test]
    fn a_panic_further_back_is_told_rather_than_what_came_after_it() {
        let panic = "[  812.431207] Kernel panic - not syncing: hung_task: blocked tasks";
        let lines: VecDeque<String> = (0..50)
            .map(|n| format!("before {n}"))
            .chain([panic.into()])
            .chain((0..90).map(|n| format!("{n}")))
            .collect();
        let told = telling(&lines);
        assert_eq!((told.len(), told[0].as_str()), (OBSERVED_LINES_MAX, panic));
    }

    #[test]
    fn a_board_hangs_when_it_is_silent_for_longer_than_its_trial_may_take_and_once() {
        let silent = witness([(0, heard(1)), lost(5)]);
        assert_eq!(silent.hung_ms(at(5 + 660), 60_000), None);
        assert_eq!(silent.hung_ms(at(5 + 661), 60_000), Some(661_000));
        assert_eq!(witness([(0, heard(1)), lost(5), cut(700)]).hung_ms(at(3000), 60_000), None);
        assert_eq!(witness([(0, heard(1)), lost(5), (30, heard(1))]).hung_ms(at(3000), 60_000), None, "it is back");
        let idle = Saw::Heard { boot: boot(1), open: None, limit_ms: None };
        assert_eq!(witness([(0, idle), lost(5)]).hung_ms(at(3000), 0), None, "no trial is open");
        let endless = Saw::Heard { boot: boot(1), open: Some("c".into()), limit_ms: None };
        assert_eq!(witness([(0, endless), lost(5)]).hung_ms(at(3000), 0), None, "it may take for ever");
    }

    fn any_saw() -> impl Strategy<Value = Saw> {
        prop_oneof![
            (1u32..4).prop_map(heard),
            (0i64..100).prop_map(|s| lost(s).1),
            "[a-z ]{0,12}".prop_map(|line| Saw::Serial { line }),
            Just(serial("[    0.000000] Booting Linux on physical CPU 0x0")),
            "[a-z ]{0,12}".prop_map(|line| Saw::Kernel { lines: vec![line] }),
            Just(Saw::Reached { reach: Reach::AnswersPing }),
            (0i64..100).prop_map(|s| cut(s).1),
        ]
    }

    proptest! {
        /// Whatever comes in whatever order: an observation a boot that ended, in their order, about that boot; a power
        /// cycle belongs to the boot in which it was; and who reads the entries back knows the same.
        #[test]
        fn every_end_of_a_boot_is_told_once_whatever_comes(saws in prop::collection::vec(any_saw(), 0..60)) {
            let mut seen = Witness::new("desk");
            let (mut last, mut ended, mut cut, mut lines) = (None::<BootId>, Vec::new(), false, Vec::new());
            for (s, saw) in (0..).zip(saws) {
                let entry = Entry { wall: at(s), saw };
                match &entry.saw {
                    Saw::Heard { boot, .. } => {
                        if let Some(before) = last.replace(boot.clone()).filter(|before| before != boot) {
                            ended.push((before, std::mem::take(&mut cut)));
                        }
                    }
                    Saw::Cut { .. } => cut |= last.is_some(),
                    _ => {}
                }
                seen.apply(&entry);
                lines.push(serde_json::to_string(&entry).unwrap());
            }
            ended.drain(..ended.len().saturating_sub(PENDING_MAX));
            let told: Vec<_> =
                seen.pending().iter().map(|seen| (seen.boot.clone().unwrap(), seen.power.is_some())).collect();
            prop_assert_eq!(told, ended);
            let mut again = Witness::new("desk");
            lines.iter().for_each(|line| again.apply(&serde_json::from_str(line).unwrap()));
            prop_assert_eq!(again, seen);
        }
    }
}
