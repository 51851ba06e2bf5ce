//! What a kernel log says: one pass over its lines, one table of rules, the first fault decides.
//!
//! Pure: lines come in, a [`KernelLog`] comes out. Lines may carry any prefix that `dmesg`, the journal, syslog, pstore
//! or a console puts before them. A warning decides only where nothing worse is found, and the death of a process is
//! never the log's class.

pub mod line;

pub mod rules;

mod detail;

mod oom;

mod table;

#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use regex::Regex;

use crate::model::ids::TrialId;
use crate::model::kernel_log::{
    FINDING_BYTES_MAX, KernelFault, KernelFinding, KernelLog, LogClass, LogWindow, OomScope,
};
use line::Message;
use rules::KernelRule;
use table::{Matched, TABLE};

/// The most findings of one kind that are kept, so that a flood of one does not hide the others.
pub const FINDINGS_PER_FAULT_MAX: usize = 32;

/// How many lines after an arm64 exception its registers may come.
const REGISTER_LINES_MAX: u64 = 12;

/// What begins every marker of ours.
const MARKER: &str = "jetfault trial=";

/// `pc : 0000007fbd4f2d2c` and, before 4.15, `pc : [<0000007f9867eb10>]` (`__show_regs` of arm64).
static PROGRAM_COUNTER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^pc : (?:\[<)?(?:0x)?([0-9a-f]{6,16})(?:>\])?").expect("the pattern compiles"));

/// The line that is written to `/dev/kmsg` before a trial starts.
pub fn begin_marker(trial: &TrialId) -> String {
    format!("{MARKER}{trial} begin")
}

/// The line that is written to `/dev/kmsg` after a trial ended.
pub fn end_marker(trial: &TrialId) -> String {
    format!("{MARKER}{trial} end")
}

/// What all of `lines` say.
pub fn classify<'a>(lines: impl IntoIterator<Item = &'a str>) -> KernelLog {
    let mut classifier = Classifier::default();
    lines.into_iter().for_each(|line| classifier.feed(line));
    classifier.finish()
}

/// What the lines of one trial say: those after its marker, up to its end or the marker of another trial.
///
/// Without the marker all lines are judged and [`LogWindow::Unmarked`] says that none can be tied to the trial.
pub fn classify_trial<'a>(lines: impl IntoIterator<Item = &'a str>, trial: &TrialId) -> KernelLog {
    let mut classifier = Classifier::of_trial(trial);
    lines.into_iter().for_each(|line| classifier.feed(line));
    classifier.finish()
}

/// Where the lines of a trial are.
#[derive(Debug, Default, PartialEq, Eq)]
enum Window {
    /// No marker is looked for.
    #[default]
    Whole,
    /// The marker has not come yet.
    Before(String),
    /// It has: these lines count.
    Open(String),
    /// The trial is over.
    Closed(String),
}

/// An exception of a process whose program counter is still to come.
#[derive(Debug)]
struct Registers {
    finding: usize,
    base: u64,
    until_line: u64,
}

/// Judges a log line by line.
#[derive(Debug, Default)]
pub struct Classifier {
    window: Window,
    lines: u64,
    findings: Vec<KernelFinding>,
    dropped: u64,
    panicked: bool,
    registers: Option<Registers>,
}

impl Classifier {
    /// One that counts only the lines of `trial`, if they are marked.
    pub fn of_trial(trial: &TrialId) -> Self {
        Self { window: Window::Before(begin_marker(trial)), ..Self::default() }
    }

    /// Takes the next line, with whatever stands before its message.
    pub fn feed(&mut self, line: &str) {
        self.lines += 1;
        if TABLE.may_match(line) || self.registers.is_some() || line.contains(MARKER) {
            self.judge(&line::message(line));
        }
    }

    /// Takes the next message, whose speaker and time are already known.
    pub fn feed_message(&mut self, message: Message<'_>) {
        self.lines += 1;
        self.judge(&message);
    }

    /// What the lines said.
    pub fn finish(self) -> KernelLog {
        let window = match self.window {
            Window::Whole => LogWindow::Whole,
            Window::Before(_) => LogWindow::Unmarked,
            Window::Open(_) | Window::Closed(_) => LogWindow::Marked,
        };
        let mut log = KernelLog {
            window,
            class: LogClass::Clean,
            panicked: self.panicked,
            findings: self.findings,
            dropped: self.dropped,
            lines: self.lines,
        };
        log.class = log.deciding().map_or(LogClass::Clean, |finding| finding.class);
        log
    }

    fn judge(&mut self, message: &Message<'_>) {
        if message.text.starts_with(MARKER) {
            return self.meet_marker(message.text);
        }
        if matches!(self.window, Window::Closed(_)) {
            return;
        }
        self.complete_registers(message.text);
        if let Some(matched) = TABLE.matched(message) {
            self.note(message, &matched);
        }
    }

    /// A marker opens the window of its trial and closes that of any other.
    fn meet_marker(&mut self, marker: &str) {
        self.window = match std::mem::take(&mut self.window) {
            Window::Whole => Window::Whole,
            Window::Before(own) | Window::Open(own) | Window::Closed(own) if own == marker => {
                (self.findings, self.dropped, self.panicked, self.registers) = (Vec::new(), 0, false, None);
                Window::Open(own)
            }
            Window::Before(own) => Window::Before(own),
            Window::Open(own) | Window::Closed(own) => Window::Closed(own),
        };
    }

    fn note(&mut self, message: &Message<'_>, matched: &Matched<'_>) {
        let rule = matched.rule;
        self.panicked |= rule.fault == KernelFault::Panic;
        let finding = KernelFinding {
            fault: rule.fault,
            class: rule.class,
            weight: rule.weight,
            rule: rule.name.to_owned(),
            text: matched.text[..matched.text.floor_char_boundary(FINDING_BYTES_MAX)].to_owned(),
            line: self.lines,
            uptime_us: message.uptime_us,
            detail: detail::detail(&matched.found),
            times: 1,
        };
        if rule.fault == KernelFault::OomKill {
            self.note_kill(finding);
        } else if let Some(same) = self.same_as(&finding) {
            same.times += 1;
        } else {
            self.expect_registers(matched, &finding);
            self.keep(finding);
        }
    }

    fn keep(&mut self, finding: KernelFinding) {
        let kept = self.findings.iter().filter(|other| other.fault == finding.fault).count();
        if kept < FINDINGS_PER_FAULT_MAX {
            self.findings.push(finding);
        } else {
            self.dropped += 1;
        }
    }

    /// The last finding of this kind, if it states just this.
    fn same_as(&mut self, finding: &KernelFinding) -> Option<&mut KernelFinding> {
        let last = self.findings.iter_mut().rfind(|other| other.fault == finding.fault)?;
        (last.rule == finding.rule && last.detail == finding.detail).then_some(last)
    }

    /// One kill is one finding, however many lines tell of it.
    fn note_kill(&mut self, mut finding: KernelFinding) {
        let kills = self.findings.iter_mut().filter(|other| other.fault == KernelFault::OomKill);
        if !oom::absorbed(kills, &finding) {
            finding.detail.scope = finding.detail.scope.or(Some(OomScope::Unknown));
            self.keep(finding);
        }
    }

    /// On arm64 the line of an exception states no address: the registers follow.
    fn expect_registers(&mut self, matched: &Matched<'_>, finding: &KernelFinding) {
        let unplaced = finding.detail.place.as_ref().is_some_and(|place| place.mapping_offset.is_none());
        self.registers = detail::base(&matched.found).filter(|_| unplaced).map(|base| Registers {
            finding: self.findings.len(),
            base,
            until_line: self.lines + REGISTER_LINES_MAX,
        });
    }

    fn complete_registers(&mut self, text: &str) {
        let Some(Registers { finding, base, until_line }) = self.registers else { return };
        if self.lines > until_line {
            self.registers = None;
        } else if let Some(found) = PROGRAM_COUNTER.captures(text) {
            let address = u64::from_str_radix(&found[1], 16).unwrap_or_default();
            let place = self.findings.get_mut(finding).and_then(|finding| finding.detail.place.as_mut());
            if let Some(place) = place {
                place.mapping_offset = detail::offset_in_mapping(address, base);
            }
            self.registers = None;
        }
    }
}

/// The rule of that name.
pub fn kernel_rule(name: &str) -> Option<&'static KernelRule> {
    rules::KERNEL_RULES.iter().find(|rule| rule.name == name)
}
