//! What a results directory has of a division: `status --shares`, which a desk asks of its boards, and reads of the
//! runs that it pulled itself.

use std::io::{self, BufReader};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Desk, harness, words};
use crate::cli::args::{DataFormat, Global, StatusArgs};
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::cli::read::{self, make_status};
use crate::decide::fleet::{CellSaid, Course, Share, ShareSaid};
use crate::decide::report::Standing;
use crate::decide::status::{Harness, Status};
use crate::model::inventory::BoardEntry;
use crate::perform::journal::first_record;
use crate::perform::ssh::SshError;
use crate::perform::store::ResultsDir;

/// Name and version of the format.
const SHARES_SCHEMA: &str = "jetfault.shares/1";

/// How long a board may take to read the journals of its shares.
const PATIENCE: Duration = Duration::from_secs(120);

/// The shares of a results directory.
#[derive(Serialize, Deserialize)]
struct Shares {
    schema: String,
    shares: Vec<ShareStatus>,
}

/// A share, and where its run stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::cli) struct ShareStatus {
    /// The share.
    pub share: Share,
    /// In which boot and when its run was opened: another one of the same name is another run.
    pub opened: String,
    /// Where its run stands.
    pub status: Status,
}

impl ShareStatus {
    /// What the division needs to know of it.
    pub(super) fn said(&self) -> ShareSaid {
        let course = match (&self.status.standing, self.status.harness, &self.status.armed) {
            (Standing::Complete, ..) => Course::Complete,
            (Standing::Stopped { .. }, ..) => Course::Stopped,
            (Standing::Open | Standing::Paused, Harness::Working, _) | (Standing::Open, _, Some(_)) => Course::Working,
            (Standing::Open, Harness::Absent | Harness::Unknown, None)
            | (Standing::Paused, Harness::Absent | Harness::Unknown, _) => Course::Halted,
        };
        let cells = self.status.cells.iter().map(|cell| {
            let counted = u32::try_from(cell.counted).unwrap_or(u32::MAX);
            (cell.id.clone(), CellSaid { wanted: cell.wanted, counted, set_aside: cell.set_aside })
        });
        ShareSaid { share: self.share.clone(), course, cells: cells.collect() }
    }

    /// Whether a person or the board itself put it to rest, and nobody merely left it.
    pub(super) fn is_paused(&self) -> bool {
        self.status.standing == Standing::Paused && self.said().course == Course::Halted
    }

    /// Counted faults.
    pub(super) fn faults(&self) -> u64 {
        self.status.cells.iter().flat_map(|cell| &cell.rates).map(|(_, rate)| rate.faults).sum()
    }

    /// Whether both are the same run, here or as a copy.
    pub(super) fn is_same_run(&self, other: &Self) -> bool {
        (&self.status.run, &self.opened) == (&other.status.run, &other.opened)
    }
}

/// `status --shares NAME`: the shares of matrix `name` in `results`, as JSON.
///
/// # Errors
/// If one cannot be read.
pub(in crate::cli) fn to_json(results: &ResultsDir, name: &str, global: &Global) -> Result<Vec<u8>, Failure> {
    let shares = Shares { schema: SHARES_SCHEMA.to_owned(), shares: of(results, name, global)? };
    let mut json = serde_json::to_vec(&shares).expect("a status has string keys and finite numbers");
    json.push(b'\n');
    Ok(json)
}

/// The shares of matrix `name` in `results`.
///
/// # Errors
/// If one cannot be read.
pub(super) fn of(results: &ResultsDir, name: &str, global: &Global) -> Result<Vec<ShareStatus>, Failure> {
    let args = StatusArgs {
        run: None,
        follow: false,
        unit_dir: None,
        interval: None,
        shares: None,
        standing: false,
        format: DataFormat::Json,
    };
    let mut shares = Vec::new();
    for run in results.runs().or_fail(Exit::Unfit)?.into_iter().filter(|run| run.id.parts().0 == name) {
        let Some(share) = read::plan(&run)?.share else { continue };
        let journal = BufReader::new(run.open_journal().or_fail(Exit::Unfit)?);
        // One that was never begun has nothing.
        let Some(first) = first_record(journal).or_fail(Exit::JournalDamaged)? else { continue };
        let opened = format!("{} {}", first.boot, first.wall);
        let status = make_status(results, &run, &args, global, |_, _| {})?;
        shares.push(ShareStatus { share: *share, opened, status });
    }
    Ok(shares)
}

/// What `board` says that it has.
pub(super) fn ask(desk: &Desk, board: &BoardEntry, name: &str) -> Result<Vec<ShareStatus>, SshError> {
    let mut argv = harness(board);
    argv.extend(["status", "--format", "json", "--shares", name].map(str::to_owned));
    let said = desk.ssh(board).ask(&words(&argv), io::empty(), PATIENCE)?.ended_with(&[0])?;
    // A login shell may greet before it obeys.
    let from = said.out.iter().position(|byte| *byte == b'{').unwrap_or(0);
    let shares: Shares = serde_json::from_slice(&said.out[from..]).map_err(|error| {
        SshError::Exchange(format!(
            "its shares make no sense here: {error}; `jetfault fleet push` puts this jetfault there"
        ))
    })?;
    Ok(shares.shares)
}
