//! What a terminal writes by itself when a key is pressed: `^C`, where it would spoil lines that are drawn over themselves.

use std::io::stderr;

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

/// Keeps the terminal of standard error from showing control characters, until it is dropped.
pub struct UnshownKeys {
    before: Termios,
}

impl UnshownKeys {
    /// None where there is no terminal, or it belongs to another job: setting its modes would stop this process.
    pub fn new() -> Option<Self> {
        if !is_ours() {
            return None;
        }
        let before = tcgetattr(stderr()).ok()?;
        let mut modes = before.clone();
        modes.local_modes.remove(LocalModes::ECHOCTL);
        tcsetattr(stderr(), OptionalActions::Now, &modes).ok()?;
        Some(Self { before })
    }
}

impl Drop for UnshownKeys {
    fn drop(&mut self) {
        if is_ours() {
            // A terminal that is gone needs nothing put back.
            let _ = tcsetattr(stderr(), OptionalActions::Now, &self.before);
        }
    }
}

fn is_ours() -> bool {
    tcgetpgrp(stderr()).is_ok_and(|foreground| foreground == getpgrp())
}
