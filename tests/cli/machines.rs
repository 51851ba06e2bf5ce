//! Machines read through `--sysroot`: captured trees, and this machine captured into one.

use std::fs;
use std::path::Path;

use super::bench::Bench;
use super::boards::assemble;

fn doctor(bench: &Bench, sysroot: &Path) -> serde_json::Value {
    let said = bench.run(&["doctor", "--format", "json", "--sysroot", sysroot.to_str().unwrap()]);
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}{}", said.out, said.err))
}

fn check<'a>(fitness: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let checks = fitness["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check {name} in {fitness}"))
}

#[test]
fn a_dead_gpu_and_a_lost_try_are_seen_in_a_captured_tree() {
    let bench = Bench::new();
    for (scenario, name) in [("gpu-acr-dead", "gpu-health"), ("retry-counter-low", "boot-slots")] {
        let tree = assemble("orin-nano-super-jp62", Some(scenario));
        let fitness = doctor(&bench, tree.path());
        assert_eq!(check(&fitness, name)["state"], "failure", "{fitness}");
        assert!(check(&fitness, name)["mending"].as_str().unwrap().starts_with("sudo "), "{fitness}");
        let said = bench.run(&["doctor", "--sysroot", tree.path().to_str().unwrap()]);
        said.ends(4);
    }
}

#[test]
fn a_board_captured_again_gives_the_same_answers() {
    let bench = Bench::new();
    for (board, scenario) in [
        ("agx-orin-jp5", Some("kernel-panic")),
        ("orin-nano-super-jp62", Some("gpu-acr-dead")),
        ("thor-jp7", None),
        ("x86-pc", Some("xid31")),
    ] {
        let tree = assemble(board, scenario);
        let copy = bench.path(board);
        let to = copy.to_str().unwrap();
        let said = bench.run(&["capture", "--to", to, "--sysroot", tree.path().to_str().unwrap()]);
        said.ends(0);
        assert_eq!(said.out, format!("{to}\n"));
        assert_eq!(doctor(&bench, tree.path()), doctor(&bench, &copy), "{board}");
        assert!(!copy.join("etc/machine-id").exists());
    }
}

#[test]
fn this_machine_captured_says_what_it_says_itself() {
    let bench = Bench::new();
    let copy = bench.path("copy");
    let said = bench.run(&["capture", "--to", copy.to_str().unwrap()]);
    said.ends(0);
    let (live, captured) = (doctor(&bench, Path::new("/")), doctor(&bench, &copy));
    for seen in captured["checks"].as_array().unwrap() {
        assert_eq!(check(&live, seen["name"].as_str().unwrap()), seen);
    }
    assert!(captured["checks"].as_array().unwrap().len() >= 8, "{captured}");
}

#[test]
fn a_capture_goes_only_where_nothing_is() {
    let bench = Bench::new();
    let dir = bench.path("full");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("precious"), "mine").unwrap();
    let said = bench.run(&["capture", "--to", dir.to_str().unwrap()]);
    said.fails(2, &["is not empty", "hint: name a directory that is empty"]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn names_and_numbers_of_a_captured_machine_stay_home_unless_asked_for() {
    let bench = Bench::new();
    let tree = assemble("orin-nano-super-jp62", Some("operator-reboot"));
    let write = |path: &str, text: &str| fs::write(tree.path().join(path), text).unwrap();
    write("etc/passwd", "mallory:x:1000:1000::/home/mallory:/bin/bash\n");
    write("proc/device-tree/serial-number", "1424525012345\0");
    write("proc/cmdline", "root=/dev/nvme0n1p1 serialno=1424525012345 mac=48:b0:2d:aa:bb:0c\n");
    let journal = tree.path().join("cmd/journalctl-b-0.jsonl");
    let mut text = fs::read_to_string(&journal).unwrap();
    text.push_str(&format!(
        "{{\"MESSAGE\":\"session opened for user mallory(uid=1000)\",\"_BOOT_ID\":\"{}\"}}\n",
        fs::read_to_string(tree.path().join("proc/sys/kernel/random/boot_id")).unwrap().trim().replace('-', "")
    ));
    fs::write(&journal, text).unwrap();
    let secrets = ["mallory", "1424525012345", "48:b0:2d:aa:bb:0c"];
    for (flag, stays) in [(&[][..], false), (&["--no-redact"][..], true)] {
        let copy = bench.path(if stays { "verbatim" } else { "redacted" });
        let mut args = vec!["capture", "--to", copy.to_str().unwrap(), "--sysroot", tree.path().to_str().unwrap()];
        args.extend(flag);
        bench.run(&args).ends(0);
        let all = all_text(&copy);
        for secret in secrets {
            assert_eq!(all.contains(secret), stays, "{secret} {flag:?}");
        }
        assert!(all.contains("3b8e0a41d5f95e209b66d1c2f304b503"), "the boot's id stays");
        assert!(all.contains("MAINSWRST"));
    }
}

fn all_text(dir: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.push_str(&all_text(&path));
        } else {
            all.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
        }
    }
    all
}
