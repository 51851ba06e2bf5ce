//! The table over all facts, and machines that are judged by what they show.

use super::*;

const TOUCHED: [Touched; 3] = [Touched::Never, Touched::Once, Touched::Unclear];

fn all_facts() -> Vec<StartFacts> {
    let mut all = Vec::new();
    for &ours in ANY {
        for &alive in ANY_ALIVE {
            for touched in TOUCHED {
                for &activity in ANY_ACTIVITY {
                    all.extend(ANY.iter().map(|&users| StartFacts { ours, alive, touched, activity, users }));
                }
            }
        }
    }
    all
}

#[test]
fn exactly_one_row_matches_every_combination_of_facts() {
    let all = all_facts();
    assert_eq!(all.len(), 144);
    for facts in all {
        let rows: Vec<_> = START_RULES.iter().filter(|rule| rule.matches(&facts)).map(|rule| rule.label).collect();
        assert_eq!(rows.len(), 1, "{facts:?}: {rows:?}");
    }
}

#[test]
fn one_more_sign_of_use_never_makes_a_boot_colder() {
    // Each fact from what speaks for a cold boot to what speaks against it; what cannot be seen is no sign of use.
    let rank = |facts: &StartFacts| match start_rule(facts).cold {
        ColdProof::Proven => 3,
        ColdProof::Consistent => 2,
        ColdProof::Unknown => 1,
        ColdProof::Not => 0,
    };
    for facts in all_facts() {
        for worse in [
            StartFacts { ours: true, ..facts },
            StartFacts { alive: Alive::Somebody, ..facts },
            StartFacts { users: true, ..facts },
            StartFacts { activity: Activity::Busy, ..facts },
        ] {
            assert!(rank(&worse) <= rank(&facts), "{facts:?} to {worse:?}");
        }
    }
}

#[test]
fn what_cannot_be_seen_is_never_taken_for_cold_unless_the_gpu_was_never_initialised() {
    for facts in all_facts() {
        let unseen = facts.alive == Alive::Unseen || facts.activity == Activity::Unclear;
        let cold = matches!(start_rule(&facts).cold, ColdProof::Proven | ColdProof::Consistent);
        assert!(!(unseen && cold) || facts.touched == Touched::Never, "{facts:?}");
    }
}

/// An Orin in an idle boot, 40 s after it started.
fn orin() -> GpuTraces {
    GpuTraces {
        driver: GpuDriver::Nvgpu,
        marked_by: None,
        golden_image: Fact::Known(true),
        all_nodes: Fact::Known(true),
        active_ms: Fact::Known(6_200),
        kept_powered: false,
        uvm: Fact::Absent,
        accounted: Fact::Absent,
        holders: Fact::Known(vec![]),
        clients: Fact::Known(vec![]),
        users: vec![],
        bystanders: vec![],
        uptime_ms: Some(40_000),
    }
}

fn server() -> GpuTraces {
    GpuTraces {
        driver: GpuDriver::Nvidia,
        golden_image: Fact::Absent,
        all_nodes: Fact::Absent,
        active_ms: Fact::Absent,
        clients: Fact::Absent,
        uvm: Fact::Known(true),
        accounted: Fact::Known(0),
        uptime_ms: Some(86_400_000),
        ..orin()
    }
}

fn process(name: &str) -> Vec<Process> {
    vec![Process { name: name.into(), pid: 7 }]
}

/// Rule and proof of traces, in a boot of which nothing else is known.
fn proof(traces: &GpuTraces) -> (String, ColdProof) {
    let state = start_state(traces, Known::default());
    (state.rule, state.cold)
}

#[track_caller]
fn check(traces: GpuTraces, rule: &str, cold: ColdProof) {
    assert_eq!(proof(&traces), (rule.to_owned(), cold), "{traces:?}");
}

#[test]
fn an_orin_is_judged_by_its_traces() {
    fn denied<T>() -> Fact<T> {
        Fact::Denied("permission denied".into())
    }
    check(orin(), "no-trace", ColdProof::Consistent);
    check(
        GpuTraces { golden_image: Fact::Known(false), all_nodes: Fact::Known(false), ..orin() },
        "never-initialised",
        ColdProof::Proven,
    );
    check(
        GpuTraces { golden_image: Fact::Absent, all_nodes: Fact::Known(false), ..orin() },
        "never-initialised",
        ColdProof::Proven,
    );
    check(GpuTraces { golden_image: Fact::Known(false), ..orin() }, "no-trace", ColdProof::Consistent);
    check(GpuTraces { marked_by: Some("x".into()), ..orin() }, "ours-before", ColdProof::Not);
    check(
        GpuTraces { clients: Fact::Known(process("ollama")), holders: denied(), ..orin() },
        "client-alive",
        ColdProof::Not,
    );
    check(
        GpuTraces { holders: Fact::Known(process("Xorg")), clients: denied(), ..orin() },
        "client-alive",
        ColdProof::Not,
    );
    check(GpuTraces { clients: denied(), ..orin() }, "no-trace", ColdProof::Consistent);
    check(GpuTraces { clients: denied(), holders: denied(), ..orin() }, "clients-unseen", ColdProof::Unknown);
    check(GpuTraces { users: process("ollama"), ..orin() }, "user-running", ColdProof::Unknown);
    check(GpuTraces { bystanders: process("dockerd"), ..orin() }, "no-trace", ColdProof::Consistent);
    check(GpuTraces { active_ms: denied(), ..orin() }, "past-unseen", ColdProof::Unknown);
    check(GpuTraces { uptime_ms: Some(UPTIME_MS_EARLY + 1), ..orin() }, "past-unseen", ColdProof::Unknown);
    check(
        GpuTraces { active_ms: Fact::Known(60_001), uptime_ms: Some(90_000), ..orin() },
        "past-unseen",
        ColdProof::Unknown,
    );
    check(
        GpuTraces { active_ms: Fact::Known(900_000), kept_powered: true, ..orin() },
        "no-trace",
        ColdProof::Consistent,
    );
}

#[test]
fn an_idle_boot_is_the_measure_of_the_next() {
    let with = |active_ms, uptime_ms, idle_ms| {
        let traces = GpuTraces { active_ms: Fact::Known(active_ms), uptime_ms: Some(uptime_ms), ..orin() };
        start_state(&traces, Known { idle_ms: Some(idle_ms), powered_by_us: false }).cold
    };
    assert_eq!(with(6_900, 3_600_000, 6_200), ColdProof::Consistent, "however long the machine is up");
    assert_eq!(with(9_750, 40_000, 6_200), ColdProof::Consistent);
    assert_eq!(with(9_751, 40_000, 6_200), ColdProof::Not, "a quarter and two seconds more");
    let pinned = Known { idle_ms: Some(6_200), powered_by_us: true };
    let traces = GpuTraces { active_ms: Fact::Known(30_000), ..orin() };
    assert_eq!(start_state(&traces, pinned).cold, ColdProof::Consistent, "we powered it up ourselves");
}

#[test]
fn a_machine_with_nvidias_own_module_is_judged_by_accounting_and_open_files() {
    check(server(), "no-trace", ColdProof::Consistent);
    check(
        GpuTraces { uvm: Fact::Known(false), holders: Fact::Denied("x".into()), accounted: Fact::Absent, ..server() },
        "never-initialised",
        ColdProof::Proven,
    );
    check(GpuTraces { accounted: Fact::Known(3), ..server() }, "worked-before", ColdProof::Not);
    check(GpuTraces { holders: Fact::Known(process("python3")), ..server() }, "client-alive", ColdProof::Not);
    check(GpuTraces { accounted: Fact::Absent, ..server() }, "past-unseen", ColdProof::Unknown);
    check(
        GpuTraces { accounted: Fact::Absent, uptime_ms: Some(40_000), ..server() },
        "no-trace",
        ColdProof::Consistent,
    );
    // Nobody looked up whether Thor computes without that module: its absence proves nothing there.
    let thor = GpuTraces {
        driver: GpuDriver::NvidiaTegra,
        uvm: Fact::Known(false),
        accounted: Fact::Absent,
        uptime_ms: Some(40_000),
        ..server()
    };
    check(thor.clone(), "no-trace", ColdProof::Consistent);
    check(GpuTraces { uptime_ms: Some(4_000_000), ..thor }, "past-unseen", ColdProof::Unknown);
}

#[test]
fn without_a_gpu_only_our_own_trials_count() {
    let none = GpuTraces { driver: GpuDriver::None, holders: Fact::Absent, clients: Fact::Absent, ..server() };
    check(GpuTraces { accounted: Fact::Absent, ..none.clone() }, "never-initialised", ColdProof::Proven);
    check(GpuTraces { marked_by: Some("x".into()), ..none }, "ours-before", ColdProof::Not);
}

#[test]
fn what_stands_against_cold_starts_is_said_with_what_helps() {
    assert!(obstacles(&orin()).is_empty());
    let said = obstacles(&GpuTraces { users: process("Xorg"), bystanders: process("dockerd"), ..orin() });
    assert_eq!(said.len(), 2);
    assert!(said[0].starts_with("Xorg (7) can use the GPU") && said[0].contains("multi-user.target"), "{said:?}");
}
