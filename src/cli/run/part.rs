//! A part of a run: what is carried through while its plan stays the same. A campaign has a part for each question.

use std::cell::RefCell;
use std::env;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::cli::args::Global;
use crate::cli::boots::Boots;
use crate::cli::campaign::{self, Next, Workshop};
use crate::cli::errors::{Failure, OrFail};
use crate::cli::exit::Exit;
use crate::cli::nightly;
use crate::cli::output;
use crate::cli::prepare::prepare;
use crate::cli::progress::{Loudness, Progress};
use crate::decide::plan::Plan;
use crate::decide::run::Phase;
use crate::model::ids::BootId;
use crate::model::journal::{Event, Launcher, Opened, SetChanged};
use crate::perform::boot::AtBoot;
use crate::perform::host::Sysroot;
use crate::perform::linux::{Linux, Setting};
use crate::perform::runner::{Circumstances, Ended, RunError, Runner};
use crate::perform::settings::{Reach, Tools};
use crate::perform::start_state::UsedMark;
use crate::perform::store::{ResultsDir, RunDir, names};

use super::agenda::{agenda, provenance};
use super::failures::run_failure;
use super::{Harness, StartedBy};

/// How far a part of a run came.
pub(super) enum Carriage {
    /// To an end.
    Ended(Ended),
    /// To a question, which was answered: the plan must be read again.
    Asked,
    /// The run is open, and another process is to carry it on.
    Served,
}

/// What a run is carried on with, as long as its plan stays the same.
pub(super) struct Part<'a> {
    pub(super) results: &'a ResultsDir,
    pub(super) run: &'a RunDir,
    pub(super) opened: Opened,
    pub(super) here: BootId,
    pub(super) harness: Harness,
    pub(super) used: UsedMark,
    pub(super) boots: Boots,
    pub(super) start: StartedBy,
    pub(super) at_boot: Option<Rc<RefCell<AtBoot>>>,
    pub(super) signal: Arc<AtomicUsize>,
    /// Whether this is not the first part.
    pub(super) is_asked_for: bool,
    /// Whether the campaign has its answer: no further trial is added.
    pub(super) is_over: bool,
}

impl Part<'_> {
    /// Carries the run on to its end, or until the plan must be read again.
    pub(super) fn carry(&mut self, plan: &Plan, global: &Global) -> Result<Carriage, Failure> {
        let (run, opened) = (self.run, &self.opened);
        let sysroot = Sysroot::new(global.sysroot.clone());
        let tools = Tools::new(&plan.tools, &opened.matrix_dir, &sysroot);
        let keep = run.file(names::SETTINGS);
        let mut agenda = agenda(
            plan,
            opened,
            Reach { sysroot: &sysroot, tools: &tools, keep: &keep, boot: &self.here },
            &self.boots,
        );
        agenda.open_ended &= !self.is_over;
        let circumstances = Circumstances {
            here: self.here.clone(),
            device: opened.device.clone(),
            launcher: launcher(self.start),
            provenance: plan.all_cells().map(|cell| provenance(cell, opened)).collect(),
        };
        let revisions = match plan.campaign.as_deref() {
            Some(asked) => campaign::cache(self.results, &campaign::matrix(run, plan)?, asked),
            None => None,
        };
        let (prepared, made) = prepare(self.results, run, plan, (opened, &self.harness.path, &self.signal), global)?;
        let setting = Setting {
            sysroot,
            here: self.here.clone(),
            tools,
            prepared,
            used: self.used.clone(),
            revisions,
            at_boot: self.at_boot.clone(),
            rebooter: self.boots.rebooter(),
            invoker: opened.invoker.clone(),
            matrix_dir: opened.matrix_dir.clone(),
            script: opened.script.clone(),
            harness: self.harness.path.clone(),
            signal: self.signal.clone(),
        };
        let failed = |error| run_failure(run, error);
        let mut progress = Progress::new(plan, loudness(global));
        let mut machine = Linux::new(run, self.results, plan, setting).or_fail(Exit::Unfit)?;
        let mut runner = Runner::open(&mut machine, &agenda, circumstances, &mut progress).map_err(failed)?;
        if !self.is_asked_for {
            self.is_asked_for = true;
            greet(&mut runner, run, opened, &self.harness, global).map_err(failed)?;
        }
        made.into_iter().try_for_each(|made| runner.note(Event::Set(made.into()))).map_err(failed)?;
        let is_closed = matches!(runner.state().phase, Phase::Closed(_));
        let is_left = match self.start {
            StartedBy::Person => self.boots.are_served(),
            StartedBy::PersonWhoLeaves => true,
            StartedBy::Unit | StartedBy::Boot | StartedBy::Stop => false,
        };
        if is_left && !is_closed {
            return Ok(Carriage::Served);
        }
        match (runner.run().map_err(failed)?, plan.campaign.as_deref()) {
            (Ended::Asking, Some(asked)) => {
                match campaign::next(run, plan, asked, global)? {
                    Next::Over => self.is_over = true,
                    Next::Extend(extended) => runner.hand_over(extended).map_err(failed)?,
                    Next::Prepare(revision) => {
                        let workshop = Workshop { run, results: self.results, opened, signal: &self.signal };
                        let prepared = campaign::prepare(&workshop, plan, &revision)?;
                        runner.note(Event::Hooked(prepared)).map_err(failed)?;
                    }
                }
                Ok(Carriage::Asked)
            }
            (Ended::Asking, None) => {
                // A night adds trials where a fault is to be confirmed.
                let confirming = match plan.nightly.as_deref() {
                    Some(tonight) => nightly::next(run, tonight, global)?,
                    None => None,
                };
                match confirming {
                    Some(extended) => runner.hand_over(extended).map_err(failed)?,
                    None => self.is_over = true,
                }
                Ok(Carriage::Asked)
            }
            (ended, _) => Ok(Carriage::Ended(ended)),
        }
    }
}

/// Opens the run, or says how it is found.
fn greet(
    runner: &mut Runner<'_>,
    run: &RunDir,
    opened: &Opened,
    harness: &Harness,
    global: &Global,
) -> Result<(), RunError> {
    let is_closed = matches!(runner.state().phase, Phase::Closed(_));
    if is_closed && !global.quiet {
        output::say(format_args!(
            "{} is complete: nothing is repeated (`jetfault run --new` opens another run)",
            run.id
        ));
    }
    if runner.state().opened.is_none() {
        runner.begin(opened.clone())?;
    } else if opened.binary != harness.digest && !is_closed {
        let (old, new) = (opened.binary.to_string(), harness.digest.to_string());
        runner.note(Event::Set(SetChanged { what: "binary".into(), old, new }))?;
    }
    Ok(())
}

fn launcher(start: StartedBy) -> Launcher {
    if matches!(start, StartedBy::Boot | StartedBy::Unit) {
        return Launcher::Service;
    }
    match (env::var_os("CI"), env::var_os("SSH_CONNECTION")) {
        (Some(_), _) => Launcher::Ci,
        (None, Some(_)) => Launcher::Ssh,
        (None, None) => Launcher::Shell,
    }
}

fn loudness(global: &Global) -> Loudness {
    match (global.quiet, global.verbose) {
        (true, _) => Loudness::Quiet,
        (false, 0) => Loudness::Normal,
        (false, _) => Loudness::Verbose,
    }
}
