//! Whether a board that cannot be logged in to answers ping: asked in the background, where the program is there.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use crate::model::inventory::BoardEntry;
use crate::model::observed::Reach;
use crate::perform::host::{Command, Keep, Limit, ask};

/// Between two questions.
const PERIOD: Duration = Duration::from_secs(10);

/// How long one may take: names are resolved too.
const PATIENCE: Duration = Duration::from_secs(8);

/// What is read of an answer.
const LIMIT: Limit = Limit { bytes: 64 * 1024, keep: Keep::Start };

/// Asks one board, one question at a time.
#[derive(Debug)]
pub struct Pinger {
    ssh: OsString,
    host: String,
    asked: Option<Instant>,
    answer: Option<Receiver<Option<Reach>>>,
    /// Whether the program is there.
    is_possible: bool,
}

impl Pinger {
    /// That of `board`, whose address `ssh` knows.
    pub fn new(ssh: OsString, board: &BoardEntry) -> Self {
        Self { ssh, host: board.host.clone(), asked: None, answer: None, is_possible: true }
    }

    /// What came of the last question, once; asks the next if it is due. Never waits.
    pub fn poll(&mut self) -> Option<Reach> {
        let answered = match self.answer.as_ref()?.try_recv() {
            Ok(reach) => reach,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                self.is_possible = false;
                None
            }
        };
        self.answer = None;
        answered
    }

    /// Asks, if it is time.
    pub fn ask(&mut self) {
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() > PERIOD);
        if self.answer.is_some() || !is_due || !self.is_possible {
            return;
        }
        self.asked = Some(Instant::now());
        let (sender, answer) = mpsc::channel();
        self.answer = Some(answer);
        let (ssh, host) = (self.ssh.clone(), self.host.clone());
        thread::spawn(move || {
            match ping(&address(&ssh, &host)) {
                // Nobody sends: there is no such program.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // Whoever asked may be gone.
                Ok(reach) => drop(sender.send(reach)),
                Err(_) => drop(sender.send(None)),
            }
        });
    }
}

/// ping(8) ends with 0 if anything came back, with 1 if nothing did, and with 2 if it could not ask.
fn ping(address: &str) -> io::Result<Option<Reach>> {
    let argv = ["ping", "-n", "-q", "-c", "1", "-W", "2", "--", address];
    let answer = ask(&Command { file: "ping", argv: &argv, patience: PATIENCE, limit: LIMIT })?;
    Ok(match answer.status.code() {
        Some(0) => Some(Reach::AnswersPing),
        Some(1) => Some(Reach::NoPing),
        Some(_) | None => None,
    })
}

/// The address behind `host`, as ssh's own configuration has it; else what stands after the user.
fn address(ssh: &OsString, host: &str) -> String {
    let asked = std::process::Command::new(ssh)
        .args(["-G", "--", host])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|answer| answer.status.success());
    let text = asked.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned()).unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("hostname "));
    named.unwrap_or_else(|| host.rsplit('@').next().unwrap_or(host)).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_what_ssh_makes_of_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("ssh");
        std::fs::write(&program, "#!/bin/sh\n[ \"$1\" = -G ] || exit 9\necho user x\necho hostname 10.0.0.7\n")
            .unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        assert_eq!(address(&program.into_os_string(), "root@orin-1"), "10.0.0.7");
        assert_eq!(address(&"/nonexistent/ssh".into(), "root@orin-1"), "orin-1");
    }
}
