//! A run as CSV: one row a trial, one column a fact. Owns the only use of the package `csv`.
//!
//! Columns have names of their own and keep them; later versions add some. What was not seen is empty, never 0.

use std::collections::{BTreeSet, HashMap};

use csv::{Error, Writer};

use crate::cli::dossier::Dossier;
use crate::decide::report::trials::{OutcomeRow, StartRow, TrialRow};
use crate::model::ids::BootId;
use crate::model::verdict::Counted;
use crate::perform::veil::Veil;

/// The columns before those of axes and metrics.
const COLUMNS: [&str; 38] = [
    "run",
    "trial",
    "cell",
    "label",
    "round",
    "attempt",
    "role",
    "provenance",
    "device",
    "launcher",
    "boot",
    "boot_number",
    "position_in_boot",
    "start",
    "cold_proof",
    "prior_end",
    "started_wall",
    "started_uptime_ms",
    "judged_wall",
    "counted",
    "verdict",
    "cause",
    "detail",
    "stage",
    "unrecorded_ms",
    "signature",
    "rule",
    "exit",
    "error_text",
    "duration_ms",
    "peak_host_bytes",
    "peak_device_allocated_bytes",
    "peak_device_reserved_bytes",
    "peak_host_plus_reserved_bytes",
    "available_min_bytes",
    "hottest_zone",
    "temp_c_max",
    "power_mw_max",
];

/// The trials of `dossiers` as CSV (RFC 4180, with a header).
///
/// # Errors
/// Never while memory is written to.
pub(super) fn trials(dossiers: &[Dossier], veil: &mut Veil) -> Result<Vec<u8>, Error> {
    let cells = dossiers.iter().flat_map(|dossier| &dossier.plan.cells);
    let axes: BTreeSet<&str> = cells.flat_map(|cell| cell.levels.keys()).map(String::as_str).collect();
    let outcomes = dossiers.iter().flat_map(|dossier| &dossier.rows).filter_map(|row| row.outcome.as_ref());
    let metrics: BTreeSet<&str> = outcomes.flat_map(|outcome| outcome.metrics.keys()).map(String::as_str).collect();
    let mut writer = Writer::from_writer(Vec::new());
    let named = |kind: &str, name: &&str| format!("{kind}.{name}");
    let header = COLUMNS.iter().map(|column| (*column).to_owned());
    let header = header.chain(axes.iter().map(|axis| named("axis", axis)));
    writer.write_record(header.chain(metrics.iter().map(|metric| named("metric", metric))))?;
    for dossier in dossiers {
        rows(&mut writer, dossier, (&axes, &metrics), veil)?;
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}

/// A row for each trial of `dossier`, with columns for these axes and metrics.
fn rows(
    writer: &mut Writer<Vec<u8>>,
    dossier: &Dossier,
    (axes, metrics): (&BTreeSet<&str>, &BTreeSet<&str>),
    veil: &mut Veil,
) -> Result<(), Error> {
    let boots = dossier.boot_numbers();
    for row in &dossier.rows {
        let levels = row.cell.and_then(|index| dossier.plan.cells.get(index)).map(|cell| &cell.levels);
        let mut record = fixed(dossier, row, &boots, veil);
        record.extend(
            axes.iter().map(|axis| {
                levels.and_then(|levels| levels.get(*axis)).map(|level| veil.text(level)).unwrap_or_default()
            }),
        );
        record.extend(metrics.iter().map(|metric| {
            let value = row.outcome.as_ref().and_then(|outcome| outcome.metrics.get(*metric));
            value.map(f64::to_string).unwrap_or_default()
        }));
        writer.write_record(record)?;
    }
    Ok(())
}

/// What is said of `row` in [`COLUMNS`].
fn fixed(dossier: &Dossier, row: &TrialRow, boots: &HashMap<&BootId, usize>, veil: &mut Veil) -> Vec<String> {
    let judgement = &row.judgement;
    let counted = match row.counted {
        Counted::Clean => "clean",
        Counted::Fault => "fault",
        Counted::Excluded => "excluded",
    };
    let mut words = |text: Option<&str>| text.map(|text| harmless(veil.text(text))).unwrap_or_default();
    let signature = judgement.signature.as_ref().map(ToString::to_string);
    let [label, detail, signature, error_text] = [
        Some(dossier.label(row)),
        judgement.detail.as_deref(),
        signature.as_deref(),
        row.outcome.as_ref().and_then(|outcome| outcome.error_text.as_deref()),
    ]
    .map(&mut words);
    let start = |of: &dyn Fn(&StartRow) -> String| row.start.as_ref().map(of).unwrap_or_default();
    let outcome = |of: &dyn Fn(&OutcomeRow) -> Option<String>| row.outcome.as_ref().and_then(of).unwrap_or_default();
    let bytes = |n: u64| (n > 0).then(|| n.to_string());
    let boot_number = |start: &StartRow| boots.get(&start.boot).map(usize::to_string).unwrap_or_default();
    vec![
        dossier.report.run.id.to_string(),
        row.trial.to_string(),
        row.trial.cell.to_string(),
        label,
        row.trial.round.to_string(),
        row.trial.attempt.to_string(),
        start(&|start| word(start.role)),
        start(&|start| start.provenance.as_str().to_owned()),
        start(&|start| start.device.to_string()),
        start(&|start| word(start.launcher)),
        start(&|start| start.boot.to_string()),
        start(&boot_number),
        start(&|start| start.position.to_string()),
        start(&|start| start.state.map(|(state, _)| state.to_string()).unwrap_or_default()),
        start(&|start| start.state.map(|(_, proof)| proof.to_string()).unwrap_or_default()),
        start(&|start| start.prior_end.map(|end| end.to_string()).unwrap_or_default()),
        start(&|start| start.wall.to_string()),
        start(&|start| start.uptime_ms.0.to_string()),
        row.judged_wall.to_string(),
        counted.to_owned(),
        judgement.verdict.to_string(),
        judgement.cause.map(|cause| cause.as_str().to_owned()).unwrap_or_default(),
        detail,
        judgement.stage.as_ref().map(ToString::to_string).unwrap_or_default(),
        judgement.unrecorded_ms.map(|ms| ms.to_string()).unwrap_or_default(),
        signature,
        row.rule.clone(),
        outcome(&|outcome| Some(outcome.exit.clone())),
        error_text,
        outcome(&|outcome| Some(outcome.duration_ms.to_string())),
        outcome(&|outcome| bytes(outcome.peak.host)),
        outcome(&|outcome| bytes(outcome.peak.device_allocated)),
        outcome(&|outcome| bytes(outcome.peak.device_reserved)),
        outcome(&|outcome| bytes(outcome.peak.host_plus_reserved)),
        outcome(&|outcome| outcome.available_min.map(|bytes| bytes.to_string())),
        outcome(&|outcome| outcome.hottest.as_ref().map(|hottest| hottest.zone.clone())),
        outcome(&|outcome| outcome.hottest.as_ref().map(|hottest| hottest.temp_c.to_string())),
        outcome(&|outcome| outcome.power_mw_max.map(|mw| mw.to_string())),
    ]
}

/// A word of a closed set as JSON spells it.
fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

/// Words of a program as a text that a spreadsheet does not take for a formula: those begin with one of four characters.
fn harmless(text: String) -> String {
    if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_no_formula_any_more() {
        for (text, expected) in [("=HYPERLINK(1)", "'=HYPERLINK(1)"), ("reboot/C.copy", "reboot/C.copy"), ("", "")] {
            assert_eq!(harmless(text.to_owned()), expected);
        }
    }
}
