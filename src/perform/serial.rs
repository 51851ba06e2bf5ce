//! The serial console of a board, as a command of the desk prints it: started again when it ends.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::model::observed::{OBSERVED_LINE_BYTES_MAX, bounded_line};

/// How many lines wait for whoever listens; a console that prints more than that between two looks loses the rest.
const LINES_WAITING_MAX: usize = 2000;

/// How long after its end the command is started again.
const PAUSE: Duration = Duration::from_secs(5);

/// The command, and what it prints.
#[derive(Debug)]
pub struct Serial {
    argv: Vec<String>,
    child: Option<Child>,
    lines: Option<Receiver<String>>,
    started: Option<Instant>,
}

/// What became of the console since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// Its lines.
    pub lines: Vec<String>,
    /// How the command ended, or why it could not be started.
    pub ended: Option<String>,
}

impl Serial {
    /// The console that `argv` prints.
    pub fn new(argv: &[String]) -> Self {
        Self { argv: argv.to_vec(), child: None, lines: None, started: None }
    }

    /// What came since the last look. Never waits.
    pub fn poll(&mut self) -> Printed {
        let mut printed = Printed::default();
        if self.child.is_none() && self.started.is_none_or(|started| started.elapsed() > PAUSE) {
            self.started = Some(Instant::now());
            printed.ended = self.start().err().map(|error| format!("cannot start {}: {error}", self.argv[0]));
        }
        let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(lines) = &self.lines {
            printed.lines.extend(lines.try_iter());
        }
        if let Some(status) = status {
            printed.ended = Some(self.ended(status, &mut printed.lines));
        }
        printed
    }

    fn start(&mut self) -> std::io::Result<()> {
        let mut command = Command::new(&self.argv[0]);
        command.args(&self.argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own: what it starts ends with it, and Ctrl-C is the desk's alone.
        let mut child = command.process_group(0).spawn()?;
        let stdout = child.stdout.take().expect("it is piped");
        let (sender, lines) = mpsc::sync_channel(LINES_WAITING_MAX);
        thread::spawn(move || read_lines(stdout, &sender));
        (self.child, self.lines) = (Some(child), Some(lines));
        Ok(())
    }

    fn ended(&mut self, status: ExitStatus, lines: &mut Vec<String>) -> String {
        // What it printed last may still be on its way; what it started may hold the pipe for ever.
        if let Some(waiting) = self.lines.take() {
            while let Ok(line) = waiting.recv_timeout(Duration::from_millis(100)) {
                lines.push(line);
            }
        }
        (self.child, self.started) = (None, Some(Instant::now()));
        status.to_string()
    }
}

impl Drop for Serial {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended.
            let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            let _ = child.wait();
        }
    }
}

fn read_lines(stdout: ChildStdout, sender: &SyncSender<String>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = 4 * OBSERVED_LINE_BYTES_MAX as u64;
        match stdout.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = bounded_line(&String::from_utf8_lossy(&line));
        if text.is_empty() {
            continue;
        }
        if let Err(TrySendError::Disconnected(_)) = sender.try_send(text) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll_until(serial: &mut Serial, mut is_enough: impl FnMut(&Printed) -> bool) -> Printed {
        let until = Instant::now() + Duration::from_secs(30);
        let mut all = Printed::default();
        while Instant::now() < until {
            let printed = serial.poll();
            all.lines.extend(printed.lines);
            all.ended = printed.ended.or(all.ended);
            if is_enough(&all) {
                return all;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{all:?}");
    }

    fn shell(line: &str) -> Serial {
        Serial::new(&["sh", "-c", line].map(str::to_owned))
    }

    #[test]
    fn lines_come_bounded_and_the_command_is_started_again() {
        let mut serial = shell("printf 'one\\r\\n\\n\\033[2Jtwo\\n'; exit 3");
        let all = poll_until(&mut serial, |all| all.lines.len() >= 4);
        assert_eq!(all.lines, ["one", " [2Jtwo", "one", " [2Jtwo"]);
        assert!(all.ended.unwrap().contains('3'));
    }

    #[test]
    fn one_that_cannot_be_started_says_so_and_one_that_goes_on_ends_with_the_desk() {
        let mut serial = Serial::new(&["/nonexistent/picocom".to_owned()]);
        assert!(serial.poll().ended.unwrap().contains("cannot start /nonexistent/picocom"));
        assert_eq!(serial.poll(), Printed::default(), "not at once again");
        let mut serial = shell("echo $$; exec sleep 600");
        let pid = poll_until(&mut serial, |all| !all.lines.is_empty()).lines.remove(0);
        drop(serial);
        let is_gone = || !std::path::Path::new("/proc").join(&pid).exists();
        assert!(is_gone());
    }
}
