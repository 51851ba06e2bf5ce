//! What a matrix is expanded into.

use std::collections::BTreeSet;

use super::*;
use crate::model::matrix::{Override, parse};

const HEAD: &str = r#"[matrix]
name = "m"
trials = 2
design = "DESIGN"
seed = 7
[workload]
kind = "linear4bit"
backend = "cpu"
[shapes]
A = [128, 256]
B = [64, 512]
[baseline]
sequence = "AB"
"#;

fn matrix(design: &str, rest: &str) -> crate::model::matrix::Matrix {
    let text = format!("{}{rest}", HEAD.replace("DESIGN", design));
    parse(&text, "m.toml", &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn plan(design: &str, rest: &str) -> Plan {
    expand(&matrix(design, rest), &PlanOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(design: &str, rest: &str) -> String {
    expand(&matrix(design, rest), &PlanOptions::default()).unwrap_err().to_string()
}

fn labels(plan: &Plan) -> Vec<&str> {
    plan.cells.iter().map(|cell| cell.label.as_str()).collect()
}

fn shipped(text: &str) -> Plan {
    let matrix = parse(text, "shipped.toml", &[]).unwrap_or_else(|error| panic!("{error}"));
    expand(&matrix, &PlanOptions::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares with the stored text.
macro_rules! shown {
    ($text:expr) => {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
            insta::assert_snapshot!($text);
        });
    };
}

#[test]
fn one_off_is_the_baseline_and_each_other_level_alone() {
    let plan = plan("one-off", "[axes]\nbatch = [2, 8]\nquant = [\"fp4\"]\n");
    assert_eq!(labels(&plan), ["baseline", "batch=2", "batch=8", "quant=fp4"]);
    assert_eq!(plan.cells[1].levels["quant"], "nf4");
    assert_eq!((plan.needs.trials, plan.needs.boots, plan.needs.permissions.len()), (8, 0, 0));
}

#[test]
fn full_is_every_combination_but_those_excluded() {
    let rest = "[axes]\nbatch = [2, 8]\nquant = [\"fp4\"]\n[[exclude]]\nbatch = [2, 8]\nquant = \"fp4\"\n[[exclude]]\nblocksize = 128\nbatch = 2\n";
    // The second exclusion names a level that no cell has.
    assert_eq!(labels(&plan("full", rest)), ["baseline", "quant=fp4", "batch=2", "batch=8"]);
    let rest = rest.replace("blocksize = 128", "blocksize = 64");
    assert_eq!(labels(&plan("full", &rest)), ["baseline", "quant=fp4", "batch=8"]);
}

#[test]
fn a_list_is_what_it_says_and_other_designs_may_add_to_theirs() {
    let cells = "[[cell]]\n[[cell]]\nbatch = 2\nstorage = \"bf16\"\n";
    let list = plan("list", cells);
    assert_eq!(labels(&list), ["baseline", "batch=2, storage=bf16"]);
    assert_eq!(list.cells[0].levels["storage"], "uint8");
    let cells = cells.replacen("[[cell]]\n", "", 1);
    assert_eq!(
        labels(&plan("one-off", &format!("[axes]\nbatch = [2]\n{cells}"))),
        ["baseline", "batch=2", "batch=2, storage=bf16"]
    );
}

#[test]
fn a_new_axis_changes_no_old_id() {
    let old = plan("one-off", "[axes]\nbatch = [2]\n");
    let new = plan("one-off", "jit_cache = \"kept\"\n[axes]\njit_cache = [\"fresh\"]\nbatch = [2]\n");
    for cell in &old.cells {
        assert_eq!(new.cell(&cell.id).map(|cell| &cell.label), Some(&cell.label));
    }
}

#[test]
fn the_id_of_a_cell_never_changes() {
    // Results of years lie under this id.
    let plan = shipped(include_str!("../../../matrices/bnb-1936.toml"));
    let id = |label| plan.cells.iter().find(|cell| cell.label == label).map(|cell| cell.id.to_string());
    assert_eq!(id("power_mode=MAXN_SUPER").as_deref(), Some("c-150616bad5498ce4"));
}

#[test]
fn a_control_is_a_cell_with_an_expectation() {
    let rest = "[axes]\nbatch = [2]\n[[expect]]\nverdict = \"reboot\"\n[[expect]]\ncell = { batch = 2 }\nverdict = \"oom-kill\"\n\
                [controls.alone]\ncell = { sequence = \"A\" }\ntrials = 1\nshows = \"one layer is fine\"\n\
                [controls.other]\nargv = [\"true\"]\n";
    let plan = plan("one-off", rest);
    assert_eq!(labels(&plan), ["baseline", "batch=2", "control:alone", "control:other"]);
    let expects: Vec<Option<VerdictName>> = plan.cells.iter().map(|cell| cell.expect).collect();
    let (pass, reboot) = (Some(VerdictName::Pass), Some(VerdictName::Reboot));
    assert_eq!(expects, [reboot, Some(VerdictName::OomKill), pass, pass]);
    assert_eq!((plan.cells[2].role, plan.rounds(&plan.cells[2]), plan.needs.trials), (CellRole::Control, 1, 7));
    // In the second round the control has had its trial.
    assert_eq!(plan.block_order(1).iter().copied().collect::<BTreeSet<u32>>(), BTreeSet::from([0, 1, 3]));
}

#[test]
fn each_block_has_each_cell_once_in_an_order_of_its_own() {
    let plan = shipped(include_str!("../../../matrices/bnb-1936.toml"));
    assert_eq!((plan.cells.len(), plan.blocks()), (24, 3));
    let orders: BTreeSet<Vec<u32>> = (0..3).map(|block| plan.block_order(block)).collect();
    assert_eq!(orders.len(), 3);
    for order in &orders {
        assert_eq!(order.iter().copied().collect::<BTreeSet<u32>>(), (0..24).collect());
    }
    assert_eq!(plan.block_order(2), plan.block_order(2));
    assert!(plan.block_order(3).is_empty());
}

#[test]
fn a_plan_says_what_it_takes() {
    let plan = shipped(include_str!("../../../matrices/bnb-1936.toml"));
    assert_eq!((plan.needs.trials, plan.needs.boots, plan.boots_max), (72, 69, 148));
    assert_eq!(plan.needs.permissions, [Permission::Reboot, Permission::PowerMode]);
    // The three warm trials follow trials of the same or another mode: no more switches than they are.
    assert!(plan.needs.power_mode_switches <= 3);
    assert!(!plan.needs.power_hook && !plan.needs.seconds_assumed && plan.needs.seconds > 69 * BOOT_SECONDS);
    let boots = |text: &str| {
        let Needs { trials, boots, permissions, .. } = shipped(text).needs;
        assert_eq!(permissions, [Permission::Reboot, Permission::PowerMode]);
        (trials, boots)
    };
    assert_eq!(boots(include_str!("../../../matrices/cold-start.toml")), (36, 24));
    assert_eq!(boots(include_str!("../../../matrices/power-modes.toml")), (36, 27));
    let quick = shipped(include_str!("../../../matrices/quickstart.toml"));
    assert!(
        quick.needs.seconds < 60 && quick.needs.permissions.is_empty() && quick.warnings.is_empty(),
        "{:?}",
        quick.needs
    );
    let rest = "[axes]\nstart = [\"cold\"]\ncold_from = [\"power\"]\ndrop_caches = [true]\n";
    let needs = self::plan("full", rest).needs;
    assert!(needs.power_hook && needs.permissions == [Permission::Reboot, Permission::DropCaches]);
}

#[test]
fn a_switch_of_the_power_mode_is_counted_only_between_trials_of_one_boot() {
    let plan = plan("one-off", "[axes]\npower_mode = [\"15W\"]\n");
    let changes = (0..2)
        .flat_map(|block| plan.block_order(block))
        .fold((0u32, 0u64), |(mode, switches), next| (next, switches + u64::from(next != mode)));
    assert_eq!(plan.needs.power_mode_switches, changes.1);
    assert_eq!(
        self::plan("one-off", "start = \"cold\"\n[axes]\npower_mode = [\"15W\"]\n").needs.power_mode_switches,
        0
    );
}

#[test]
fn a_deliberate_fault_is_in_the_cells_it_names() {
    let rest = "[axes]\nbatch = [2]\nstart = [\"cold\", \"warm\"]\n[[inject]]\nfault = \"reset\"\nat = \"A.copy\"\nrate = 0.5\n\
                if = { start = \"cold\", batch = 1 }\n[[inject]]\nfault = \"slow\"\n";
    let plan = plan("one-off", rest);
    assert_eq!(labels(&plan), ["baseline", "batch=2", "start=cold", "start=warm"]);
    let faults =
        |index: usize| -> Vec<FaultName> { plan.cells[index].inject.iter().map(|inject| inject.fault).collect() };
    // The baseline takes any state, so the condition stays for the trial to judge.
    assert_eq!(plan.cells[0].inject[0].start, [Start::Cold]);
    let both = vec![FaultName::Reset, FaultName::Slow];
    assert_eq!(
        (faults(0), faults(1), faults(2), faults(3)),
        (both.clone(), vec![FaultName::Slow], both, vec![FaultName::Slow])
    );
    assert_eq!(plan.needs.permissions.last(), Some(&Permission::InjectedFaults));
}

#[test]
fn cells_are_chosen_by_levels_or_by_label() {
    let matrix =
        matrix("full", "[axes]\nbatch = [2]\nhygiene = [\"after:A,B\"]\n[controls.c]\ncell = { sequence = \"A\" }\n");
    let chosen = |only: &[&str]| -> Result<Vec<String>, String> {
        let options = PlanOptions { only: only.iter().map(|text| (*text).to_owned()).collect() };
        match expand(&matrix, &options) {
            Ok(plan) => Ok(plan.cells.into_iter().map(|cell| cell.label).collect()),
            Err(PlanError::Filter { argument, reason, hint }) => Err(format!("{argument}: {reason}; {hint}")),
            Err(error) => panic!("{error}"),
        }
    };
    let ok = |labels: &[&str]| Ok(labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>());
    assert_eq!(chosen(&["batch=2"]), ok(&["batch=2", "batch=2, hygiene=after:A,B"]));
    assert_eq!(chosen(&["hygiene=after:A,B,batch=1"]), ok(&["hygiene=after:A,B"]));
    assert_eq!(chosen(&["baseline", "control:c"]), ok(&["baseline", "control:c"]));
    assert_eq!(
        chosen(&["bacth=2"]),
        Err("bacth=2: `bacth` is not an axis of this matrix; did you mean `batch`?".to_owned())
    );
    assert_eq!(chosen(&["batch=8"]), Err("batch=8: axis `batch` has no level `8`; its levels are 1, 2".to_owned()));
    assert_eq!(
        chosen(&["x"]),
        Err("x: `x` is neither a level nor a cell; expected `axis=level,…`, or the label of a cell such as `baseline`"
            .to_owned())
    );
    assert_eq!(
        chosen(&["batch=2,sequence=AB"]),
        Err("batch=2,sequence=AB: `sequence` is not an axis of this matrix; the axes are batch, hygiene".to_owned())
    );
}

#[test]
fn what_cannot_be_run_is_refused_with_its_place() {
    let all = [
        refusal("full", "[axes]\nsequence = [\"B\"]\nhygiene = [\"after:A\"]\n"),
        refusal("one-off", "[axes]\ngap = [\"1s\"]\n"),
        refusal("one-off", "check = \"each\"\n[axes]\nkernels = [\"none\"]\n"),
        refusal(
            "one-off",
            "[axes]\nquant = [\"int4\"]\nblocksize = [128]\n[[cell]]\nquant = \"int4\"\nblocksize = 128\n",
        ),
        refusal("one-off", "[axes]\nbatch = [2]\n[[cell]]\nbatch = 2\n"),
        refusal("one-off", "[axes]\nbatch = [2]\n[controls.c]\ncell = { batch = 2 }\n"),
        refusal("one-off", "[[exclude]]\nbatch = 1\n"),
    ];
    shown!(all.join("\n\n"));
}

#[test]
fn packed_bytes_fill_whole_elements() {
    let text = HEAD
        .replace("DESIGN", "one-off")
        .replace("A = [128, 256]", "A = [3, 5]")
        .replace("B = [64, 512]", "B = [66, 31]");
    let odd = parse(&format!("{text}\n[axes]\nstorage = [\"fp32\"]\nquant = [\"mxfp4\"]\n"), "m.toml", &[]).unwrap();
    shown!(expand(&odd, &PlanOptions::default()).unwrap_err().to_string());
}

#[test]
fn a_row_that_is_no_multiple_of_the_block_is_a_warning() {
    let plan = plan("one-off", "[axes]\nblocksize = [128]\n");
    assert_eq!(plan.cells.len(), 2);
    shown!(plan.warnings.join("\n"));
}

#[test]
fn a_plan_of_more_than_a_million_trials_is_refused_before_it_is_made() {
    let levels = |from: u32, to: u32| (from..to).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let axes = format!(
        "[axes]\niterations = [{}]\ninit_threads = [{}]\nbatch = [{}]\n",
        levels(2, 900),
        levels(1, 900),
        levels(2, 900)
    );
    let all = [refusal("full", &axes), {
        let matrix = parse(
            &HEAD.replace("DESIGN", "one-off"),
            "m.toml",
            &[Override::trials(1_000_000), Override::set("axes.batch=[2]").unwrap()],
        );
        expand(&matrix.unwrap(), &PlanOptions::default()).unwrap_err().to_string()
    }];
    shown!(all.join("\n\n"));
}

#[test]
fn a_plan_survives_being_stored() {
    for text in
        [include_str!("../../../matrices/bnb-1936.toml"), include_str!("../../model/matrix/fixtures/everything.toml")]
    {
        let plan = shipped(text);
        assert_eq!(Plan::from_json(&plan.to_json()).unwrap(), plan);
    }
}

#[test]
fn a_later_plan_is_called_later_and_not_malformed() {
    let read = |text: &str| Plan::from_json(text.as_bytes()).unwrap_err();
    assert_eq!(read(r#"{"schema":"jetfault.plan","version":2,"new":[]}"#), PlanReadError::Version(PlanVersion(2)));
    assert_eq!(
        read(r#"{"schema":"jetfault.report","version":1}"#),
        PlanReadError::Schema("jetfault.report".to_owned())
    );
    assert!(matches!(read("{"), PlanReadError::Malformed(_)));
}
