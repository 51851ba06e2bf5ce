//! Where the kernel's own core of a process goes, how large it would be, and whether it may be written.
//!
//! Pure: the texts of `/proc/sys/kernel/core_pattern` and of `/proc/PID/status` in, names and sizes out (core(5)).

use std::fmt;

use crate::model::words::words;

/// The most bytes of a core that is written while the harness watches: a card of a board takes a minute for so much.
pub const CORE_BYTES_MAX: u64 = 1 << 30;

/// The part of the free space that a core may take: the run still needs some.
const FREE_PART: u64 = 4;

words! {
    /// A program that the kernel hands cores to.
    Handler {
        /// Ubuntu's.
        Apport = "apport",
        /// systemd's.
        SystemdCoredump = "systemd-coredump",
        /// One whose ways are not known.
        Other = "another program",
    }
}

/// What the kernel does with cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CorePattern {
    /// It writes none.
    Nowhere,
    /// It writes a file.
    File {
        /// The directory; empty for the one that the process works in, which a relative one starts from too.
        directory: String,
        /// The name, with its specifiers.
        name: String,
    },
    /// It hands them to a program.
    Program(Handler),
}

impl fmt::Display for CorePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere => f.write_str("nobody"),
            Self::File { directory, name } => {
                let slash = if directory.is_empty() || directory == "/" { "" } else { "/" };
                write!(f, "the pattern {directory}{slash}{name}")
            }
            Self::Program(handler) => write!(f, "{handler}"),
        }
    }
}

impl CorePattern {
    /// The pattern of `/proc/sys/kernel/core_pattern`; `adds_pid` is whether `core_uses_pid` is set.
    pub fn parse(pattern: &str, adds_pid: bool) -> Self {
        if let Some(command) = pattern.strip_prefix('|') {
            let program = command.split_ascii_whitespace().next().unwrap_or_default();
            return Self::Program(match program.rsplit('/').next() {
                Some("apport") => Handler::Apport,
                Some("systemd-coredump") => Handler::SystemdCoredump,
                Some(_) | None => Handler::Other,
            });
        }
        // The kernel adds the id where the pattern has none (fs/coredump.c, `format_corename`).
        let added = if adds_pid && !pattern.contains("%p") { ".%p" } else { "" };
        let (directory, name) = match pattern.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some(parts) => parts,
            None => ("", pattern),
        };
        match (name, added) {
            ("", "") => Self::Nowhere,
            _ => Self::File { directory: directory.to_owned(), name: format!("{name}{added}") },
        }
    }

    /// Where the files of cores are, relative to the root of the machine; for a pattern with a directory of its own.
    pub fn directories(&self) -> &[&str] {
        match self {
            Self::Program(Handler::Apport) => &["var/lib/apport/coredump", "var/crash"],
            Self::Program(Handler::SystemdCoredump) => &["var/lib/systemd/coredump"],
            Self::Program(Handler::Other) | Self::File { .. } | Self::Nowhere => &[],
        }
    }

    /// Whether a file called `file` is the core of `dead`.
    pub fn names(&self, file: &str, dead: &Dead<'_>) -> bool {
        match self {
            Self::Nowhere | Self::Program(Handler::Other) => false,
            Self::File { name, .. } => matches(&parts(name, dead), file),
            // `core.PROGRAM.UID.BOOT.PID.TIME` (apport/fileutils.py, `get_core_path`), and a report of the program's.
            Self::Program(Handler::Apport) => {
                let report = format!("{}.{}.crash", dead.program.replace('/', "_"), dead.uid);
                has_pid(file, dead.pid) || file == report
            }
            // `core.COMM.UID.BOOT.PID.TIME`, compressed or not (systemd, src/coredump, `make_filename`).
            Self::Program(Handler::SystemdCoredump) => has_pid(unpacked(file).unwrap_or(file), dead.pid),
        }
    }
}

/// The name of a core that systemd-coredump packed, as it would be unpacked; none if it is not packed.
pub fn unpacked(file: &str) -> Option<&str> {
    [".zst", ".lz4", ".xz"].iter().find_map(|end| file.strip_suffix(end))
}

/// `core.….PID.TIME`.
fn has_pid(file: &str, pid: u32) -> bool {
    file.starts_with("core.") && file.rsplit('.').nth(1) == Some(&pid.to_string())
}

/// A process that died, as far as names of cores tell of it.
#[derive(Debug, Clone, Copy)]
pub struct Dead<'a> {
    /// Its id, as we count.
    pub pid: u32,
    /// The signal that ended it.
    pub signal: i32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The path of its program; empty if that is not known.
    pub program: &'a str,
}

/// A part of a file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// This text.
    Text(String),
    /// A number that is not known.
    Digits,
    /// Anything.
    Any,
}

/// The parts of a name with its specifiers (core(5), "Naming of core dump files"). What another namespace of processes
/// counts, and what only the dying thread knew, is left open.
fn parts(name: &str, dead: &Dead<'_>) -> Vec<Part> {
    let mut parts = vec![Part::Text(String::new())];
    let mut characters = name.chars();
    while let Some(character) = characters.next() {
        let text = match character {
            '%' => match characters.next() {
                Some('%') => Ok("%".to_owned()),
                Some('p') => Ok(dead.pid.to_string()),
                Some('u') => Ok(dead.uid.to_string()),
                Some('g') => Ok(dead.gid.to_string()),
                Some('s') => Ok(dead.signal.to_string()),
                Some('P' | 'i' | 'I' | 't' | 'c' | 'd' | 'C') => Err(Part::Digits),
                Some('E') if !dead.program.is_empty() => Ok(dead.program.replace('/', "!")),
                Some('f') if !dead.program.is_empty() => Ok(file_name(dead.program).to_owned()),
                Some('e' | 'E' | 'f' | 'h') => Err(Part::Any),
                // An unknown specifier and a lone percent sign at the end are dropped.
                Some(_) | None => Ok(String::new()),
            },
            other => Ok(other.to_string()),
        };
        match (text, parts.last_mut()) {
            (Ok(text), Some(Part::Text(before))) => before.push_str(&text),
            (Ok(text), _) => parts.push(Part::Text(text)),
            (Err(open), _) => parts.push(open),
        }
    }
    parts
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn matches(parts: &[Part], name: &str) -> bool {
    let after = |length: usize, rest: &[Part]| name.is_char_boundary(length) && matches(rest, &name[length..]);
    match parts {
        [] => name.is_empty(),
        [Part::Text(text), rest @ ..] => name.strip_prefix(text.as_str()).is_some_and(|name| matches(rest, name)),
        [Part::Any, rest @ ..] => (0..=name.len()).any(|length| after(length, rest)),
        [Part::Digits, rest @ ..] => {
            let digits = name.bytes().take_while(u8::is_ascii_digit).count();
            (1..=digits).any(|length| after(length, rest))
        }
    }
}

/// How many bytes the kernel would write of a process, from its `/proc/PID/status`: into a file what is in memory or
/// swapped, since the rest is a hole; through a pipe all that it may write to, since the rest goes through as zeros.
pub fn core_bytes(status: &str, pattern: &CorePattern) -> Option<u64> {
    let fields: &[&str] = match pattern {
        CorePattern::Nowhere => &[],
        CorePattern::File { .. } => &["RssAnon:", "RssShmem:", "VmSwap:"],
        CorePattern::Program(_) => &["VmData:", "VmStk:"],
    };
    let kilobytes = |field: &&str| -> Option<u64> {
        let value = status.lines().find_map(|line| line.strip_prefix(*field))?;
        value.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    fields.iter().map(kilobytes).sum::<Option<u64>>().map(|kilobytes| kilobytes.saturating_mul(1024))
}

/// Where a core would be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Free bytes there.
    pub free: u64,
    /// Whether it is memory.
    pub is_volatile: bool,
}

/// Why a core of `bytes` must not be written where there is this `room`; `None` if it may.
pub fn too_much(bytes: Option<u64>, room: Option<Room>) -> Option<String> {
    let Some(bytes) = bytes else { return Some("nobody knows how large it would be".to_owned()) };
    let mib = |bytes: u64| bytes >> 20;
    match room {
        _ if bytes > CORE_BYTES_MAX => {
            Some(format!("it would take {} MiB, more than {} MiB", mib(bytes), mib(CORE_BYTES_MAX)))
        }
        None => Some("nobody knows how much room there is".to_owned()),
        Some(Room { is_volatile: true, .. }) => Some("it would be written into memory".to_owned()),
        Some(Room { free, .. }) if bytes > free / FREE_PART => {
            Some(format!("it would take {} MiB, and {} MiB are free", mib(bytes), mib(free)))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAD: Dead<'_> = Dead { pid: 4242, signal: 11, uid: 1000, gid: 100, program: "/opt/trt/build-engine" };

    /// Constructed, in the forms of Ubuntu 22.04 and systemd 249.
    const APPORT: &str = "|/usr/share/apport/apport -p%p -s%s -c%c -d%d -P%P -u%u -g%g -- %E";
    const SYSTEMD: &str = "|/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h";
    const BOOT: &str = "0f2b8b2a4a5c4d0e9b1d3a8d2e6f7a10";

    #[test]
    fn a_plain_pattern_names_its_files() {
        for (pattern, adds_pid, directory, is_core, is_none) in [
            ("core", false, "", "core", "core.4242"),
            ("core", true, "", "core.4242", "core"),
            ("core.%p", true, "", "core.4242", "core.4243"),
            ("/var/cores/%e-%s-%t.core", false, "/var/cores", "worker 3-11-1789000000.core", "worker-6-1.core"),
            ("/core", false, "/", "core", "cores"),
            ("dumps/%f.%u.%g", false, "dumps", "build-engine.1000.100", "build.1000.100"),
            ("%E%%%P", false, "", "!opt!trt!build-engine%77", "!opt!trt!build-engine%"),
            ("c%", false, "", "c", "c%"),
        ] {
            let parsed = CorePattern::parse(pattern, adds_pid);
            let CorePattern::File { directory: found, .. } = &parsed else { panic!("{pattern}: {parsed:?}") };
            assert_eq!(found, directory, "{pattern}");
            assert!(parsed.names(is_core, &DEAD), "{pattern} is {is_core}");
            assert!(!parsed.names(is_none, &DEAD), "{pattern} is not {is_none}");
        }
        assert_eq!(CorePattern::parse("", false), CorePattern::Nowhere);
        assert!(CorePattern::parse("", true).names(".4242", &DEAD));
    }

    #[test]
    fn handlers_are_known_by_their_names_and_cores_by_the_process() {
        let apport = CorePattern::parse(APPORT, true);
        assert_eq!(apport, CorePattern::Program(Handler::Apport));
        assert!(apport.names(&format!("core._opt_trt_build-engine.1000.{BOOT}.4242.81234"), &DEAD));
        assert!(!apport.names(&format!("core._opt_trt_build-engine.1000.{BOOT}.4243.4242"), &DEAD));
        assert!(apport.names("_opt_trt_build-engine.1000.crash", &DEAD));
        let systemd = CorePattern::parse(SYSTEMD, false);
        assert_eq!(systemd, CorePattern::Program(Handler::SystemdCoredump));
        for (end, is_packed) in [("", false), (".zst", true), (".lz4", true), (".xz", true)] {
            let file = format!("core.build-engine.1000.{BOOT}.4242.1789000000000000{end}");
            assert!(systemd.names(&file, &DEAD), "{file}");
            assert_eq!(unpacked(&file), is_packed.then(|| file.strip_suffix(end).unwrap()), "{file}");
        }
        assert!(!systemd.names(&format!("core.build-engine.1000.{BOOT}.1.4242"), &DEAD));
        assert_eq!(CorePattern::parse("|/opt/collect %p", false), CorePattern::Program(Handler::Other));
    }

    #[test]
    fn a_hole_costs_nothing_in_a_file_and_everything_in_a_pipe() {
        // Constructed: 100 GiB mapped, of which 4 MiB were ever written.
        let status = "Name:\tx\nVmSwap:\t    1024 kB\nRssAnon:\t    4096 kB\nRssShmem:\t       0 kB\n\
                      VmData:\t104857600 kB\nVmStk:\t     132 kB\n";
        let file = CorePattern::parse("core", false);
        let apport = CorePattern::parse(APPORT, false);
        assert_eq!(core_bytes(status, &file), Some(5 << 20));
        assert_eq!(core_bytes(status, &apport), Some((104_857_600 + 132) * 1024));
        assert_eq!(core_bytes("Name:\tx\n", &file), None);
        let room = |free| Some(Room { free, is_volatile: false });
        assert_eq!(too_much(Some(5 << 20), room(1 << 40)), None);
        for (bytes, room, words) in [
            (core_bytes(status, &apport), room(1 << 50), "more than 1024 MiB"),
            (Some(5 << 20), room(8 << 20), "and 8 MiB are free"),
            (Some(5 << 20), Some(Room { free: 1 << 40, is_volatile: true }), "into memory"),
            (Some(5 << 20), None, "how much room"),
            (None, room(1 << 40), "how large"),
        ] {
            let why = too_much(bytes, room).unwrap();
            assert!(why.contains(words), "{why}");
        }
    }
}
