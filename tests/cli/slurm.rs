//! Blocks as elements of a job array, by a program in the place of Slurm's `sbatch` that runs each of them at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::bench::{Bench, HARNESS, Said, matrix};

/// Plays sbatch: `OPTIONS… SCRIPT`. Element N runs on node board-(N mod 2), and its exit code is
/// a line of `codes`. A file `fault` has it refuse.
const SBATCH: &str = r#"#!/bin/sh
dir=$(dirname "$0")
printf '%s\n' "$@" > "$dir/options"
if [ -e "$dir/fault" ]; then echo "sbatch: error: invalid partition specified: nowhere" >&2; exit 1; fi
for option; do
  case $option in --array=*) last=${option#--array=1-}; last=${last%\%*};; esac
  script=$option
done
: > "$dir/codes"
element=1
while [ $element -le "$last" ]; do
  node=board-$((element % 2))
  SLURM_ARRAY_TASK_ID=$element SLURMD_NODENAME=$node sh "$script" >> "$dir/output" 2>&1
  echo $? >> "$dir/codes"
  element=$((element + 1))
done
echo "4711;lab"
"#;

struct Lab {
    bench: Bench,
    matrix: String,
}

impl Lab {
    /// A lab whose nodes have jetfault, and a matrix of `trials` trials of two cells.
    fn new(trials: u32) -> Self {
        let bench = Bench::new();
        let sbatch = bench.write("bin/sbatch", SBATCH);
        fs::set_permissions(sbatch, fs::Permissions::from_mode(0o755)).unwrap();
        let matrix = bench.write("it's $(mine).toml", &matrix("mine", trials, "[axes]\nsequence = [\"AA\"]\n"));
        Self { bench, matrix }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bench.command(&[&["fleet"], args].concat());
        let path = format!("{}:{}", self.bench.path("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path);
        command
    }

    fn fleet(&self, args: &[&str]) -> Said {
        Said::of(&self.command(args).output().unwrap())
    }

    fn submit(&self, more: &[&str]) -> Said {
        let args = ["submit", "--engine", "slurm", &self.matrix, "--program", HARNESS, "--allow-root-workload"];
        self.fleet(&[&args, more].concat())
    }

    /// The directory of the blocks.
    fn blocks(&self) -> PathBuf {
        let entries = fs::read_dir(self.bench.results()).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<PathBuf> = entries.collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn collect(&self, format: &str) -> Said {
        self.fleet(&["collect", &self.blocks().display().to_string(), "--format", format])
    }

    fn said(&self, file: &str) -> String {
        fs::read_to_string(self.bench.path("bin").join(file)).unwrap()
    }
}

#[test]
fn each_block_is_an_element_and_a_finished_one_is_not_repeated() {
    let lab = Lab::new(4);
    let submitted = lab.submit(&["--script", "done", "--tag", "orin", "--at-a-time", "2", "--", "--partition=a b"]);
    submitted.ends(3);
    assert_eq!(submitted.out, "4711\n");
    let options = lab.said("options");
    for option in
        ["--array=1-4%2", "--requeue", "--open-mode=append", "--exclusive", "--constraint=orin", "--partition=a b"]
    {
        assert!(options.lines().any(|line| line == option), "{option} is not in\n{options}");
    }
    assert_eq!(lab.said("codes"), "0\n0\n0\n0\n", "{}", lab.said("output"));

    let collected = lab.collect("text");
    collected.ends(0);
    assert!(collected.says("blocks done: 4 of 4"), "{}", collected.out);
    assert!(collected.says("baseline board-0 simulated 0 2"), "{}", collected.out);
    // What was collected can be handed on, and orders of blocks are drawn each for itself.
    let paths = lab.collect("paths").out;
    let paths: Vec<&str> = paths.lines().collect();
    assert_eq!(paths.len(), 4);
    let both = [&["report"], &paths[..], &["--format", "md"]].concat();
    let report = lab.bench.run(&both);
    report.ends(0);
    let plan = |path: &str| fs::read_to_string(PathBuf::from(path).join("plan.json")).unwrap();
    assert!(plan(paths[0]).contains("\"seed\":2,") || plan(paths[0]).contains("\"seed\": 2,"), "{}", plan(paths[0]));

    let journals: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(format!("{path}/journal.jsonl")).unwrap()).collect();
    lab.submit(&["--script", "done"]).ends(3);
    assert!(lab.said("output").contains("block 4 is done: "), "{}", lab.said("output"));
    let again: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(format!("{path}/journal.jsonl")).unwrap()).collect();
    assert_eq!(journals, again);
}

#[test]
fn a_fault_is_a_result_and_no_failed_job() {
    let lab = Lab::new(2);
    lab.submit(&["--script", "segv"]).ends(3);
    assert_eq!(lab.said("codes"), "0\n0\n", "{}", lab.said("output"));
    let collected = lab.collect("json");
    collected.ends(1);
    let json: serde_json::Value = serde_json::from_str(&collected.out).unwrap();
    assert_eq!(json["blocks"][1]["faults"], 2);
    assert_eq!(json["cells"].as_array().unwrap().len(), 4);
}

#[test]
fn a_block_that_was_cut_off_goes_on_where_it_is_and_counts_once_elsewhere() {
    let lab = Lab::new(1);
    lab.submit(&["--script", "done"]).ends(3);
    let blocks = lab.blocks();
    let here = blocks.join("block-0001/1-board-1");
    let journal = here.join("mine-001/journal.jsonl");
    // Cut off after its first trial: the last two records never came.
    let text = fs::read_to_string(&journal).unwrap();
    let kept: String = text.lines().take(text.lines().count() - 2).map(|line| format!("{line}\n")).collect();
    fs::write(&journal, &kept).unwrap();
    let open = lab.collect("text");
    open.ends(3);
    assert!(open.says("1 board-1 open"), "{}", open.out);
    let element = |node: &str| {
        let script = blocks.join("job.sh");
        let mut command = Command::new("sh");
        command.arg(script).env("SLURM_ARRAY_TASK_ID", "1").env("SLURMD_NODENAME", node);
        Said::of(&lab.bench.at_home(&mut command).output().unwrap())
    };
    // Requeued to the same node it goes on.
    element("board-1").ends(0);
    assert!(fs::read_to_string(&journal).unwrap().starts_with(&kept));
    assert!(lab.collect("text").ends(0).says("1 board-1 done 2/2"));
    // To another node: that one counts, and the other is told.
    fs::write(&journal, &kept).unwrap();
    element("board-0").ends(0);
    let joined = lab.collect("text");
    joined.ends(0);
    assert!(joined.says("1 board-0 done 2/2"), "{}", joined.out);
    assert!(joined.says("board-1 cut off, done elsewhere"), "{}", joined.out);
    // Until its end is judged where it was begun: then the block is that one, and counts once all the same.
    lab.bench.run(&["resume", "--results", &here.display().to_string()]).ends(0);
    let judged = lab.collect("text");
    judged.ends(0);
    assert!(judged.says("1 board-1 done 2/2"), "{}", judged.out);
    assert!(judged.says("board-0 done again, not counted"), "{}", judged.out);
    assert!(judged.says("blocks done: 1 of 1"), "{}", judged.out);
    // A matrix that is not the one that was submitted runs nowhere.
    fs::write(&lab.matrix, matrix("mine", 1, "[axes]\nsequence = [\"AAA\"]\n")).unwrap();
    fs::remove_dir_all(blocks.join("block-0001")).unwrap();
    element("board-1").fails(2, &["is not what was submitted", "submit it anew"]);
    assert!(lab.collect("text").ends(3).says("1 – missing"));
}

#[test]
fn what_cannot_be_an_array_is_refused_and_nothing_is_left() {
    let lab = Lab::new(3);
    let dry = lab.submit(&["--dry-run"]);
    dry.ends(0);
    assert!(dry.out.starts_with("#!/bin/sh\n") && dry.out.contains("'\\''s $(mine).toml'"), "{}", dry.out);
    assert!(dry.err.contains("sbatch --parsable"), "{}", dry.err);
    lab.submit(&["--board", "board-1"]).fails(2, &["--nodelist=NODE"]);
    lab.submit(&["--tag", "a|b"]).fails(2, &["cannot be a feature"]);
    lab.submit(&["--set", "baseline.start=cold"]).fails(2, &["cannot wait for the boots", "jetfault fleet run"]);
    assert!(!lab.bench.results().exists());
    lab.bench.write("bin/fault", "");
    lab.submit(&[]).fails(4, &["invalid partition"]);
    let empty = lab.bench.path("empty");
    fs::create_dir(&empty).unwrap();
    lab.fleet(&["collect", &empty.display().to_string()]).fails(2, &["no block is in", "block-0001"]);
}
