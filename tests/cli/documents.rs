//! The documents' command blocks are run as they stand, in their order, each document in a directory of its own.
//!
//! - A block `sh` is a script whose lines must succeed; `# exit code N` at the end of a line says that it must end so.
//! - A block `sh board` is the same on the constructed tree of an Orin Nano: whatever the machine would do at a boot is
//!   done after the block, and the trials of `run` play a script, because that board has no processor.
//! - A block `toml` with a whole matrix can be planned.
//! - A block `console` shows what is said: the words after a line `$ COMMAND` must be said, where `…` stands for any.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::{Bench, HARNESS, Said};
use crate::boots::Board;

/// What the first block of the README does is a step of `.ci/run`: a build inside of a test would wait for itself.
const BUILDS: [&str; 2] = ["cargo run --release -- run matrices/quickstart.toml", "cargo test"];

struct Block {
    kind: String,
    line: usize,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The README and every page of `docs/`.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(root().join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    found.extend(
        ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)).into_iter().filter(|path| path.exists()),
    );
    found.sort();
    found
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(kind), None) => open = Some(Block { kind: kind.trim().into(), line: index + 1, text: String::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    blocks
}

/// Where a document's commands are run.
struct Place {
    bench: Bench,
    board: Option<Board>,
}

impl Place {
    fn new() -> Self {
        let place = Self { bench: Bench::new(), board: None };
        place.program("bin/jetfault", &harness("", ""));
        place.program("bin/sudo", "exec \"$@\"\n");
        place.program("build-engine", "echo done\n");
        place
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.bench.write(name, &format!("#!/bin/sh\n{text}"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs lines of bash as somebody at a prompt in `dir`.
    fn bash(&self, dir: &Path, bin: &str, script: &str) -> Said {
        let path = format!("{}:{}", self.bench.path(bin).display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]).current_dir(dir).env("PATH", path);
        Said::of(&self.bench.at_home(&mut command).output().unwrap())
    }

    fn run(&mut self, block: &Block) -> Result<(), String> {
        let dir = self.bench.dir.path().to_owned();
        match block.kind.as_str() {
            "sh" => ended(&self.bash(&dir, "bin", &script(&block.text))),
            "sh board" => {
                if self.board.is_none() {
                    let board = Board::working();
                    let root = board.root();
                    // The delay is for a person who would log in, the shapes are too large for a CPU, and the tree of a board
                    // has no programs of its own.
                    let for_run = "--boot-delay 0 --script done --set workload.backend=auto --set workload.settle=0s \
                                   --set baseline.power_mode=kept";
                    self.program("board/jetfault", &harness(&format!("--sysroot {root}"), for_run));
                    self.program("board/sudo", "exec \"$@\"\n");
                    self.board = Some(board);
                }
                let said = self.bash(&dir, "board", &script(&block.text));
                self.board.as_ref().unwrap().boot_until_disarmed(&self.bench);
                ended(&said)
            }
            // A whole matrix, and no part of one.
            "toml" if block.text.contains("[matrix]\n") && block.text.contains("[workload]\n") => {
                self.bench.write("document.toml", &block.text);
                ended(&self.bash(&dir, "bin", "jetfault plan document.toml"))
            }
            "console" => block.text.split("$ ").skip(1).try_for_each(|part| {
                let (command, wanted) = part.split_once('\n').unwrap();
                let said = self.bash(root(), "bin", &format!("{command} 2>&1 || true"));
                says(&said.out, wanted)
            }),
            _ => Ok(()),
        }
    }
}

/// The harness with what a test needs besides: `always`, and `for_run` where trials may run.
fn harness(always: &str, for_run: &str) -> String {
    let as_root = if rustix::process::geteuid().is_root() { "--allow-root-workload" } else { "" };
    format!(
        "[ $# -gt 0 ] || exec {HARNESS} {always}\ncommand=$1; shift\ncase $command in\n\
         run) exec {HARNESS} run {always} {as_root} {for_run} \"$@\" ;;\n\
         try|bisect|nightly) exec {HARNESS} $command {always} {as_root} \"$@\" ;;\n\
         *) exec {HARNESS} $command {always} \"$@\" ;;\nesac\n"
    )
}

/// The lines of a block, each held to the exit code that it names.
fn script(text: &str) -> String {
    let held = |line: &str| match line.split_once("# exit code ") {
        Some((command, rest)) => {
            let wanted: u8 = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
            format!(
                "code=0; {command} || code=$?; \
                 [ $code = {wanted} ] || {{ echo \"exit code $code and not {wanted}:\" '{}' >&2; exit 99; }}",
                command.trim().replace('\'', "")
            )
        }
        None => line.to_owned(),
    };
    text.lines().map(held).collect::<Vec<_>>().join("\n")
}

fn ended(said: &Said) -> Result<(), String> {
    let end = |text: &str| text.lines().rev().take(12).map(|line| format!("\n  {line}")).collect::<String>();
    match said.code {
        Some(0) => Ok(()),
        code => Err(format!("ended with {code:?}; the last lines, backwards:{}{}", end(&said.err), end(&said.out))),
    }
}

/// Whether `text` has the words that are shown, in their order and without others between them but at `…`.
fn says(text: &str, shown: &str) -> Result<(), String> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (said, shown) = (words(text), words(shown));
    let mut rest = said.as_str();
    for part in shown.split('…').map(str::trim).filter(|part| !part.is_empty()) {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return Err(format!("{part:?} is not said in\n{text}")),
        }
    }
    Ok(())
}

#[test]
fn every_command_block_of_the_documents_does_what_it_says() {
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    let (mut run, mut wrong) = (0, String::new());
    for path in documents() {
        let mut place = Place::new();
        for mut block in blocks(&fs::read_to_string(&path).unwrap()) {
            if block.text.lines().any(|line| line.starts_with("cargo ")) {
                for build in block.text.lines() {
                    assert!(BUILDS.contains(&build), "{}: {build} is run by nothing", path.display());
                    let step = build.split(" -- ").next().unwrap();
                    assert!(ci.contains(step), ".ci/run does not {step}");
                }
                block.kind.clear();
            }
            let is_command = |line: &str| ["jetfault ", "sudo ", "$ "].iter().any(|begin| line.starts_with(begin));
            if ["", "bash", "shell", "text"].contains(&block.kind.as_str()) && block.text.lines().any(is_command) {
                wrong.push_str(&format!("{}:{}: commands that nothing runs\n", path.display(), block.line));
            }
            run += usize::from(["sh", "sh board", "console"].contains(&block.kind.as_str()));
            if let Err(why) = place.run(&block) {
                wrong.push_str(&format!("{}:{}: {why}\n", path.display(), block.line));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    println!("documents: {run} command blocks do what they say");
}

#[test]
fn a_document_that_says_something_else_is_noticed() {
    let mut place = Place::new();
    let block = |kind: &str, text: &str| Block { kind: kind.into(), line: 1, text: text.into() };
    assert!(place.run(&block("sh", "jetfault schema >/dev/null\n")).is_ok());
    assert!(place.run(&block("sh", "jetfault no-such-command\n")).unwrap_err().contains("no-such-command"));
    assert!(place.run(&block("sh", "jetfault report  # exit code 0\n")).unwrap_err().contains("exit code 2 and not 0"));
    assert!(place.run(&block("sh", "jetfault report  # exit code 2: there is none\n")).is_ok());
    assert!(place.run(&block("console", "$ echo one two three\none … three\n")).is_ok());
    assert!(place.run(&block("console", "$ echo one two three\none three\n")).is_err());
    assert!(place.run(&block("console", "$ echo one two\ntwo … one\n")).is_err());
}
