//! Reports of several runs, on as many devices, as one: what each device showed stands for itself, and numbers of several
//! are put together only where nothing says that the devices differ.
//!
//! Owns that guard. A rate over devices never appears without the rates of the devices beside it, and not at all where an
//! exact test tells the devices apart, or where that could not be tested.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::decide::compare::{ALPHA, p_words};
use crate::decide::plan::CellRole;
use crate::decide::report::{CellReport, Rate, Report, Standing};
use crate::decide::stats::{Counts, Method, freeman_halton};
use crate::model::ids::{CellId, RunId};
use crate::model::verdict::{Provenance, Verdict};
use crate::model::words::words;

mod schema;

pub use schema::joined_schema;

/// Name and version of the format.
pub const JOINED_SCHEMA: &str = "jetfault.joined/1";

/// The most different tables that the test of all devices keeps.
const TABLES_MAX: usize = 100_000;

/// A device that a transcription does not name.
const UNRECORDED: &str = "unrecorded";

/// Facts of a machine in which devices of one rate should be alike, by their names in a report.
const FACTS: [&str; 7] = ["model", "l4t", "kernel", "driver", "cuda", "power mode", "memory"];

words! {
    /// What may be said of several devices together.
    Finding {
        /// An exact test tells them apart.
        Differs = "differs",
        /// It does not, which is not to say that they are alike.
        NotShown = "not-shown",
        /// It would take too long.
        Untested = "untested",
    }
}

/// Several reports as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// [`JOINED_SCHEMA`].
    pub schema: String,
    /// How the intervals are made.
    pub interval: Method,
    /// The runs, in the order in which they were named.
    pub runs: Vec<JoinedRun>,
    /// The cells, in the order in which the runs have them.
    pub cells: Vec<JoinedCell>,
    /// What must be known to read it rightly.
    pub remarks: Vec<String>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinedRun {
    /// Its id.
    pub id: RunId,
    /// The device.
    pub device: String,
    /// Whether it goes on.
    pub standing: Standing,
    /// Counted trials.
    pub counted: u64,
    /// Boots in which the harness started.
    pub boots: u32,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinedCell {
    /// Its id.
    pub id: CellId,
    /// Its label.
    pub label: String,
    /// What each device showed.
    pub devices: Vec<OfDevice>,
    /// What may be said of several devices together; nothing where one alone has counted trials.
    pub together: Vec<Together>,
}

/// What one device showed of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfDevice {
    /// The device.
    pub device: String,
    /// Its counted trials, apart for each provenance.
    pub samples: Vec<DeviceSample>,
    /// Trials in no rate.
    pub excluded: u64,
}

/// Counted trials of one device and provenance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// Where their numbers come from.
    pub provenance: Provenance,
    /// What they say about the rate.
    pub rate: Rate,
    /// Faults by verdict.
    pub faults: BTreeMap<Verdict, u64>,
}

/// Counted trials of several devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Together {
    /// Where their numbers come from.
    pub provenance: Provenance,
    /// How many devices.
    pub devices: usize,
    /// Whether they differ.
    pub finding: Finding,
    /// The exact p of all of them having one rate (Freeman-Halton).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Their rate together; absent where they differ, or that was not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The finding in words.
    pub says: String,
}

impl Joined {
    /// It as `--format json` prints it.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("a report has string keys and finite numbers");
        json.push(b'\n');
        json
    }

    /// The devices, in the order of the runs.
    pub fn devices(&self) -> Vec<&str> {
        let mut devices: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !devices.contains(&run.device.as_str()) {
                devices.push(&run.device);
            }
        }
        devices
    }
}

/// The device of a run.
fn device_of(report: &Report) -> String {
    report.run.device.as_ref().map_or_else(|| UNRECORDED.to_owned(), ToString::to_string)
}

/// Puts `reports` together; intervals are made by `interval`, if one is given, and not as suits the runs.
pub fn join(reports: &[Report], interval: Option<Method>) -> Joined {
    let is_fixed = reports.iter().all(|report| report.interval == Method::ClopperPearson);
    let as_suits = if is_fixed { Method::ClopperPearson } else { Method::ConfidenceSequence };
    let method = interval.unwrap_or(as_suits);
    let mut folds: Vec<CellFold> = Vec::new();
    let mut places: BTreeMap<&CellId, usize> = BTreeMap::new();
    for report in reports {
        let device = device_of(report);
        for cell in report.cells.iter().filter(|cell| cell.role == CellRole::Sample) {
            let place = *places.entry(&cell.id).or_insert_with(|| {
                folds.push(CellFold { id: &cell.id, label: &cell.label, devices: Vec::new() });
                folds.len() - 1
            });
            folds[place].add(&device, cell);
        }
    }
    let runs = reports.iter().map(|report| JoinedRun {
        id: report.run.id.clone(),
        device: device_of(report),
        standing: report.run.standing.clone(),
        counted: report.cells.iter().filter(|cell| cell.role == CellRole::Sample).map(CellReport::counted).sum(),
        boots: report.run.boots,
    });
    Joined {
        schema: JOINED_SCHEMA.to_owned(),
        interval: method,
        runs: runs.collect(),
        cells: folds.into_iter().map(|fold| fold.finish(method)).collect(),
        remarks: remarks(reports, method),
    }
}

/// Faults by verdict, and trials without one.
#[derive(Debug, Default)]
struct Tally {
    counts: Counts,
    faults: BTreeMap<Verdict, u64>,
}

struct CellFold<'r> {
    id: &'r CellId,
    label: &'r str,
    /// By device, in the order of the runs.
    devices: Vec<(String, BTreeMap<Provenance, Tally>, u64)>,
}

impl CellFold<'_> {
    fn add(&mut self, device: &str, cell: &CellReport) {
        let place = self.devices.iter().position(|(known, ..)| known == device).unwrap_or_else(|| {
            self.devices.push((device.to_owned(), BTreeMap::new(), 0));
            self.devices.len() - 1
        });
        let (_, samples, excluded) = &mut self.devices[place];
        *excluded += cell.excluded_total();
        for sampled in &cell.samples {
            let tally = samples.entry(sampled.provenance).or_default();
            let clean = sampled.rate.counted - sampled.rate.faults;
            tally.counts = tally.counts.plus(Counts { faults: sampled.rate.faults, clean });
            sampled.faults.iter().for_each(|(verdict, n)| *tally.faults.entry(*verdict).or_default() += n);
        }
    }

    fn finish(self, method: Method) -> JoinedCell {
        let provenances: BTreeSet<Provenance> =
            self.devices.iter().flat_map(|(_, samples, _)| samples.keys().copied()).collect();
        let together = provenances.into_iter().filter_map(|provenance| {
            let counts = self.devices.iter().filter_map(|(_, samples, _)| Some(samples.get(&provenance)?.counts));
            together(&counts.filter(|counts| counts.counted() > 0).collect::<Vec<_>>(), provenance, method)
        });
        let together = together.collect();
        let devices = self.devices.into_iter().map(|(device, samples, excluded)| OfDevice {
            device,
            samples: samples
                .into_iter()
                .map(|(provenance, tally)| DeviceSample {
                    provenance,
                    rate: Rate::of(tally.counts, method),
                    faults: tally.faults,
                })
                .collect(),
            excluded,
        });
        JoinedCell { id: self.id.clone(), label: self.label.to_owned(), devices: devices.collect(), together }
    }
}

/// What may be said of devices with these counts together; nothing of one alone.
fn together(counts: &[Counts], provenance: Provenance, method: Method) -> Option<Together> {
    if counts.len() < 2 {
        return None;
    }
    let p = freeman_halton(counts, TABLES_MAX);
    let (finding, says) = match p {
        Some(p) if p <= ALPHA => {
            (Finding::Differs, format!("differs between devices (exact p = {}): no rate in common", p_words(p)))
        }
        Some(p) => (Finding::NotShown, format!("no difference between devices is shown (exact p = {})", p_words(p))),
        None => (Finding::Untested, "whether devices differ takes too long to test: no rate in common".to_owned()),
    };
    let all = counts.iter().fold(Counts::default(), |all, own| all.plus(*own));
    let rate = (finding == Finding::NotShown).then(|| Rate::of(all, method));
    Some(Together { provenance, devices: counts.len(), finding, p, rate, says })
}

fn remarks(reports: &[Report], method: Method) -> Vec<String> {
    let mut remarks = Vec::new();
    for fact in FACTS {
        let mut by_value: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for report in reports {
            if let Some(value) = report.run.machine.get(fact) {
                by_value.entry(value).or_default().insert(device_of(report));
            }
        }
        if by_value.len() > 1 {
            let values = by_value.iter().map(|(value, devices)| {
                format!("{value} ({})", devices.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
            });
            remarks.push(format!(
                "{fact} is not the same everywhere: {}: a difference between devices may be that",
                values.collect::<Vec<_>>().join(" · ")
            ));
        }
    }
    for report in reports {
        for control in &report.controls_failed {
            let device = device_of(report);
            remarks
                .push(format!("{control} did not give what it must on {device}: what leans on it there is undecided"));
        }
    }
    if reports.iter().any(|report| !report.run.standing.is_final()) {
        remarks
            .push("not every run is over: p holds for the trials that were planned, and is a hint until then".into());
    } else if method != Method::ClopperPearson && reports.iter().any(|report| !report.decisions.is_empty()) {
        remarks.push("what was seen decided how many trials there are: p is a hint".into());
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::report::schema::tests::wrong;
    use crate::decide::report::{ReportFold, RunFacts};
    use crate::testing::constructed::plan_of;

    const ONE: &str = "[matrix]\nname = \"one\"\ntrials = 3\n[workload]\nkind = \"linear4bit\"\nbackend = \"cpu\"\n\
                       [shapes]\nA = [512, 1024]\n[baseline]\nsequence = \"A\"\n";

    fn empty_report(device: &str) -> Report {
        ReportFold::new(&plan_of(ONE)).finish(RunFacts {
            id: "one-001".parse().unwrap(),
            standing: Standing::Complete,
            boots: 1,
            device: Some(device.parse().unwrap()),
            tool: String::new(),
            persistence: None,
            machine: BTreeMap::new(),
            set_aside: BTreeSet::new(),
        })
    }

    fn sample(report: &mut Report, faults: u64, clean: u64) {
        let counts = Counts { faults, clean };
        let rate = Rate::of(counts, Method::ClopperPearson);
        report.cells[0].samples = vec![crate::decide::report::Sampled {
            provenance: Provenance::Measured,
            rate,
            faults: BTreeMap::from([(Verdict::Reboot, faults)]),
            clean,
            signatures: Vec::new(),
            signatures_left_out: 0,
            clean_ms: None,
            fault_ms: None,
            peak_memory: None,
        }];
    }

    fn report(device: &str, faults: u64, clean: u64) -> Report {
        let mut report = empty_report(device);
        sample(&mut report, faults, clean);
        report
    }

    #[test]
    fn devices_that_differ_have_no_rate_in_common() {
        // By hand: 8/8 and 0/8 have p = 2 / C(16, 8) = 2/12870.
        let joined = join(&[report("orin-1", 8, 0), report("orin-2", 0, 8)], None);
        let [together] = &joined.cells[0].together[..] else { panic!("{joined:?}") };
        assert!((together.p.unwrap() - 2.0 / 12870.0).abs() < 1e-12);
        assert_eq!((together.finding, together.rate), (Finding::Differs, None));
        let rates: Vec<String> = joined.cells[0].devices.iter().map(|d| d.samples[0].rate.fraction()).collect();
        assert_eq!(rates, ["8/8", "0/8"]);
    }

    #[test]
    fn runs_of_one_device_are_added_and_devices_that_are_not_told_apart_have_a_rate_together() {
        let joined = join(&[report("orin-1", 1, 3), report("orin-2", 2, 3), report("orin-1", 1, 1)], None);
        let rates: Vec<String> = joined.cells[0].devices.iter().map(|d| d.samples[0].rate.fraction()).collect();
        assert_eq!(rates, ["2/6", "2/5"]);
        let together = &joined.cells[0].together[0];
        assert_eq!((together.devices, together.finding), (2, Finding::NotShown));
        assert_eq!(together.rate.unwrap().fraction(), "4/11");
        assert_eq!(joined.devices(), ["orin-1", "orin-2"]);
        let mut found = Vec::new();
        wrong(&joined_schema(), &serde_json::from_slice(&joined.to_json()).unwrap(), "joined", &mut found);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn one_device_alone_is_not_put_together_and_what_devices_differ_in_is_said() {
        let mut other = report("orin-2", 0, 0);
        other.cells[0].samples.clear();
        other.cells[0].excluded.insert(Verdict::Void, 3);
        other.run.machine.insert("l4t".into(), "36.4.4".into());
        let mut first = report("orin-1", 1, 0);
        first.run.machine.insert("l4t".into(), "36.4.3".into());
        let joined = join(&[first, other], None);
        assert!(joined.cells[0].together.is_empty());
        assert_eq!(joined.cells[0].devices[1].excluded, 3);
        assert_eq!(
            joined.remarks,
            [
                "l4t is not the same everywhere: 36.4.3 (orin-1) · 36.4.4 (orin-2): a difference between devices may be that"
            ]
        );
    }
}
