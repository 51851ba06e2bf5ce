//! What a person says of one board: how it is rebooted, what cuts its power, who starts the harness at a boot.
//!
//! Owns the file `/etc/jetfault/board.toml`. It belongs to the board and not to a matrix, which many boards share.

use serde::Deserialize;

use super::quantity::Millis;
use super::words::words;

/// Where the file is, under the root of the machine.
pub const BOARD_FILE: &str = "etc/jetfault/board.toml";

words! {
    /// What reboots a board.
    RebootBy {
        /// `systemctl reboot`.
        Systemctl = "systemctl",
        /// A command of the user's.
        Command = "command",
        /// The real-time clock wakes it after it was powered off.
        PowerOff = "power-off",
        /// The hook that cuts its power.
        Hook = "hook",
        /// Another machine, which sees in `status` that a reboot is asked for.
        Elsewhere = "elsewhere",
        /// A person, who is told to.
        Person = "person",
    }
}

impl RebootBy {
    /// Whether the board's power is off for a while.
    pub fn cuts_power(self) -> bool {
        match self {
            Self::PowerOff | Self::Hook | Self::Elsewhere => true,
            Self::Systemctl | Self::Command | Self::Person => false,
        }
    }
}

words! {
    /// Who starts the harness at a boot.
    BootService {
        /// A unit of systemd that `jetfault arm` installs.
        Systemd = "systemd",
        /// Something of the user's, which calls `jetfault resume --at-boot`.
        None = "none",
    }
}

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Board {
    /// `[reboot]`.
    pub reboot: Reboot,
    /// `[power]`.
    pub power: Power,
    /// `[boot]`.
    pub boot: Boot,
}

/// How the board is rebooted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reboot {
    /// By what.
    pub by: RebootBy,
    /// The command of `by = "command"`, without a shell.
    pub command: Vec<String>,
    /// How long the board may take to go down once it was asked to.
    pub patience: Millis,
    /// How long it stays off with `by = "power-off"`.
    pub off_for: Millis,
}

impl Default for Reboot {
    fn default() -> Self {
        Self {
            by: RebootBy::Systemctl,
            command: Vec::new(),
            patience: Millis::from_secs(180),
            off_for: Millis::from_secs(60),
        }
    }
}

/// What cuts the board's power and gives it back: a PDU, a smart plug, a relay.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Power {
    /// The hook, without a shell; none if it is empty.
    pub cycle: Vec<String>,
    /// How long it may take.
    pub timeout: Millis,
}

impl Default for Power {
    fn default() -> Self {
        Self { cycle: Vec::new(), timeout: Millis::from_secs(60) }
    }
}

/// What happens at a boot.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Boot {
    /// Who starts the harness.
    pub service: BootService,
}

impl Default for Boot {
    fn default() -> Self {
        Self { service: BootService::Systemd }
    }
}

/// Reads the text of the file.
///
/// # Errors
/// In words, if it is no such file, or asks for what it does not say.
pub fn parse_board(text: &str) -> Result<Board, String> {
    let board: Board = toml::from_str(text).map_err(|error| error.to_string())?;
    match board.reboot.by {
        RebootBy::Command if board.reboot.command.is_empty() => {
            Err("[reboot] by = \"command\" needs command = [\"PROGRAM\", …]".into())
        }
        RebootBy::Hook if board.power.cycle.is_empty() => {
            Err("[reboot] by = \"hook\" needs [power] cycle = [\"PROGRAM\", …]".into())
        }
        _ => Ok(board),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_a_board_that_systemd_reboots() {
        let board = parse_board("").unwrap();
        assert_eq!((board.reboot.by, board.boot.service), (RebootBy::Systemctl, BootService::Systemd));
    }

    #[test]
    fn what_a_method_needs_is_asked_for_and_what_is_unknown_is_refused() {
        for (text, words) in [
            ("[reboot]\nby = \"command\"\n", "needs command"),
            ("[reboot]\nby = \"hook\"\n", "[power] cycle"),
            ("[reboot]\nby = \"magic\"\n", "magic"),
            ("[power]\ncycel = []\n", "cycel"),
            ("[power]\ntimeout = \"soon\"\n", "soon"),
        ] {
            let why = parse_board(text).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
        let text = "[reboot]\nby = \"hook\"\n[power]\ncycle = [\"plug\", \"3\"]\ntimeout = \"5s\"\n";
        assert_eq!(parse_board(text).unwrap().power.timeout, Millis::from_secs(5));
    }
}
