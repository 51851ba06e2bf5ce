//! Runs over boots: the boot service, reboots, whoever stands in their way; on the tree of a board whose reboots are
//! made by a script.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::bad_input::on_a_small_disk;
use crate::bench::{Bench, HARNESS, PATIENCE, Said, matrix};
use crate::boards::assemble;

/// More boots than any run here needs.
const BOOTS_MAX: u32 = 12;

/// A board that boots anew when its script is called, by another boot id.
pub(super) struct Board {
    tree: TempDir,
}

impl Board {
    /// `script` is what reboots it; `more` is said of the board besides.
    fn new(script: &str, more: &str) -> Self {
        let tree = assemble("orin-nano-super-jp62", None);
        let board = Self { tree };
        board.write("reboot", script);
        let path = board.path("reboot");
        let reboot =
            format!("[reboot]\nby = \"command\"\ncommand = [\"sh\", \"{}\"]\npatience = \"300ms\"\n", path.display());
        board.write("etc/jetfault/board.toml", &format!("{reboot}{more}"));
        fs::create_dir_all(board.path("etc/systemd/system")).unwrap();
        board
    }

    /// A board whose reboots work.
    pub(super) fn working() -> Self {
        Self::new(
            "d=$(dirname $0); n=$(cat $d/boots 2>/dev/null || echo 0); echo $((n + 1)) > $d/boots\n\
             printf '%08x-9e6f-4d8e-b4cd-0d9449a8b993\\n' $((n + 2)) > $d/proc/sys/kernel/random/boot_id",
            "",
        )
    }

    /// Says `more` of the board.
    fn add(&self, more: &str) {
        let file = self.path("etc/jetfault/board.toml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text + more).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.tree.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(super) fn root(&self) -> &str {
        self.tree.path().to_str().unwrap()
    }

    /// A person, or a fault, reboots it.
    fn reboot(&self) {
        assert!(Command::new("sh").arg(self.path("reboot")).status().unwrap().success());
    }

    fn unit(&self) -> Option<String> {
        fs::read_to_string(self.path("etc/systemd/system/jetfault.service")).ok()
    }

    /// Does what systemd does at a boot; nothing if it is to start nothing.
    fn boot_service(&self, bench: &Bench) -> Option<Said> {
        let unit = self.unit()?;
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        Some(bench.run(&words))
    }

    /// Boots until the service is gone.
    pub(super) fn boot_until_disarmed(&self, bench: &Bench) -> Vec<Said> {
        let mut said = Vec::new();
        while let Some(boot) = self.boot_service(bench) {
            said.push(boot);
            assert!(said.len() <= BOOTS_MAX as usize, "it does not end: {said:?}");
        }
        said
    }
}

/// A matrix of cold trials on whatever computes here.
fn cold(trials: u32, more: &str) -> String {
    matrix("cold", trials, &format!("start = \"cold\"\n{more}")).replace("\"cpu\"", "\"auto\"")
}

fn run_cold(bench: &Bench, board: &Board, trials: u32, more: &[&str]) -> Said {
    let file = bench.write("cold.toml", &cold(trials, ""));
    let arguments = ["run", &file, "--sysroot", board.root(), "--allow-reboot", "--boot-delay", "0"];
    bench.run(&[&arguments[..], more].concat())
}

#[test]
fn a_run_that_needs_boots_is_carried_through_by_its_service_which_then_goes() {
    let (bench, board) = (Bench::new(), Board::working());
    run_cold(&bench, &board, 4, &[]).fails(3, &["armed: the boot service carries cold-001 on at the next boot"]);
    let unit = board.unit().expect("it is armed");
    assert!(unit.contains("After=nvpmodel.service nvramoopsconfig.service nv-l4t-bootloader-config.service"), "{unit}");
    assert!(!bench.journal("cold-001").contains("\"started\""), "the first trial too is the service's");
    let status = bench.run(&["status", "--sysroot", board.root()]);
    assert!(status.says("armed") && status.says("jetfault.off"), "{}", status.out);

    let boots = board.boot_until_disarmed(&bench);
    assert_eq!(boots.len(), 4, "a boot a trial");
    boots[0].fails(3, &["rebooting (command): a cold trial needs a boot"]);
    boots[3].ends(0);
    let journal = bench.journal("cold-001");
    assert_eq!(journal.matches("\"launcher\":\"service\"").count(), 4, "{journal}");
    assert_eq!(journal.matches("\"cold\":\"consistent\"").count(), 4, "{journal}");
    assert_eq!(journal.matches("\"reboot_asked\"").count(), 3, "{journal}");
    // The tree's own boot came after a shutdown in order.
    assert_eq!(journal.matches("\"prior_end\":\"planned\"").count(), 4, "{journal}");
    assert!(journal.lines().last().unwrap().contains("\"complete\""), "{journal}");
    let status = bench.run(&["status", "--sysroot", board.root()]);
    assert!(status.says("jetfault rebooted: a cold trial needs a boot"), "{}", status.out);
}

#[test]
fn what_the_boots_take_is_asked_for_before_anything_is_made() {
    let (bench, board) = (Bench::new(), Board::working());
    let nowhere = bench.path("nowhere");
    let refused = run_cold(&bench, &board, 1, &["--unit-dir", nowhere.to_str().unwrap()]);
    refused.fails(4, &["no directory of systemd's units", "--unit-dir", "[boot] service = \"none\""]);
    board.write("etc/systemd/system/jetfault.service", "[Service]\nExecStart=/bin/true\n");
    run_cold(&bench, &board, 1, &[]).fails(4, &["was not written by jetfault"]);
    board.write("etc/jetfault/board.toml", "[reboot]\nby = \"command\"\ncommand = [\"/no/such/plug\"]\n");
    run_cold(&bench, &board, 1, &[]).fails(4, &["/no/such/plug", "etc/jetfault/board.toml"]);
    board.write("etc/jetfault/board.toml", "[reboot]\nby = \"plug\"\n");
    run_cold(&bench, &board, 1, &[]).fails(2, &["etc/jetfault/board.toml", "plug"]);
    assert!(!bench.results().exists());
}

#[test]
fn a_board_is_armed_for_one_run() {
    let (bench, board) = (Bench::new(), Board::working());
    run_cold(&bench, &board, 1, &[]).ends(3);
    let file = bench.write("other.toml", &cold(1, "").replace("name = \"cold\"", "name = \"other\""));
    let arguments = ["run", &file, "--sysroot", board.root(), "--allow-reboot"];
    bench.run(&arguments).fails(4, &["armed for another run", "cold-001", "jetfault disarm"]);
    bench.run(&["disarm", "--sysroot", board.root()]).fails(0, &["disarmed", "jetfault stop"]);
    assert_eq!(board.unit(), None);
    bench.run(&["disarm", "--sysroot", board.root()]).fails(0, &["not armed"]);
    bench.run(&["arm", "cold-001", "--sysroot", board.root(), "--boot-delay", "7"]).fails(0, &["armed"]);
    assert!(board.unit().unwrap().contains("--boot-delay 7\n"));
}

#[test]
fn a_person_gets_out_between_two_boots() {
    let (bench, board) = (Bench::new(), Board::working());
    run_cold(&bench, &board, 3, &[]).ends(3);
    board.boot_service(&bench).unwrap().ends(3);
    let boots = || fs::read_to_string(board.path("boots")).unwrap();
    let before = boots();
    // The word of a boot menu.
    board.write("proc/cmdline", "root=/dev/nvme0n1p1 jetfault.off");
    board.boot_service(&bench).unwrap().fails(0, &["jetfault.off", "nothing is started in this boot"]);
    let status = bench.run(&["status", "--sysroot", board.root()]);
    assert!(status.says("trouble") && status.says("jetfault.off"), "{}", status.out);
    board.write("proc/cmdline", "root=/dev/nvme0n1p1");
    // A file that forbids everything until it is removed.
    bench.write("results/STOP", "");
    board.boot_service(&bench).unwrap().fails(4, &["results/STOP forbids to start anything"]);
    fs::remove_file(bench.results().join("STOP")).unwrap();
    assert_eq!(boots(), before, "nothing rebooted");
    assert!(board.unit().is_some());
    // A command, while nobody is at work.
    bench.run(&["stop", "--sysroot", board.root()]).ends(0);
    assert_eq!(board.unit(), None);
    let journal = bench.journal("cold-001");
    assert!(journal.lines().last().unwrap().contains("\"paused\""), "{journal}");
    assert_eq!(boots(), before);
    // And back.
    bench.run(&["resume", "--sysroot", board.root(), "--boot-delay", "0"]).ends(3);
    board.boot_until_disarmed(&bench);
    assert_eq!(bench.journal("cold-001").matches("\"rule\":\"pass\"").count(), 3);
}

#[test]
fn a_stop_file_of_the_run_is_used_up_at_the_next_boot() {
    let (bench, board) = (Bench::new(), Board::working());
    run_cold(&bench, &board, 3, &[]).ends(3);
    board.boot_service(&bench).unwrap().ends(3);
    bench.write("results/cold-001/STOP", "");
    board.boot_service(&bench).unwrap().fails(3, &["stopped"]);
    assert_eq!(board.unit(), None, "it is disarmed");
    assert!(!bench.results().join("cold-001/STOP").exists());
}

#[test]
fn a_reboot_that_fails_or_does_not_come_is_told_and_loses_nothing() {
    for (script, words) in
        [("echo the plug does not answer >&2; exit 7", "the plug does not answer"), ("true", "still up 300ms")]
    {
        let (bench, board) = (Bench::new(), Board::new(script, ""));
        run_cold(&bench, &board, 2, &[]).ends(3);
        board.boot_service(&bench).unwrap().fails(4, &["reboot by", words, "jetfault resume cold-001"]);
        let journal = bench.journal("cold-001");
        assert_eq!(journal.matches("\"rule\":\"pass\"").count(), 1, "{journal}");
        assert!(journal.lines().last().unwrap().contains("\"reboot_asked\""), "{journal}");
        let status = bench.run(&["status", "--sysroot", board.root()]);
        assert!(status.says("trouble") && status.says(words.split(' ').next().unwrap()), "{}", status.out);
        assert!(status.says("a reboot was asked for and has not come yet"), "{}", status.out);
        // Somebody mends it, and the board comes up again.
        board.write("proc/sys/kernel/random/boot_id", "0000000f-9e6f-4d8e-b4cd-0d9449a8b993\n");
        board.boot_service(&bench).unwrap().ends(0);
        assert!(!bench.run(&["status", "--sysroot", board.root()]).says("trouble"));
    }
}

#[test]
fn another_kernel_or_binary_between_two_boots_stops_the_run() {
    let (bench, board) = (Bench::new(), Board::working());
    board.write("proc/sys/kernel/osrelease", "5.15.148-tegra\n");
    run_cold(&bench, &board, 2, &[]).ends(3);
    board.write("proc/sys/kernel/osrelease", "5.15.185-tegra\n");
    let boot = board.boot_service(&bench).unwrap();
    boot.fails(2, &["the kernel was 5.15.148-tegra when cold-001 began, and is 5.15.185-tegra", "run --new"]);
    assert!(!bench.journal("cold-001").contains("\"started\"") && !board.path("boots").exists());
    board.write("proc/sys/kernel/osrelease", "5.15.148-tegra\n");
    // A copy of the same binary with one byte more is another binary.
    let other = bench.path("jetfault");
    let copy = "cat \"$0\" > \"$1\" && printf x >> \"$1\" && chmod +x \"$1\"";
    assert!(Command::new("sh").args(["-c", copy, HARNESS]).arg(&other).status().unwrap().success());
    let command = bench.command(&["resume", "cold-001", "--at-boot", "--boot-delay", "0", "--sysroot", board.root()]);
    let mut changed = Command::new(&other);
    changed
        .args(command.get_args())
        .current_dir(bench.path(""))
        .envs(command.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let said = Said::of(&changed.output().unwrap());
    said.fails(2, &["began with another jetfault binary", "--accept-binary"]);
    assert!(!bench.journal("cold-001").contains("\"started\""));
    let trouble = bench.run(&["status", "--sysroot", board.root()]).out;
    assert!(trouble.contains("another jetfault binary"), "{trouble}");
}

#[test]
fn somebody_at_a_terminal_holds_the_next_trial_until_they_say_so() {
    let (bench, board) = (Bench::new(), Board::working());
    run_cold(&bench, &board, 1, &[]).ends(3);
    board.write("run/systemd/sessions/4", "USER=operator\nSTATE=active\nTTY=pts/3\n");
    board.write("dev/pts/3", "");
    let arguments = ["resume", "cold-001", "--at-boot", "--boot-delay", "0", "--sysroot", board.root()];
    let mut service = bench.spawn(&arguments);
    let hold = bench.results().join("cold-001/HOLD");
    let until = std::time::Instant::now() + PATIENCE;
    while !hold.exists() {
        assert!(std::time::Instant::now() < until, "it never said that it waits");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let status = bench.run(&["status", "--sysroot", board.root()]);
    assert!(status.says("operator is logged in at pts/3"), "{}", status.out);
    assert!(!bench.journal("cold-001").contains("\"started\""));
    bench.run(&["resume", "cold-001", "--sysroot", board.root()]).fails(0, &["cold-001 goes on"]);
    assert!(service.wait().unwrap().success());
    assert_eq!(bench.journal("cold-001").matches("\"rule\":\"pass\"").count(), 1);
    assert_eq!(board.unit(), None);
}

#[test]
fn a_board_that_does_not_go_down_has_its_power_cut_which_is_written_down_before() {
    let bench = Bench::new();
    let hook = "next=$(dirname $0)/proc/sys/kernel/random/boot_id; echo 3f06b739-9e6f-4d8e-b4cd-0d9449a8b993 > $next";
    let board = Board::new("true", "");
    board.write("cut", hook);
    let cycle = format!("[power]\ncycle = [\"sh\", \"{}\"]\n", board.path("cut").display());
    board.add(&cycle);
    run_cold(&bench, &board, 2, &[]).ends(3);
    let said = board.boot_until_disarmed(&bench);
    assert!(
        said[0].err.contains("still up 300ms after it was asked to: timed out; its power is cut"),
        "{}",
        said[0].err
    );
    let journal = bench.journal("cold-001");
    let at = |what: &str| journal.find(what).unwrap_or_else(|| panic!("no {what} in {journal}"));
    assert!(at("\"reboot_asked\"") < at("\"hook\":\"power.cycle\"") && journal.contains("\"complete\""), "{journal}");
    assert_eq!(journal.matches("\"prior_end\":\"planned\"").count(), 2, "{journal}");
}

#[test]
fn a_boot_that_was_not_asked_for_is_explained_and_too_many_end_the_run() {
    let (bench, board) = (Bench::new(), Board::working());
    let file = bench.write("cold.toml", &format!("{}[safety]\nmax_unexpected_per_hour = 2\n", cold(9, "")));
    bench.run(&["run", &file, "--sysroot", board.root(), "--allow-reboot", "--boot-delay", "0"]).ends(3);
    // At each boot the service comes as far as its first record, and the machine goes down.
    board.write("reboot-now", "");
    for _ in 0..4 {
        board.write("run/systemd/sessions/4", "USER=operator\nSTATE=active\nTTY=pts/3\n");
        board.write("dev/pts/3", "");
        let Some(unit) = board.unit() else { break };
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap().to_owned();
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        let boots = bench.journal("cold-001").matches("\"booted\"").count();
        let mut service = bench.spawn(&words);
        let until = std::time::Instant::now() + PATIENCE;
        while bench.journal("cold-001").matches("\"booted\"").count() == boots && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        let _ = service.kill();
        service.wait().unwrap();
        board.reboot();
    }
    let journal = bench.journal("cold-001");
    assert!(journal.contains("3 boots in an hour that no trial explains"), "{journal}");
    assert!(!journal.contains("\"started\"") && board.unit().is_none(), "{journal}");
}

#[test]
fn a_user_who_is_not_root_is_told_so_before_anything_is_made() {
    let (bench, board) = (Bench::new(), Board::working());
    let file = bench.write("cold.toml", &cold(1, ""));
    let units = board.path("etc/systemd/system");
    fs::set_permissions(&units, fs::Permissions::from_mode(0o555)).unwrap();
    for path in [board.path(""), bench.path("")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Root may write everywhere: it becomes somebody else.
    let mut argv = vec![HARNESS, "run", &file, "--sysroot", board.root(), "--allow-reboot"];
    if rustix::process::geteuid().is_root() {
        argv.splice(0..0, ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    }
    let mut command = Command::new(argv[0]);
    command.args(&argv[1..]).current_dir(bench.path("")).env("HOME", bench.path(""));
    command.env("JETFAULT_RESULTS", bench.results()).env("JETFAULT_LOCK_DIR", bench.path(""));
    let said = Said::of(&command.output().unwrap());
    said.fails(4, &["may not be written by this user: arming takes root", "sudo"]);
    assert!(!bench.results().exists());
}

#[test]
fn a_disk_that_takes_nothing_at_boot_is_told_in_run_and_nothing_reboots() {
    let (bench, board) = (Bench::new(), Board::working());
    let file = bench.write("cold.toml", &cold(2, ""));
    let script = format!(
        "$HARNESS run -q --allow-volatile --results full/results {file} --sysroot {0} --allow-reboot --boot-delay 0; \
         [ $? = 3 ] || exit 9\n\
         mount -o remount,ro none full\n\
         at_boot=$(sed -n 's/^ExecStart=[^ ]* //p' {0}/etc/systemd/system/jetfault.service)\n\
         $HARNESS $at_boot; [ $? = 4 ] || exit 8\n\
         $HARNESS status --results full/results --sysroot {0}; ls {0}/boots 2>/dev/null && exit 7\n\
         mount -o remount,rw none full\n\
         $HARNESS $at_boot; [ $? = 3 ] || exit 6; $HARNESS $at_boot; code=$?",
        board.root()
    );
    let said = on_a_small_disk(&bench, 64 << 20, &script).expect("unshare and tmpfs are there");
    said.fails(0, &["read-only"]);
    assert!(said.says("trouble") && said.says("the disk may be failing"), "{}", said.out);
    let journal = fs::read_to_string(bench.path("full.kept/results/cold-001/journal.jsonl")).unwrap();
    assert_eq!(journal.matches("\"rule\":\"pass\"").count(), 2, "{journal}");
}
