//! The machines of `tests/fixtures/boards`, put together in a temporary directory.
//!
//! Tests of the command line include this file too, so it leans on nothing of the crate.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

/// The tree of a board, after a scenario if one is named. See `tests/fixtures/boards/README.md`.
pub(crate) fn assemble(board: &str, scenario: Option<&str>) -> TempDir {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/boards").join(board);
    let tree = tempfile::tempdir().unwrap();
    copy(&source, tree.path(), &["scenarios", "LINKS"]);
    for line in optional(&source.join("LINKS")).lines() {
        let (path, target) = line.split_once(" -> ").unwrap();
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
    if let Some(name) = scenario {
        let overlay = source.join("scenarios").join(name);
        copy(&overlay, tree.path(), &["WHITEOUT", "expect.json"]);
        for path in optional(&overlay.join("WHITEOUT")).lines() {
            fs::remove_file(tree.path().join(path)).unwrap();
        }
    }
    tree
}

/// The text of a file that need not be there.
fn optional(path: &Path) -> String {
    match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

fn copy(from: &Path, to: &Path, without: &[&str]) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if without.iter().any(|skipped| *skipped == name) {
            continue;
        }
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(name), &[]);
        } else {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}

#[test]
fn a_scenario_lies_over_its_board() {
    let (before, after) =
        (assemble("orin-nano-super-jp62", None), assemble("orin-nano-super-jp62", Some("gpu-acr-dead")));
    let node = "sys/class/devfreq/17000000.gpu";
    assert!(before.path().join(node).join("cur_freq").is_file(), "the link leads somewhere");
    assert!(fs::symlink_metadata(after.path().join(node)).is_err(), "the scenario took it away");
    assert!(after.path().join("etc/nv_tegra_release").is_file());
    assert!(!after.path().join("expect.json").exists());
}
