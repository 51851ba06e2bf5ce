//! Taking out of captured text what names one machine or one person, so that it can be attached to a public issue.
//!
//! Serial numbers, hardware addresses, user and host names, home directories and remote addresses become pseudonyms such
//! as `user-1`, the same one wherever the same name stood. Boot ids stay, and so does whatever the kernel says about a
//! fault: a verdict is the same before and after. Default accounts of images (`nvidia`, `ubuntu`) name nobody and stay.

use std::borrow::Cow;
use std::collections::BTreeMap;

use regex::bytes::{Captures, Regex, RegexBuilder};

use crate::model::evidence::Fact;
use crate::perform::host::Sysroot;

/// Names that images come with, and words in their place.
const COMMON_NAMES: [&str; 20] = [
    "root",
    "nvidia",
    "jetson",
    "ubuntu",
    "debian",
    "user",
    "admin",
    "test",
    "pi",
    "orin",
    "thor",
    "localhost",
    "tegra",
    "tegra-ubuntu",
    "reboot",
    "shutdown",
    "runlevel",
    "wtmp",
    "unknown",
    "none",
];

/// Words of kernels and services: a user or a host of such a name is replaced only where a name must stand, or a line
/// that a verdict rests on would lose its meaning.
const LOG_WORDS: [&str; 48] = [
    "kernel",
    "panic",
    "watchdog",
    "thermal",
    "reset",
    "system",
    "systemd",
    "journal",
    "oops",
    "bug",
    "error",
    "fault",
    "killed",
    "memory",
    "process",
    "task",
    "cpu",
    "gpu",
    "nvgpu",
    "cuda",
    "python",
    "python3",
    "hang",
    "stuck",
    "call",
    "trace",
    "power",
    "boot",
    "ext4",
    "usb",
    "pci",
    "net",
    "host",
    "board",
    "local",
    "linux",
    "hardware",
    "soft",
    "lockup",
    "critical",
    "temperature",
    "invoked",
    "blocked",
    "target",
    "stopped",
    "reached",
    "temp",
    "warning",
];

/// Values of firmware that stand for a number that was never set.
const NO_SERIAL: [&str; 6] =
    ["default string", "to be filled by o.e.m.", "not specified", "none", "system serial number", "0123456789"];

/// Names shorter than this are replaced only where a name must stand.
const DISTINCTIVE_LENGTH: usize = 3;

/// A serial number has at least so many characters.
const SERIAL_LENGTH: usize = 6;

/// What must not be seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Secrets {
    /// Names of people's accounts.
    pub users: Vec<String>,
    /// Names of this machine.
    pub hosts: Vec<String>,
    /// Numbers of this machine and its parts.
    pub serials: Vec<String>,
}

impl Secrets {
    /// Those of the machine under `sysroot`.
    pub fn of(sysroot: &Sysroot) -> Self {
        let text = |path: &str| sysroot.text(path).known().cloned().unwrap_or_default();
        let entries = |path: &str| sysroot.entries(path).known().cloned().unwrap_or_default();
        let mut users: Vec<String> = text("etc/passwd").lines().filter_map(person).collect();
        users.extend(entries("home"));
        let hosts = vec![text("proc/sys/kernel/hostname"), text("etc/hostname")];
        let mut serials = Vec::new();
        for path in [
            "proc/device-tree/serial-number",
            "sys/module/tegra_fuse/parameters/tegra_chip_uid",
            "sys/class/dmi/id/product_serial",
            "sys/class/dmi/id/product_uuid",
            "sys/class/dmi/id/board_serial",
            "sys/class/dmi/id/chassis_serial",
            "etc/machine-id",
        ] {
            serials.push(text(path));
        }
        for drive in entries("sys/class/nvme") {
            serials.push(text(&format!("sys/class/nvme/{drive}/serial")));
        }
        for drive in entries("sys/block") {
            serials.extend(["serial", "cid", "wwid"].map(|name| text(&format!("sys/block/{drive}/device/{name}"))));
        }
        let boot = text("proc/sys/kernel/random/boot_id").replace('-', "");
        serials.retain(|serial| is_serial(serial) && serial.replace('-', "") != boot);
        Self { users, hosts, serials }
    }
}

/// The name in a line of passwd(5) if a person logs in by it: system accounts are below 1000 (login.defs(5), `UID_MIN`).
fn person(line: &str) -> Option<String> {
    let mut fields = line.split(':');
    let (name, uid) = (fields.next()?, fields.nth(1)?.parse::<u32>().ok()?);
    (1000..60_000).contains(&uid).then(|| name.to_owned())
}

fn is_serial(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    text.len() >= SERIAL_LENGTH && !NO_SERIAL.contains(&lower.as_str()) && text.chars().any(|c| !"0-xX ".contains(c))
}

fn is_common(name: &str) -> bool {
    COMMON_NAMES.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether a name is long and rare enough to be replaced wherever it stands as a word.
fn is_distinctive(name: &str) -> bool {
    name.len() >= DISTINCTIVE_LENGTH && !LOG_WORDS.contains(&name.to_ascii_lowercase().as_str())
}

/// Replaces secrets by pseudonyms, the same one for the same secret as long as it lives.
pub struct Redactor {
    rules: Vec<Rule>,
    last_columns: Regex,
    pseudonyms: BTreeMap<(Kind, Vec<u8>), String>,
}

/// What a pseudonym stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    User,
    Host,
    Serial,
    Mac,
    Address,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Host => "host",
            Self::Serial => "serial",
            Self::Mac => "mac",
            Self::Address => "address",
        }
    }
}

/// A pattern whose group `secret` is replaced.
struct Rule {
    kind: Kind,
    pattern: Regex,
}

impl Redactor {
    /// One that knows `secrets`, and the forms in which others stand.
    pub fn new(secrets: &Secrets) -> Self {
        let mut rules = Vec::new();
        let mut add = |kind, pattern: &str| rules.push(Rule { kind, pattern: compile(pattern) });
        if let Some(serials) = alternatives(&secrets.serials, |_| true) {
            add(Kind::Serial, &format!(r"\b(?<secret>{serials})\b"));
        }
        // Of USB devices the kernel prints the index of the string first, `SerialNumber=3`, which is no number.
        add(
            Kind::Serial,
            r#"(?i)\b(?:serial[ _-]?(?:number|num|no\.?|nr|#)|serialno|s/n|ecid|chip[ _]uid)["']?\s*[:=]\s*["']?(?<secret>[0-9a-z][0-9a-z._/-]{3,})"#,
        );
        add(Kind::Serial, r"\bGPU-(?<secret>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b");
        add(Kind::Mac, r"(?i)\b(?<secret>[0-9a-f]{2}(?::[0-9a-f]{2}){5,})\b");
        add(Kind::Mac, r"\benx(?<secret>[0-9a-f]{12})\b");
        add(Kind::User, r"/home/(?<secret>[A-Za-z0-9_][A-Za-z0-9._-]*)");
        let users = |keep: fn(&str) -> bool| alternatives(&secrets.users, move |name| !is_common(name) && keep(name));
        let hosts = |keep: fn(&str) -> bool| alternatives(&secrets.hosts, move |name| !is_common(name) && keep(name));
        if let Some(hosts) = hosts(is_distinctive) {
            add(Kind::Host, &format!(r"\b(?<secret>{hosts})\b"));
        }
        if let Some(hosts) = hosts(|_| true) {
            // Where the name of a host stands: syslog's second column, journald's field, and what services say.
            add(Kind::Host, &format!(r"(?m)^[A-Z][a-z]{{2}} [ \d]\d [\d:.]{{8,15}} (?<secret>{hosts}) "));
            add(Kind::Host, &format!(r#"(?i)(?:@|\bhostname(?: set to)?["']?[ =:]+[<"']?)(?<secret>{hosts})\b"#));
        }
        if let Some(users) = users(is_distinctive) {
            add(Kind::User, &format!(r"\b(?<secret>{users})\b"));
        }
        if let Some(users) = users(|_| true) {
            add(
                Kind::User,
                &format!(
                    r"(?:\b[Uu]ser(?:name)?[ =:]+|\b(?:USER|LOGNAME)=|\bfor |\bby |uid=\d+\()(?<secret>{users})\b"
                ),
            );
            add(Kind::User, &format!(r"\b(?<secret>{users})(?:@| : TTY=|\(uid=)"));
        }
        add(
            Kind::Address,
            r"(?:\bfrom |\brhost=|\baddress:? |\bpeer )(?<secret>(?:\d{1,3}\.){3}\d{1,3}|[0-9a-fA-F]{1,4}:[0-9a-fA-F:]+)\b",
        );
        let last_columns = r"(?m)^(?<user>\S+)[ \t]+\S+[ \t]+(?:(?<from>\S+)[ \t]+)?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) ";
        Self { rules, last_columns: compile(last_columns), pseudonyms: BTreeMap::new() }
    }

    /// The text of the item or file `name` without its secrets.
    pub fn redact(&mut self, name: &str, text: Vec<u8>) -> Vec<u8> {
        if name.ends_with(".jsonl") {
            return self.redact_json_lines(&text);
        }
        let is_last = name.ends_with("last.txt") || name.ends_with("last-x-F.txt");
        let text = if is_last { self.redact_last(text) } else { text };
        self.redact_text(text)
    }

    fn redact_text(&mut self, mut text: Vec<u8>) -> Vec<u8> {
        for Rule { kind, pattern } in &self.rules {
            let pseudonyms = &mut self.pseudonyms;
            let replaced = pattern.replace_all(&text, |found: &Captures<'_>| {
                let (whole, secret) = (found.get(0).expect("the whole"), found.name("secret").expect("in every rule"));
                let pseudonym = pseudonym(pseudonyms, *kind, secret.as_bytes());
                splice(whole.as_bytes(), secret.start() - whole.start()..secret.end() - whole.start(), &pseudonym)
            });
            if let Cow::Owned(replaced) = replaced {
                text = replaced;
            }
        }
        text
    }

    /// One JSON object a line, as journald prints entries. Values are redacted as they read, not as they are escaped; a
    /// message that is an array of bytes, because it holds unprintable ones, becomes text.
    fn redact_json_lines(&mut self, text: &[u8]) -> Vec<u8> {
        let lines: Vec<(&[u8], Option<Entry>)> = text
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| (line, serde_json::from_slice::<Entry>(line).ok()))
            .collect();
        // All values in one text: a pattern over it costs less than one over each.
        let values = lines.iter().flat_map(|(line, entry)| match entry {
            Some(entry) => entry.values().filter_map(readable).collect(),
            None => vec![String::from_utf8_lossy(line).into_owned()],
        });
        let joined = values.collect::<Vec<String>>().join(BETWEEN_VALUES);
        let redacted = String::from_utf8_lossy(&self.redact_text(joined.into_bytes())).into_owned();
        let mut redacted = redacted.split(BETWEEN_VALUES);
        let mut next = || redacted.next().expect("a separator is no part of a secret");
        let mut out = Vec::with_capacity(text.len());
        for (line, entry) in lines {
            let Some(mut entry) = entry else {
                out.extend_from_slice(next().as_bytes());
                continue;
            };
            let mut changed = false;
            for value in entry.values_mut().filter(|value| readable(value).is_some()) {
                let new = next();
                if value.as_str() != Some(new) {
                    (changed, *value) = (true, new.into());
                }
            }
            if changed {
                out.extend(serde_json::to_vec(&entry).expect("it was JSON"));
                out.push(b'\n');
            } else {
                out.extend_from_slice(line);
            }
        }
        out
    }

    /// An item without its secrets, in whatever state it is.
    pub fn redact_fact(&mut self, name: &str, item: Fact<Vec<u8>>) -> Fact<Vec<u8>> {
        let mut words = |why: String| String::from_utf8_lossy(&self.redact("", why.into_bytes())).into_owned();
        match item {
            Fact::Known(bytes) => Fact::Known(self.redact(name, bytes)),
            Fact::Absent => Fact::Absent,
            Fact::Denied(why) => Fact::Denied(words(why)),
            Fact::Garbled(raw) => Fact::Garbled(words(raw)),
        }
    }

    /// The output of last(1): who logged in, from where.
    fn redact_last(&mut self, text: Vec<u8>) -> Vec<u8> {
        let pseudonyms = &mut self.pseudonyms;
        let replaced = self.last_columns.replace_all(&text, |found: &Captures<'_>| {
            let whole = found.get(0).expect("the whole");
            let mut line = whole.as_bytes().to_vec();
            let user = found.name("user").expect("in the pattern");
            if ["reboot", "shutdown", "runlevel"].map(str::as_bytes).contains(&user.as_bytes()) {
                return line;
            }
            // From the right, so that the left keeps its place.
            for (kind, column) in [(Kind::Address, found.name("from")), (Kind::User, Some(user))] {
                let Some(column) = column else { continue };
                let pseudonym = pseudonym(pseudonyms, kind, column.as_bytes());
                line = splice(&line, column.start() - whole.start()..column.end() - whole.start(), &pseudonym);
            }
            line
        });
        replaced.into_owned()
    }
}

/// The pseudonym of `secret`; itself if it names nobody or is a pseudonym already.
fn pseudonym(known: &mut BTreeMap<(Kind, Vec<u8>), String>, kind: Kind, secret: &[u8]) -> String {
    let text = String::from_utf8_lossy(secret);
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_pseudonym = text.split_once('-').is_some_and(|(word, rest)| word == kind.word() && number(rest));
    if is_pseudonym || (matches!(kind, Kind::User | Kind::Host) && is_common(&text)) {
        return text.into_owned();
    }
    let next = 1 + known.keys().filter(|(other, _)| *other == kind).count();
    known.entry((kind, secret.to_ascii_lowercase())).or_insert_with(|| format!("{}-{next}", kind.word())).clone()
}

fn splice(text: &[u8], range: std::ops::Range<usize>, with: &str) -> Vec<u8> {
    [&text[..range.start], with.as_bytes(), &text[range.end..]].concat()
}

fn compile(pattern: &str) -> Regex {
    RegexBuilder::new(pattern).unicode(false).build().expect("the patterns are fixed and names are escaped")
}

/// The names as alternatives of a pattern, longest first so that a longer one is not cut; nothing if there are none.
fn alternatives(names: &[String], keep: impl Fn(&str) -> bool) -> Option<String> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).filter(|name| !name.is_empty() && keep(name)).collect();
    names.sort_by_key(|name| (std::cmp::Reverse(name.len()), *name));
    names.dedup();
    (!names.is_empty()).then(|| names.into_iter().map(regex::escape).collect::<Vec<_>>().join("|"))
}

/// An entry of the journal in JSON.
type Entry = serde_json::Map<String, serde_json::Value>;

/// What stands between values of entries while they are redacted: no pattern matches a control character.
const BETWEEN_VALUES: &str = "\n\x1e\n";

/// A value as text: a string, or an array of bytes.
fn readable(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.replace(BETWEEN_VALUES, "\n\n")),
        serde_json::Value::Array(bytes) => {
            let bytes: Option<Vec<u8>> = bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
            Some(String::from_utf8_lossy(&bytes?).replace(BETWEEN_VALUES, "\n\n"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::boards::assemble;

    fn secrets(users: &[&str], hosts: &[&str], serials: &[&str]) -> Secrets {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Secrets { users: owned(users), hosts: owned(hosts), serials: owned(serials) }
    }

    fn redact(secrets: &Secrets, name: &str, text: &str) -> String {
        String::from_utf8(Redactor::new(secrets).redact(name, text.into())).unwrap()
    }

    #[test]
    fn planted_secrets_are_gone_and_the_same_one_has_the_same_name() {
        let secrets = secrets(&["mallory", "eve"], &["lab-orin-7"], &["1424525012345", "S6XNNS0T12345"]);
        for (text, expected) in [
            (
                "usb 1-2: New USB device strings: Mfr=1, Product=2, SerialNumber=3\nusb 1-2: SerialNumber: AA1B2C3D",
                "usb 1-2: New USB device strings: Mfr=1, Product=2, SerialNumber=3\nusb 1-2: SerialNumber: serial-1",
            ),
            (
                "serial 1424525012345, disk S6XNNS0T12345, again 1424525012345",
                "serial serial-1, disk serial-2, again serial-1",
            ),
            ("androidboot.serialno=1424525000001 quiet", "androidboot.serialno=serial-1 quiet"),
            ("eth0: 48:b0:2d:AA:bb:0c up; 48:b0:2d:aa:bb:0c down", "eth0: mac-1 up; mac-1 down"),
            ("r8168 enx48b02daabb0c: link up", "r8168 enxmac-1: link up"),
            (
                "opened /home/mallory/x and /home/stranger/y and /home/nvidia/z",
                "opened /home/user-1/x and /home/user-2/y and /home/nvidia/z",
            ),
            (
                "Accepted publickey for mallory from 192.0.2.10 port 4711 ssh2",
                "Accepted publickey for user-1 from address-1 port 4711 ssh2",
            ),
            ("from fe80::1234:56ff:fe78:9abc port 22", "from address-1 port 22"),
            (
                "  mallory : TTY=pts/0 ; PWD=/home/mallory ; USER=root ; COMMAND=/usr/sbin/reboot",
                "  user-1 : TTY=pts/0 ; PWD=/home/user-1 ; USER=root ; COMMAND=/usr/sbin/reboot",
            ),
            (
                "May 06 08:11:00.123456 lab-orin-7 systemd[1]: Hostname set to <lab-orin-7>.",
                "May 06 08:11:00.123456 host-1 systemd[1]: Hostname set to <host-1>.",
            ),
            ("GPU UUID: GPU-12345678-1234-1234-1234-123456789abc", "GPU UUID: GPU-serial-1"),
        ] {
            assert_eq!(redact(&secrets, "x", text), expected);
        }
    }

    #[test]
    fn a_name_that_is_a_word_of_the_log_is_replaced_only_where_a_name_stands() {
        let secrets = secrets(&["panic", "al", "nvidia"], &["gpu"], &[]);
        for (text, expected) in [
            ("Kernel panic - not syncing: Oops", "Kernel panic - not syncing: Oops"),
            (
                "session opened for user panic(uid=1000) by panic(uid=0)",
                "session opened for user user-1(uid=1000) by user-1(uid=0)",
            ),
            ("17000000.gpu: al fine; user al", "17000000.gpu: al fine; user user-1"),
            ("May 06 08:11:00 gpu kernel: gpu fault", "May 06 08:11:00 host-1 kernel: gpu fault"),
            ("nvidia: loading out-of-tree module; user nvidia", "nvidia: loading out-of-tree module; user nvidia"),
        ] {
            assert_eq!(redact(&secrets, "x", text), expected);
        }
    }

    #[test]
    fn logins_lose_who_and_from_where_and_reboots_keep_everything() {
        let text = "reboot   system boot  5.15.148-tegra   Wed May  6 08:14:14 2026   still running\n\
                    stranger pts/0        laptop.example   Wed May  6 08:12:00 2026 - crash                     (00:02)\n\
                    stranger tty1                          Wed May  6 08:11:00 2026 - crash                     (00:02)\n\
                    shutdown system down  5.15.148-tegra   Wed May  6 08:10:01 2026 - Wed May  6 08:11:09 2026  (00:01)\n";
        let expected = text.replace("stranger", "user-1").replace("laptop.example", "address-1");
        assert_eq!(redact(&Secrets::default(), "last.txt", text), expected);
    }

    #[test]
    fn values_are_read_before_they_are_redacted() {
        let text =
            b"{\"MESSAGE\":[27,109,97,108,108,111,114,121],\"_PID\":\"1\"}\n{\"MESSAGE\":\"mallory\"}\n".to_vec();
        let redacted = Redactor::new(&secrets(&["mallory"], &[], &[])).redact("journal/previous.jsonl", text);
        let text = String::from_utf8(redacted).unwrap();
        assert_eq!(text, "{\"MESSAGE\":\"\\u001buser-1\",\"_PID\":\"1\"}\n{\"MESSAGE\":\"user-1\"}\n");
    }

    #[test]
    fn the_secrets_of_a_machine_are_found_and_its_boot_is_none() {
        let tree = assemble("orin-nano-super-jp62", None);
        let write = |path: &str, text: &str| std::fs::write(tree.path().join(path), text).unwrap();
        write(
            "etc/passwd",
            "root:x:0:0::/root:/bin/bash\nmallory:x:1001:1001::/data/m:/bin/bash\nnobody:x:65534:1::/:/x\n",
        );
        write("proc/device-tree/serial-number", "1424525012345\0");
        let secrets = Secrets::of(&Sysroot::new(tree.path().to_path_buf()));
        assert_eq!(secrets.users, ["mallory"]);
        assert!(secrets.serials.contains(&"1424525012345".to_owned()));
        let boot = std::fs::read_to_string(tree.path().join("proc/sys/kernel/random/boot_id")).unwrap();
        write("etc/machine-id", &boot.replace('-', ""));
        let secrets = Secrets::of(&Sysroot::new(tree.path().to_path_buf()));
        assert_eq!(secrets.serials, ["1424525012345"], "what must survive is no secret");
    }

    #[test]
    fn what_the_kernel_says_of_faults_survives() {
        let secrets = secrets(&["operator", "oom"], &["jetson-lab"], &["1424525012345"]);
        for (board, scenario) in [
            ("agx-orin-jp5", "kernel-panic"),
            ("orin-nano-super-jp62", "nvgpu-mmu-fault"),
            ("orin-nano-super-jp62", "thermal-shutdown"),
            ("orin-nano-super-jp62", "watchdog-reset"),
            ("x86-pc", "xid31"),
        ] {
            let tree = assemble(board, Some(scenario));
            for file in ["cmd/journalctl-k-b--1.jsonl", "cmd/journalctl-k-b-0.jsonl", "sys/fs/pstore/dmesg-ramoops-0"] {
                let Ok(text) = std::fs::read(tree.path().join(file)) else { continue };
                let redacted = Redactor::new(&secrets).redact(file, text.clone());
                assert_eq!(
                    String::from_utf8_lossy(&redacted),
                    String::from_utf8_lossy(&text),
                    "{board} {scenario} {file}"
                );
            }
        }
    }
}
