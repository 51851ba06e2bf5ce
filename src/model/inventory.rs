//! The inventory of a desk: which boards there are, how each is reached, and what cuts its power.
//!
//! Owns the file that `jetfault fleet --inventory` reads. What it says of a board belongs to the desk: the board's own
//! file is [`crate::model::board`].

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::ids::{DeviceId, is_name};
use super::quantity::Millis;

/// The largest file that is read, in bytes.
pub const INVENTORY_BYTES_MAX: u64 = 1024 * 1024;

/// The most boards of one desk.
pub const BOARDS_MAX: usize = 1000;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// `[fleet]`.
    pub fleet: FleetSection,
    /// `[[cells]]`, in the order of the file.
    pub cells: Vec<CellRule>,
    /// `[[board]]`, in the order of the file.
    pub boards: Vec<BoardEntry>,
}

/// What holds for all boards.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FleetSection {
    /// The program in the place of `ssh`.
    pub ssh: Option<String>,
    /// Where runs are put on the desk, relative to the inventory: a directory a board.
    pub results: String,
    /// The binary for each architecture, as `uname -m` names it, relative to the inventory.
    pub binary: BTreeMap<String, String>,
    /// How long a board may be unreachable before it is set aside.
    pub patience: Millis,
}

impl Default for FleetSection {
    fn default() -> Self {
        Self {
            ssh: None,
            results: "fleet-results".to_owned(),
            binary: BTreeMap::new(),
            patience: Millis::from_secs(15 * 60),
        }
    }
}

/// Cells that only some boards may run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellRule {
    /// Which cells, as `--cell` takes it.
    pub cell: String,
    /// The tag that a board must have for them.
    pub tag: String,
}

/// One board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardEntry {
    /// What it is called, in results too.
    pub name: DeviceId,
    /// The host, as `ssh` takes it.
    pub host: String,
    /// What it is chosen by.
    pub tags: Vec<String>,
    /// The directory on the board for what is pushed; relative to the home directory.
    pub dir: String,
    /// The results directory on the board.
    pub results: String,
    /// Whether commands go through `sudo`.
    pub sudo: bool,
    /// The hook, run on the desk, that cuts the board's power and gives it back; none if it is empty.
    pub power_cycle: Vec<String>,
    /// How long the hook may take.
    pub power_timeout: Millis,
    /// How long the board may say nothing beyond the timeout of its open trial before it counts as hung.
    pub hang_after: Millis,
    /// The command, run on the desk, that prints the board's serial console; none if it is empty.
    pub serial: Vec<String>,
    /// The most boots of a run there.
    pub max_boots: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    fleet: FleetSection,
    #[serde(default)]
    cells: Vec<Spanned<CellRule>>,
    #[serde(default)]
    board: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    host: Spanned<String>,
    #[serde(default)]
    tags: Vec<Spanned<String>>,
    dir: Option<Spanned<String>>,
    results: Option<Spanned<String>>,
    #[serde(default)]
    sudo: bool,
    power_cycle: Option<Spanned<Vec<String>>>,
    power_timeout: Option<Millis>,
    hang_after: Option<Millis>,
    serial: Option<Spanned<Vec<String>>>,
    max_boots: Option<Spanned<u32>>,
}

/// Reads the text of the file.
///
/// # Errors
/// In words with their lines, if it is no such file or names something twice: two entries for one board would be two
/// controllers that know nothing of each other, and one hook for two boards would cut the wrong one's power.
pub fn parse_inventory(text: &str) -> Result<Inventory, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    if file.board.is_empty() {
        return Err("no [[board]] is in it".to_owned());
    }
    if file.board.len() > BOARDS_MAX {
        return Err(format!("{} boards; one desk has at most {BOARDS_MAX}", file.board.len()));
    }
    let mut seen = Seen { text, places: BTreeMap::new() };
    let boards: Vec<BoardEntry> =
        file.board.into_iter().map(|entry| board(entry, &mut seen)).collect::<Result<_, _>>()?;
    let nobodys = |rule: &&Spanned<CellRule>| boards.iter().all(|board| !board.tags.contains(&rule.get_ref().tag));
    if let Some(rule) = file.cells.iter().find(nobodys) {
        return Err(seen.error(rule, format_args!("no board has the tag {:?}", rule.get_ref().tag)));
    }
    let cells = file.cells.into_iter().map(Spanned::into_inner).collect();
    Ok(Inventory { fleet: file.fleet, cells, boards })
}

/// What was named so far, and where.
struct Seen<'a> {
    text: &'a str,
    places: BTreeMap<(&'static str, String), (usize, String)>,
}

impl Seen<'_> {
    /// The line, from 1, in which a value begins.
    fn line<T>(&self, value: &Spanned<T>) -> usize {
        self.text.as_bytes()[..value.span().start.min(self.text.len())].iter().filter(|b| **b == b'\n').count() + 1
    }

    fn error<T>(&self, value: &Spanned<T>, words: impl std::fmt::Display) -> String {
        format!("line {}: {words}", self.line(value))
    }

    /// Remembers that `what` of `board` is `value`, or names the board that has the same.
    fn once<T>(&mut self, what: &'static str, shown: String, value: &Spanned<T>, board: &str) -> Result<(), String> {
        let line = self.line(value);
        match self.places.insert((what, shown.clone()), (line, board.to_owned())) {
            None => Ok(()),
            Some((first, other)) => Err(format!(
                "line {line}: {what} {shown} of board {board} is already that of board {other}, in line {first}"
            )),
        }
    }
}

fn board(entry: Entry, seen: &mut Seen<'_>) -> Result<BoardEntry, String> {
    let name: DeviceId = entry.name.get_ref().parse().map_err(|error| seen.error(&entry.name, error))?;
    seen.once("name", name.to_string(), &entry.name, name.as_str())?;
    let host = entry.host.get_ref();
    // One that begins with a dash would be an option of ssh.
    if host.is_empty() || host.starts_with('-') || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(
            seen.error(&entry.host, format_args!("{host:?} is not a host as ssh takes it, such as root@orin-1"))
        );
    }
    seen.once("host", host.clone(), &entry.host, name.as_str())?;
    for tag in &entry.tags {
        if !is_name(tag.get_ref()) {
            return Err(
                seen.error(tag, format_args!("{:?} is not a tag: 1 to 64 of `a-z A-Z 0-9 _ . -`", tag.get_ref()))
            );
        }
    }
    for dir in [&entry.dir, &entry.results].into_iter().flatten() {
        let path = dir.get_ref();
        if path.is_empty() || path.starts_with(['~', '-']) || path.contains(char::is_control) {
            let words = format_args!("{path:?} is not a directory: absolute, or relative to the home directory there");
            return Err(seen.error(dir, words));
        }
    }
    for (what, hook) in [("power_cycle", &entry.power_cycle), ("serial", &entry.serial)] {
        if let Some(hook) = hook.as_ref().filter(|hook| !hook.get_ref().is_empty()) {
            seen.once(what, format!("{:?}", hook.get_ref()), hook, name.as_str())?;
        }
    }
    if let Some(boots) = entry.max_boots.as_ref().filter(|boots| *boots.get_ref() == 0) {
        return Err(seen.error(boots, "max_boots is at least 1"));
    }
    let dir = entry.dir.map_or_else(|| ".jetfault".to_owned(), Spanned::into_inner);
    Ok(BoardEntry {
        name,
        host: host.clone(),
        tags: entry.tags.into_iter().map(Spanned::into_inner).collect(),
        results: entry.results.map_or_else(|| format!("{dir}/results"), Spanned::into_inner),
        dir,
        sudo: entry.sudo,
        power_cycle: entry.power_cycle.map(Spanned::into_inner).unwrap_or_default(),
        power_timeout: entry.power_timeout.unwrap_or(Millis::from_secs(60)),
        hang_after: entry.hang_after.unwrap_or(Millis::from_secs(60)),
        serial: entry.serial.map(Spanned::into_inner).unwrap_or_default(),
        max_boots: entry.max_boots.map(Spanned::into_inner),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_needs_a_name_and_a_host_and_has_defaults_for_the_rest() {
        let inventory = parse_inventory("[[board]]\nname = \"orin-1\"\nhost = \"root@10.0.0.7\"\n").unwrap();
        let board = &inventory.boards[0];
        assert_eq!((board.dir.as_str(), board.results.as_str()), (".jetfault", ".jetfault/results"));
        assert!(board.power_cycle.is_empty() && board.max_boots.is_none() && !board.sudo);
        assert_eq!(inventory.fleet.results, "fleet-results");
    }

    #[test]
    fn what_is_named_twice_is_refused_with_both_places() {
        let two = |first: &str, second: &str| {
            let text = format!(
                "[[board]]\nname = \"a\"\nhost = \"a\"\n{first}\n\n[[board]]\nname = \"b\"\nhost = \"b\"\n{second}\n"
            );
            parse_inventory(&text).unwrap_err()
        };
        let same = "power_cycle = [\"plug\", \"3\"]";
        let why = two(same, same);
        assert!(why.starts_with("line 9: power_cycle") && why.ends_with("of board a, in line 4"), "{why}");
        let same = "serial = [\"cat\", \"/dev/ttyUSB0\"]";
        assert!(two(same, same).contains("in line 4"));
        let name = "[[board]]\nname = \"a\"\nhost = \"a\"\n[[board]]\nname = \"a\"\nhost = \"b\"\n";
        assert_eq!(
            parse_inventory(name).unwrap_err(),
            "line 5: name a of board a is already that of board a, in line 2"
        );
        let host = "[[board]]\nname = \"a\"\nhost = \"x\"\n[[board]]\nname = \"b\"\nhost = \"x\"\n";
        assert_eq!(
            parse_inventory(host).unwrap_err(),
            "line 6: host x of board b is already that of board a, in line 3"
        );
    }

    #[test]
    fn cells_may_be_kept_to_a_tag_that_some_board_has() {
        let text = |tag: &str| {
            format!(
                "[[board]]\nname = \"a\"\nhost = \"a\"\ntags = [\"jp62\"]\n[[cells]]\ncell = \"v=1\"\ntag = \"{tag}\"\n"
            )
        };
        assert_eq!(parse_inventory(&text("jp62")).unwrap().cells[0].cell, "v=1");
        assert_eq!(parse_inventory(&text("jp61")).unwrap_err(), "line 5: no board has the tag \"jp61\"");
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_its_line() {
        for (line, words) in [
            ("host = \"-oProxyCommand=x\"", "line 3: \"-oProxyCommand=x\" is not a host"),
            ("host = \"a b\"", "is not a host"),
            ("host = \"a\"\nresults = \"~/r\"", "line 4: \"~/r\" is not a directory"),
            ("host = \"a\"\ntags = [\"a b\"]", "is not a tag"),
            ("host = \"a\"\nmax_boots = 0", "at least 1"),
            ("host = \"a\"\npower = []", "power"),
        ] {
            let why = parse_inventory(&format!("[[board]]\nname = \"a\"\n{line}\n")).unwrap_err();
            assert!(why.contains(words), "{line}: {why}");
        }
        assert!(parse_inventory("").unwrap_err().contains("no [[board]]"));
    }
}
