//! The boots that the machine remembers.

use serde_json::Value;

use super::{lines, raw_item};
use crate::model::evidence::{Fact, RawEvidence, names};
use crate::model::ids::BootId;

/// Boots that are kept of a list, the last ones.
const BOOTS_MAX: usize = 4096;

/// The boots, oldest first: the system journal's list, else the one that the machine keeps itself.
pub(super) fn boots(raw: &RawEvidence) -> Fact<Vec<BootId>> {
    let journal = raw_item(raw, names::BOOTS).and_then(|bytes| read_boots(&bytes));
    match journal {
        Fact::Known(_) => journal,
        _ => match raw_item(raw, names::BOOTS_LEDGER).and_then(|bytes| read_ledger(&bytes)) {
            ledger @ Fact::Known(_) => ledger,
            _ => journal,
        },
    }
}

/// The boots in the output of `journalctl --list-boots`: with or without a header line (systemd 245 to 257), as text or
/// JSON. The order is the list's; the times in it say nothing on machines whose clock starts in the past.
pub fn read_boots(bytes: &[u8]) -> Fact<Vec<BootId>> {
    match bytes.trim_ascii_start().first() {
        None => Fact::Absent,
        Some(b'[') => read_json(bytes),
        Some(_) => read_text(bytes),
    }
}

fn read_text(bytes: &[u8]) -> Fact<Vec<BootId>> {
    let mut boots = Vec::new();
    for line in lines::last_lines(bytes, BOOTS_MAX) {
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_whitespace();
        let (index, id) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if index == "IDX" {
            continue;
        }
        match index.parse::<i32>().ok().and_then(|_| boot_id(id)) {
            Some(id) => boots.push(id),
            None => return Fact::Garbled(lines::cut(&line, 200).to_owned()),
        }
    }
    known(boots)
}

fn read_json(bytes: &[u8]) -> Fact<Vec<BootId>> {
    let list = match serde_json::from_slice::<Vec<Value>>(bytes) {
        Ok(list) => list,
        Err(error) => return Fact::Garbled(error.to_string()),
    };
    let boots: Option<Vec<BootId>> = list.iter().map(|boot| boot.get("boot_id")?.as_str().and_then(boot_id)).collect();
    match boots {
        Some(boots) => known(boots),
        None => Fact::Garbled("an entry of the list has no boot id".into()),
    }
}

fn read_ledger(bytes: &[u8]) -> Fact<Vec<BootId>> {
    let lines = lines::last_lines(bytes, BOOTS_MAX);
    let boots: Option<Vec<BootId>> =
        lines.iter().map(|line| std::str::from_utf8(line).ok().and_then(|line| boot_id(line.trim()))).collect();
    boots.map_or_else(|| Fact::Garbled("a line of the list is no boot id".into()), known)
}

fn known(boots: Vec<BootId>) -> Fact<Vec<BootId>> {
    if boots.is_empty() { Fact::Absent } else { Fact::Known(boots) }
}

/// A boot id with or without its dashes.
fn boot_id(text: &str) -> Option<BootId> {
    if text.len() == 32 && text.is_ascii() {
        let dashed = [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-");
        return dashed.parse().ok();
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "-1 1f06b7399e6f4d8eb4cd0d9449a8b993 Sat 2026-05-02 10:00:00 UTC—Sat 2026-05-02 10:05:00 UTC\n\
                        0 2f06b7399e6f4d8eb4cd0d9449a8b993 Mon 2026-04-06 08:00:00 UTC—Mon 2026-04-06 08:09:00 UTC\n";

    fn boots() -> Vec<BootId> {
        ["1f06b739-9e6f-4d8e-b4cd-0d9449a8b993", "2f06b739-9e6f-4d8e-b4cd-0d9449a8b993"]
            .map(|id| id.parse().unwrap())
            .to_vec()
    }

    #[test]
    fn every_form_of_the_list_gives_the_same_boots_in_the_order_of_the_list() {
        let header = "IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY\n";
        let json = r#"[{"index":-1,"boot_id":"1f06b7399e6f4d8eb4cd0d9449a8b993","first_entry":1,"last_entry":2},
                       {"index":0,"boot_id":"2f06b7399e6f4d8eb4cd0d9449a8b993","first_entry":0,"last_entry":1}]"#;
        for list in [OLD, &OLD.replace('—', " "), &OLD.replace('—', "–"), &format!("{header}{OLD}"), json] {
            assert_eq!(read_boots(list.as_bytes()), Fact::Known(boots()), "{list}");
        }
    }

    #[test]
    fn what_is_no_list_is_not_read_as_one() {
        for nothing in ["", "\n", "[]"] {
            assert_eq!(read_boots(nothing.as_bytes()), Fact::Absent);
        }
        for wrong in ["No journal files were found.", "[{}]", "[1", "-1 zz06b7399e6f4d8eb4cd0d9449a8b993 x", "-1 é"] {
            assert!(matches!(read_boots(wrong.as_bytes()), Fact::Garbled(_)), "{wrong}");
        }
    }

    #[test]
    fn a_list_of_the_machine_s_own_stands_in_where_the_journal_has_none() {
        let ledger = "1f06b739-9e6f-4d8e-b4cd-0d9449a8b993\n2f06b7399e6f4d8eb4cd0d9449a8b993\n";
        let mut raw = RawEvidence { boot: boots()[1].clone(), items: [].into() };
        raw.items.insert(names::BOOTS.into(), Fact::Denied("no permission".into()));
        assert!(matches!(super::boots(&raw), Fact::Denied(_)));
        raw.items.insert(names::BOOTS_LEDGER.into(), Fact::Known(ledger.into()));
        assert_eq!(super::boots(&raw), Fact::Known(boots()));
    }
}
