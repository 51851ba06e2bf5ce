//! What the tests of the command line share: a directory of their own, and the real binary.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const HARNESS: &str = env!("CARGO_BIN_EXE_jetfault");

/// No step needs longer, on a machine that is busy with all the other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One results directory, one lock directory, and the matrices that a test writes.
pub struct Bench {
    pub dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        // Beside the build, which is on a disk; the system's directory for temporary files may be in memory.
        Self { dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn results(&self) -> PathBuf {
        self.path("results")
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(HARNESS);
        command.args(args).current_dir(self.dir.path());
        self.at_home(&mut command);
        command
    }

    /// Has `command` find nothing of the machine's own results, locks and settings.
    pub fn at_home<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("JETFAULT_RESULTS", self.results())
            .env("JETFAULT_LOCK_DIR", self.dir.path())
            .env("HOME", self.dir.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env_remove("CI")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
    }

    pub fn run(&self, args: &[&str]) -> Said {
        Said::of(&self.command(args).output().unwrap())
    }

    pub fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// The journal of a run, once it is as `wanted`.
    pub fn await_journal(&self, run: &str, wanted: impl Fn(&str) -> bool) -> String {
        let path = self.results().join(run).join("journal.jsonl");
        let until = Instant::now() + PATIENCE;
        loop {
            let journal = fs::read_to_string(&path).unwrap_or_default();
            if wanted(&journal) {
                return journal;
            }
            assert!(Instant::now() < until, "what was waited for never came; the journal is\n{journal}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn journal(&self, run: &str) -> String {
        fs::read_to_string(self.results().join(run).join("journal.jsonl")).unwrap_or_default()
    }

    /// Every `result.json` of a run, by trial, in order.
    pub fn results_of(&self, run: &str) -> Vec<(String, String)> {
        let trials = self.results().join(run).join("trials");
        let mut found: Vec<(String, String)> = fs::read_dir(trials)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter_map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                Some((name, fs::read_to_string(path.join("result.json")).ok()?))
            })
            .collect();
        found.sort();
        found
    }
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Asserts the exit code and that standard error holds each of `texts`.
    #[track_caller]
    pub fn fails(&self, code: i32, texts: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        for text in texts {
            assert!(self.err.contains(text), "{text:?} is not in\n{}", self.err);
        }
        self
    }

    /// Whether standard output says `text`, wherever its lines are broken: a path among the words moves the breaks.
    pub fn says(&self, text: &str) -> bool {
        let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        joined(&self.out).contains(&joined(text))
    }

    #[track_caller]
    pub fn ends(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }
}

/// A matrix of workers that play a script: `axes` multiplies its cells.
pub fn matrix(name: &str, trials: u32, more: &str) -> String {
    format!(
        "[matrix]\nname = \"{name}\"\ntrials = {trials}\nseed = 1\n[workload]\nkind = \"linear4bit\"\nbackend = \"cpu\"\n\
         settle = \"0s\"\n[shapes]\nA = [64, 64]\n[baseline]\nsequence = \"A\"\n{more}"
    )
}
