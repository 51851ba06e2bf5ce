//! The kernel-log classifier against a corpus of real logs, which stays where it is.
//!
//! `JETFAULT_KLOG_DIR` names a directory with `expected.json` (rows of `file`, `expected_class`, `panicked`) and `logs/`:
//! headers up to the first empty line, then the log, then perhaps an empty line and `REPORT:`. Without the variable the
//! test says that it did not run. What must hold of classes other than `panic`, `oops`, `hang` and `clean` is weaker:
//! such a log is never a hang, memory that ran out or broken hardware, and a crash only where the kernel panicked.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use jetfault::decide::kernel_log::classify;
use jetfault::model::kernel_log::{KernelLog, LogClass, Weight};
use serde_json::Value;

/// A clean boot of a Tegra, constructed, with the lines that look worst.
const TEGRA_BOOT: &str = include_str!("klog/tegra_boot.log");

/// One log of the corpus.
struct Case {
    name: String,
    expected: String,
    panicked: bool,
    lines: Vec<String>,
}

fn corpus() -> Option<Vec<Case>> {
    let Some(directory) = env::var_os("JETFAULT_KLOG_DIR").map(PathBuf::from) else {
        println!("klog: DID NOT RUN: JETFAULT_KLOG_DIR names no corpus of kernel logs");
        return None;
    };
    let expected = directory.join("expected.json");
    let text = fs::read_to_string(&expected).unwrap_or_else(|error| panic!("read {}: {error}", expected.display()));
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    Some(rows.iter().map(|row| case(&directory, row)).collect())
}

fn case(directory: &Path, row: &Value) -> Case {
    let name = row["file"].as_str().unwrap().to_owned();
    let file = fs::read(directory.join("logs").join(&name)).unwrap();
    let text = String::from_utf8_lossy(&file).replace('\r', "");
    // The header may be empty; then the file begins with the empty line.
    let log = text.strip_prefix('\n').or_else(|| Some(text.split_once("\n\n")?.1)).unwrap_or(&text);
    let log = log.split_once("\n\nREPORT:").map_or(log, |(log, _)| log);
    Case {
        name,
        expected: row["expected_class"].as_str().unwrap().to_owned(),
        panicked: row["panicked"].as_bool().unwrap(),
        lines: log.lines().map(str::to_owned).collect(),
    }
}

fn judge(lines: &[String]) -> KernelLog {
    classify(lines.iter().map(String::as_str))
}

/// Whether a log is what is expected of it; the reason if not.
fn verdict(case: &Case, log: &KernelLog) -> Result<(), String> {
    let right = match case.expected.as_str() {
        "panic" => log.class == LogClass::Panic,
        "oops" => log.class == LogClass::Oops,
        "hang" => log.class == LogClass::Hang,
        "clean" => log.class == LogClass::Clean && log.findings.iter().all(|f| f.weight == Weight::Aside),
        "warning" | "lockdep" | "leak" | "kernel_bug" => match log.class {
            LogClass::Panic | LogClass::Oops => case.panicked,
            LogClass::Bug | LogClass::Warning | LogClass::Lockdep | LogClass::Leak | LogClass::Clean => true,
            _ => false,
        },
        other => panic!("{}: an unknown class {other}", case.name),
    };
    let deciding = log.deciding().map(|finding| format!("{} by {}: {}", finding.line, finding.rule, finding.text));
    if !right {
        return Err(format!("{}: {} expected, {} found, {deciding:?}", case.name, case.expected, log.class));
    }
    if log.panicked != case.panicked {
        return Err(format!("{}: panicked {} expected, {} found", case.name, case.panicked, log.panicked));
    }
    Ok(())
}

/// Takes the time stamp and the caller of the console off.
fn without_stamp(line: &str) -> &str {
    let bracket = |text: &str, inside: fn(u8) -> bool| {
        let (within, rest) = text.strip_prefix('[')?.split_once(']')?;
        within.trim().bytes().all(inside).then(|| rest.trim_start().len())
    };
    let Some(rest) = bracket(line, |b| b.is_ascii_digit() || b == b'.') else { return line };
    let line = &line[line.len() - rest..];
    let rest = bracket(line, |b| b.is_ascii_digit() || b == b'T' || b == b'C').unwrap_or(line.len());
    &line[line.len() - rest..]
}

/// What a log may go through on its way, without a change of its class.
fn mutations(lines: &[String]) -> Vec<(&'static str, Vec<String>)> {
    let each = |change: &dyn Fn(&str) -> String| lines.iter().map(|line| change(line)).collect::<Vec<_>>();
    let mut boot = TEGRA_BOOT.lines().cycle();
    let mixed = lines.iter().flat_map(|line| [boot.next().unwrap().to_owned(), line.clone()]).collect();
    vec![
        ("through syslog", each(&|line| format!("May  6 08:11:09 board kernel: {line}"))),
        ("through the journal", each(&|line| format!("May 06 08:11:09 board kernel: {}", without_stamp(line)))),
        ("without time stamps", each(&|line| without_stamp(line).to_owned())),
        ("with levels, as in pstore", each(&|line| format!("<4>{line}"))),
        ("with line ends of a terminal", each(&|line| format!("{line}\r"))),
        ("with a clean boot of a Tegra", mixed),
        ("after a clean boot of a Tegra", TEGRA_BOOT.lines().map(str::to_owned).chain(lines.iter().cloned()).collect()),
    ]
}

#[test]
fn real_logs_get_their_class_whatever_they_went_through() {
    let Some(cases) = corpus() else { return };
    let mut right: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let (mut wrong, mut changed, mut mutated, mut gone) = (Vec::new(), Vec::new(), 0, 0);
    for case in &cases {
        let log = judge(&case.lines);
        let (good, all) = right.entry(&case.expected).or_default();
        *all += 1;
        match verdict(case, &log) {
            Ok(()) => *good += 1,
            Err(reason) => wrong.push(reason),
        }
        for (how, lines) in mutations(&case.lines) {
            mutated += 1;
            let other = judge(&lines);
            if (other.class, other.panicked) != (log.class, log.panicked) {
                changed.push(format!("{} {how}: {} became {}", case.name, log.class, other.class));
            }
        }
        for percent in [50, 75, 90] {
            let kept = case.lines.len() * percent / 100;
            if log.deciding().is_some_and(|finding| finding.line > kept as u64) {
                gone += 1;
                continue;
            }
            mutated += 1;
            let other = judge(&case.lines[..kept]);
            if other.class != log.class {
                changed.push(format!("{} cut at {percent} %: {} became {}", case.name, log.class, other.class));
            }
        }
    }
    let classes: Vec<_> = right.iter().map(|(class, (good, all))| format!("{class} {good}/{all}")).collect();
    println!(
        "klog: {} logs: {}; {}/{mutated} mutations kept the class, {gone} cuts took the deciding line",
        cases.len(),
        classes.join(", "),
        mutated - changed.len(),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn a_clean_boot_of_a_tegra_is_clean() {
    let log = classify(TEGRA_BOOT.lines());
    assert_eq!((log.class, log.findings), (LogClass::Clean, vec![]));
}
