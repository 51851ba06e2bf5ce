//! Boards driven from a desk, by a program in the place of ssh that plays each of them in a directory of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::bench::{Bench, HARNESS, PATIENCE, Said, matrix};
use crate::boards::assemble;

/// Plays ssh: `OPTIONS -- HOST LINE`. A file `HOST/fault` says what is wrong with the board or the way to it.
const SSH: &str = r#"#!/bin/sh
dir=$(dirname "$0")
case " $* " in *" -oBatchMode=yes "*) ;; *) echo "it would ask" >&2; exit 255;; esac
while [ "$1" != -- ]; do
  case $1 in *StrictHostKeyChecking*) echo "keys are bypassed" >&2; exit 255;; esac
  shift
done
home=$dir/$2
echo $$ > "$home/pid"
case $(cat "$home/fault" 2>/dev/null) in
  refused) echo "ssh: connect to host $2 port 22: Connection refused" >&2; exit 255;;
  key) echo "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @" >&2
       echo "Host key verification failed." >&2; exit 255;;
esac
cd "$home" || exit 255
export HOME="$home" JETFAULT_LOCK_DIR="$home" XDG_STATE_HOME="$home/state" PATH="$home/bin:$PATH"
unset JETFAULT_RESULTS
# One command, as everything that a board is asked: its end is the end of the connection.
exec sh -c "exec $3"
"#;

/// A desk with boards.
pub(crate) struct Lab {
    pub(crate) bench: Bench,
    /// The trees of the boards, which go with it.
    trees: Vec<(String, TempDir)>,
}

impl Lab {
    /// Boards of these names; `more` is said of each in the inventory.
    pub(crate) fn new(names: &[&str], more: &str) -> Self {
        let mut lab = Self { bench: Bench::new(), trees: Vec::new() };
        lab.program("ssh", SSH);
        let boards = names.iter().map(|name| format!("[[board]]\nname = \"{name}\"\nhost = \"{name}\"\n{more}\n"));
        lab.bench.write("fleet.toml", &boards.collect::<String>());
        for name in names {
            lab.add(name);
        }
        lab
    }

    /// A board with a jetfault that knows it by its tree.
    fn add(&mut self, name: &str) {
        let tree = assemble("orin-nano-super-jp62", None);
        let root = tree.path().display();
        let jetfault = format!(
            "#!/bin/sh\ncase $1 in __*) exec {HARNESS} \"$@\";; *) exec {HARNESS} --sysroot {root} \"$@\";; esac\n"
        );
        self.program(&format!("{name}/.jetfault/bin/jetfault"), &jetfault);
        let cat = format!(
            "#!/bin/sh\ncase $1 in /proc/sys/kernel/random/boot_id) exec /bin/cat {root}/$1;; *) exec /bin/cat \"$@\";; esac\n"
        );
        self.program(&format!("{name}/bin/cat"), &cat);
        self.trees.push((name.to_owned(), tree));
        self.boot(name, 1);
    }

    pub(crate) fn program(&self, path: &str, text: &str) {
        let path = self.bench.write(path, text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Puts board `name` into its boot number `n`.
    pub(crate) fn boot(&self, name: &str, n: u32) {
        let (_, tree) = self.trees.iter().find(|(board, _)| board == name).unwrap();
        let id = format!("{n:08x}-9e6f-4d8e-b4cd-0d9449a8b993\n");
        fs::write(tree.path().join("proc/sys/kernel/random/boot_id"), id).unwrap();
    }

    /// What is wrong with board `name` from now on.
    pub(crate) fn fault(&self, name: &str, fault: &str) {
        self.bench.write(&format!("{name}/fault"), fault);
    }

    /// Cuts the last connection to board `name`.
    pub(crate) fn cut(&self, name: &str) {
        let pid = fs::read_to_string(self.bench.path(name).join("pid")).unwrap();
        assert!(Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap().success());
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bench.command(&[&["fleet"], args].concat());
        command.env("JETFAULT_SSH", self.bench.path("ssh"));
        command
    }

    pub(crate) fn fleet(&self, args: &[&str]) -> Said {
        Said::of(&self.command(args).output().unwrap())
    }

    /// Begins a run of `trials` trials of `ms` milliseconds on every board that is reached.
    pub(crate) fn begin(&self, trials: u32, ms: u32) -> Said {
        let file = self.bench.write("away.toml", &matrix("away", trials, ""));
        self.fleet(&["run", &file, "--script", &format!("sleep {ms}; done")])
    }

    /// Does on board `name` what a shell there is told, as if somebody had logged in.
    pub(crate) fn on_board(&self, name: &str, line: &str) -> Command {
        let home = self.bench.path(name);
        let mut command = Command::new("sh");
        self.bench.at_home(&mut command);
        let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap());
        command.args(["-c", line]).current_dir(&home).env_remove("JETFAULT_RESULTS").env("PATH", path);
        command.env("HOME", &home).env("JETFAULT_LOCK_DIR", &home).env("XDG_STATE_HOME", home.join("state"));
        command
    }

    /// The tree of board `name`.
    pub(crate) fn tree(&self, name: &str) -> PathBuf {
        self.trees.iter().find(|(board, _)| board == name).unwrap().1.path().to_path_buf()
    }

    pub(crate) fn journal(&self, name: &str) -> PathBuf {
        self.bench.path(name).join(".jetfault/results/away-001/journal.jsonl")
    }
}

/// A desk that follows, line by line.
pub(crate) struct Follower {
    pub child: Child,
    lines: BufReader<std::process::ChildStdout>,
    pub said: String,
}

impl Follower {
    pub(crate) fn of(lab: &Lab) -> Self {
        Self::with(lab, &[])
    }

    pub(crate) fn with(lab: &Lab, args: &[&str]) -> Self {
        let mut child = lab.command(&[&["attach"], args].concat()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines, said: String::new() }
    }

    /// Reads until a line has `words`.
    #[track_caller]
    pub(crate) fn hears(&mut self, words: &str) {
        let began = Instant::now();
        loop {
            let mut line = String::new();
            let count = self.lines.read_line(&mut line).unwrap();
            self.said.push_str(&line);
            if line.contains(words) {
                return;
            }
            assert!(count > 0 && began.elapsed() < PATIENCE, "{words:?} never came:\n{}", self.said);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn runs_are_begun_followed_and_pulled_and_the_desk_may_go_in_between() {
    let lab = Lab::new(&["orin-1", "orin-2"], "tags = [\"orin\"]");
    lab.begin(3, 300).ends(3);
    let followed = lab.fleet(&["attach"]);
    followed.ends(0);
    for board in ["orin-1", "orin-2"] {
        for words in
            ["connected, in boot", "baseline r001: pass", "baseline r003: pass; so far 3 of 3 counted", "over: "]
        {
            let is_told = |line: &str| line.starts_with(&format!("{board}: ")) && line.contains(words);
            let is_told = followed.out.lines().any(is_told);
            assert!(is_told, "{board} {words}:\n{}", followed.out);
        }
    }
    // The boards' names are the devices in their journals.
    assert!(fs::read_to_string(lab.journal("orin-2")).unwrap().contains("\"device\":\"orin-2\""));
    let status = lab.fleet(&["status"]);
    status.ends(0);
    assert_eq!(status.out.matches("away-001  complete").count(), 2, "{}", status.out);

    let pulled = lab.fleet(&["pull"]);
    pulled.ends(0);
    assert!(pulled.out.contains("of 1 run in fleet-results/orin-1"), "{}", pulled.out);
    let copy = lab.bench.path("fleet-results/orin-1/away-001");
    assert_eq!(fs::read(copy.join("journal.jsonl")).unwrap(), fs::read(lab.journal("orin-1")).unwrap());
    // What was pulled is a run like any other.
    lab.bench.run(&["report", &copy.display().to_string()]).ends(0);
    let again = lab.fleet(&["pull", "--board", "orin-1"]);
    assert_eq!(again.out, "orin-1: nothing new in 1 run\n");
    // A complete run answers as it did before.
    assert!(lab.begin(3, 300).ends(0).out.contains("complete there"));
}

#[test]
fn a_reboot_is_proven_by_the_boot_id_and_the_old_boot_that_answers_is_none() {
    let lab = Lab::new(&["orin-1"], "");
    lab.begin(400, 100).ends(3);
    let mut follower = Follower::of(&lab);
    follower.hears("connected, in boot 00000001-");
    follower.hears("r002: pass");
    // The connection breaks, and the same boot answers.
    lab.cut("orin-1");
    follower.hears("connection lost");
    follower.hears("in the same boot: no reboot");
    follower.hears("pass");
    // The board goes down, is unreachable, and comes back.
    lab.fault("orin-1", "refused");
    lab.cut("orin-1");
    follower.hears("connection lost");
    std::thread::sleep(std::time::Duration::from_secs(3));
    lab.boot("orin-1", 2);
    lab.fault("orin-1", "");
    follower.hears("rebooted: boot 00000001-9e6f-4d8e-b4cd-0d9449a8b993 is over, 00000002-");
    // Nothing was told twice.
    let passes: Vec<&str> = follower.said.lines().filter(|line| line.contains(": pass;")).collect();
    let mut once = passes.clone();
    once.dedup();
    assert_eq!(passes, once);
    // The end of the desk is not the end of the run, and another desk goes on where it stands.
    follower.child.kill().unwrap();
    follower.child.wait().unwrap();
    let mut second = Follower::of(&lab);
    second.hears("baseline r001: pass");
    assert!(lab.fleet(&["stop"]).ends(0).out.contains("orin-1: "));
    second.hears("its run rests");
    assert_eq!(second.child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_board_in_trouble_is_named_with_what_mends_it_and_the_others_go_on() {
    let lab = Lab::new(&["off", "swapped", "bare", "foreign", "good"], "");
    lab.fault("off", "refused");
    lab.fault("swapped", "key");
    fs::remove_file(lab.bench.path("bare/.jetfault/bin/jetfault")).unwrap();
    // What a shell says of a binary for another architecture.
    lab.program(
        "foreign/.jetfault/bin/jetfault",
        "#!/bin/sh\necho 'sh: 1: jetfault: Exec format error' >&2\nexit 126\n",
    );
    let said = lab.begin(1, 0);
    said.fails(
        4,
        &[
            "off: error: unreachable: ssh: connect to host off port 22: Connection refused",
            "swapped: error: its host key is another one than ssh knows",
            "swapped: hint: was the board reflashed?",
            "bare: error: jetfault is not there",
            "bare: hint: `jetfault fleet push` puts it there",
            "foreign: error: the jetfault there is for another architecture",
        ],
    );
    assert!(said.out.contains("good: away-001 goes on there without this desk"), "{}", said.out);
    assert!(lab.fleet(&["attach", "--board", "good"]).ends(0).out.contains("baseline r001: pass"));
    // Following sets a board aside at once where waiting mends nothing.
    lab.fleet(&["attach", "--board", "swapped"]).fails(4, &["swapped: error: its host key"]);
    let json = lab.fleet(&["status", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(status["schema"], "jetfault.fleet-status/1");
    assert_eq!(status["boards"][4]["status"]["run"], "away-001");
    assert!(status["boards"][0]["trouble"].as_str().unwrap().contains("unreachable"));
}

#[test]
fn two_desks_at_one_board_are_told_by_its_own_lock() {
    let lab = Lab::new(&["orin-1"], "");
    lab.begin(400, 100).ends(3);
    let other = lab.bench.write("other.toml", &matrix("other", 1, ""));
    lab.fleet(&["run", &other])
        .fails(5, &["orin-1: error: it is at work for somebody else", "orin-1: hint: another desk"]);
    lab.fleet(&["stop"]).ends(0);
}

#[test]
fn a_board_that_was_written_anew_replaces_nothing_on_the_desk() {
    let mut lab = Lab::new(&["orin-1", "orin-2"], "");
    lab.begin(1, 0);
    lab.fleet(&["attach"]).ends(0);
    lab.fleet(&["pull"]).ends(0);
    let copy = lab.bench.path("fleet-results/orin-1/away-001/journal.jsonl");
    let before = fs::read(&copy).unwrap();
    fs::remove_dir_all(lab.bench.path("orin-1")).unwrap();
    lab.add("orin-1");
    lab.begin(1, 0);
    lab.fleet(&["attach"]).ends(0);
    let pulled = lab.fleet(&["pull"]);
    pulled.fails(
        4,
        &["orin-1: error: away-001 there is another run", "was the board reflashed?", "away, then pull again"],
    );
    assert!(pulled.out.contains("orin-2: nothing new"), "{}", pulled.out);
    assert_eq!(fs::read(&copy).unwrap(), before);
}

/// The beginning of an ELF file for an architecture by its number.
fn elf(machine: u8) -> Vec<u8> {
    let mut file = vec![0; 64];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[18] = machine;
    file
}

#[test]
fn a_push_takes_the_binary_of_the_architecture_whole_and_only_once() {
    let lab = Lab::new(&["arm", "pc", "risc"], "");
    let inventory = fs::read_to_string(lab.bench.path("fleet.toml")).unwrap();
    let binary = "[fleet]\nbinary = { aarch64 = \"a64\", x86_64 = \"x64\" }\n";
    lab.bench.write("fleet.toml", &format!("{binary}{inventory}"));
    for (board, architecture) in [("arm", "aarch64"), ("pc", "x86_64"), ("risc", "riscv64")] {
        lab.program(&format!("{board}/bin/uname"), &format!("#!/bin/sh\necho {architecture}\n"));
    }
    fs::write(lab.bench.path("a64"), elf(183)).unwrap();
    fs::write(lab.bench.path("x64"), elf(62)).unwrap();
    let file = lab.bench.write("it's a \"matrix\" $(x).toml", "x = 1\n");
    let said = lab.fleet(&["push", &file]);
    said.fails(2, &["risc: error: it is riscv64, and this desk has no binary for that", "[fleet] binary.riscv64"]);
    assert!(said.out.contains("arm: got jetfault for aarch64"), "{}", said.out);
    assert_eq!(fs::read(lab.bench.path("arm/.jetfault/bin/jetfault")).unwrap(), elf(183));
    assert_eq!(fs::read(lab.bench.path("pc/.jetfault/bin/jetfault")).unwrap(), elf(62));
    assert_eq!(fs::read(lab.bench.path("pc/.jetfault/matrices/it's a \"matrix\" $(x).toml")).unwrap(), b"x = 1\n");
    assert!(lab.fleet(&["push", "--board", "arm"]).ends(0).out.contains("arm: has this jetfault"));

    // A binary in the wrong place is found here, a full disk there; what was there stays.
    fs::copy(lab.bench.path("x64"), lab.bench.path("a64")).unwrap();
    lab.fleet(&["push", "--board", "arm"]).fails(2, &["arm: error: it is aarch64, and", "is for x86_64"]);
    fs::write(lab.bench.path("x64"), [elf(62), vec![1]].concat()).unwrap();
    lab.program("pc/bin/cat", "#!/bin/sh\necho 'cat: write error: No space left on device' >&2\nexit 1\n");
    lab.fleet(&["push", "--board", "pc"]).fails(4, &["pc: error: its disk is full", "free some space"]);
    assert_eq!(fs::read(lab.bench.path("pc/.jetfault/bin/jetfault")).unwrap(), elf(62));
    let mut left = fs::read_dir(lab.bench.path("pc/.jetfault/bin")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.all(|name| !name.to_string_lossy().contains("unfinished")), "the full disk is left fuller");
}

#[test]
fn a_clock_that_is_years_off_is_said_and_changes_nothing() {
    let lab = Lab::new(&["orin-1"], "");
    let binary = format!("[fleet]\nbinary = {{ {} = \"bin\" }}\n", std::env::consts::ARCH);
    let inventory = fs::read_to_string(lab.bench.path("fleet.toml")).unwrap();
    lab.bench.write("fleet.toml", &format!("{binary}{inventory}"));
    fs::write(lab.bench.path("bin"), elf(if cfg!(target_arch = "x86_64") { 62 } else { 183 })).unwrap();
    lab.program("orin-1/bin/date", "#!/bin/sh\necho 1000000000\n");
    let said = lab.fleet(&["push"]);
    assert!(said.ends(0).out.contains("days behind this one: dates are wrong there"), "{}", said.out);
}

#[test]
fn power_is_cycled_by_the_hook_and_another_boot_is_the_proof() {
    let lab = Lab::new(&["good", "deaf", "none"], "");
    let tree = |name: &str| lab.trees.iter().find(|(board, _)| board == name).unwrap().1.path().display().to_string();
    // The board comes back after a while, in which its old boot still answers.
    let hook = format!(
        "#!/bin/sh\n(sleep 3; echo 00000002-9e6f-4d8e-b4cd-0d9449a8b993 > {}/proc/sys/kernel/random/boot_id) >/dev/null 2>&1 &\n",
        tree("good")
    );
    lab.program("hook", &hook);
    let inventory = format!(
        "[[board]]\nname = \"good\"\nhost = \"good\"\npower_cycle = [\"{}\"]\n[[board]]\nname = \"deaf\"\nhost = \"deaf\"\n\
         power_cycle = [\"true\"]\n[[board]]\nname = \"none\"\nhost = \"none\"\n",
        lab.bench.path("hook").display()
    );
    lab.bench.write("fleet.toml", &inventory);
    let said = lab.fleet(&["power-cycle", "--patience", "20", "--board", "good"]);
    let words = "good: power cycled: boot 00000001-9e6f-4d8e-b4cd-0d9449a8b993 is over, 00000002-9e6f-";
    assert!(said.ends(0).out.contains(words), "{}", said.out);
    lab.fleet(&["power-cycle", "--patience", "3", "--board", "deaf"])
        .fails(4, &["deaf: error: no new boot within 3 s of its hook: it still is in boot 00000001-"]);
    lab.fleet(&["power-cycle", "--board", "none"]).fails(2, &["none: error: nothing here cuts its power"]);
}

#[test]
fn an_inventory_that_names_something_twice_is_refused_with_both_places() {
    let lab = Lab::new(&["orin-1", "orin-2"], "power_cycle = [\"plug\", \"3\"]");
    lab.fleet(&["status"])
        .fails(2, &["fleet.toml: line 8: power_cycle", "of board orin-2 is already that of board orin-1, in line 4"]);
    let lab = Lab::new(&["orin-1"], "");
    lab.fleet(&["status", "--board", "orin-7"]).fails(2, &["no board orin-7", "did you mean orin-1?"]);
    lab.fleet(&["status", "--inventory", "nowhere.toml"]).fails(2, &["cannot read the inventory nowhere.toml"]);
}

#[test]
fn fifty_boards_are_followed_in_little_memory() {
    let names: Vec<String> = (1..=50).map(|n| format!("board-{n}")).collect();
    let bench = Bench::new();
    let boards = names.iter().map(|name| format!("[[board]]\nname = \"{name}\"\nhost = \"{name}\"\n"));
    bench.write("fleet.toml", &boards.collect::<String>());
    // Each says two hundred lines, and then only that it is there.
    let frame = |seq: &str, more: &str| {
        format!(
            "{{\"schema\":\"jetfault.frame/1\",\"run\":\"a-001\",\"boot\":\"00000001-9e6f-4d8e-b4cd-0d9449a8b993\",\
             \"wall\":\"2026-01-01T00:00:00.000Z\",\"seq\":{seq}{more}}}"
        )
    };
    let said = frame("'$i'", ",\"say\":\"[x] a cell with a label r001: pass\"");
    let beat = frame("200", "");
    let ssh = bench.write(
        "ssh",
        &format!(
            "#!/bin/sh\ni=0; while [ $i -lt 200 ]; do i=$((i+1)); echo '{said}'; done\necho '{beat}'\nexec sleep 60\n"
        ),
    );
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let mut desk = bench.command(&["fleet", "attach"]).env("JETFAULT_SSH", &ssh).spawn().unwrap();
    let mut lines = BufReader::new(desk.stdout.take().unwrap()).lines();
    let wanted = 50 * 201;
    let heard =
        lines.by_ref().take(wanted).filter(|line| line.as_ref().is_ok_and(|line| line.contains("a cell"))).count();
    let status = fs::read_to_string(format!("/proc/{}/status", desk.id())).unwrap();
    desk.kill().unwrap();
    desk.wait().unwrap();
    assert!(heard >= 50 * 199, "{heard} lines were told");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("peak memory with 50 boards: {kilobytes} kB");
    assert!(kilobytes < 32_000, "{kilobytes} kB");
}
