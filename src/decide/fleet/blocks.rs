//! Blocks of a matrix as a job array: one block, which is one trial of every cell, is one element.
//!
//! Owns the job script and what the engine is told. Whatever a person typed reaches the script as a quoted word, and the
//! engine as an argument of its own: no shell reads it as anything else.

use super::shell::{NulInWord, shell_line};

/// What a block's directory is called, before its number.
const BLOCK: &str = "block-";

/// The directory of block `number`.
pub fn block_name(number: u32) -> String {
    format!("{BLOCK}{number:04}")
}

/// The number of the block in a directory called `name`.
pub fn block_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix(BLOCK)?.parse().ok()?;
    (block_name(number) == name).then_some(number)
}

/// A tag that is no name of a feature: the engine would read it as an expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tag {0:?} cannot be a feature of a node: those are of letters, digits, `_`, `.` and `-`")]
pub struct BadFeature(pub String);

/// A job array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The name of the matrix.
    pub name: String,
    /// How many elements.
    pub blocks: u32,
    /// How many of them may run at a time; any number if nothing is said.
    pub at_a_time: Option<u32>,
    /// Features that a node must have, all of them.
    pub features: Vec<String>,
    /// What the engine is told besides.
    pub options: Vec<String>,
}

impl Array {
    /// The command that submits `script` to Slurm, and prints the job's number (sbatch(1)).
    ///
    /// An element has a node for itself, is put back into the queue when its node fails, and then goes on writing into the
    /// same output.
    ///
    /// # Errors
    /// If a feature is none.
    pub fn sbatch(&self, script: &str) -> Result<Vec<String>, BadFeature> {
        let is_none = |feature: &&String| {
            feature.is_empty() || !feature.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        };
        if let Some(bad) = self.features.iter().find(is_none) {
            return Err(BadFeature(bad.clone()));
        }
        let at_a_time = self.at_a_time.map(|at_a_time| format!("%{at_a_time}")).unwrap_or_default();
        let mut argv = vec![
            "sbatch".to_owned(),
            "--parsable".to_owned(),
            format!("--job-name=jetfault-{}", self.name),
            format!("--array=1-{}{at_a_time}", self.blocks),
        ];
        argv.extend(["--nodes=1", "--exclusive", "--requeue", "--open-mode=append"].map(str::to_owned));
        if !self.features.is_empty() {
            argv.push(format!("--constraint={}", self.features.join("&")));
        }
        argv.extend(self.options.iter().cloned());
        argv.push(script.to_owned());
        Ok(argv)
    }
}

/// The script of an element: `program` on its node, with `options`, runs the element's block of `matrix`.
///
/// The script becomes the program, so that what the engine signals is the program. Slurm tells an element its number and
/// its node by the environment (sbatch(1), "OUTPUT ENVIRONMENT VARIABLES").
///
/// # Errors
/// If a word holds a zero byte.
pub fn job_script(program: &str, options: &[String], matrix: &str) -> Result<String, NulInWord> {
    let program = shell_line([program])?;
    let options = shell_line(options.iter().map(String::as_str))?;
    let matrix = shell_line([matrix])?;
    Ok(format!(
        "#!/bin/sh\n\
         # One block of a matrix, which is one trial of every cell, as an element of a job array: `jetfault fleet submit`.\n\
         # It may be started again at any time: a block that is done is not repeated, and one that was cut off goes on.\n\
         exec {program} fleet block --number \"$SLURM_ARRAY_TASK_ID\" --device \"$SLURMD_NODENAME\" \\\n    \
         {options} -- {matrix}\n"
    ))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_directory_is_of_one_block_or_of_none() {
        for number in [1, 12, 9999, 10_000] {
            assert_eq!(block_number(&block_name(number)), Some(number));
        }
        for name in ["block-1", "block-00001", "block-+001", "block-", "blocks", "block-0001.old"] {
            assert_eq!(block_number(name), None, "{name}");
        }
    }

    #[test]
    fn the_engine_gets_each_word_as_it_was_typed() {
        let array = Array {
            name: "my".into(),
            blocks: 20,
            at_a_time: Some(2),
            features: vec!["orin-nano".into(), "jp62".into()],
            options: vec!["--partition=a b".into()],
        };
        let argv = array.sbatch("/lab/job.sh").unwrap();
        assert_eq!(argv[3], "--array=1-20%2");
        assert_eq!(argv[8..], ["--constraint=orin-nano&jp62", "--partition=a b", "/lab/job.sh"]);
        for bad in ["a|b", "", "a b", "a&b"] {
            let array = Array { features: vec![bad.to_owned()], ..array.clone() };
            assert_eq!(array.sbatch("job.sh"), Err(BadFeature(bad.to_owned())));
        }
    }

    #[test]
    fn a_shell_makes_of_the_script_the_words_that_were_meant() {
        let hostile = ["--set=workload.cwd=$(id); `id` 'x' \"y\" \\", "--results", "/a b\nc"].map(str::to_owned);
        let script = job_script("printf", &hostile, "-- $HOME'.toml").unwrap();
        // printf in the place of jetfault prints its words; its format is the first of them.
        let script = script.replace("exec printf fleet", "exec printf '%s\\0' fleet");
        let said = Command::new("sh")
            .args(["-c", &script])
            .env("SLURM_ARRAY_TASK_ID", "7")
            .env("SLURMD_NODENAME", "board 7")
            .output()
            .unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        let words: Vec<&str> = text.strip_suffix('\0').unwrap().split('\0').collect();
        assert_eq!(words[..6], ["fleet", "block", "--number", "7", "--device", "board 7"]);
        assert_eq!(words[6..9], hostile);
        assert_eq!(words[9..], ["--", "-- $HOME'.toml"]);
    }
}
