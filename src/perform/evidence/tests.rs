//! What is read of each constructed board, and how it is written.

use super::*;
use crate::model::evidence::names;
use crate::testing::boards::assemble;

fn read_board(board: &str, scenario: Option<&str>) -> RawEvidence {
    let tree = assemble(board, scenario);
    read(&Sysroot::new(tree.path().to_path_buf())).unwrap()
}

fn text(raw: &RawEvidence, name: &str) -> String {
    let item = raw.items.get(name).unwrap_or_else(|| panic!("{name} was skipped: {:?}", raw.items.keys()));
    String::from_utf8(item.known().unwrap_or_else(|| panic!("{name} is {item:?}")).clone()).unwrap()
}

#[test]
fn the_reset_word_is_found_on_every_board() {
    for (board, scenario, reason) in [
        ("agx-orin-jp5", Some("kernel-panic"), "BCCPLEXWDT\n"),
        ("orin-nano-super-jp62", Some("power-loss"), "SYS_RESET_N\n"),
        ("thor-jp7", Some("watchdog-top0"), "TOP_0_WDT_POR\n"),
    ] {
        assert_eq!(text(&read_board(board, scenario), names::RESET_REASON), reason, "{board}");
    }
    assert_eq!(read_board("x86-pc", None).items[names::RESET_REASON], Fact::Absent);
}

#[test]
fn every_source_is_read_or_said_to_be_absent_on_every_board() {
    let prefixes = [
        "pmc/",
        "pstore/",
        "pstore/systemd/",
        "journal/boots",
        "journal/storage",
        "journal/previous.jsonl",
        "journal/previous-kernel",
        "journal/current",
        "journal/kernel",
        "last.txt",
        "thermal/",
        "over-current/",
        "watchdog/",
        "nvme/",
        "efi/",
        "sysctl/kernel.panic",
        "kernel/uptime",
        "clock/synchronised",
    ];
    for board in ["agx-orin-jp5", "orin-nano-super-jp62", "thor-jp7", "x86-pc"] {
        let raw = read_board(board, None);
        for prefix in prefixes {
            assert!(raw.items.keys().any(|name| name.starts_with(prefix)), "{board}: nothing of {prefix}");
        }
        assert!(text(&raw, names::BOOTS).contains("2a7d9f30"), "{board}");
        assert!(text(&raw, names::PREVIOUS).lines().count() > 10, "{board}");
        assert!(text(&raw, "kernel/uptime").contains('.'), "{board}");
    }
}

#[test]
fn the_journal_of_the_boot_before_is_that_of_the_boot_before() {
    let raw = read_board("orin-nano-super-jp62", Some("watchdog-reset"));
    assert!(text(&raw, names::PREVIOUS).lines().all(|line| line.contains("2a7d9f30c4e84d1f8a55c0b1e2f3a402")));
    // The scenario's list has one boot before this one, and the board's journal at offset -1 is this boot's own.
    let raw = read_board("orin-nano-super-jp62", Some("oom-kill"));
    assert_eq!(raw.items[names::PREVIOUS], Fact::Absent);
    assert!(text(&raw, names::KERNEL).contains("oom-kill:"));
    // A volatile journal knows no boot before.
    assert_eq!(read_board("orin-nano-super-jp62", Some("volatile-journal")).items[names::PREVIOUS], Fact::Absent);
}

#[test]
fn without_a_journal_the_buffer_of_the_kernel_speaks_or_says_why_not() {
    let tree = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = tree.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("proc/sys/kernel/random/boot_id", "3b8e0a41-d5f9-5e20-9b66-d1c2f304b503");
    let kernel = || read(&Sysroot::new(tree.path().to_path_buf())).unwrap().items[names::KERNEL].clone();
    assert_eq!(kernel(), Fact::Absent);
    write("capture.json", r#"{"schema":"jetfault.capture/1","denied":{"cmd/dmesg.txt":"dmesg: not permitted"}}"#);
    assert_eq!(kernel(), Fact::Denied("dmesg: not permitted".to_owned()));
    write("capture.json", r#"{"schema":"jetfault.capture/1"}"#);
    write("cmd/dmesg.txt", "[    0.000000] Linux version 6.8\n");
    assert_eq!(kernel(), Fact::Known(b"[    0.000000] Linux version 6.8\n".to_vec()));
}

#[test]
fn sensors_are_named_by_what_they_measure() {
    let raw = read_board("orin-nano-super-jp62", None);
    assert_eq!(text(&raw, "thermal/tj-thermal/trip_point_0_type").trim(), "passive");
    assert!(raw.items.keys().any(|name| name == "over-current/soctherm_oc/oc3_event_cnt"), "{:?}", raw.items.keys());
    let raw = read_board("agx-orin-jp5", None);
    assert_eq!(text(&raw, "over-current/ina3221/curr4_crit_alarm").trim(), "0");
    let raw = read_board("thor-jp7", None);
    assert!(text(&raw, "watchdog/watchdog0/identity").contains("WDT"));
}

#[test]
fn counters_of_power_and_of_boot_slots_are_kept() {
    let raw = read_board("orin-nano-super-jp62", Some("power-loss"));
    assert!(text(&raw, "nvme/nvme0.json").contains("\"unsafe_shutdowns\": 13"));
    assert_eq!(
        raw.items.keys().filter(|name| name.starts_with(names::NVME)).count(),
        1,
        "the log of before is no drive"
    );
    let low = read_board("orin-nano-super-jp62", Some("retry-counter-low"));
    let count = low.items["efi/RootfsRetryCountA"].known().unwrap();
    assert_eq!(count.len(), 8, "attributes and value");
    assert!(count[4] < 3);
}

#[test]
fn records_are_read_where_systemd_moves_them() {
    let tree = assemble("orin-nano-super-jp62", Some("kernel-panic"));
    let archive = tree.path().join("var/lib/systemd/pstore/17780553/001");
    std::fs::create_dir_all(&archive).unwrap();
    for (name, content) in [("dmesg-ramoops-0", "Panic#1 Part1\n"), ("dmesg.txt", "put together")] {
        std::fs::write(archive.join(name), content).unwrap();
    }
    let raw = read(&Sysroot::new(tree.path().to_path_buf())).unwrap();
    assert!(text(&raw, "pstore/dmesg-ramoops-0").contains("Panic"));
    assert_eq!(text(&raw, "pstore/systemd/17780553/001/dmesg-ramoops-0"), "Panic#1 Part1\n");
    assert_eq!(text(&raw, "pstore/systemd/"), "17780553/001/dmesg-ramoops-0\n");
    assert!(!raw.items.keys().any(|name| name.ends_with("dmesg.txt")), "one crash is one record");
}

#[test]
fn what_finds_no_room_is_denied_and_not_cut() {
    let tree = tempfile::tempdir().unwrap();
    let sysroot = Sysroot::new(tree.path().to_path_buf());
    let mut collector = Collector { sysroot: &sysroot, items: BTreeMap::new(), bytes_left: 10 };
    collector.put("a", Fact::Known(vec![0; 8]));
    collector.put("b", Fact::Known(vec![0; 8]));
    collector.put("c", Fact::Known(vec![0; 2]));
    assert!(matches!(collector.items["b"], Fact::Denied(_)));
    assert!(collector.items["c"].known().is_some());
}

#[test]
fn names_of_items_are_names_of_files() {
    assert_eq!(component("dmesg-ramoops-0"), "dmesg-ramoops-0");
    assert_eq!(component("a/b c\n"), "a_b_c_");
    assert_eq!(component(".."), "__");
    assert_eq!(component(""), "_");
}

#[test]
fn evidence_is_written_with_what_it_was_made_of() {
    let tree = assemble("agx-orin-jp5", Some("kernel-panic"));
    let dir = tempfile::tempdir().unwrap();
    let (evidence, raw) = capture(&Sysroot::new(tree.path().to_path_buf())).unwrap();
    for _ in 0..2 {
        save(dir.path(), &evidence, &raw.items).unwrap();
    }
    let path = |name: &str| dir.path().join(name);
    assert_eq!(std::fs::read(path("raw/pmc/reset_reason")).unwrap(), b"BCCPLEXWDT\n");
    assert!(path("raw/pstore/dmesg-ramoops-0").is_file());
    let stored: crate::model::evidence::Evidence =
        serde_json::from_slice(&std::fs::read(path("evidence.json")).unwrap()).unwrap();
    assert_eq!(stored, evidence);
    assert_eq!(stored.items["pmc/reset_reason"], Fact::Known("BCCPLEXWDT".to_owned()));
    assert_eq!(stored.items["nvme/"], Fact::Absent);
}
