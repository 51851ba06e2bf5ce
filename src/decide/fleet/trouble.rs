//! What it means that a command on a board failed: of ssh itself, of what is there, or of jetfault.
//!
//! ssh ends with 255 for its own errors and else as the command did (ssh(1), "EXIT STATUS"). The words are those of
//! OpenSSH and of shells in the C locale; what is not known is passed on as it was said.

use std::fmt;

/// Why a board did not do what was asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// No connection; it may be booting.
    Unreachable(String),
    /// Connected, and nothing was heard any more.
    Silent,
    /// Its host key is another one than is known.
    HostKeyChanged,
    /// Its host key is not known.
    HostKeyUnknown,
    /// It lets nobody in without being asked for something.
    NotLetIn(String),
    /// `sudo` wants a password.
    SudoAsks,
    /// The program is not there.
    NoProgram(String),
    /// The program is for another architecture.
    OtherArchitecture,
    /// No space is left.
    DiskFull,
    /// Another jetfault works there.
    Held(String),
    /// Anything else: how it ended, and what it said.
    Refused {
        /// The exit code.
        code: i32,
        /// The first line that tells.
        words: String,
    },
}

/// What ssh(1) ends with for errors of its own.
const SSH_FAILED: i32 = 255;

/// The exit code of a harness that finds another one at work.
const HELD: i32 = 5;

/// What shells add to the number of the signal that ended a command.
const ENDED_BY_SIGNAL: i32 = 129;

/// What shells end with for a program that is not there, and for one that cannot be run.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

impl Trouble {
    /// What it means that a command ended with `code` and said `stderr`.
    pub fn of(code: Option<i32>, stderr: &str) -> Self {
        let says = |words: &str| stderr.contains(words);
        let words = told(stderr);
        if code == Some(SSH_FAILED) {
            // The warning about a changed key comes before the words that a key failed.
            return if says("REMOTE HOST IDENTIFICATION HAS CHANGED") {
                Self::HostKeyChanged
            } else if says("Host key verification failed") {
                Self::HostKeyUnknown
            } else if says("Permission denied") || says("Too many authentication failures") {
                Self::NotLetIn(words)
            } else {
                Self::Unreachable(words)
            };
        }
        if says("No space left on device") || says("the disk is full") {
            return Self::DiskFull;
        }
        if says("sudo: a password is required") || says("sudo: a terminal is required") {
            return Self::SudoAsks;
        }
        match code {
            None => Self::Unreachable("ssh was ended by a signal".to_owned()),
            // A board that goes down ends what runs there.
            Some(ENDED_BY_SIGNAL..SSH_FAILED) => Self::Unreachable(format!("what ran there was ended: {words}")),
            Some(NOT_EXECUTABLE) if says("Exec format error") || says("cannot execute binary file") => {
                Self::OtherArchitecture
            }
            // A shell that finds a file it cannot execute may take it for a script.
            Some(_) if says("Exec format error") => Self::OtherArchitecture,
            Some(NOT_FOUND) => Self::NoProgram(words),
            Some(HELD) => Self::Held(words),
            Some(code) => Self::Refused { code, words },
        }
    }

    /// Whether it may go by itself: a board that boots is unreachable for a while.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Silent => true,
            Self::HostKeyChanged
            | Self::HostKeyUnknown
            | Self::NotLetIn(_)
            | Self::SudoAsks
            | Self::NoProgram(_)
            | Self::OtherArchitecture
            | Self::DiskFull
            | Self::Held(_)
            | Self::Refused { .. } => false,
        }
    }

    /// What mends it, for the board that ssh knows as `host`.
    pub fn hint(&self, host: &str) -> Option<String> {
        match self {
            Self::Unreachable(_) | Self::Silent => Some(format!("try `ssh {host}`; it may be booting, or off")),
            Self::HostKeyChanged => Some(format!(
                "was the board reflashed? if so `ssh-keygen -R` of its name, then `ssh {host}` once; if not, somebody \
                 else answers in its place"
            )),
            Self::HostKeyUnknown => {
                Some(format!("`ssh {host}` once, and compare the key that it shows with the board's"))
            }
            Self::NotLetIn(_) => {
                Some(format!("`ssh -o BatchMode=yes {host} true` must work: a key, and an agent that has it"))
            }
            Self::SudoAsks => {
                Some("let this user run jetfault by sudo without a password, or log in as root".to_owned())
            }
            Self::NoProgram(_) => Some("`jetfault fleet push` puts it there".to_owned()),
            Self::OtherArchitecture => {
                Some("`jetfault fleet push` with a binary for it: [fleet] binary.aarch64 = \"PATH\"".to_owned())
            }
            Self::DiskFull => Some("free some space on the board; what is recorded there is safe".to_owned()),
            Self::Held(_) => {
                Some("another desk, or somebody at the board: `jetfault fleet status` shows its run".to_owned())
            }
            Self::Refused { .. } => None,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(words) if words.is_empty() => f.write_str("unreachable"),
            Self::Unreachable(words) => write!(f, "unreachable: {words}"),
            Self::Silent => f.write_str("nothing was heard of it any more"),
            Self::HostKeyChanged => f.write_str("its host key is another one than ssh knows"),
            Self::HostKeyUnknown => f.write_str("ssh does not know its host key"),
            Self::NotLetIn(words) => write!(f, "it lets nobody in: {words}"),
            Self::SudoAsks => f.write_str("sudo asks for a password there"),
            Self::NoProgram(words) => write!(f, "jetfault is not there: {words}"),
            Self::OtherArchitecture => f.write_str("the jetfault there is for another architecture"),
            Self::DiskFull => f.write_str("its disk is full"),
            Self::Held(words) => write!(f, "it is at work for somebody else: {words}"),
            Self::Refused { code, words } => write!(f, "{words} (exit code {code})"),
        }
    }
}

/// The line of `stderr` that tells most: the first error of ours, else the last line.
fn told(stderr: &str) -> String {
    let lines = || stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines().find_map(|line| line.strip_prefix("error: ")).or_else(|| lines().next_back());
    line.unwrap_or("it said nothing").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What OpenSSH 8.9 to 9.6 says, as constructed from its messages.
    #[test]
    fn each_way_in_which_a_connection_fails_is_told_from_the_others() {
        let refused = "ssh: connect to host orin-1 port 22: Connection refused\n";
        assert!(Trouble::of(Some(255), refused).is_passing());
        assert!(Trouble::of(Some(255), "Timeout, server orin-1 not responding.\r\n").is_passing());
        let changed = "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.\n";
        assert_eq!(Trouble::of(Some(255), changed), Trouble::HostKeyChanged);
        let unknown = "No ED25519 host key is known for orin-1.\nHost key verification failed.\n";
        assert_eq!(Trouble::of(Some(255), unknown), Trouble::HostKeyUnknown);
        let denied = "root@orin-1: Permission denied (publickey).\n";
        assert!(matches!(Trouble::of(Some(255), denied), Trouble::NotLetIn(_)));
        for trouble in [changed, unknown, denied].map(|words| Trouble::of(Some(255), words)) {
            assert!(!trouble.is_passing() && trouble.hint("orin-1").is_some(), "{trouble}");
        }
    }

    #[test]
    fn what_fails_on_the_board_is_no_lost_connection() {
        let of = |code, words: &str| Trouble::of(Some(code), words);
        assert_eq!(of(126, "sh: 1: jetfault: Exec format error"), Trouble::OtherArchitecture);
        assert!(matches!(of(127, "sh: 1: jetfault: not found"), Trouble::NoProgram(_)));
        assert_eq!(of(1, "cat: write error: No space left on device"), Trouble::DiskFull);
        assert_eq!(of(1, "sudo: a password is required"), Trouble::SudoAsks);
        let held = of(5, "error: this machine is held by another jetfault (/run/x)\nhint: y\n");
        assert_eq!(held, Trouble::Held("this machine is held by another jetfault (/run/x)".into()));
        // A board that denies a file does not deny a login.
        assert!(matches!(of(4, "error: cannot write: Permission denied"), Trouble::Refused { code: 4, .. }));
        assert!(of(143, "Terminated").is_passing() && Trouble::of(None, "").is_passing());
    }
}
