//! Programs that misbehave, and what is missing around them: a verdict or a void with its reason, and never a hang.

use std::time::Instant;

use crate::bench::{Bench, PATIENCE};
use crate::commands::{detail, judged, matrix, run};
use crate::standins::standin;

/// Verdict and detail of the first trial of a command; nothing may outlast the patience of a test.
fn ends(workload: &str, sections: &str) -> (String, String) {
    let bench = Bench::new();
    let begun = Instant::now();
    run(&bench, &matrix(workload, sections), &[]);
    assert!(begun.elapsed() < PATIENCE, "it took {} s", begun.elapsed().as_secs());
    let (_, verdict, result) = judged(&bench).remove(0);
    (verdict, detail(&result).to_owned())
}

fn shell(script: &str, more: &str) -> String {
    format!("argv = [\"sh\", \"-c\", {script:?}]\ntimeout = \"2s\"\n{more}")
}

#[test]
fn every_way_to_misbehave_has_its_verdict() {
    let nothing = "";
    for (workload, sections, verdict, words) in [
        ("argv = [\"no-such-program\"]".to_owned(), nothing, "void", "no-such-program"),
        ("argv = [\"/etc/passwd\"]".to_owned(), nothing, "void", "Permission denied"),
        (shell("exec >&- 2>&-; sleep 0.3; exit 3", nothing), nothing, "error", "exit 3"),
        (shell("(setsid sh -c 'trap \"\" TERM HUP; sleep 60' &) ; exit 0", nothing), nothing, "pass", ""),
        (shell("trap '' TERM; while :; do sleep 0.1; done", nothing), nothing, "hang", "timeout"),
        (shell("head -c 3000000 /dev/urandom; exit 5", nothing), nothing, "error", "exit 5"),
        (shell("head -c 3000000 /dev/zero | tr '\\0' x; exit 6", nothing), nothing, "error", "exit 6"),
        (shell("kill -9 $$", nothing), nothing, "killed", "SIGKILL"),
        (shell("ulimit -f 1; head -c 100000 /dev/zero > big", nothing), nothing, "error", "exit"),
    ] {
        let (found, detail) = ends(&workload, sections);
        assert_eq!(found, verdict, "{workload}: {detail}");
        assert!(detail.contains(words), "{workload}: {detail}");
    }
}

#[test]
fn a_pattern_that_others_take_for_ever_for_takes_no_longer_than_its_text() {
    let stages = "stages = [{ name = \"done\", regex = '^(a+)+$' }]\nmetrics = { n = '(x+x+)+y(\\d+)' }\n";
    let script =
        "i=0; while [ $i -lt 50 ]; do head -c 30000 /dev/zero | tr '\\0' a; echo b; i=$((i+1)); done; echo aaa";
    let (verdict, detail) = ends(&shell(script, stages).replace("2s", "30s"), "");
    assert_eq!(verdict, "pass", "{detail}");
    let bench = Bench::new();
    let broken = shell("true", "stages = [{ name = \"x\", regex = '(' }]\n");
    run(&bench, &matrix(&broken, ""), &[]).fails(2, &["m.toml"]);
    run(&bench, &matrix("argv = [\"{nobody}\"]", ""), &[]).fails(2, &["nobody"]);
    // A thousand repetitions of a thousand: small to write down, and too large to compile.
    let huge = shell("true", "stages = [{ name = \"x\", regex = '((a{1000}){1000}){1000}' }]\n");
    let said = run(&bench, &matrix(&huge, ""), &[]);
    assert!(matches!(said.code, Some(2 | 3)), "{said:?}");
}

#[test]
fn a_crash_is_placed_without_a_debugger_and_the_note_says_that_there_was_none() {
    let bench = Bench::new();
    let workload = format!("argv = [{:?}, \"wild\"]", standin("endings"));
    let text = matrix(&workload, "[baseline]\nobserver = \"core\"\n[tools]\ngdb = \"/nowhere/gdb\"\n");
    run(&bench, &text, &[]).ends(1);
    let (_, verdict, result) = judged(&bench).remove(0);
    assert_eq!(verdict, "crash", "{result}");
    assert_eq!(result["outcome"]["crash"]["thread"]["frames"][0]["module"], "endings", "{result}");
    let note = result["outcome"]["notes"]["backtrace"].as_str().unwrap();
    assert!(note.contains("/nowhere/gdb, and there is no such file"), "{note}");
}
