//! Everything that the larger formats of a report say of a run, read from its journal in one go.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::slice;

use crate::cli::args::Global;
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::cli::issue::corrected_by;
use crate::cli::read::{Read, machine_words};
use crate::cli::render::Material;
use crate::decide::explain::BootEvidence;
use crate::decide::plan::Plan;
use crate::decide::report::Report;
use crate::decide::report::boots::{BootRow, BootRows};
use crate::decide::report::stages::{StageFold, StageTimes};
use crate::decide::report::trials::{Close, TrialRow, TrialRows};
use crate::decide::result::ResultFold;
use crate::decide::stats::Method;
use crate::decide::status::StatusFold;
use crate::model::evidence::Fact;
use crate::model::ids::{BootId, RunId};
use crate::model::journal::{Event, Invoker};
use crate::model::telemetry::Sample;
use crate::model::verdict::Counted;
use crate::perform::exhibits::{self, Exhibit};
use crate::perform::host::{MachineFacts, Sysroot};
use crate::perform::series;
use crate::perform::store::{RunDir, names};
use crate::perform::veil::Veil;

/// What is shown of the output of a trial: which streams, and how many bytes of the end of each.
const OUTPUTS: [(&str, u64); 2] = [("stderr.log", 3 * 1024), ("stdout.log", 1536)];

/// The most bytes of output of all trials together.
const OUTPUTS_BYTES_MAX: u64 = 256 * 1024;

/// The most bytes of evidence of all boots together, and of one file of it.
const SAID_BYTES_MAX: u64 = 768 * 1024;
const SAID_FILE_BYTES_MAX: u64 = 16 * 1024;

/// What the machine said at the beginning of the boot whose evidence is in `dir`: the items in words, then the files that
/// are longer than a line. None if there is something and `left` bytes are not enough for any of it.
fn said_at(dir: &Path, left: &mut u64) -> Option<Vec<Exhibit>> {
    let items = exhibits::items(dir);
    let words: Vec<String> = items.iter().filter_map(|(name, item)| in_words(name, item)).collect();
    let raw = dir.join("raw");
    let files = exhibits::files_below(&raw);
    if words.is_empty() && files.is_empty() {
        return Some(Vec::new());
    }
    if *left < SAID_FILE_BYTES_MAX {
        return None;
    }
    let mut pieces = Vec::new();
    if !words.is_empty() {
        pieces.push(Exhibit { name: "items".to_owned(), bytes: words.join("\n").into_bytes(), left_out: 0 });
    }
    // The same entries stand beside it as text.
    let is_shown = |name: &&String| !(name.ends_with(".jsonl") && files.contains(&name.replace(".jsonl", ".txt")));
    for name in files.iter().filter(is_shown) {
        let is_in_words = matches!(items.get(name), Some(Fact::Known(text)) if !text.contains(" bytes in raw/"));
        if !is_in_words {
            pieces.extend(exhibits::tail(&raw, name, SAID_FILE_BYTES_MAX.min(*left)));
        }
    }
    let bytes: u64 = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
    *left = left.saturating_sub(bytes);
    Some(pieces)
}

/// An item of evidence on one line; nothing for a file that is shown by itself.
fn in_words(name: &str, item: &Fact<String>) -> Option<String> {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    match item {
        Fact::Known(text) if text.contains(" bytes in raw/") => None,
        Fact::Known(text) => Some(format!("{name}: {}", line(text))),
        Fact::Absent => Some(format!("{name}: absent")),
        Fact::Denied(why) => Some(format!("{name}: denied, {}", line(why))),
        Fact::Garbled(raw) => Some(format!("{name}: garbled, {}", line(raw))),
    }
}

/// A run as the larger formats tell of it.
pub(super) struct Dossier {
    /// Its plan, with what a campaign added.
    pub(super) plan: Plan,
    /// Its report.
    pub(super) report: Report,
    /// Its machine, if `machine.json` can be read.
    pub(super) machine: Option<MachineFacts>,
    /// The runs that correct what it tells.
    pub(super) corrected_by: Vec<RunId>,
    /// Who invoked it.
    pub(super) invoker: Option<Invoker>,
    /// Its trials, in the order of their verdicts.
    pub(super) rows: Vec<TrialRow>,
    /// Those that are looked at closely.
    pub(super) close: Vec<Close>,
    /// Its boots.
    pub(super) boots: Vec<BootRow>,
    /// How long the stages of clean trials took, for each cell of the plan.
    pub(super) stages: Vec<StageTimes>,
}

impl Dossier {
    /// Reads `run`; intervals are made by `interval`, if one is given.
    ///
    /// # Errors
    /// If its plan or its journal cannot be read.
    pub(super) fn of(run: &RunDir, interval: Option<Method>) -> Result<Self, Failure> {
        let corrected_by = corrected_by(run)?.ids;
        let read = Read::open(run)?;
        let mut status = StatusFold::new(&read.plan, &read.agenda).by(interval);
        let mut trials = TrialRows::new(&read.plan);
        let mut stages: Vec<StageFold> = read.plan.cells.iter().map(|_| StageFold::default()).collect();
        let (mut boots, mut results, mut invoker) = (BootRows::default(), ResultFold::default(), None);
        read.records(run, |record| {
            let evidence = match &record.event {
                Event::Judged(_) => BootEvidence::of(status.state(), &read.agenda),
                _ => None,
            };
            status.apply(&record)?;
            boots.apply(&record);
            if let Event::Opened(opened) = &record.event {
                invoker = Some(opened.invoker.clone());
            }
            if let Some(result) = results.apply(&record) {
                let index = trials.index_of(&result.trial.cell);
                if result.judgement.verdict.counted() == Counted::Clean
                    && let Some(index) = index
                {
                    stages[index].add(&result);
                }
                trials.add(result, evidence);
            }
            Ok(())
        })?;
        let report = status.into_report(run.id.clone(), machine_words(run)).or_fail(Exit::JournalDamaged)?;
        let (rows, close) = trials.finish();
        let stages = stages.into_iter().map(StageFold::finish).collect();
        let machine = fs::read(run.file(names::MACHINE)).ok().and_then(|json| serde_json::from_slice(&json).ok());
        Ok(Self { report, machine, corrected_by, invoker, rows, close, boots: boots.finish(), stages, plan: read.plan })
    }

    /// The ends of the output of each trial that is looked at closely, as far as they fit; what a pass said is left out.
    pub(super) fn outputs(&self, run: &RunDir) -> Vec<Vec<Exhibit>> {
        let mut left = OUTPUTS_BYTES_MAX;
        let mut outputs = Vec::new();
        for close in &self.close {
            let mut pieces = Vec::new();
            let dir = run.file(names::TRIALS).join(self.rows[close.row].trial.to_string());
            let is_clean = self.rows[close.row].judgement.verdict.counted() == Counted::Clean;
            for (name, limit) in if is_clean { &[][..] } else { &OUTPUTS[..] } {
                let piece = exhibits::tail(&dir, name, *limit.min(&left));
                left -= piece.as_ref().map_or(0, |piece| piece.bytes.len() as u64);
                pieces.extend(piece);
            }
            outputs.push(pieces);
        }
        outputs
    }

    /// The samples of each trial that is looked at closely. A log that cannot be read is one without samples.
    fn series(&self, run: &RunDir) -> Vec<Vec<Sample>> {
        let of = |close: &Close| {
            let dir = run.file(names::TRIALS).join(self.rows[close.row].trial.to_string());
            series::samples(&dir).unwrap_or_else(|error| {
                tracing::warn!("cannot read the telemetry of {}: {error}", self.rows[close.row].trial);
                Vec::new()
            })
        };
        self.close.iter().map(of).collect()
    }

    /// What the page in HTML shows beside what the journal says.
    pub(super) fn material(&self, run: &RunDir) -> Material {
        let mut left = SAID_BYTES_MAX;
        let (mut said, mut said_left_out) = (Vec::new(), 0);
        for boot in self.boots.iter().rev() {
            let dir = run.file(names::EVIDENCE).join(boot.boot.as_str());
            let pieces = said_at(&dir, &mut left);
            match pieces {
                Some(pieces) if !pieces.is_empty() => said.push((boot.boot.to_string(), pieces)),
                Some(_) => {}
                None => said_left_out += 1,
            }
        }
        Material { series: self.series(run), outputs: self.outputs(run), said, said_left_out }
    }

    /// The label of the cell of `row`.
    pub(super) fn label(&self, row: &TrialRow) -> &str {
        row.cell.and_then(|index| self.plan.cells.get(index)).map_or("warming", |cell| cell.label.as_str())
    }

    /// The number of each boot, from 1.
    pub(super) fn boot_numbers(&self) -> HashMap<&BootId, usize> {
        self.boots.iter().zip(1..).map(|(row, number)| (&row.boot, number)).collect()
    }

    /// What takes names out of what is said of it, unless `no_redact`.
    pub(super) fn veil(&self, no_redact: bool, global: &Global) -> Veil {
        Self::veil_of(slice::from_ref(self), no_redact, global)
    }

    /// The same for several.
    pub(super) fn veil_of(dossiers: &[Self], no_redact: bool, global: &Global) -> Veil {
        match no_redact {
            true => Veil::transparent(),
            false => {
                let invokers = dossiers.iter().filter_map(|dossier| dossier.invoker.as_ref());
                Veil::new(&Sysroot::new(global.sysroot.clone()), invokers)
            }
        }
    }
}
