//! One trial on the real machine: how its processes start and follow each other, and what is minded while they run.

use super::*;

impl Linux<'_> {
    pub(super) fn launch(&mut self, started: &Durable<Started>, cell: usize) -> Result<(), io::Error> {
        let trial = &started.get().trial;
        let cell = self.plan.cell_at(cell).ok_or_else(|| io::Error::other("the plan has no such cell"))?;
        let trial_dir = self.trial_dir(trial);
        make_trial_dir(&trial_dir, &self.invoker)?;
        let gpu = self.sysroot.has_gpu_nodes();
        let needs_dir = match cell.settings.needs() {
            Some(needed) => self.trial_dir(&offered(&self.run.path, needed).map_err(io::Error::other)?),
            None => PathBuf::new(),
        };
        let prepared_dir = self.prepared.dir_for(&cell.settings, &self.matrix_dir).map_err(io::Error::other)?;
        let revision = self.revision(&cell.settings.identity)?;
        let context = TrialContext {
            trial,
            seed: self.plan.seed,
            trial_dir: &trial_dir,
            matrix_dir: &self.matrix_dir,
            needs_dir: &needs_dir,
            prepared_dir: &prepared_dir,
            invoker: &self.invoker,
            gpu,
            script: self.script.as_deref(),
            revision: revision.as_ref().map(|dirs| (cell.settings.identity.as_str(), dirs)),
        };
        let program = launching::program(cell, context).map_err(io::Error::other)?;
        self.environment = launching::environment(&cell.settings, context).map_err(io::Error::other)?;
        self.check_ballast(cell.settings.ballast).map_err(io::Error::other)?;
        let companions = launching::companions(cell, context).map_err(io::Error::other)?;
        let client = launching::client(cell, context).map_err(io::Error::other)?;
        (self.trial, self.is_needed) = (Some(trial.clone()), self.plan.is_needed(&cell.id));
        let keep = if self.is_needed { Keep::Always } else { cell.settings.watch.keep };
        self.artifacts = Artifacts::of(&program, keep, &trial_dir);
        if may_use_gpu(&cell.settings, gpu) {
            self.used.leave(&self.here, &self.mark, trial).map_err(io::Error::other)?;
        }
        if let Some(program) = launching::prelude(cell, context).map_err(io::Error::other)? {
            let dir = trial_dir.join(names::PRELUDE);
            make_trial_dir(&dir, &self.invoker)?;
            let aside = Aside {
                program,
                mark: &SideMark::of_prelude(started, &self.mark),
                run: &self.mark,
                dir: &dir,
                environment: &self.environment,
                invoker: &self.invoker,
                timeout: launching::deadlines(&cell.settings, gpu).timeout,
            };
            let ran = aside.run(&mut self.supervisor, &self.signal);
            ran.map_err(|why| io::Error::other(format!("its prelude failed: {why}")))?;
        }
        self.filled = match cell.settings.prefill_cache.get() {
            0 => None,
            bytes => Some(fill_page_cache(&self.sysroot, &self.run.file(names::PREFILL), bytes)?),
        };
        let limited = |limit: Bytes| MemoryGroup::make(&self.sysroot, &format!("jetfault-{trial}"), limit.get());
        self.group = cell.settings.memory_max.map(limited).transpose().map_err(io::Error::other)?;
        // Its marker comes before a fault of the whole machine.
        let counters = self.group.as_ref().map(MemoryGroup::counters);
        self.witness.begin(trial, &trial_dir, sampling(&cell.settings), counters)?;
        self.injector.arm(trial, launching::machine_fault(cell, context));
        self.injector.notice(Moment::Start);
        self.commit_due_fault().map_err(io::Error::other)?;
        let entrance = self.group.as_ref().map(MemoryGroup::entrance);
        let bounds = Bounds { limits: cell.settings.limits.clone(), aslr: cell.settings.aslr };
        let (observer, mut deadlines) = (cell.settings.observer, launching::deadlines(&cell.settings, gpu));
        self.repetition = match (&program, cell.settings.iterations) {
            (Program::Command(command), iterations @ 2..) => Some(Repetition::new(Repeated {
                command: command.clone(),
                deadlines,
                bounds: bounds.clone(),
                observer,
                trial_dir: trial_dir.clone(),
                mark: SideMark::of_trial(started, &self.mark),
                iterations,
                gap: cell.settings.gap.to_duration(),
            })),
            (Program::Command(_) | Program::Worker(_), _) => None,
        };
        if let Some(repetition) = &self.repetition {
            deadlines = repetition.deadlines();
        }
        let launch = Launch {
            program,
            run: &self.mark,
            trial_dir: &trial_dir,
            environment: self.environment.clone(),
            deadlines,
            output_bytes_max: OUTPUT_BYTES_MAX,
            group: entrance.as_deref(),
            bounds,
            observer,
            invoker: Some(&self.invoker),
        };
        let surroundings = Surroundings { run: &self.mark, invoker: &self.invoker, environment: &self.environment };
        for plan in companions {
            let mut companion = Companion::new(plan, SideMark::of_companion(started, &self.mark), &trial_dir);
            let begun = companion.begin(&mut self.supervisor, surroundings);
            self.companions.push(companion);
            begun.inspect_err(|_| conclude(&mut self.companions, &mut self.supervisor))?;
        }
        let requests = trial_dir.join(names::REQUESTS);
        self.client = client.map(|plan| Client::new(plan, SideMark::of_request(started, &self.mark), requests));
        match self.supervisor.start(started, launch) {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                self.client = None;
                conclude(&mut self.companions, &mut self.supervisor);
                return Err(io::Error::other(error));
            }
        }
        Ok(())
    }

    /// More ballast than there is memory for would have the kernel kill whatever is largest.
    fn check_ballast(&self, ballast: Bytes) -> Result<(), String> {
        let available = self.sysroot.text("proc/meminfo").known().and_then(|text| meminfo(text, "MemAvailable"));
        match available {
            Some(available) if ballast.get() >= available => {
                Err(format!("ballast of {ballast} is more than the {} MiB that are available", available >> 20))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Starts the next repetition.
    fn repeat(&mut self) -> io::Result<()> {
        let repetition = self.repetition.as_mut().ok_or_else(|| io::Error::other("nothing is repeated"))?;
        repetition.begin()?;
        let what = &repetition.what;
        let entrance = self.group.as_ref().map(MemoryGroup::entrance);
        let launch = Launch {
            environment: self.environment.clone(),
            group: entrance.as_deref(),
            bounds: what.bounds.clone(),
            observer: what.observer,
            invoker: Some(&self.invoker),
            ..Launch::new(Program::Command(what.command.clone()), &self.mark, &what.trial_dir, repetition.deadlines())
        };
        self.child = Some(self.supervisor.start_aside(&what.mark, launch).map_err(io::Error::other)?);
        Ok(())
    }

    /// The next event of the trial's child, or of the repetition that follows it.
    pub(super) fn next_event(&mut self, wait: Duration) -> Result<ChildEvent, MachineError> {
        match self.repetition.as_mut().and_then(Repetition::pause) {
            None => {}
            Some(Pause::Rest(left)) => {
                std::thread::sleep(left.min(wait));
                return Ok(ChildEvent::Quiet);
            }
            Some(Pause::Ended(outcome)) => return Ok(ChildEvent::Ended(outcome)),
            Some(Pause::Over) => {
                if let Err(error) = self.repeat() {
                    return Ok(ChildEvent::Ended(Box::new(Outcome::of(Exit::NotStarted(error.to_string())))));
                }
            }
        }
        let child = self.child.as_mut().ok_or_else(|| MachineError::new("watch", io::ErrorKind::NotFound.into()))?;
        let event = self.supervisor.next_event(child, wait);
        Ok(match &mut self.repetition {
            Some(repetition) => repetition.of_trial(event, child.members()),
            None => event,
        })
    }

    /// Has a debugger look at a crash, once for each place at which trials crash.
    pub(super) fn look_at_crash(&mut self, outcome: &mut Outcome) {
        let (Some(crash), Some(trial)) = (outcome.crash.take(), self.trial.clone()) else { return };
        let place = telling_frame(&crash).map(ToString::to_string).unwrap_or_default();
        if self.crashes_seen.insert((crash.signal, place)) {
            let mark = SideMark::of_debugger(&self.mark, &trial);
            let said = match self.tools.find(Tool::Gdb) {
                Ok(gdb) => debugger::trace(
                    &gdb.display().to_string(),
                    (&crash, &self.trial_dir(&trial)),
                    (&self.mark, &self.invoker, &mark),
                    &mut self.supervisor,
                    &self.signal,
                ),
                Err(error) => error.to_string(),
            };
            outcome.notes.insert(debugger::NOTE.to_owned(), said);
        }
        outcome.crash = Some(crash);
    }

    /// Asks the child what is to be asked of it, if it is a server.
    pub(super) fn mind_client(&mut self, event: &mut ChildEvent) {
        let (Some(client), Some(server)) = (&mut self.client, &mut self.child) else { return };
        let surroundings = Surroundings { run: &self.mark, invoker: &self.invoker, environment: &self.environment };
        client.mind(event, (&mut self.supervisor, server), surroundings);
        if matches!(event, ChildEvent::Ended(_)) {
            self.client = None;
        }
    }

    /// Starts, watches and ends what runs beside the child as the child's `event` asks for.
    pub(super) fn mind_companions(&mut self, event: &mut ChildEvent) {
        let surroundings = Surroundings { run: &self.mark, invoker: &self.invoker, environment: &self.environment };
        let supervisor = &mut self.supervisor;
        if let ChildEvent::Ended(outcome) = event {
            self.companions.iter_mut().for_each(|companion| companion.conclude(supervisor));
            return self.companions.drain(..).for_each(|companion| companion.tell(outcome));
        }
        for companion in &mut self.companions {
            match &*event {
                // The child ended; what is watched now is what it left.
                ChildEvent::Stage { stage, .. } if stage.as_str() == SETTLE_STAGE => companion.end(supervisor),
                event if companion.is_due(event) => companion.start(supervisor, surroundings),
                ChildEvent::Running { .. } | ChildEvent::Stage { .. } | ChildEvent::Quiet | ChildEvent::Ended(_) => {}
            }
            companion.look(supervisor);
            if let (Some(_), Some(child)) = (companion.failure(), &mut self.child) {
                supervisor.end(child, EndedBy::Companion);
            }
        }
    }
}

/// Ends what runs beside a trial whose child never came.
fn conclude(companions: &mut Vec<Companion>, supervisor: &mut Supervisor) {
    companions.drain(..).for_each(|mut companion| companion.conclude(supervisor));
}

/// Cells that leave the GPU idle, or change how it saves power, must not keep it awake.
fn sampling(settings: &Settings) -> Sampling {
    match (settings.telemetry, settings.gap.ms(), settings.gpu_pm) {
        (Telemetry::Off, ..) => Sampling::Off,
        (Telemetry::On, 0, GpuPm::Kept) => Sampling::On(GpuLoad::Read),
        (Telemetry::On, _, GpuPm::Kept | GpuPm::On | GpuPm::Auto) => Sampling::On(GpuLoad::LeftAlone),
    }
}
