//! How a run comes by the boots that it needs, and the commands about it: `arm` and `disarm`.

use std::path::Path;

use crate::cli::args::{ArmArgs, BootArgs, DisarmArgs, Global};
use crate::cli::errors::{Failure, OrFail, Outcome};
use crate::cli::exit::Exit;
use crate::cli::{locate, output, run};
use crate::decide::plan::{Cell, Permission, Plan};
use crate::model::board::{BOARD_FILE, Board, BootService, RebootBy};
use crate::model::journal::Allowed;
use crate::model::settings::{ColdFrom, Start};
use crate::perform::boot::{Rebooter, Unit, UnitDir, UnitError, board};
use crate::perform::host::Sysroot;
use crate::perform::store::RunDir;

/// How boots come about, and who starts the harness in them.
#[derive(Debug, Clone)]
pub struct Boots {
    board: Board,
    by: RebootBy,
    /// Where the boot service is installed, if that is to carry the run on.
    units: Option<UnitDir>,
}

impl Boots {
    /// How a run of `plan` that has these permissions comes by its boots on the machine under `sysroot`. A run that needs
    /// none, and the tree of a machine of which nothing is said, is rebooted by a person if at all.
    ///
    /// # Errors
    /// If what is said of the board makes no sense.
    pub fn of(plan: &Plan, allowed: Allowed, sysroot: &Sysroot, unit_dir: Option<&Path>) -> Result<Self, Failure> {
        let board = board(sysroot).map_err(|why| Failure::words(Exit::Usage, why))?;
        let by_mode = plan.needs.permissions.contains(&Permission::PowerMode);
        // Which cells a campaign will have is not known yet.
        let needs_boots = allowed.reboot && (plan.needs.boots > 0 || by_mode || plan.campaign.is_some());
        let is_known = sysroot.is_live() || sysroot.exists(BOARD_FILE);
        let by = if needs_boots && is_known { board.reboot.by } else { RebootBy::Person };
        let by_service = by != RebootBy::Person && board.boot.service == BootService::Systemd;
        let units = by_service.then(|| UnitDir::new(sysroot, unit_dir));
        Ok(Self { board, by, units })
    }

    /// Asks, before anything is made, whether everything that the boots take is there.
    ///
    /// # Errors
    /// If something is missing.
    pub fn check(&self, run: Option<&RunDir>) -> Result<(), Failure> {
        let argv = match self.by {
            RebootBy::Command => &self.board.reboot.command,
            RebootBy::Hook => &self.board.power.cycle,
            RebootBy::Systemctl | RebootBy::PowerOff | RebootBy::Elsewhere | RebootBy::Person => &Vec::new(),
        };
        if let Some(program) = argv.first().filter(|program| program.contains('/') && !Path::new(program).is_file()) {
            let words =
                format!("[reboot] by = \"{}\" of this board runs {program}, and there is no such file", self.by);
            return Err(Failure::words(Exit::Unfit, words).hint(format!("mend /{BOARD_FILE}")));
        }
        match &self.units {
            Some(units) => units.check(run.map(|run| run.path.as_path())).map_err(failure),
            None => Ok(()),
        }
    }

    /// Why no trial of `cell` can have the boot that it asks for.
    pub fn cannot(&self, cell: &Cell) -> Option<String> {
        let settings = &cell.settings;
        let from_power = settings.start == Start::Cold && settings.cold_from == ColdFrom::Power;
        (from_power && !self.by.cuts_power()).then(|| {
            let ways = "[reboot] by = \"power-off\", \"hook\" or \"elsewhere\"";
            format!("cold_from = \"power\" needs a board whose power can be cut: {ways} in /{BOARD_FILE}")
        })
    }

    /// Who reboots.
    pub fn by(&self) -> RebootBy {
        self.by
    }

    /// What reboots this machine.
    pub fn rebooter(&self) -> Rebooter {
        Rebooter::new(self.board.clone(), self.by)
    }

    /// Whether the boot service carries the run on, and nobody else: so that every trial has the same launcher.
    pub fn are_served(&self) -> bool {
        self.units.is_some()
    }

    /// Whether the machine is armed for `run`.
    pub fn is_armed_for(&self, run: &RunDir) -> bool {
        self.units.as_ref().is_some_and(|units| units.is_armed_for(&run.path))
    }

    /// Installs the boot service for `run` and starts it.
    ///
    /// # Errors
    /// If it cannot be installed or started.
    pub fn hand_over(&self, run: &RunDir, sysroot: &Sysroot, boot: &BootArgs) -> Result<(), Failure> {
        let Some(units) = &self.units else { return Ok(()) };
        install(units, run, sysroot, boot)?;
        let id = &run.id;
        match units.start() {
            Ok(true) => output::say(format_args!(
                "the boot service carries {id} on, over all its boots: `jetfault status {id}`, `jetfault stop {id}`"
            )),
            Ok(false) => output::say(format_args!(
                "armed: the boot service carries {id} on at the next boot, or now with `systemctl start jetfault.service`"
            )),
            Err(why) => {
                return Err(Failure::words(Exit::Unfit, format!("cannot start jetfault.service: {why}"))
                    .hint("`journalctl -u jetfault` says more; it is tried again at the next boot"));
            }
        }
        Ok(())
    }

    /// Removes the boot service if it was there for `run`.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn disarm(&self, run: &RunDir) -> Result<(), Failure> {
        match &self.units {
            Some(units) if units.is_armed_for(&run.path) => units.disarm().map(drop).map_err(failure),
            Some(_) | None => Ok(()),
        }
    }
}

fn install(units: &UnitDir, run: &RunDir, sysroot: &Sysroot, boot: &BootArgs) -> Result<(), Failure> {
    let (delay_s, unit_dir) = (boot.boot_delay, boot.unit_dir.as_deref());
    let harness = std::env::current_exe().or_fail(Exit::Unfit)?;
    let unit = Unit { harness: &harness, run: &run.id, run_dir: &run.path, sysroot, delay_s, unit_dir };
    units.arm(&unit).map_err(failure)
}

/// `jetfault arm [RUN]`.
///
/// # Errors
/// See [`Failure`].
pub fn arm(args: &ArmArgs, global: &Global) -> Outcome {
    let (_, run) = locate::run(global, args.run.as_deref())?;
    if run::is_closed(&run)? {
        return Err(Failure::words(Exit::Usage, format!("{} is over: there is nothing to carry on", run.id)));
    }
    let sysroot = Sysroot::new(global.sysroot.clone());
    let units = UnitDir::new(&sysroot, args.boot.unit_dir.as_deref());
    install(&units, &run, &sysroot, &args.boot)?;
    output::say(format_args!("armed: each boot carries {} on, until `jetfault disarm`", run.id));
    Ok(Exit::Done)
}

/// `jetfault disarm`.
///
/// # Errors
/// See [`Failure`].
pub fn disarm(args: &DisarmArgs, global: &Global) -> Outcome {
    let units = UnitDir::new(&Sysroot::new(global.sysroot.clone()), args.unit_dir.as_deref());
    let run = units.armed_for().map_err(failure)?;
    match (units.disarm().map_err(failure)?, run) {
        (true, Some(run)) => output::say(format_args!(
            "disarmed: no boot carries {0} on; `jetfault stop {0}` also puts back what it changed",
            run.display()
        )),
        (true | false, _) => output::say("this machine is not armed"),
    }
    Ok(Exit::Done)
}

/// The exit code and advice of an error about the boot service.
fn failure(error: UnitError) -> Failure {
    let by_others = format!("or say in /{BOARD_FILE} who starts jetfault at a boot: [boot] service = \"none\"");
    let hint = match &error {
        UnitError::NoDir(_) => format!("name another with --unit-dir, {by_others}"),
        UnitError::NoSystemd => by_others,
        UnitError::NotRoot(_) => "run it with sudo; trials keep the user who typed the command".to_owned(),
        UnitError::Other(_) => "finish that one, or `jetfault disarm`".to_owned(),
        UnitError::NotOurs(path) => format!("move {} away", path.display()),
        UnitError::Machine(_) => "nothing was started".to_owned(),
    };
    Failure::new(Exit::Unfit, error).hint(hint)
}
