//! `/etc/nvpmodel.conf`: sections in angle brackets, each with lines of its own.
//!
//! Two things that the documentation rules out are in files that NVIDIA ships: a section that begins without a space
//! (`<PARAM`), and ids with gaps. Sections that are not needed here, such as `PARAM` (paths) and `FAN_CONFIG`, are
//! passed over whatever they hold.

use std::collections::BTreeMap;

use super::{Defined, PowerMode, PowerModes};

/// The end of the name of an argument that switches units of the GPU off: `TPC_PG_MASK`, `FBP_PG_MASK` and `GPC_PG_MASK`
/// on Orin, `GPU_PG_MASK` on Thor.
const MASK_SUFFIX: &str = "PG_MASK";

/// Why a file is no configuration of nvpmodel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    /// A line makes no sense where it stands.
    #[error("line {line}: {what}: {text:?}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
        /// The line, cut.
        text: String,
    },
    /// No mode is defined.
    #[error("it defines no power mode (a section < POWER_MODEL ID=… NAME=… >)")]
    NoModes,
}

/// Reads a configuration.
///
/// # Errors
/// If it defines no mode, or one that cannot be understood or comes twice.
pub fn parse_conf(text: &str) -> Result<PowerModes, ConfError> {
    let mut modes = PowerModes::default();
    let mut in_mode = false;
    for (number, line) in (1..).zip(text.lines()) {
        let error = |what| ConfError::Line { line: number, what, text: line.chars().take(120).collect() };
        let content = line.split('#').next().unwrap_or_default().trim();
        if content.is_empty() {
            continue;
        }
        if let Some(header) = content.strip_prefix('<') {
            let header = header.strip_suffix('>').ok_or_else(|| error("a section without an end"))?;
            in_mode = section(header, &mut modes).map_err(error)?;
        } else if let Some(defined) = modes.modes.last_mut().filter(|_| in_mode) {
            let words: Vec<&str> = content.split_whitespace().collect();
            let [parameter, argument, value] = words[..] else {
                return Err(error("a line of a power mode that is not PARAMETER ARGUMENT VALUE"));
            };
            if argument.ends_with(MASK_SUFFIX) {
                defined.masks.insert(format!("{parameter} {argument}"), value.to_owned());
            }
        }
    }
    if modes.modes.is_empty() { Err(ConfError::NoModes) } else { Ok(modes) }
}

/// Takes note of a section's header; tells whether the lines of a mode follow.
fn section(header: &str, modes: &mut PowerModes) -> Result<bool, &'static str> {
    let mut words = header.split_whitespace();
    let kind = words.next();
    let members: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
    match kind {
        Some("POWER_MODEL") => {
            let id = members.get("ID").and_then(|id| id.parse().ok()).ok_or("a power mode without an id")?;
            let name = members.get("NAME").ok_or("a power mode without a name")?;
            if modes.iter().any(|mode| mode.id == id || mode.name == *name) {
                return Err("a power mode that was defined before");
            }
            let mode = PowerMode { name: (*name).to_owned(), id };
            modes.modes.push(Defined { mode, masks: BTreeMap::new() });
            Ok(true)
        }
        Some("PM_CONFIG") => {
            modes.default = members.get("DEFAULT").and_then(|id| id.parse().ok());
            Ok(false)
        }
        Some(_) | None => Ok(false),
    }
}
