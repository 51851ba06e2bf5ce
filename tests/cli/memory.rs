//! Memory that really runs out, in a control group with a limit of its own.
//!
//! Needs root and a memory controller that lets a group be made. Elsewhere these tests say that they did not run: what they
//! show is then shown by constructed counters and kernel lines alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::bench::*;
use crate::needs;

/// Room for the harness, which reads its own binary at the start of a run, and for a worker.
fn limit_bytes() -> u64 {
    fs::metadata(HARNESS).unwrap().len() + (128 << 20)
}

/// More than there is room for.
fn too_much_mib() -> u64 {
    (2 * limit_bytes()) >> 20
}

/// A control group that is gone with the test.
pub(super) struct Group(PathBuf);

impl Group {
    /// Version 2 and 1 have their files in different places and under different names.
    pub(super) fn new(name: &str) -> Option<Self> {
        let name = format!("jetfault-{name}-{}", std::process::id());
        [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")].into_iter().find_map(
            |(root, limit)| {
                let dir = Path::new(root).join(&name);
                fs::create_dir(&dir).ok()?;
                let group = Self(dir);
                // A group of a hierarchy that does not control memory has no such file.
                let file = group.0.join(limit);
                (file.exists() && fs::write(file, limit_bytes().to_string()).is_ok()).then_some(group)
            },
        )
    }

    /// The group, without which the test shows nothing and says so.
    pub(super) fn needed(name: &str) -> Option<Self> {
        let group = Self::new(name);
        if group.is_none() {
            let why = "no control group with a memory limit can be made here: that takes root and a memory controller";
            needs::is_missing("memory-groups", name, why);
        }
        group
    }

    /// A shell script that runs in the group.
    fn script(&self, script: &str) -> String {
        format!("echo $$ > {}/cgroup.procs || exit 9; {script}", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The only trial of a run in `group`; `beside` is done by the shell that becomes the harness.
fn trial_in(group: &Group, script: &str, beside: &str) -> Value {
    let bench = Bench::new();
    let file = bench.write("memory.toml", &matrix("memory", 1, ""));
    let harness = bench.command(&["run", &file, "--script", script]);
    let program = harness.get_program().to_owned();
    let mut command = std::process::Command::new("/bin/sh");
    command.arg("-c").arg(group.script(&format!("{beside} exec \"$0\" \"$@\""))).arg(program).args(harness.get_args());
    for (name, value) in harness.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(harness.get_current_dir().unwrap()).stdin(Stdio::null());
    let said = Said::of(&command.output().unwrap());
    assert!(matches!(said.code, Some(0..=3)), "{said:?}");
    serde_json::from_str(&bench.results_of("memory-001")[0].1).unwrap()
}

/// Kills that the kernel told of while the trial ran, each with whose process it was; none where it cannot be heard.
fn kills(result: &Value) -> Option<Vec<(String, String)>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let findings = result["outcome"]["kernel"]["known"].as_array()?.iter();
    let kills = findings.filter(|found| found["finding"]["fault"] == "oom-kill");
    Some(kills.map(|found| (text(&found["finding"]["detail"]["scope"]), text(&found["whose"]))).collect())
}

/// What the record says of a process that is `named` one: the kernel counts processes from outside of all containers, so
/// in a container with process ids of its own nobody can say whose it was.
fn whose(named: &str) -> String {
    /// `PROC_PID_INIT_INO` of the kernel's include/linux/proc_ns.h.
    const FIRST_NAMESPACE: &str = "pid:[4026531836]";
    let is_outside = fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new(FIRST_NAMESPACE));
    if is_outside { named.to_owned() } else { "unnamed".to_owned() }
}

#[test]
fn a_trial_that_the_kernel_kills_for_its_memory_is_told_from_one_that_somebody_kills() {
    let Some(group) = Group::needed("taken") else { return };
    let taken = trial_in(&group, &format!("stage A.copy; alloc {}; done", too_much_mib()), "");
    let outcome = &taken["outcome"];
    assert_eq!(outcome["exit"]["signal"]["number"], 9, "{taken}");
    assert_eq!(outcome["memory_events"]["known"]["oom_kill"], 1, "{taken}");
    assert!(outcome["oom_kills"]["known"].as_u64() >= Some(1), "{taken}");
    match kills(&taken) {
        Some(kills) => assert!(kills.contains(&("cgroup".into(), whose("trial"))), "{taken}"),
        None => eprintln!("the kernel's log cannot be heard here: {}", outcome["kernel"]),
    }
    assert_eq!(taken["judgement"]["verdict"], "oom-kill", "{taken}");
    let killed = trial_in(&group, "stage A.copy; kill", "");
    let outcome = &killed["outcome"];
    assert_eq!(outcome["exit"]["signal"]["number"], 9, "{killed}");
    assert_eq!(outcome["memory_events"]["known"]["oom_kill"], 0, "{killed}");
    assert!(!kills(&killed).unwrap_or_default().iter().any(|(_, whose)| whose == "trial"), "{killed}");
    assert_eq!(killed["judgement"]["verdict"], "killed", "{killed}");
}

#[test]
fn a_bystander_that_is_killed_beside_a_trial_is_recorded_as_one() {
    let Some(group) = Group::needed("bystander") else { return };
    // The one that reads keeps all that it read.
    let beside = format!("(sleep 2; head -c {}M /dev/zero | tail > /dev/null) 2>/dev/null &", too_much_mib());
    let result = trial_in(&group, "stage A.copy; sleep 8000; done", &beside);
    assert_eq!(result["judgement"]["verdict"], "pass", "{result}");
    assert_eq!(result["outcome"]["memory_events"]["known"]["oom_kill"], 1, "{result}");
    match kills(&result) {
        Some(kills) => assert!(kills.contains(&("cgroup".into(), whose("other"))), "{result}"),
        None => eprintln!("the kernel's log cannot be heard here: {}", result["outcome"]["kernel"]),
    }
}
