//! A command under gdb from its first instruction to its last (`observer = "gdb"`).
//!
//! The debugger is the trial's child and the command its own: it stops the command at fatal signals, writes down where every
//! thread is, and lets the signal go on. Its words go into a file, so that the command's output is the command's alone.
//! Scripts that files bring are not run. What gdb says of the end is told again here, because its own exit code cannot
//! say everything.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::decide::crash::Mapping;
use crate::model::crash::{Address, Crash, CrashedThread, FRAMES_MAX};
use crate::model::outcome::{Exit, Outcome};
use crate::model::settings::Aslr;
use crate::perform::places::Places;
use crate::perform::supervise::CommandLine;

/// The note of an outcome that says what observed it.
pub(super) const NOTE: &str = "observer";

/// The directory of the debugger's files in that of the trial.
const DIR: &str = "gdb";
/// Its words.
const LOG: &str = "session.log";

/// How many fatal signals that the command handles itself are looked at.
const STOPS_MAX: usize = 16;

/// The longest log of a session that is read.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What becomes the command: a script has no code that gdb could start.
const ENV: &str = "/usr/bin/env";

/// A session of gdb.
#[derive(Debug, Clone)]
pub(super) struct Session {
    gdb: PathBuf,
    dir: PathBuf,
    /// The command's `SHELL`.
    shell: Option<String>,
    /// What the command was in the end.
    program: Option<PathBuf>,
}

impl Session {
    /// A session of `gdb` whose files are in the directory of the trial; `shell` is what the command's environment calls
    /// its shell.
    pub(super) fn new(gdb: PathBuf, trial_dir: &Path, shell: Option<String>) -> Self {
        Self { gdb, dir: trial_dir.join(DIR), shell, program: None }
    }

    /// Where its files are.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the command was in the end, as far as the debugger said.
    pub(super) fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    /// `command` under the debugger. Its directory must be there.
    ///
    /// # Errors
    /// If its scripts cannot be written, or the command cannot be given to it.
    pub(super) fn wrap(&self, command: CommandLine, aslr: Aslr) -> io::Result<CommandLine> {
        if command.argv.first().is_some_and(|program| program.contains('=')) {
            return Err(io::Error::other("a program with `=` in its name cannot be run under gdb"));
        }
        let scripts =
            [("begin", self.begin(aslr)), ("look", LOOK.to_owned()), ("go", GO.to_owned()), ("end", END.to_owned())];
        for (name, text) in &scripts {
            fs::write(self.script(name), text)?;
        }
        // gdb quotes arguments for a shell and has `$SHELL` read them: one that is as POSIX says.
        let mut argv: Vec<String> = vec![ENV.to_owned(), "SHELL=/bin/sh".to_owned(), self.gdb.display().to_string()];
        argv.extend(
            ["-q", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off"]
                .map(str::to_owned),
        );
        let mut run = |name: &str| argv.extend(["-x".to_owned(), self.script(name).display().to_string()]);
        run("begin");
        for _ in 0..STOPS_MAX {
            run("look");
            run("go");
        }
        run("end");
        argv.extend(["--args".to_owned(), ENV.to_owned()]);
        argv.extend(command.argv);
        Ok(CommandLine { argv, ..command })
    }

    fn script(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.gdb"))
    }

    /// What comes first, and the start of the command, which a debugger would give variables and addresses of its own.
    fn begin(&self, aslr: Aslr) -> String {
        let randomisation = match aslr {
            Aslr::Kept => "off",
            Aslr::Off => "on",
        };
        // A command whose name changed with gdb 12 stands in a text: only what is performed is looked up.
        format!(
            "set pagination off\nset confirm off\nset width 0\nset disable-randomization {randomisation}\n\
             unset environment LINES\nunset environment COLUMNS\n{}\n\
             set logging file {}\nset logging redirect on\n\
             if $_gdb_major < 12\n  eval \"set logging on\"\nelse\n  eval \"set logging enabled on\"\nend\n\
             handle all nostop noprint pass\n\
             handle SIGSEGV SIGBUS SIGILL SIGFPE SIGABRT SIGSYS stop print pass\nhandle SIGINT stop print nopass\nrun\n",
            match &self.shell {
                Some(shell) => format!("set environment SHELL = {shell}"),
                None => "unset environment SHELL".to_owned(),
            },
            self.dir.join(LOG).display()
        )
    }

    /// Puts into `outcome` what gdb says of the command's end.
    pub(super) fn tell(&mut self, outcome: &mut Outcome) {
        outcome
            .notes
            .insert(NOTE.to_owned(), format!("{}; its words: {}", self.gdb.display(), self.dir.join(LOG).display()));
        let log = fs::File::open(self.dir.join(LOG)).and_then(|file| {
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(file, LOG_BYTES_MAX), &mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        });
        let Said { exit, crash, program } = said(&log.unwrap_or_default());
        self.program = program;
        match (exit, &outcome.exit) {
            (Some(exit), Exit::Code(_)) => {
                if exit != outcome.exit {
                    outcome.exit_expected = None;
                }
                outcome.exit = exit;
                outcome.crash = crash.map(Box::new);
            }
            // It ended, and says nothing of the command's end: there was none.
            (None, Exit::Code(_)) if outcome.ended_by.is_none() => {
                let why = outcome.error_text.as_deref().unwrap_or("it does not say why");
                outcome.exit = Exit::NotStarted(format!("gdb could not run it: {why}"));
            }
            (_, Exit::Code(_) | Exit::Signal { .. } | Exit::Unkillable | Exit::NotStarted(_)) => {}
        }
    }
}

/// Looks at a command that stopped.
const LOOK: &str = r#"if $_isvoid($_exitcode) && $_isvoid($_exitsignal)
  printf "jetfault stop %d %d %#lx\n", $_siginfo.si_signo, $_siginfo.si_code, (unsigned long) $_siginfo._sifields._sigfault.si_addr
  frame apply 16 -q -s printf "jetfault frame %#lx\n", (unsigned long) $pc
  info threads
  info proc mappings
  thread apply all bt 32
  info registers
  info sharedlibrary
end
"#;

/// Lets it go on; SIGINT is the harness's, which wants it to end.
const GO: &str = r#"if $_isvoid($_exitcode) && $_isvoid($_exitsignal)
  if $_siginfo.si_signo == 2
    printf "jetfault end signal 2\n"
    kill
    quit 1
  end
  continue
end
"#;

/// Says how it ended. One that still stops is ended.
const END: &str = r#"if !$_isvoid($_exitcode)
  printf "jetfault end code %d\n", $_exitcode
  quit $_exitcode
end
if !$_isvoid($_exitsignal)
  printf "jetfault end signal %d\n", $_exitsignal
end
kill
quit 1
"#;

/// What a session says of the command.
struct Said {
    /// How it ended; nothing if it never began, or the session was cut short.
    exit: Option<Exit>,
    /// Where the signal met it that ended it.
    crash: Option<Crash>,
    /// What it became last.
    program: Option<PathBuf>,
}

/// One stop.
#[derive(Default)]
struct Stop {
    signal: i32,
    code: i32,
    address: u64,
    addresses: Vec<u64>,
    mappings: Vec<Mapping>,
    thread: String,
}

fn said(log: &str) -> Said {
    let (mut stops, mut exit, mut program): (Vec<Stop>, Option<Exit>, Option<PathBuf>) = (Vec::new(), None, None);
    for line in log.lines() {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("jetfault"), Some("stop"), Some(signal), Some(code)) => stops.push(Stop {
                signal: signal.parse().unwrap_or(0),
                code: code.parse().unwrap_or(0),
                address: words.next().and_then(hex).unwrap_or(0),
                ..Stop::default()
            }),
            (Some("jetfault"), Some("frame"), Some(address), None) => {
                if let (Some(stop), Some(address)) = (stops.last_mut(), hex(address)) {
                    stop.addresses.push(address);
                }
            }
            (Some("jetfault"), Some("end"), Some("code"), Some(code)) => exit = code.parse().ok().map(Exit::Code),
            (Some("jetfault"), Some("end"), Some("signal"), Some(number)) => {
                exit = number.parse().ok().map(|number| Exit::Signal { number, core: false });
            }
            (Some("process"), Some(_), Some("is"), Some("executing")) => {
                let path = line.split_once("new program: ").map(|(_, path)| PathBuf::from(path));
                program = path.or(program);
            }
            // The thread that gdb looks at, in the list of threads.
            (Some("*"), ..) => {
                if let Some(stop) = stops.last_mut() {
                    stop.thread = line.split('"').nth(1).unwrap_or_default().to_owned();
                }
            }
            _ => {
                if let (Some(stop), Some(mapping)) = (stops.last_mut(), mapping(line)) {
                    stop.mappings.push(mapping);
                }
            }
        }
    }
    // A handler that is through raises the signal again: what it met first is the cause.
    let number = match exit {
        Some(Exit::Signal { number, .. }) => Some(number).filter(|number| *number != SIGINT),
        Some(Exit::Code(_) | Exit::Unkillable | Exit::NotStarted(_)) | None => None,
    };
    let crash = stops.into_iter().find(|stop| Some(stop.signal) == number).map(Stop::crash);
    Said { exit, crash, program }
}

/// What the harness stops a command with.
const SIGINT: i32 = 2;

impl Stop {
    fn crash(self) -> Crash {
        let addresses = self.addresses.into_iter().take(FRAMES_MAX);
        let frames = Places::default().at(addresses, &self.mappings);
        let program = self.mappings.iter().find(|mapping| mapping.path.starts_with('/'));
        Crash {
            signal: self.signal,
            code: self.code,
            address: (self.code > 0).then_some(Address(self.address)),
            program: program.map(|mapping| mapping.path.clone()).unwrap_or_default(),
            thread: CrashedThread { name: self.thread, count: 1, frames },
            others: Vec::new(),
            registers: Default::default(),
        }
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// A line of `info proc mappings`: start, end, size, offset, since gdb 12 permissions, and the file.
fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut next = || {
        rest = rest.trim_start();
        let (word, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        rest = after;
        hex(word)
    };
    let (start, end, _, offset) = (next()?, next()?, next()?, next()?);
    let rest = rest.trim();
    let is_permissions = |word: &str| word.len() == 4 && word.bytes().all(|letter| b"rwxps-".contains(&letter));
    let (permissions, path) = match rest.split_once(' ') {
        Some((word, path)) if is_permissions(word) => (word, path.trim()),
        _ if is_permissions(rest) => (rest, ""),
        _ => ("", rest),
    };
    let may = |what| permissions.contains(what);
    Some(Mapping {
        start,
        end,
        executable: may('x'),
        writable: may('w'),
        readable: may('r'),
        offset,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constructed, in the form of gdb 13.
    const LOG: &str = "\
process 20400 is executing new program: /opt/my build/endings
[Thread debugging using libthread_db enabled]
Program received signal SIGSEGV, Segmentation fault.
jetfault stop 11 1 0x30
jetfault frame 0x5584fc420219
jetfault frame 0x7fca79260000
  Id   Target Id                                   Frame
  2    Thread 0x7fca79234741 (LWP 20401) \"other\" 0x00007fca in ?? ()
* 1    Thread 0x7fca79234740 (LWP 20400) \"worker 3\" 0x00005584fc420219 in ?? ()
          Start Addr           End Addr       Size     Offset  Perms  objfile
      0x5584fc420000     0x5584fc421000     0x1000     0x1000  r-xp   /opt/my build/endings
      0x7fca79234000     0x7fca79237000     0x3000        0x0  rw-p
      0x7fca7925d000     0x7fca793b3000   0x156000    0x26000  r-xp   /usr/lib/libc.so.6
jetfault stop 11 -6 0x4fb0
jetfault frame 0x5584fc420300
Program terminated with signal SIGSEGV, Segmentation fault.
jetfault end signal 11
";

    #[test]
    fn a_session_says_how_a_command_ended_and_where_it_first_stopped() {
        let Said { exit, crash, program } = said(LOG);
        assert_eq!(exit, Some(Exit::Signal { number: 11, core: false }));
        assert_eq!(program.as_deref(), Some(Path::new("/opt/my build/endings")));
        let crash = crash.unwrap();
        let places: Vec<String> = crash.thread.frames.iter().map(ToString::to_string).collect();
        assert_eq!(places, ["endings+0x1219", "libc.so.6+0x29000"]);
        assert_eq!((crash.address, crash.thread.name.as_str()), (Some(Address(0x30)), "worker 3"));
        assert_eq!(crash.program, "/opt/my build/endings");
        // gdb 9 shows no permissions.
        let old = mapping("  0x555555554000     0x555555555000     0x1000        0x0 /tmp/a b").unwrap();
        assert_eq!((old.start, old.path.as_str()), (0x5555_5555_4000, "/tmp/a b"));
    }

    #[test]
    fn a_session_that_is_cut_short_says_nothing_of_the_end() {
        for log in ["", "Cannot insert\n", "jetfault stop x y\njetfault frame zz\njetfault end\n"] {
            let Said { exit, crash, .. } = said(log);
            assert!(exit.is_none() && crash.is_none(), "{log}");
        }
        assert_eq!(said("jetfault end code 3\n").exit, Some(Exit::Code(3)));
        assert!(said("jetfault stop 2 0 0x0\njetfault end signal 2\n").crash.is_none());
    }
}
