//! The reports that are files, HTML, CSV, JUnit and bundles, of a constructed run with every kind of verdict.

mod bundles;
mod constructed;
mod formats;
mod jenkins;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use constructed::Shape;

/// The run that the tests look at, made once.
static RUN: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run =
        constructed::make(dir.path(), "board", &Shape { trials: 9, files: 120, warmed_faults: 0, max_boots: None });
    (dir, run)
});

/// The program with the machine of a captured board: what is redacted does not depend on who runs the tests.
fn jetfault(arguments: &[&str]) -> Output {
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/boards/x86-pc");
    let sysroot = ["--sysroot", board.to_str().unwrap()];
    Command::new(env!("CARGO_BIN_EXE_jetfault"))
        .args(sysroot)
        .args(arguments)
        .current_dir(env!("CARGO_TARGET_TMPDIR"))
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap()
}

/// The report of [`RUN`] in `format`. It has faults, so the exit code is 1.
fn report(format: &str, more: &[&str]) -> String {
    let run = RUN.1.to_str().unwrap();
    let output = jetfault(&[&["report", run, "--format", format], more].concat());
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
