//! The rules against their fixtures, and what a log as a whole makes of its lines.

mod fixtures;

use std::collections::BTreeSet;

use super::line::Speaker;
use super::rules::KERNEL_RULES;
use super::table::TABLE;
use super::*;
use crate::model::kernel_log::{FaultDetail, FaultPlace};
use fixtures::{INNOCENT, MATCHED};

fn trial(round: u32) -> TrialId {
    format!("c-0123456789abcdef-r{round:03}-a1").parse().unwrap()
}

fn log(lines: &[&str]) -> KernelLog {
    classify(lines.iter().copied())
}

/// The only finding in `lines`.
fn one(lines: &[&str]) -> KernelFinding {
    let log = log(lines);
    assert_eq!(log.findings.len(), 1, "{lines:?}: {:#?}", log.findings);
    log.findings.into_iter().next().unwrap()
}

fn rules_matching(line: &str) -> Vec<&'static str> {
    TABLE.matching(line, Speaker::Kernel).map(|matched| matched.rule.name).collect()
}

#[test]
fn every_rule_has_fixtures_and_matches_them_alone() {
    for (rule, lines) in MATCHED {
        for line in *lines {
            assert_eq!(rules_matching(line), [*rule], "{line}");
            assert!(TABLE.may_match(line), "{line}");
        }
    }
    let shown: BTreeSet<_> = MATCHED.iter().map(|(rule, _)| *rule).collect();
    let all: BTreeSet<_> = KERNEL_RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(shown, all);
    assert_eq!(all.len(), KERNEL_RULES.len(), "names are unique");
}

#[test]
fn what_looks_like_a_fault_and_is_none_is_left_alone() {
    for line in INNOCENT {
        let log = log(&[line, &format!("[   12.345678] {line}")]);
        assert_eq!((log.class, log.findings), (LogClass::Clean, vec![]), "{line}");
    }
}

#[test]
fn every_fault_of_the_vocabulary_has_a_rule_and_every_rule_a_reason() {
    for fault in KernelFault::ALL {
        assert!(KERNEL_RULES.iter().any(|rule| rule.fault == *fault), "{fault}");
    }
    for rule in KERNEL_RULES {
        assert!(!rule.because.is_empty() && !rule.holds.is_empty(), "{}", rule.name);
        assert_eq!(kernel_rule(rule.name).map(|found| found.name), Some(rule.name));
    }
}

#[test]
fn a_process_is_believed_only_of_what_processes_say() {
    for (rule, lines) in MATCHED {
        let by_process = kernel_rule(rule).unwrap().by_process;
        for line in *lines {
            let log = log(&[&format!("May 06 08:11:09 board uploader[99]: {line}")]);
            assert_eq!(!log.findings.is_empty(), by_process, "{line}");
        }
    }
}

#[test]
fn the_first_fault_gives_the_class_and_notices_only_without_one() {
    let (warning, lockdep) =
        ("WARNING: CPU: 1 PID: 8377 at mm/slab.h:473 kfree+0x1cf/0x2b0", "WARNING: suspicious RCU usage");
    let (stall, oops) = ("rcu: INFO: rcu_preempt self-detected stall on CPU", "Oops: 0002 [#1] SMP");
    let panic = "Kernel panic - not syncing: Fatal exception";
    let segfault = "a.out[7]: segfault at 0 ip 0000000000000000 sp 00007ffd12345678 error 14";
    for (lines, class, panicked) in [
        (vec![], LogClass::Clean, false),
        (vec![segfault], LogClass::Clean, false),
        (vec![lockdep, warning], LogClass::Lockdep, false),
        (vec![warning, lockdep, segfault], LogClass::Warning, false),
        (vec![warning, stall, oops, panic], LogClass::Hang, true),
        (vec![segfault, oops, stall, panic], LogClass::Oops, true),
        (vec![warning, "Kernel panic - not syncing: panic_on_warn set ..."], LogClass::Panic, true),
        // Only the end of the log was kept: the panic's reason still says what led to it.
        (vec!["Kernel panic - not syncing: softlockup: hung tasks"], LogClass::Hang, true),
        (vec![panic, "---[ end Kernel panic - not syncing: Fatal exception ]---"], LogClass::Oops, true),
    ] {
        let log = log(&lines);
        assert_eq!((log.class, log.panicked), (class, panicked), "{lines:?}");
        assert_eq!(log.deciding().is_none(), class == LogClass::Clean);
    }
}

#[test]
fn a_message_that_the_console_ran_into_another_is_found() {
    let log = log(&["[    1.000000] usb 1-1: new device[    2.000000][    T1] Kernel panic - not syncing: x"]);
    assert_eq!((log.class, log.findings[0].text.as_str()), (LogClass::Panic, "Kernel panic - not syncing: x"));
}

#[test]
fn a_finding_states_where_it_stands_and_what_its_line_says() {
    let stuck =
        one(&["nothing", "[  601.962573] watchdog: BUG: soft lockup - CPU#1 stuck for 123s! [kworker/0:13:3571]"]);
    assert_eq!((stuck.line, stuck.uptime_us, stuck.times), (2, Some(601_962_573), 1));
    let detail = FaultDetail {
        pid: Some(3571),
        task: Some("kworker/0:13".into()),
        cpu: Some(1),
        seconds: Some(123),
        ..FaultDetail::default()
    };
    assert_eq!(stuck.detail, detail);
    assert_eq!(stuck.text, "watchdog: BUG: soft lockup - CPU#1 stuck for 123s! [kworker/0:13:3571]");
}

#[test]
fn numbers_of_the_gpu_are_kept_and_nothing_is_taken_for_them() {
    for (line, code, task, about) in [
        (MATCHED_NOTIFIER, Some(31), Some("consumer_thread"), Some("479")),
        (
            "NVRM: Xid (PCI:0000:01:00): 31, pid=1834, name=python3, Ch 00000010",
            Some(31),
            Some("python3"),
            Some("0000:01:00"),
        ),
        ("NVRM: Xid (PCI:0000:01:00): 62, 323f0f30 0000c3d8", Some(62), None, Some("0000:01:00")),
        // The number of the ioctl is not a size and not an error.
        ("NvMapMemAllocInternalTagged: 1075072515 error 12", Some(12), None, None),
        ("SError Interrupt on CPU2, code 0xbe000011 -- SError", None, None, None),
    ] {
        let detail = one(&[line]).detail;
        let stated = (detail.code, detail.task.as_deref(), detail.about.as_deref());
        assert_eq!(stated, (code, task, about), "{line}");
    }
}

const MATCHED_NOTIFIER: &str = "nvgpu: 17000000.gpu     nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 31 for ch 479 owned by consumer_thread";

#[test]
fn the_place_of_a_crash_is_module_and_offset() {
    for (lines, module, file_offset, mapping_offset, signal) in [
        (
            vec![
                "a.out[7]: segfault at 0 ip 00007f1a2b4c5d6e sp 00007ffd12345678 error 4 in libfoo.so.1[7f1a2b400000+200000]",
            ],
            "libfoo.so.1",
            None,
            Some(0xc5d6e),
            Some(11),
        ),
        (
            vec![
                "a.out[7]: segfault at 50 ip 00007f88766c71e0 sp 00007ffe8c583868 error 4 in libbpf.so.1.4.7[131e0,7f88766c0000+3e000] likely on CPU 0 (core 0, socket 0)",
            ],
            "libbpf.so.1.4.7",
            Some(0x131e0),
            Some(0x71e0),
            Some(11),
        ),
        (
            vec![
                "traps: a.out[7] trap invalid opcode ip:55d0c0de1234 sp:7ffc00000000 error:0 in a.out[55d0c0de1000+1000]",
            ],
            "a.out",
            None,
            Some(0x234),
            Some(4),
        ),
        (
            vec![
                "[   27.569683] a.out[7]: unhandled level 2 translation fault (11) at 0x00000018, esr 0x92000006, in libc-2.27.so[7f9860d000+138000]",
                "[   27.581446] CPU: 3 PID: 7 Comm: a.out Not tainted 4.9.253-tegra #1",
                "[   27.605211] pc : [<0000007f9867eb10>] lr : [<0000007f98681b20>] pstate: 60000000",
            ],
            "libc-2.27.so",
            None,
            Some(0x71b10),
            Some(11),
        ),
        (
            vec![
                "[  119.156884] a.out[7]: unhandled exception: DABT (lower EL), ESR 0x92000046, level 2 translation fault in libfoo.so[7fbd4f0000+6000]",
                "[  119.160380] pstate: 80001000 (Nzcv daif -PAN -UAO)",
                "[  119.160530] pc : 0000007fbd4f2d2c",
                "[  119.160960] lr : 0000007fbd4f2a4c",
            ],
            "libfoo.so",
            None,
            Some(0x2d2c),
            None,
        ),
    ] {
        let found = one(&lines);
        let place = FaultPlace { module: module.into(), file_offset, mapping_offset };
        assert_eq!((found.detail.place, found.detail.signal), (Some(place), signal), "{}", lines[0]);
        assert_eq!((found.detail.pid, found.detail.task.as_deref()), (Some(7), Some("a.out")));
    }
}

#[test]
fn registers_that_come_too_late_belong_to_another() {
    let fault = "a.out[7]: unhandled exception: DABT (lower EL), ESR 0x92000046, level 2 translation fault in b[7fbd4f0000+6000]";
    let mut lines = vec![fault];
    lines.extend(["x"; REGISTER_LINES_MAX as usize]);
    lines.push("pc : 0000007fbd4f2d2c");
    assert_eq!(one(&lines).detail.place.unwrap().mapping_offset, None);
}

#[test]
fn one_kill_is_one_finding_with_its_victim_and_scope() {
    let summary = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/x,task=python3,pid=2092,uid=0";
    let of_group = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/x,task_memcg=/x/y,task=python3,pid=2092,uid=0";
    let killed = "Out of memory: Killed process 2092 (python3) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB";
    let killed_in_group = "Memory cgroup out of memory: Killed process 2092 (python3) total-vm:1kB, anon-rss:1kB";
    let chosen = "Out of memory: Kill process 2092 (python3) score 900 or sacrifice child";
    let bare = "Killed process 2092 (python3) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB";
    let bare_child = "Killed process 2093 (child) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB";
    let reaped = "oom_reaper: reaped process 2092 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB";
    let (global, group, unknown) = (OomScope::Global, OomScope::Cgroup, OomScope::Unknown);
    for (lines, pid, task, scope, cgroup) in [
        (vec![summary, killed, reaped], 2092, "python3", global, None),
        (vec![of_group, killed_in_group, reaped], 2092, "python3", group, Some("/x")),
        (vec![killed], 2092, "python3", global, None),
        (vec![killed_in_group], 2092, "python3", group, None),
        (vec![chosen, bare, reaped], 2092, "python3", global, None),
        // An old kernel took a child of the process that it chose.
        (vec![chosen, bare_child], 2093, "child", global, None),
        (vec![bare], 2092, "python3", unknown, None),
        (vec![reaped], 2092, "python3", unknown, None),
    ] {
        let found = one(&lines);
        let detail = found.detail;
        assert_eq!((detail.pid, detail.task.as_deref()), (Some(pid), Some(task)), "{lines:?}");
        assert_eq!((detail.scope, detail.cgroup.as_deref()), (Some(scope), cgroup), "{lines:?}");
    }
}

#[test]
fn kills_of_several_processes_stay_apart() {
    let killed = |pid| format!("Out of memory: Killed process {pid} (python3) total-vm:1kB, anon-rss:1kB");
    let reaped = |pid| format!("oom_reaper: reaped process {pid} (python3), now anon-rss:0kB");
    let log = log(&[&killed(1), &killed(2), &reaped(1), &killed(3), &reaped(3), &reaped(2)]);
    let pids: Vec<_> = log.of(KernelFault::OomKill).filter_map(|finding| finding.detail.pid).collect();
    assert_eq!((log.class, pids), (LogClass::Oom, vec![1, 2, 3]));
}

#[test]
fn lines_that_say_the_same_are_counted_and_a_flood_hides_nothing() {
    let stall = "rcu: INFO: rcu_preempt self-detected stall on CPU";
    assert_eq!(one(&[stall; 5]).times, 5);
    let hung: Vec<_> = (0..1000).map(|pid| format!("INFO: task a:{pid} blocked for more than 120 seconds.")).collect();
    let lines = hung.iter().map(String::as_str).chain(["Kernel panic - not syncing: x"]);
    let log = classify(lines);
    assert_eq!(log.of(KernelFault::HungTask).count(), FINDINGS_PER_FAULT_MAX);
    assert_eq!(log.dropped, 1000 - FINDINGS_PER_FAULT_MAX as u64);
    assert_eq!((log.class, log.panicked, log.lines), (LogClass::Hang, true, 1001));
}

#[test]
fn only_the_lines_of_a_trial_count_for_it() {
    let oops = "[   30.000000] Oops: 0002 [#1] SMP";
    let stall = "[   40.000000] rcu: INFO: rcu_preempt self-detected stall on CPU";
    let begin = |round| format!("May 06 08:11:09 board unknown: {}", begin_marker(&trial(round)));
    let end = |round| format!("12,9,36000000,-;{}", end_marker(&trial(round)));
    let (whole, marked) = (LogWindow::Unmarked, LogWindow::Marked);
    for (lines, class, window) in [
        (vec![oops.to_owned(), begin(1), stall.to_owned()], LogClass::Hang, marked),
        (vec![begin(1), stall.to_owned(), begin(2), oops.to_owned()], LogClass::Hang, marked),
        (vec![begin(1), end(1), oops.to_owned()], LogClass::Clean, marked),
        // A marker written twice begins again.
        (vec![begin(1), oops.to_owned(), begin(1), stall.to_owned()], LogClass::Hang, marked),
        // Another trial's marker is none.
        (vec![oops.to_owned(), begin(2), stall.to_owned()], LogClass::Oops, whole),
        (vec![oops.to_owned()], LogClass::Oops, whole),
    ] {
        let log = classify_trial(lines.iter().map(String::as_str), &trial(1));
        assert_eq!((log.class, log.window), (class, window), "{lines:?}");
    }
    assert_eq!(log(&[&begin(1), oops]).window, LogWindow::Whole);
}

#[test]
fn a_message_from_the_journal_needs_no_prefix() {
    let mut classifier = Classifier::default();
    let text = "Kernel panic - not syncing: x";
    classifier.feed_message(Message { text, speaker: Speaker::Process, uptime_us: None });
    classifier.feed_message(Message { text, speaker: Speaker::Kernel, uptime_us: Some(7) });
    let log = classifier.finish();
    assert_eq!((log.findings[0].line, log.findings[0].uptime_us), (2, Some(7)));
}

#[test]
fn what_public_reports_quote_gets_its_class() {
    for (lines, class, faults) in [
        // https://github.com/OE4T/meta-tegra/issues/468
        (
            vec![
                "[  382.131942] sched: RT throttling activated for rt_rq ffffffc0fefd8ea8 (cpu 1)",
                "[  382.132025] CPU1: SError detected, daif=140, spsr=0x40000045, mpidr=80000001, esr=bf000002",
                "[  403.142401] INFO: rcu_preempt detected stalls on CPUs/tasks:",
            ],
            LogClass::HardwareError,
            vec![KernelFault::Serror, KernelFault::RcuStall],
        ),
        // https://forums.developer.nvidia.com/t/371272: 154 is the consequence, not the cause.
        (
            vec![
                "NVRM: Xid (PCI:0000:01:00): 62, 323f0f30 0000c3d8 00000000 206dae68",
                "NVRM: GPU0 _kgspRpcGspEventPmuHalted: Received signal from GSP that PMU has halted.",
                "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            ],
            LogClass::Gpu,
            vec![KernelFault::GpuFault, KernelFault::GpuDead],
        ),
        // https://github.com/pyavitz/debian-image-builder/issues/98
        (
            vec![
                "kernel: thermal thermal_zone0: gpu-thermal: critical temperature reached, shutting down",
                "kernel: reboot: HARDWARE PROTECTION shutdown (Temperature too high)",
            ],
            LogClass::Thermal,
            vec![KernelFault::Thermal, KernelFault::Thermal],
        ),
        // https://forums.developer.nvidia.com/t/158055: the text says over-current, the comparator is that of the voltage.
        (
            vec!["System throttled due to Over-current.", "soctherm: OC ALARM 0x00000001"],
            LogClass::Power,
            vec![KernelFault::UnderVoltage],
        ),
        // https://github.com/ollama/ollama/issues/1289
        (
            vec![
                "NvRmMemInitNvmap failed with Permission denied",
                "549: Memory Manager Not supported",
                "****NvRmMemInit failed**** error type: 196626",
            ],
            LogClass::Environment,
            vec![KernelFault::NvmapDenied],
        ),
        // https://github.com/0xShug0/audio.cpp/issues/12
        (
            vec!["NvMapMemAllocInternalTagged: 1075072515 error 12", "NvMapMemHandleAlloc: error 0"],
            LogClass::GpuMemory,
            vec![KernelFault::NvmapFailure, KernelFault::NvmapFailure],
        ),
    ] {
        let log = log(&lines);
        let found: Vec<_> = log.findings.iter().map(|finding| finding.fault).collect();
        assert_eq!((log.class, found), (class, faults), "{lines:?}");
    }
}

#[test]
fn what_is_found_survives_storage() {
    let log = log(&[MATCHED_NOTIFIER, "Kernel panic - not syncing: x"]);
    let text = serde_json::to_string(&log).unwrap();
    assert!(text.contains(r#""fault":"gpu-fault""#) && text.contains(r#""code":31"#), "{text}");
    assert_eq!(serde_json::from_str::<KernelLog>(&text).unwrap(), log);
}
