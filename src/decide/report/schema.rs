//! The JSON Schema of a report: what programs may rely on.
//!
//! Members are added in later versions and never taken away or given another meaning, so a reader passes over what it does
//! not know; a test finds every member of a real report here.

use serde_json::{Map, Value, json};

use super::REPORT_SCHEMA;
use crate::decide::hypotheses::Status;
use crate::decide::plan::CellRole;
use crate::decide::stats::Method;
use crate::model::matrix::VerdictName;
use crate::model::verdict::{Provenance, RebootCause, Verdict};

/// The schema of `report --format json`.
pub fn report_schema() -> Value {
    let mut schema = object(
        "What a run found.",
        &["schema", "run", "matrix", "headlines", "cells", "faults"],
        &[
            ("schema", json!({ "const": REPORT_SCHEMA })),
            ("run", run()),
            ("matrix", matrix()),
            ("headlines", list(headline())),
            ("controls_failed", list(text("A control that did not give what it must."))),
            ("interval", words(Method::WORDS)),
            ("cells", list(cell())),
            ("warming", uncounted()),
            ("decisions", list(decision())),
            ("untested", list(untested())),
            ("faults", list(fault())),
            ("faults_left_out", count("Faults that are not listed one by one.")),
            ("hypotheses", list(hypothesis())),
        ],
    );
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "jetfault report".into();
    schema
}

fn run() -> Value {
    object(
        "The run.",
        &["id", "standing", "boots"],
        &[
            ("id", text("NAME-001.")),
            ("standing", standing()),
            ("boots", count("Boots in which the harness started.")),
            ("device", text("The machine.")),
            ("tool", text("Version of the harness.")),
            ("persistence", words(&["persistent", "unproven", "volatile"])),
            ("machine", map("What the machine says about itself.", json!({ "type": "string" }))),
            ("set_aside", list(text("A cell that is not started again."))),
        ],
    )
}

pub(in crate::decide) fn standing() -> Value {
    object(
        "Whether it goes on.",
        &["state"],
        &[("state", words(&["open", "paused", "complete", "stopped"])), ("why", text("Why it was stopped."))],
    )
}

fn matrix() -> Value {
    object(
        "The matrix.",
        &["name", "digest", "seed"],
        &[
            ("name", text("Its name.")),
            ("digest", text("SHA-256 of its canonical content.")),
            ("overrides", list(text("A change of the command line."))),
            ("only", list(text("A --cell argument."))),
            ("seed", count("The seed of order and inputs.")),
        ],
    )
}

fn headline() -> Value {
    object(
        "A sentence with its bound.",
        &["is_fault", "text"],
        &[("provenance", provenance()), ("is_fault", json!({ "type": "boolean" })), ("text", text("The sentence."))],
    )
}

fn cell() -> Value {
    object(
        "A cell.",
        &["id", "label", "levels", "role", "wanted", "samples"],
        &[
            ("id", text("c- and 16 hexadecimal digits.")),
            ("label", text("Its name for people.")),
            ("levels", map("Its level of every axis.", json!({ "type": "string" }))),
            ("role", words(CellRole::WORDS)),
            ("shows", text("What a control shows.")),
            ("wanted", count("Counted trials asked for; for until-decided the most.")),
            ("samples", list(sampled())),
            ("excluded", by_verdict("Trials in no rate.")),
            ("excluded_why", list(reason())),
            ("uncounted", uncounted()),
            (
                "short",
                object(
                    "Fewer trials than asked for.",
                    &["wanted", "counted", "set_aside"],
                    &[
                        ("wanted", count("Asked for.")),
                        ("counted", count("Counted.")),
                        ("set_aside", json!({ "type": "boolean" })),
                    ],
                ),
            ),
            (
                "expectation",
                object(
                    "What the matrix expects.",
                    &["verdict", "met"],
                    &[("verdict", words(VerdictName::WORDS)), ("met", words(&["met", "not-met", "untested"]))],
                ),
            ),
            (
                "predicted",
                object(
                    "The peak that its allocations predict.",
                    &["host_plus_reserved_bytes", "at"],
                    &[
                        ("allocated_bytes", count("Device memory in use.")),
                        ("reserved_bytes", count("Device memory taken from the driver.")),
                        ("host_plus_reserved_bytes", count("Host and reserved device memory together.")),
                        ("at", text("The stage of that peak.")),
                    ],
                ),
            ),
        ],
    )
}

fn sampled() -> Value {
    object(
        "Counted trials of one provenance.",
        &["provenance", "rate", "clean"],
        &[
            ("provenance", provenance()),
            ("rate", rate()),
            ("faults", by_verdict("Faults.")),
            ("clean", count("Trials without a fault.")),
            ("signatures", list(signed())),
            ("signatures_left_out", count("Faults whose signatures were too many to be told apart.")),
            ("clean_ms", durations()),
            ("fault_ms", durations()),
            (
                "peak_memory",
                object(
                    "The highest peaks, in bytes.",
                    &[],
                    &[
                        ("host", count("Resident memory of the child.")),
                        ("device_allocated", count("Handed out by the allocator.")),
                        ("device_reserved", count("Held by the allocator.")),
                        ("host_plus_reserved", count("Host weights and reserved device memory together.")),
                    ],
                ),
            ),
        ],
    )
}

pub(in crate::decide) fn rate() -> Value {
    object(
        "A rate, never without its bound.",
        &["faults", "counted", "method", "confidence", "low", "high"],
        &[
            ("faults", count("Faults.")),
            ("counted", count("Counted trials.")),
            ("method", words(Method::WORDS)),
            ("confidence", share("The confidence of the interval.")),
            ("low", share("Its lower end.")),
            ("high", share("Its upper end.")),
            ("at_most", share("Without a fault: the one-sided bound.")),
        ],
    )
}

fn signed() -> Value {
    object(
        "A signature.",
        &["signature", "count", "first"],
        &[
            ("signature", signature()),
            ("count", count("How often it was seen.")),
            ("causes", map("Of reboots: how often each cause was found.", count("How often."))),
            ("unrecorded_ms", count("The longest time after the stage of which nothing was recorded.")),
            ("first", text("The first trial that had it.")),
        ],
    )
}

fn signature() -> Value {
    object(
        "What makes two faults the same.",
        &["verdict"],
        &[
            ("verdict", verdict()),
            ("status", text("Signal or exit code.")),
            ("place", text("Where, or with which words.")),
            ("stage", text("The last stage reached.")),
        ],
    )
}

fn durations() -> Value {
    object(
        "How long trials took, in milliseconds.",
        &["trials", "median", "shortest", "longest"],
        &[
            ("trials", count("How many.")),
            ("median", count("The middle one.")),
            ("shortest", count("The shortest.")),
            ("longest", count("The longest.")),
        ],
    )
}

fn reason() -> Value {
    object(
        "Why trials are in no rate.",
        &["verdict", "rule", "count"],
        &[
            ("verdict", verdict()),
            ("rule", text("The rule that gave it.")),
            ("why", text("In words.")),
            ("count", count("How often.")),
        ],
    )
}

fn uncounted() -> Value {
    object(
        "Trials that served another end.",
        &["trials", "faults"],
        &[("trials", count("How many.")), ("faults", count("How many of them had a fault of their own."))],
    )
}

fn decision() -> Value {
    object(
        "What was decided.",
        &["cell", "label", "text"],
        &[
            ("cell", text("The cell.")),
            ("label", text("Its label.")),
            ("other", text("Of a pair: the other cell.")),
            ("end", text("How it ended; absent while it is open.")),
            ("e_value", json!({ "type": "number", "description": "Of a pair: the larger e-value." })),
            ("text", text("In words that carry the bound.")),
        ],
    )
}

fn untested() -> Value {
    object(
        "A cell without a counted trial.",
        &["id", "label", "reasons"],
        &[("id", text("Its id.")), ("label", text("Its label.")), ("reasons", list(reason()))],
    )
}

fn fault() -> Value {
    object(
        "One counted fault.",
        &["trial", "label", "verdict", "rule", "provenance", "judged_wall"],
        &[
            ("trial", text("The trial.")),
            ("label", text("Its cell.")),
            ("verdict", verdict()),
            ("cause", words(&CAUSES.map(RebootCause::as_str))),
            ("detail", text("What refines the verdict.")),
            ("stage", text("The last stage reached: the fault happened there or later.")),
            ("unrecorded_ms", count("Milliseconds after it of which nothing was recorded.")),
            ("signature", signature()),
            ("rule", text("The rule that gave the verdict.")),
            ("provenance", provenance()),
            ("boot", text("The boot in which it started.")),
            ("judged_wall", text("When it was judged, for people.")),
        ],
    )
}

const CAUSES: [RebootCause; 6] = [
    RebootCause::Panic,
    RebootCause::Watchdog,
    RebootCause::Thermal,
    RebootCause::Power,
    RebootCause::SoftwareReset,
    RebootCause::Undetermined,
];

fn hypothesis() -> Value {
    object(
        "A usual explanation.",
        &["what", "status", "evidence", "cells", "trials"],
        &[
            ("what", text("What would explain the fault.")),
            ("status", words(Status::WORDS)),
            ("evidence", text("Why, with figures.")),
            ("cells", list(text("A cell that it rests on."))),
            ("trials", count("How many counted trials those had.")),
        ],
    )
}

pub(in crate::decide) fn object(about: &str, required: &[&str], members: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    json!({ "type": "object", "description": about, "required": required, "properties": properties })
}

pub(in crate::decide) fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn map(about: &str, value: Value) -> Value {
    json!({ "type": "object", "description": about, "additionalProperties": value })
}

pub(in crate::decide) fn by_verdict(about: &str) -> Value {
    map(&format!("{about} By verdict."), count("How many."))
}

pub(in crate::decide) fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

pub(in crate::decide) fn count(about: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": about })
}

pub(in crate::decide) fn share(about: &str) -> Value {
    json!({ "type": "number", "minimum": 0, "maximum": 1, "description": about })
}

pub(in crate::decide) fn words(words: &[&str]) -> Value {
    json!({ "enum": words })
}

fn verdict() -> Value {
    words(&Verdict::ALL.map(Verdict::as_str))
}

pub(in crate::decide) fn provenance() -> Value {
    let all = [Provenance::Measured, Provenance::Injected, Provenance::Simulated, Provenance::Transcribed];
    words(&all.map(Provenance::as_str))
}

#[cfg(test)]
pub(in crate::decide) mod tests {
    use super::*;
    use crate::decide::report::{RunFacts, report};
    use crate::testing::constructed::{BOARD, Journal, agenda_of, board_provenance, board_script, machine, plan_of};

    /// What is wrong with `value` by `schema`, which uses no more of the language than the functions above; a member that
    /// the schema does not know is wrong here.
    pub(in crate::decide) fn wrong(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let is_type = |name: &str| match name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            _ => value.is_number(),
        };
        let is_right = schema["type"].as_str().is_none_or(is_type)
            && schema["enum"].as_array().is_none_or(|words| words.contains(value))
            && schema.get("const").is_none_or(|word| word == value);
        if !is_right {
            found.push(format!("{at}: {value}"));
        }
        for member in schema["required"].as_array().into_iter().flatten() {
            if value.get(member.as_str().unwrap()).is_none() {
                found.push(format!("{at} has no {member}"));
            }
        }
        for (name, member) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(schema), _) | (None, Some(schema)) => wrong(schema, member, &at, found),
                (None, None) => found.push(format!("{at} is not in the schema")),
            }
        }
        for item in value.as_array().into_iter().flatten() {
            wrong(&schema["items"], item, &format!("{at}[]"), found);
        }
    }

    #[test]
    fn every_member_of_a_report_is_in_its_schema() {
        let plan = plan_of(BOARD);
        let agenda = agenda_of(&plan, &[("sequence=CBA", "a layer is larger than this machine's memory")]);
        let mut journal = Journal::open(&plan, &agenda, board_provenance);
        journal.carry_on(usize::MAX, board_script);
        let run = RunFacts::of("bnb-1936-001".parse().unwrap(), journal.state(), &agenda, machine());
        let report = report(&plan, run, journal.results()).unwrap();
        let value = serde_json::to_value(&report).unwrap();
        let mut found = Vec::new();
        wrong(&report_schema(), &value, "report", &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
        let mut damaged = value;
        damaged["cells"][0]["wanted"] = "nine".into();
        damaged["surprise"] = 1.into();
        wrong(&report_schema(), &damaged, "report", &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
