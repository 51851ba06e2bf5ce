//! An inspection for a terminal: counts, layers of one kind on one line, and what does not fit.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::style::{Colour, Style, wrap};
use super::{counted, megabytes, one_line};
use crate::decide::checkpoint::{Inspection, QuantizedLayer};
use crate::model::checkpoint::QuantConfig;

/// Columns of a heading.
const HEAD_COLUMNS: usize = 11;

/// The inspection as text.
pub fn inspect(inspection: &Inspection, style: &Style) -> String {
    let mut out = String::new();
    let mut line = |head: &str, text: &str| {
        wrap(&mut out, &format!("{head:<HEAD_COLUMNS$}"), &one_line(text), style.columns());
    };
    line("tensors", &format!("{}, {} MB of data", inspection.tensors, megabytes(inspection.data_bytes)));
    line("dtypes", &counts(&inspection.dtypes, ", "));
    let formats = counts(&inspection.formats, ", ");
    line("quantised", if formats.is_empty() { "no layer" } else { &formats });
    line("config", &inspection.config.as_ref().map_or_else(|| "none beside the file".to_owned(), config));
    for (group, layers) in grouped(&inspection.layers) {
        line("layers", &format!("{layers} × {group}"));
    }
    if inspection.findings.is_empty() {
        line("fits", "nothing is inconsistent");
    }
    for finding in &inspection.findings {
        let head = format!("{:<HEAD_COLUMNS$}", "wrong");
        let mut text = String::new();
        wrap(&mut text, &head, &one_line(finding), style.columns());
        let _ = write!(out, "{}{}", style.paint(Colour::Red, &head), &text[head.len()..]);
    }
    if inspection.findings_left_out > 0 {
        let _ = writeln!(out, "{:<HEAD_COLUMNS$}and {}", "", counted(inspection.findings_left_out, "finding more"));
    }
    out
}

fn counts(counts: &BTreeMap<String, u64>, separator: &str) -> String {
    let mut counts: Vec<(&String, &u64)> = counts.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    counts.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(separator)
}

fn config(config: &QuantConfig) -> String {
    let said = &config.quantization;
    let mut text = said.quant_algo.clone().unwrap_or_else(|| "no algorithm".to_owned());
    let mut algorithms: BTreeMap<String, u64> = BTreeMap::new();
    for layer in said.quantized_layers.values() {
        *algorithms.entry(layer.quant_algo.clone()).or_default() += 1;
    }
    if !algorithms.is_empty() {
        let _ = write!(text, " ({})", counts(&algorithms, ", "));
    }
    let _ = write!(text, ", by {} {}", config.producer.name, config.producer.version);
    text
}

/// Layers that differ in nothing but the numbers in their names, in the order of those names.
fn grouped(layers: &[QuantizedLayer]) -> BTreeMap<String, u64> {
    let mut groups = BTreeMap::new();
    for QuantizedLayer { name, format, stored, scale } in layers {
        let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let name: Vec<&str> = name.split('.').map(|part| if number(part) { "*" } else { part }).collect();
        let group = format!("{} {format} {stored:?}, scales {scale:?}", name.join("."));
        *groups.entry(group).or_default() += 1;
    }
    groups
}
