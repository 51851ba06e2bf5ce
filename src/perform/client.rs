//! What is asked of a command that serves: it is awaited, asked one thing after the other, and asked to end.
//!
//! Owns when a request starts and what its end means for the trial. Each request is a stage of the trial, so that a fault
//! of the server stands where it happened and a count of requests tells how far it came.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::decide::classify::classify;
use crate::model::outcome::{EndedBy, Outcome};
use crate::model::verdict::{StageName, Verdict};
use crate::perform::companion::Surroundings;
use crate::perform::linux::make_trial_dir;
use crate::perform::supervise::{
    Child, ChildEvent, Deadlines, Launch, Program, READY_STAGE, SETTLE_STAGE, SideMark, Supervisor,
};

/// The stage in which a server was asked to end.
const SHUTDOWN_STAGE: &str = "shutdown";

/// The metric that counts requests that succeeded.
const METRIC: &str = "requests";

/// How often a port is tried, and a request looked at, at least.
pub(super) const PERIOD: Duration = Duration::from_millis(20);

/// How long one try of a port of this machine may take.
const CONNECT_WAIT: Duration = Duration::from_millis(100);

/// What to ask, and with which patience.
#[derive(Debug)]
pub struct ClientPlan {
    /// The port that is tried until it answers; absent if the server's output tells.
    pub port: Option<u16>,
    /// What to run, in order.
    pub requests: Vec<Program>,
    /// How long the server may take until it is ready.
    pub ready_timeout: Option<Duration>,
    /// How long a request may take.
    pub request_timeout: Option<Duration>,
}

/// The client of one trial's server.
#[derive(Debug)]
pub(super) struct Client {
    port: Option<u16>,
    requests: std::vec::IntoIter<Program>,
    planned: usize,
    done: usize,
    ready_by: Option<Instant>,
    request_timeout: Option<Duration>,
    mark: SideMark,
    /// The directory in which each request has one of its own.
    dir: PathBuf,
    state: State,
    failure: Option<String>,
}

#[derive(Debug)]
enum State {
    /// The server is not ready.
    Waiting,
    /// A request is made.
    Asking { child: Box<Child>, until: Option<Instant> },
    /// There is nothing to ask any more.
    Over,
}

impl Client {
    /// The client for the server of the trial with `mark`; the requests' output goes into directories under `dir`.
    pub(super) fn new(plan: ClientPlan, mark: SideMark, dir: PathBuf) -> Self {
        let ClientPlan { port, requests, ready_timeout, request_timeout } = plan;
        Self {
            port,
            planned: requests.len(),
            requests: requests.into_iter(),
            done: 0,
            ready_by: ready_timeout.map(|timeout| Instant::now() + timeout),
            request_timeout,
            mark,
            dir,
            state: State::Waiting,
            failure: None,
        }
    }

    /// Goes on as far as the server's `event` and the request that is made allow.
    pub(super) fn mind(
        &mut self,
        event: &mut ChildEvent,
        (supervisor, server): (&mut Supervisor, &mut Child),
        surroundings: Surroundings<'_>,
    ) {
        match event {
            ChildEvent::Ended(outcome) => return self.conclude(supervisor, outcome),
            // Whatever the server leaves is watched now; nobody is there to answer.
            ChildEvent::Stage { stage, .. } if stage.as_str() == SETTLE_STAGE => return self.abandon(supervisor),
            ChildEvent::Stage { .. } | ChildEvent::Running { .. } | ChildEvent::Quiet => {}
        }
        let now = Instant::now();
        match &mut self.state {
            State::Over => {}
            State::Waiting => {
                let by_port = self.port.filter(|_| accepts(self.port));
                let is_ready = by_port.is_some()
                    || matches!(event, ChildEvent::Stage { stage, .. } if stage.as_str() == READY_STAGE);
                if is_ready {
                    if by_port.is_some() {
                        supervisor.reach(server, stage(READY_STAGE.to_owned()));
                    }
                    self.ask(supervisor, server, surroundings);
                } else if self.ready_by.is_some_and(|by| now >= by) {
                    self.give_up(supervisor, server);
                }
            }
            State::Asking { child, until } => {
                // The end of a request wakes whoever waits for the server, so it is looked at and not waited for.
                while let Some(event) = supervisor.glance(child) {
                    if let ChildEvent::Ended(outcome) = event {
                        return self.answered(&outcome, (supervisor, server), surroundings);
                    }
                }
                if until.is_some_and(|until| now >= until) {
                    self.give_up(supervisor, server);
                }
            }
        }
    }

    /// Makes the next request, or asks the server to end after the last.
    fn ask(&mut self, supervisor: &mut Supervisor, server: &mut Child, surroundings: Surroundings<'_>) {
        let Some(program) = self.requests.next() else { return self.finish(supervisor, server) };
        let number = self.done + 1;
        supervisor.reach(server, stage(format!("request.{number}")));
        let until = self.request_timeout.map(|timeout| Instant::now() + timeout);
        match self.start(program, number, supervisor, surroundings) {
            Ok(child) => self.state = State::Asking { child: Box::new(child), until },
            Err(error) => {
                self.failure = Some(format!("request {number} could not be made: {error}"));
                self.finish(supervisor, server);
            }
        }
    }

    fn start(
        &self,
        program: Program,
        number: usize,
        supervisor: &mut Supervisor,
        surroundings: Surroundings<'_>,
    ) -> io::Result<Child> {
        /// The server's own deadlines end a request that nothing else does.
        const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
        make_trial_dir(&self.dir, surroundings.invoker)?;
        let dir = self.dir.join(format!("{number:03}"));
        make_trial_dir(&dir, surroundings.invoker)?;
        let deadlines = Deadlines { settle: Duration::ZERO, ..Deadlines::new(FOR_EVER) };
        let launch = Launch {
            environment: surroundings.environment.to_vec(),
            invoker: Some(surroundings.invoker),
            ..Launch::new(program, surroundings.run, &dir, deadlines)
        };
        supervisor.start_aside(&self.mark, launch).map_err(io::Error::other)
    }

    fn answered(
        &mut self,
        outcome: &Outcome,
        (supervisor, server): (&mut Supervisor, &mut Child),
        surroundings: Surroundings<'_>,
    ) {
        let (judgement, _) = classify(outcome);
        if judgement.verdict == Verdict::Pass {
            self.done += 1;
            self.state = State::Waiting;
            return self.ask(supervisor, server, surroundings);
        }
        let why = judgement.detail.unwrap_or_else(|| judgement.verdict.as_str().to_owned());
        self.failure = Some(format!("request {} of {} failed: {why}", self.done + 1, self.planned));
        self.finish(supervisor, server);
    }

    /// Nothing more is asked: the server is to end.
    fn finish(&mut self, supervisor: &mut Supervisor, server: &mut Child) {
        self.state = State::Over;
        if self.failure.is_none() {
            supervisor.reach(server, stage(SHUTDOWN_STAGE.to_owned()));
        }
        supervisor.end(server, EndedBy::Served);
    }

    /// It took too long, which is a hang of the server in the stage that lasts.
    fn give_up(&mut self, supervisor: &mut Supervisor, server: &mut Child) {
        supervisor.end(server, EndedBy::StageTimeout);
        self.abandon(supervisor);
    }

    /// Ends the request that is made.
    fn abandon(&mut self, supervisor: &mut Supervisor) {
        let State::Asking { mut child, .. } = std::mem::replace(&mut self.state, State::Over) else { return };
        supervisor.end(&mut child, EndedBy::Stop);
        while !matches!(supervisor.next_event(&mut child, Duration::from_secs(1)), ChildEvent::Ended(_)) {}
    }

    /// Writes into the trial's outcome how far it came.
    fn conclude(&mut self, supervisor: &mut Supervisor, outcome: &mut Outcome) {
        self.abandon(supervisor);
        #[expect(clippy::cast_precision_loss, reason = "a few hundred at most")]
        outcome.metrics.insert(METRIC.to_owned(), self.done as f64);
        let early = || format!("the server ended after {} of {} requests", self.done, self.planned);
        let failure = self.failure.take().or_else(|| (self.done < self.planned).then(early));
        outcome.unmet.extend(failure);
    }
}

fn stage(name: String) -> StageName {
    name.parse().expect("a short name")
}

fn accepts(port: Option<u16>) -> bool {
    let to = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    port.is_some_and(|port| TcpStream::connect_timeout(&to(port), CONNECT_WAIT).is_ok())
}
