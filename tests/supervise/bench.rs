//! What the tests of supervision share: one supervisor, one trial's directory, and the real binary.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "two test programs include this, and neither uses all of it"
)]

pub use std::fs;
pub use std::path::{Path, PathBuf};
pub use std::time::{Duration, Instant};

pub use jetfault::model::hang::HangKind;
pub use jetfault::model::ids::RunId;
pub use jetfault::model::journal::{Conditions, Invoker, Launcher, Started};
pub use jetfault::model::outcome::{EndedBy, Exit, LastReply, Outcome};
pub use jetfault::model::protocol::{InjectedFault, PROTOCOL_VERSION, Request, Work, WorkerFault};
pub use jetfault::model::settings::{Breadcrumbs, Observer, OutputKind};
pub use jetfault::model::verdict::{Provenance, Role};
pub use jetfault::perform::journal::Durable;
pub use jetfault::perform::processes::RunMark;
pub use jetfault::perform::supervise::{
    Child, ChildEvent, CommandLine, Deadlines, EnvChange, Expectation, Launch, OUTPUT_BYTES_MAX, Program, StartError,
    Supervisor,
};
pub use regex::bytes::Regex;
pub use rustix::process::{Pid, test_kill_process};

pub const HARNESS: &str = env!("CARGO_BIN_EXE_jetfault");
pub const TRIAL: &str = "c-0123456789abcdef-r001-a1";

/// No test needs longer, on a machine that is busy with all the others.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// One supervisor and one trial's directory.
pub struct Bench {
    pub supervisor: Supervisor,
    pub dir: tempfile::TempDir,
    pub run: RunMark,
    pub deadlines: Deadlines,
    pub environment: Vec<EnvChange>,
    pub output_bytes_max: u64,
    pub observer: Observer,
}

impl Bench {
    pub fn new() -> Self {
        let short = Duration::from_millis(100);
        let deadlines = Deadlines {
            timeout: PATIENCE,
            stage_timeout: None,
            silence_timeout: None,
            grace: short,
            kill_wait: Duration::from_secs(5),
            settle: Duration::ZERO,
        };
        // Tests of one process run side by side: each has its own run, and so its own marks.
        let dir = tempfile::tempdir().unwrap();
        let unique = dir.path().file_name().unwrap().to_str().unwrap().replace('.', "t");
        Self {
            supervisor: Supervisor::new(HARNESS.into()).unwrap(),
            run: RunMark::new(&RunId::new(&unique, 1).unwrap(), dir.path()),
            dir,
            deadlines,
            environment: Vec::new(),
            output_bytes_max: OUTPUT_BYTES_MAX,
            observer: Observer::None,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub fn start(&mut self, program: Program) -> Child {
        self.start_as(program, None)
    }

    pub fn start_as(&mut self, program: Program, invoker: Option<&Invoker>) -> Child {
        let launch = Launch {
            environment: self.environment.clone(),
            output_bytes_max: self.output_bytes_max,
            observer: self.observer,
            invoker,
            ..Launch::new(program, &self.run, self.dir.path(), self.deadlines)
        };
        self.supervisor.start(&started(), launch).unwrap()
    }

    /// Pulls events until the end.
    pub fn finish(&mut self, child: &mut Child) -> (Vec<ChildEvent>, Outcome) {
        let (begin, mut events) = (Instant::now(), Vec::new());
        loop {
            assert!(begin.elapsed() < PATIENCE, "the supervisor hangs after {events:?}");
            match self.supervisor.next_event(child, Duration::from_secs(1)) {
                ChildEvent::Ended(outcome) => return (events, *outcome),
                ChildEvent::Quiet => {}
                event => events.push(event),
            }
        }
    }

    pub fn run(&mut self, program: Program) -> (Vec<ChildEvent>, Outcome) {
        let mut child = self.start(program);
        self.finish(&mut child)
    }

    pub fn play(&mut self, script: &str) -> Outcome {
        self.run(worker(script)).1
    }
}

pub fn started() -> Durable<Started> {
    Durable::pretended_for_tests(Started {
        trial: TRIAL.parse().unwrap(),
        role: Role::Sample,
        device: "d-00000000".parse().unwrap(),
        position: 0,
        provenance: Provenance::Measured,
        launcher: Launcher::Shell,
        conditions: Conditions::default(),
    })
}

pub fn request(script: &str) -> Request {
    Request {
        protocol: PROTOCOL_VERSION,
        trial: TRIAL.parse().unwrap(),
        seed: 1936,
        work: Work::Script(script.to_owned()),
        breadcrumbs: Breadcrumbs::Async,
        inject: None,
    }
}

pub fn worker(script: &str) -> Program {
    Program::Worker(request(script))
}

pub fn argv(argv: &[&str]) -> CommandLine {
    CommandLine { argv: argv.iter().map(|arg| (*arg).to_owned()).collect(), ..CommandLine::default() }
}

pub fn shell(script: &str) -> CommandLine {
    argv(&["/bin/sh", "-c", script])
}

pub fn stages(events: &[ChildEvent]) -> Vec<String> {
    let name = |event: &ChildEvent| match event {
        ChildEvent::Stage { stage, .. } => Some(stage.to_string()),
        ChildEvent::Running { .. } | ChildEvent::Quiet | ChildEvent::Ended(_) => None,
    };
    events.iter().filter_map(name).collect()
}

pub fn pid_in(path: &Path) -> Pid {
    let begin = Instant::now();
    loop {
        if let Some(pid) = fs::read_to_string(path).ok().and_then(|text| Pid::from_raw(text.trim().parse().ok()?)) {
            return pid;
        }
        assert!(begin.elapsed() < PATIENCE, "{} never appeared", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A zombie that waits for its reaper is gone too.
pub fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_err() || stat.contains(") Z ")
}

pub fn becomes_gone(pid: Pid) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if is_gone(pid) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// A pass is exit 0 and `Done` and not a word of doubt.
pub fn looks_like_a_pass(outcome: &Outcome) -> bool {
    outcome.exit == Exit::Code(0)
        && outcome.last_reply == Some(LastReply::Done)
        && outcome.ended_by.is_none()
        && outcome.protocol_error.is_none()
        && outcome.failure.is_none()
        && outcome.mismatch.is_none()
}
