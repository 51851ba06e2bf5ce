//! What nvpmodel answers, and the file in which it keeps the mode of the next boot.

use super::PowerMode;

/// The prefix of nvpmodel's own remarks, which may stand before, between or after the lines of an answer.
const REMARK: &str = "NVPM ";

/// The active mode in the output of `nvpmodel -q`.
///
/// The name and the id are on lines of their own. What the tool could not read besides (the EMC's cap without root,
/// the fan's mode) it says in remarks and in its exit status, and neither makes the answer wrong.
pub fn parse_query(output: &str) -> Option<PowerMode> {
    let mut lines = output.lines().map(str::trim).filter(|line| !line.starts_with(REMARK));
    let name = lines.find_map(|line| line.strip_prefix("NV Power Mode:"))?.split_whitespace().next()?.to_owned();
    let id = lines.find_map(|line| line.parse().ok())?;
    Some(PowerMode { name, id })
}

/// The id in `/var/lib/nvpmodel/status`, such as `pmode:0002 fmode:quiet`: the mode in which the next boot comes up.
pub fn parse_status(text: &str) -> Option<u32> {
    text.split_whitespace().find_map(|word| word.strip_prefix("pmode:"))?.parse().ok()
}

/// What came of `nvpmodel -m ID` with nobody to answer its question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SwitchAnswer {
    /// Nothing was said against it.
    Accepted,
    /// It would have to reboot the board, and did nothing.
    NeedsReboot,
    /// It failed; the tool's last words.
    Refused(String),
}

/// Reads what came of a switch from both streams together and whether the exit status was 0.
pub fn parse_switch(output: &str, succeeded: bool) -> SwitchAnswer {
    if output.contains("Reboot required for changing to this power mode") {
        return SwitchAnswer::NeedsReboot;
    }
    if succeeded {
        return SwitchAnswer::Accepted;
    }
    let words = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    SwitchAnswer::Refused(words.trim().chars().take(200).collect())
}
