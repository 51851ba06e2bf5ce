//! Whether a boot is still cold: what a machine shows of its GPU's use, reduced to facts, and a labelled table over them.
//!
//! Exactly one row matches every combination, and a test tries them all. A machine never proves a negative by silence:
//! what could not be seen makes `unknown`, and only a GPU that was never initialised is `proven`.

use crate::model::evidence::Fact;
use crate::model::start_state::{ColdProof, GpuDriver, GpuTraces, Process, StartState};

/// Without an idle boot to compare with, a GPU that was powered for longer than this (ms) may have worked.
const ACTIVE_MS_PLAUSIBLE: u64 = 60_000;

/// In a machine that is up for longer than this (ms), a client may have come and gone.
const UPTIME_MS_EARLY: u64 = 600_000;

/// By how much an idle GPU's powered time varies from boot to boot (ms), beside a quarter of itself.
const IDLE_MARGIN_MS: u64 = 2_000;

/// Who uses the GPU now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alive {
    /// Nobody.
    Nobody,
    /// Somebody.
    Somebody,
    /// It cannot be seen.
    Unseen,
}

/// Whether the GPU was initialised in this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touched {
    /// Never.
    Never,
    /// At least once, which a boot may do without any client.
    Once,
    /// It cannot be seen, or its signs contradict each other.
    Unclear,
}

/// Whether the GPU did more than in a boot without clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// As in an idle boot.
    Idle,
    /// Little enough, so early in the boot.
    Plausible,
    /// More than in an idle boot.
    Busy,
    /// It cannot be told.
    Unclear,
}

/// The facts that decide the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartFacts {
    /// Whether a trial of ours, of whatever run, used the GPU in this boot.
    pub ours: bool,
    /// Who uses it now.
    pub alive: Alive,
    /// Whether it was initialised.
    pub touched: Touched,
    /// Whether it did more than in an idle boot.
    pub activity: Activity,
    /// Whether a program runs that uses a GPU of its own accord.
    pub users: bool,
}

/// One row.
#[derive(Debug)]
pub struct StartRule {
    /// Its name in the journal.
    pub label: &'static str,
    /// Matching values of [`StartFacts::ours`].
    pub ours: &'static [bool],
    /// Matching values of [`StartFacts::alive`].
    pub alive: &'static [Alive],
    /// Matching values of [`StartFacts::touched`].
    pub touched: &'static [Touched],
    /// Matching values of [`StartFacts::activity`].
    pub activity: &'static [Activity],
    /// Matching values of [`StartFacts::users`].
    pub users: &'static [bool],
    /// What follows.
    pub cold: ColdProof,
    /// Why, in one line.
    pub because: &'static str,
}

const ANY: &[bool] = &[false, true];
const NO: &[bool] = &[false];
const ANY_ALIVE: &[Alive] = &[Alive::Nobody, Alive::Somebody, Alive::Unseen];
const NOT_SEEN: &[Alive] = &[Alive::Nobody, Alive::Unseen];
const ANY_TOUCHED: &[Touched] = &[Touched::Never, Touched::Once, Touched::Unclear];
const MAYBE_TOUCHED: &[Touched] = &[Touched::Once, Touched::Unclear];
const ANY_ACTIVITY: &[Activity] = &[Activity::Idle, Activity::Plausible, Activity::Busy, Activity::Unclear];
const NOT_BUSY: &[Activity] = &[Activity::Idle, Activity::Plausible, Activity::Unclear];

/// The table.
pub const START_RULES: &[StartRule] = &[
    StartRule {
        label: "ours-before",
        ours: &[true],
        alive: ANY_ALIVE,
        touched: ANY_TOUCHED,
        activity: ANY_ACTIVITY,
        users: ANY,
        cold: ColdProof::Not,
        because: "a trial of ours came before it in this boot",
    },
    StartRule {
        label: "client-alive",
        ours: NO,
        alive: &[Alive::Somebody],
        touched: ANY_TOUCHED,
        activity: ANY_ACTIVITY,
        users: ANY,
        cold: ColdProof::Not,
        because: "another process uses the GPU",
    },
    StartRule {
        label: "never-initialised",
        ours: NO,
        alive: NOT_SEEN,
        touched: &[Touched::Never],
        activity: NOT_BUSY,
        users: ANY,
        cold: ColdProof::Proven,
        because: "the GPU was not initialised in this boot",
    },
    StartRule {
        label: "contradiction",
        ours: NO,
        alive: NOT_SEEN,
        touched: &[Touched::Never],
        activity: &[Activity::Busy],
        users: ANY,
        cold: ColdProof::Unknown,
        because: "the GPU was not initialised in this boot, and yet it worked",
    },
    StartRule {
        label: "worked-before",
        ours: NO,
        alive: NOT_SEEN,
        touched: MAYBE_TOUCHED,
        activity: &[Activity::Busy],
        users: ANY,
        cold: ColdProof::Not,
        because: "the GPU worked in this boot",
    },
    StartRule {
        label: "user-running",
        ours: NO,
        alive: NOT_SEEN,
        touched: MAYBE_TOUCHED,
        activity: NOT_BUSY,
        users: &[true],
        cold: ColdProof::Unknown,
        because: "a program runs that may have used the GPU when it started",
    },
    StartRule {
        label: "clients-unseen",
        ours: NO,
        alive: &[Alive::Unseen],
        touched: MAYBE_TOUCHED,
        activity: NOT_BUSY,
        users: NO,
        cold: ColdProof::Unknown,
        because: "whether a process uses the GPU cannot be seen",
    },
    StartRule {
        label: "past-unseen",
        ours: NO,
        alive: &[Alive::Nobody],
        touched: MAYBE_TOUCHED,
        activity: &[Activity::Unclear],
        users: NO,
        cold: ColdProof::Unknown,
        because: "whether a process that ended used the GPU cannot be seen",
    },
    StartRule {
        label: "no-trace",
        ours: NO,
        alive: &[Alive::Nobody],
        touched: MAYBE_TOUCHED,
        activity: &[Activity::Idle, Activity::Plausible],
        users: NO,
        cold: ColdProof::Consistent,
        because: "nothing shows that a process used the GPU in this boot",
    },
];

impl StartRule {
    fn matches(&self, facts: &StartFacts) -> bool {
        self.ours.contains(&facts.ours)
            && self.alive.contains(&facts.alive)
            && self.touched.contains(&facts.touched)
            && self.activity.contains(&facts.activity)
            && self.users.contains(&facts.users)
    }
}

/// What is known beside the traces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// Milliseconds for which the GPU is powered in a boot without clients, if that was learned.
    pub idle_ms: Option<u64>,
    /// Whether we changed a setting in this boot that powers the GPU up: its powered time tells nothing then.
    pub powered_by_us: bool,
}

/// The start state that `traces` speak for, in a boot in which no trial of this run started yet.
pub fn start_state(traces: &GpuTraces, known: Known) -> StartState {
    let (facts, because) = facts_of(traces, known);
    let rule = start_rule(&facts);
    let services = traces.users.iter().chain(&traces.bystanders).map(Process::to_string).collect();
    StartState {
        cold: rule.cold,
        rule: rule.label.to_owned(),
        because,
        warmed_by: None,
        gpu_active_ms: traces.active_ms.known().copied(),
        services,
    }
}

/// The row of the table that matches `facts`.
pub fn start_rule(facts: &StartFacts) -> &'static StartRule {
    START_RULES.iter().find(|rule| rule.matches(facts)).expect("a test shows that one row matches")
}

/// What `traces` come down to, and in words what that rests on.
pub fn facts_of(traces: &GpuTraces, known: Known) -> (StartFacts, Vec<String>) {
    let mut because = Vec::new();
    because.extend(traces.marked_by.as_ref().map(|trial| format!("{trial} left its mark in this boot")));
    let facts = StartFacts {
        ours: traces.marked_by.is_some(),
        alive: alive(traces, &mut because),
        touched: touched(traces, &mut because),
        activity: activity(traces, known, &mut because),
        users: !traces.users.is_empty(),
    };
    because.extend((facts.users).then(|| format!("{} may use a GPU of their own accord", list(&traces.users))));
    (facts, because)
}

fn list(processes: &[Process]) -> String {
    processes.iter().map(Process::to_string).collect::<Vec<_>>().join(", ")
}

/// One list that shows somebody is enough; one that was read and is empty shows nobody, since a client of nvgpu is in
/// both.
fn alive(traces: &GpuTraces, because: &mut Vec<String>) -> Alive {
    if traces.driver == GpuDriver::None {
        return Alive::Nobody;
    }
    let lists = [("has GPU memory", &traces.clients), ("has a device node open", &traces.holders)];
    for (what, processes) in lists {
        if let Some(some @ [_, ..]) = processes.known().map(Vec::as_slice) {
            because.push(format!("{what}: {}", list(some)));
            return Alive::Somebody;
        }
    }
    if lists.iter().any(|(_, processes)| processes.known().is_some()) {
        because.push("no process has GPU memory or a device node open".to_owned());
        return Alive::Nobody;
    }
    because.push(format!("processes that use the GPU: {}", why_not(&traces.holders)));
    Alive::Unseen
}

fn why_not<T>(fact: &Fact<T>) -> String {
    match fact {
        Fact::Known(_) => "known".to_owned(),
        Fact::Absent => "not there to be read".to_owned(),
        Fact::Denied(why) | Fact::Garbled(why) => why.clone(),
    }
}

fn touched(traces: &GpuTraces, because: &mut Vec<String>) -> Touched {
    let (touched, words) = match traces.driver {
        GpuDriver::None => (Touched::Never, "there is no GPU"),
        // Only where it is the only way to compute does its absence prove anything.
        GpuDriver::Nvidia => match traces.uvm.known() {
            Some(false) => (Touched::Never, "nvidia_uvm is not loaded, and no CUDA program runs without it"),
            Some(true) => (Touched::Once, "nvidia_uvm is loaded"),
            None => (Touched::Unclear, "whether nvidia_uvm is loaded cannot be read"),
        },
        GpuDriver::NvidiaTegra => (Touched::Once, "the driver is loaded"),
        GpuDriver::Nvgpu => match (traces.golden_image.known(), traces.all_nodes.known()) {
            (Some(false), Some(false) | None) => (Touched::Never, "golden_img_status is 0"),
            (None, Some(false)) => (Touched::Never, "the only device node is that for power"),
            (Some(true), Some(true) | None) => {
                (Touched::Once, "golden_img_status is 1, as after a boot without clients")
            }
            (None, Some(true)) => (Touched::Once, "all device nodes are there, as after a boot without clients"),
            (Some(_), Some(_)) => (Touched::Unclear, "golden_img_status and the device nodes contradict each other"),
            (None, None) => (Touched::Unclear, "neither golden_img_status nor the device nodes can be read"),
        },
    };
    because.push(words.to_owned());
    touched
}

fn activity(traces: &GpuTraces, known: Known, because: &mut Vec<String>) -> Activity {
    let early = traces.uptime_ms.is_some_and(|uptime| uptime <= UPTIME_MS_EARLY);
    let by_uptime = if early { Activity::Plausible } else { Activity::Unclear };
    let up = match traces.uptime_ms {
        Some(uptime) => format!("the machine is up for {} s", uptime / 1000),
        None => "the machine does not say for how long it is up".to_owned(),
    };
    match traces.driver {
        GpuDriver::None => Activity::Idle,
        GpuDriver::Nvidia | GpuDriver::NvidiaTegra => match traces.accounted.known() {
            Some(0) => {
                because.push("accounting lists no compute client".to_owned());
                Activity::Idle
            }
            Some(clients) => {
                because.push(format!("accounting lists {clients} compute clients"));
                Activity::Busy
            }
            None => {
                because.push(format!("accounting is not read, and {up}"));
                by_uptime
            }
        },
        GpuDriver::Nvgpu => match (traces.active_ms.known(), known.idle_ms) {
            (None, _) => {
                because.push("how long the GPU was powered cannot be read".to_owned());
                Activity::Unclear
            }
            (Some(_), _) if traces.kept_powered || known.powered_by_us => {
                because.push(format!("the GPU is kept powered, so its powered time tells nothing; {up}"));
                by_uptime
            }
            (Some(&active), Some(idle)) => {
                because.push(format!("the GPU was powered for {active} ms, and for {idle} ms in an idle boot"));
                if active <= idle + idle / 4 + IDLE_MARGIN_MS { Activity::Idle } else { Activity::Busy }
            }
            (Some(&active), None) => {
                because.push(format!("the GPU was powered for {active} ms, with no idle boot to compare with; {up}"));
                if active <= ACTIVE_MS_PLAUSIBLE { by_uptime } else { Activity::Unclear }
            }
        },
    }
}

/// What stands against cold starts on this machine, in words, with what helps; none if nothing does.
pub fn obstacles(traces: &GpuTraces) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |processes: &[Process], helps: &str| {
        if !processes.is_empty() {
            found.push(format!("{} can use the GPU before the first trial of a boot: {helps}", list(processes)));
        }
    };
    add(
        &traces.users,
        "end it, and keep it from starting (systemctl disable, systemctl set-default multi-user.target)",
    );
    add(&traces.bystanders, "make sure that it starts nothing on the GPU at boot");
    found
}

#[cfg(test)]
mod tests;
