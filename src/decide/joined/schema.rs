//! The JSON Schema of joined reports; see [`crate::decide::report::report_schema`] for how it grows.

use serde_json::{Value, json};

use super::{Finding, JOINED_SCHEMA};
use crate::decide::report::schema::{by_verdict, count, list, object, provenance, rate, share, standing, text, words};
use crate::decide::stats::Method;

/// The schema of `report --joined --format json`.
pub fn joined_schema() -> Value {
    let mut schema = object(
        "What several runs found, device by device.",
        &["schema", "interval", "runs", "cells", "remarks"],
        &[
            ("schema", json!({ "const": JOINED_SCHEMA })),
            ("interval", words(Method::WORDS)),
            ("runs", list(run())),
            ("cells", list(cell())),
            ("remarks", list(text("What must be known to read it rightly."))),
        ],
    );
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "jetfault joined report".into();
    schema
}

fn run() -> Value {
    object(
        "A run.",
        &["id", "device", "standing", "counted", "boots"],
        &[
            ("id", text("NAME-001.")),
            ("device", text("The machine.")),
            ("standing", standing()),
            ("counted", count("Counted trials.")),
            ("boots", count("Boots in which the harness started.")),
        ],
    )
}

fn cell() -> Value {
    object(
        "A cell.",
        &["id", "label", "devices", "together"],
        &[
            ("id", text("c- and 16 hexadecimal digits.")),
            ("label", text("Its name for people.")),
            (
                "devices",
                list(object(
                    "What one device showed.",
                    &["device", "samples", "excluded"],
                    &[
                        ("device", text("The device.")),
                        (
                            "samples",
                            list(object(
                                "Counted trials of one provenance.",
                                &["provenance", "rate", "faults"],
                                &[("provenance", provenance()), ("rate", rate()), ("faults", by_verdict("Faults."))],
                            )),
                        ),
                        ("excluded", count("Trials in no rate.")),
                    ],
                )),
            ),
            (
                "together",
                list(object(
                    "Several devices together.",
                    &["provenance", "devices", "finding", "says"],
                    &[
                        ("provenance", provenance()),
                        ("devices", count("How many devices.")),
                        ("finding", words(Finding::WORDS)),
                        ("p", share("Exact p of one rate for all devices.")),
                        ("rate", rate()),
                        ("says", text("The finding in words.")),
                    ],
                )),
            ),
        ],
    )
}
