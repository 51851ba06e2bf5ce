//! What people see in a terminal: each view in tmux, at 80x24 and at 200x60, as it stands on the screen.
//!
//! Times, process ids and paths differ from run to run and are masked; everything else is pinned.

#[path = "../src/testing/boards.rs"]
mod boards;
#[path = "../src/testing/needs.rs"]
mod needs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use regex::Regex;

const HARNESS: &str = env!("CARGO_BIN_EXE_jetfault");

/// No view needs longer, on a machine that is busy with all the other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// The sizes: what a board's console or a phone shows, and a wide window.
const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

/// Whether there is a tmux; without one `test` shows nothing and says so.
fn has_tmux(test: &str) -> bool {
    let tmux = Command::new("tmux").arg("-V").output();
    if let Err(error) = &tmux {
        needs::is_missing("tmux", test, &format!("tmux cannot be started ({error}); apt-get install tmux"));
    }
    tmux.is_ok()
}

static SERVERS: AtomicU32 = AtomicU32::new(0);

/// A terminal of its own.
struct Terminal {
    socket: String,
}

impl Terminal {
    /// One of `columns` by `rows` in which `command` runs; what it showed stays until the terminal is dropped.
    fn new((columns, rows): (u16, u16), dir: &Path, command: &str) -> Self {
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let socket = format!("jetfault-{}-{number}", std::process::id());
        let terminal = Self { socket };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        // The shell stays, so that the screen does, and takes no notice of a Ctrl-C that is meant for the command.
        let script = format!("trap '' INT; (trap - INT; {command}); cat > /dev/null");
        let dir = dir.to_str().unwrap();
        let made = terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            "-c",
            dir,
            "sh",
            "-c",
            &script,
        ]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.socket]).args(arguments).env("LC_ALL", "C.UTF-8").env_remove("TMUX");
        command.output().expect("tmux was there")
    }

    /// What is on the screen.
    fn screen(&self) -> String {
        self.capture(&[])
    }

    /// That, and what was scrolled off it.
    fn all(&self) -> String {
        self.capture(&["-S", "-"])
    }

    fn capture(&self, more: &[&str]) -> String {
        let output = self.tmux(&[&["capture-pane", "-p"], more].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }

    /// The screen, once it is as `wanted` and stays so for a moment.
    #[track_caller]
    fn until(&self, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                std::thread::sleep(Duration::from_millis(100));
                if self.screen() == screen {
                    return screen;
                }
            }
            assert!(Instant::now() < until, "what was waited for never came; the screen is\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn keys(&self, keys: &str) {
        assert!(self.tmux(&["send-keys", keys]).status.success());
    }

    fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        assert!(self.tmux(&["resize-window", "-x", &columns, "-y", &rows]).status.success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// A place for runs, and a board to look at.
struct Place {
    dir: tempfile::TempDir,
    board: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { dir, board: boards::assemble("orin-nano-super-jp62", None) }
    }

    fn results(&self) -> PathBuf {
        self.dir.path().join("results")
    }

    /// The command line as a shell takes it.
    fn line(&self, arguments: &str) -> String {
        let dir = self.dir.path().display();
        format!(
            "env -u CI -u NO_COLOR -u COLUMNS JETFAULT_RESULTS={dir}/results JETFAULT_LOCK_DIR={dir} HOME={dir} \
             XDG_STATE_HOME={dir}/state {HARNESS} {arguments}"
        )
    }

    fn spawn(&self, arguments: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {}", self.line(arguments))]).current_dir(self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn show(&self, size: (u16, u16), arguments: &str) -> Terminal {
        Terminal::new(size, self.dir.path(), &self.line(arguments))
    }

    /// A matrix of `cells` cells of workers that play a script.
    fn matrix(&self, cells: u32, trials: u32) {
        let levels: Vec<String> = (2..=cells).map(|batch| batch.to_string()).collect();
        let text = format!(
            "[matrix]\nname = \"slow\"\ntrials = {trials}\nseed = 1\n[workload]\nkind = \"linear4bit\"\nbackend = \"cpu\"\n\
             settle = \"0s\"\n[shapes]\nA = [64, 64]\n[baseline]\nsequence = \"A\"\n[axes]\nbatch = [{}]\n",
            levels.join(", ")
        );
        fs::write(self.dir.path().join("slow.toml"), text).unwrap();
    }

    fn await_journal(&self, run: &str, text: &str) {
        let path = self.results().join(run).join("journal.jsonl");
        let until = Instant::now() + PATIENCE;
        while !fs::read_to_string(&path).unwrap_or_default().contains(text) {
            assert!(Instant::now() < until, "{text} never came");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// `screen` without what differs from run to run.
fn masked(screen: &str) -> String {
    let mut text = screen.to_owned();
    for (pattern, mask) in [
        (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "[time]"),
        (r"(about |for |, |after )\d+(\.\d+)? (ms|s|min|h)\b", "$1[duration]"),
        (r"(\d+(\.\d+)? (ms|s|min|h)) ago", "[duration] ago"),
        // Where it is cut, or broken, depends on its length.
        (r"(?m)^(jetfault [\d.]+: \d+ runs? in ).*$", "$1[path]"),
        (r"\b\d+(\.\d+)? (ms|s) +", "[duration] "),
        (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "[boot]"),
        (r"boot [0-9a-f]{8}\b", "boot [boot]"),
        (r", (just now|\[duration\] ago)", ", [ago]"),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned();
    }
    text
}

#[track_caller]
fn fits(screen: &str, (columns, rows): (u16, u16)) {
    assert!(screen.lines().count() <= usize::from(rows), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= usize::from(columns)), "{screen}");
}

fn data_set(arguments: &str) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    format!("cd {root} && env -u NO_COLOR -u CI {HARNESS} {arguments}")
}

#[test]
fn the_overview() {
    if !has_tmux("the_overview") {
        return;
    }
    let place = Place::new();
    place.matrix(2, 1);
    for size in SIZES {
        let line = format!("--sysroot {}", place.board.path().display());
        let empty = place.show(size, &line).until(|screen| screen.contains("--help"));
        fits(&empty, size);
        insta::assert_snapshot!(format!("overview_of_a_board_{}x{}", size.0, size.1), masked(&empty));
    }
    place.spawn("run slow.toml --script 'exit 3'").wait().unwrap();
    let line = format!("--sysroot {}", place.board.path().display());
    let after = place.show(SIZES[0], &line).until(|screen| screen.contains("--help"));
    assert!(after.lines().count() <= 10, "{after}");
    insta::assert_snapshot!("overview_after_a_run_80x24", masked(&after));
}

#[test]
fn the_report_and_the_explanation() {
    if !has_tmux("the_report_and_the_explanation") {
        return;
    }
    for size in SIZES {
        let name = |view: &str| format!("{view}_{}x{}", size.0, size.1);
        let run = "results/bnb-1936-correction-001";
        let report = Terminal::new(size, Path::new("/"), &data_set(&format!("report {run}; echo over")));
        report.until(|screen| screen.contains("over"));
        insta::assert_snapshot!(name("report"), report.all());
        let trial = "'batch=2, version=0.46.1'";
        let explained = data_set(&format!("explain results/bnb-1936 {trial}; echo over"));
        let explained = Terminal::new(size, Path::new("/"), &explained);
        explained.until(|screen| screen.contains("over"));
        insta::assert_snapshot!(name("explain"), explained.all());
    }
}

#[test]
fn the_progress_of_a_run() {
    if !has_tmux("the_progress_of_a_run") {
        return;
    }
    for size in SIZES {
        let place = Place::new();
        place.matrix(3, 2);
        let script = "stage A.construct; sleep 300; stage A.forward; sleep 2500; exit 3";
        let run = place.show(size, &format!("run slow.toml --script '{script}'"));
        let screen = run.until(|screen| screen.contains("1/6 counted") && screen.contains("A.forward for"));
        fits(&screen, size);
        let from_first_trial = &screen[screen.find("[1/6]").unwrap()..];
        insta::assert_snapshot!(format!("progress_{}x{}", size.0, size.1), masked(from_first_trial));
        run.keys("C-c");
        let stopped = run.until(|screen| screen.contains("goes on"));
        assert!(!stopped.contains("counted, about"), "the bar is gone:\n{stopped}");
    }
}

#[test]
fn a_run_is_followed_through_a_death_to_its_end_and_the_window_may_change() {
    if !has_tmux("a_run_is_followed_through_a_death_to_its_end_and_the_window_may_change") {
        return;
    }
    let place = Place::new();
    place.matrix(30, 1);
    let script = "stage A.construct; sleep 3000; exit 3";
    let mut run = place.spawn(&format!("run slow.toml --script '{script}'"));
    place.await_journal("slow-001", "A.construct");
    for size in SIZES {
        let follow = place.show(size, "status --follow");
        let screen = follow.until(|screen| screen.contains("slow-001: open") && screen.contains("A.construct"));
        fits(&screen, size);
        // Which trial it is depends on when one looks.
        assert_eq!(screen.contains("more cells: "), size.1 < 40, "{screen}");
        assert!(screen.contains("stop     jetfault stop slow-001"), "{screen}");
    }
    let follow = place.show(SIZES[0], "status --follow");
    follow.until(|screen| screen.contains("slow-001: open"));
    follow.resize(60, 14);
    // Until it is drawn again, the terminal shows the old frame as it breaks the lines itself.
    let is_whole = |screen: &str| screen.contains("more cells: ") && screen.matches("slow-001: open").count() == 1;
    let small = follow.until(|screen| screen.lines().count() <= 14 && is_whole(screen));
    fits(&small, (60, 14));
    follow.resize(80, 24);
    follow.until(|screen| screen.lines().count() > 16 && screen.matches("slow-001: open").count() == 1);
    // The harness dies: the view stays, says so, and takes up what follows.
    run.kill().unwrap();
    run.wait().unwrap();
    let alone = follow.until(|screen| screen.contains("no jetfault is at work on it"));
    insta::assert_snapshot!("followed_run_without_a_harness_80x24", masked_counts(&masked(&alone)));
    let elsewhere = format!("--sysroot {} status slow-001 --follow", place.board.path().display());
    let elsewhere = place.show(SIZES[0], &elsewhere);
    elsewhere.until(|screen| screen.contains("last heard of in boot "));
    elsewhere.keys("C-c");
    let mut resumed = place.spawn("resume");
    follow.until(|screen| screen.contains("jetfault stop slow-001"));
    follow.keys("C-c");
    resumed.kill().unwrap();
    resumed.wait().unwrap();
}

/// How far a run is depends on when it was killed.
fn masked_counts(screen: &str) -> String {
    let mut text = screen.to_owned();
    for (pattern, mask) in [
        (r"c-[0-9a-f]{16}-r\d+-a\d+", "[trial]"),
        (r"(?m)^(last|open|next)( +).*$", "$1$2[…]"),
        (r"(?m)^(trials|…)( +).*$", "$1$2[…]"),
        (r"(?m)^(batch=\d+|baseline) .*$\n?", ""),
        (r"(?m)^ {9}.*$\n?", ""),
    ] {
        text = Regex::new(pattern).unwrap().replace_all(&text, mask).into_owned();
    }
    text
}

#[test]
fn a_followed_run_ends_with_it() {
    if !has_tmux("a_followed_run_ends_with_it") {
        return;
    }
    let place = Place::new();
    place.matrix(2, 1);
    place.spawn("run slow.toml --script 'exit 3'").wait().unwrap();
    for size in SIZES {
        let follow = place.show(size, "status --follow; echo over");
        let screen = follow.until(|screen| screen.contains("over"));
        insta::assert_snapshot!(format!("followed_run_at_its_end_{}x{}", size.0, size.1), masked(&screen));
    }
}
