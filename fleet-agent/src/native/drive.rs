//! Drives the state machine of one unit: does what it says, and tells it what happens.

#[cfg(test)]
mod heard_tests;
mod notices;
mod run;
mod signals;
mod spawning;
mod watching;

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use fleet_core::Timestamp;
use fleet_core::graph::Unit;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::{AbortHandle, coop::unconstrained};

pub(crate) use self::run::owner_of_file;
use self::watching::Ending;
use super::cgroup::Group;
use super::life::{Action, Phase, ProcessId};
use super::log::{Log, Reading};
use super::machine::Machine;
use super::notify::{NotifySocket, Said};
use super::outcome::End;
use super::patience::{begins_far, patiently, starts_far};
use super::pidfile::Arrival;
use super::proc::Watched;
use super::record::{Asked, Run, UnitDirectory};
use super::service::Service;
use crate::clock::Sleep;

/// One unit with its processes.
pub(crate) struct Driver {
    pub(crate) service: Service,
    spec: Arc<Unit>,
    machine: Arc<Machine>,
    unit: String,
    directory: UnitDirectory,
    log: Arc<Log>,
    invocation: String,
    /// The control group of the run, if there is one.
    group: Option<Group>,
    /// The leaders of process groups that the run began and that may have members.
    leaders: Vec<ProcessId>,
    /// What was asked last, and told to `service`.
    asked: Asked,
    /// Whether it has begun a run.
    has_begun: bool,
    written: Option<Run>,
    /// Where processes of the run say how they are, if they may.
    notify: Option<NotifySocket>,
    /// Tells when the file that names the main process may have come.
    arrival: Option<Arrival>,
    /// Comes when a line of the output says that the unit is ready.
    line: Option<BoxFuture<'static, io::Result<()>>>,
    /// What was written and nobody looks at yet, if that is to be looked for a line.
    unread: Option<Reading>,
    /// The place at which the log ended when the run began.
    log_from: u64,
    /// The user that the unit runs as, if a file of it names its main process and that is known.
    owner: Option<u32>,
    /// How often in a row it could not be told whom that file names.
    unread_files: u8,
    processes: FuturesUnordered<Ending>,
    sweep: Option<BoxFuture<'static, ()>>,
    /// Until the state machine wants to be woken.
    sleep: Sleep,
    /// What kills all processes of the run, if anybody asked for that.
    killing: Option<AbortHandle>,
    problem: Option<String>,
    active: bool,
}

/// What a run waits for.
enum Came {
    /// A process ended.
    End((ProcessId, End)),
    /// None is left of those that a signal was for.
    Gone,
    /// The moment has come that the state machine named.
    Time,
    /// Something has become of the file that names the main process.
    File(io::Result<()>),
    /// The output was searched for the line that says that the unit is ready.
    Line(io::Result<()>),
    /// A process said how it is.
    Said(io::Result<Said>),
}

impl Driver {
    /// A unit that never ran.
    pub(crate) fn new(
        machine: &Arc<Machine>,
        unit: &str,
        directory: &UnitDirectory,
        log: Arc<Log>,
        spec: Arc<Unit>,
    ) -> Self {
        Self {
            service: Service::new(Arc::clone(&spec)),
            spec,
            machine: Arc::clone(machine),
            unit: unit.to_owned(),
            directory: directory.clone(),
            log,
            invocation: String::new(),
            group: None,
            leaders: Vec::new(),
            asked: Asked::default(),
            has_begun: false,
            written: None,
            notify: None,
            arrival: None,
            line: None,
            unread: None,
            log_from: 0,
            owner: None,
            unread_files: 0,
            processes: FuturesUnordered::new(),
            sweep: None,
            sleep: Sleep::new(&machine.clock),
            killing: None,
            problem: None,
            active: false,
        }
    }

    /// Goes on with what another daemon left: `service` as it was, its run, and those of its
    /// processes that still run.
    pub(crate) fn adopt(&mut self, service: Service, run: Run, running: Vec<(ProcessId, Watched)>) {
        self.service = service;
        self.asked = run.asked;
        self.invocation.clone_from(&run.invocation);
        self.group.clone_from(&run.group);
        self.owner = owner_of_file(&self.spec);
        self.bound_log(self.longest_file());
        // A log that was cut since holds nothing but what is newer.
        self.log_from = run.log_from.min(self.log.end().unwrap_or(0));
        self.leaders.clone_from(&run.leaders);
        self.written = Some(run);
        for (process, watched) in running {
            self.watch(process, watched);
        }
        if !self.service.is_at_rest() {
            self.listen();
        }
        if self.service.memory().phase == Phase::Start {
            self.keep_output();
        }
    }

    /// Remembers that `service` has been told what is asked; it is written down with the effect.
    pub(crate) fn asked(&mut self, asked: Asked) {
        self.asked = asked;
    }

    /// From now on the unit is run by another unit file.
    pub(crate) fn replace(&mut self, spec: Arc<Unit>) {
        self.service.replace(Arc::clone(&spec));
        let before = self.longest_file();
        self.spec = spec;
        // What runs was started with the limit from before, what is yet to run with it gets the new
        // one.
        self.bound_log(before.into_iter().chain(self.longest_file()).min());
        self.listen_if_told();
    }

    /// The present moment.
    pub(crate) fn now(&self) -> Timestamp {
        self.machine.now()
    }

    /// What the unit writes.
    #[cfg(test)]
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    /// What last kept a process of this run from being started.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Waits for the next thing to happen, and tells the state machine. May be dropped at any time.
    pub(crate) async fn wait(&mut self) {
        match poll_fn(|cx| self.poll(cx)).await {
            Came::End(ended) => self.on_ended(ended),
            Came::Gone => {
                // What was said before the end counts.
                self.hear();
                self.sweep = None;
                self.service.on_gone(self.machine.now());
            }
            Came::Time => self.on_time(),
            Came::File(arrived) => {
                if let Err(error) = arrived {
                    tracing::error!(%error, unit = %self.unit, "cannot wait for its pid file");
                    self.arrival = None;
                }
                self.look_for_main();
            }
            Came::Line(found) => {
                self.line = None;
                self.on_line(found);
            }
            Came::Said(heard) => self.on_heard(heard),
        }
    }

    /// What has happened. What ends comes first, and what is said comes last: who says much keeps
    /// nobody waiting.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Came> {
        if let Poll::Ready(Some(ended)) = self.processes.poll_next_unpin(cx) {
            return Poll::Ready(Came::End(ended));
        }
        if self.sweep.as_mut().is_some_and(|sweep| sweep.poll_unpin(cx).is_ready()) {
            return Poll::Ready(Came::Gone);
        }
        if self.sleep.poll_until(self.service.due(), cx).is_ready() {
            return Poll::Ready(Came::Time);
        }
        if let Some(arrival) = &self.arrival
            && let Poll::Ready(arrived) = arrival.poll_next(cx)
        {
            return Poll::Ready(Came::File(arrived));
        }
        if let Some(line) = &mut self.line
            && let Poll::Ready(found) = line.poll_unpin(cx)
        {
            return Poll::Ready(Came::Line(found));
        }
        let Some(notify) = &self.notify else { return Poll::Pending };
        notify.poll_next(cx).map(Came::Said)
    }

    fn on_time(&mut self) {
        // An end in the same moment wins, also where this task has had its share of the thread.
        if let Some(Some(ended)) = unconstrained(self.processes.next()).now_or_never() {
            return self.on_ended(ended);
        }
        // What was said by then counts.
        self.hear();
        self.service.on_time(self.machine.now());
    }

    fn on_ended(&mut self, (process, end): (ProcessId, End)) {
        self.hear();
        self.forget_groups();
        if self.service.may_name_another(process, end) && !self.has_looked(process, end) {
            return;
        }
        self.service.on_exited(process, end, self.machine.now());
    }

    /// Does all that the state machine wants done.
    pub(crate) fn act(&mut self) {
        while let Some(action) = self.service.next_action() {
            match action {
                Action::NewRun => patiently(begins_far(&self.spec.run), || self.begin_run()),
                Action::Spawn { command, role } => {
                    let is_far = starts_far(&command, &self.spec.run.surroundings);
                    patiently(is_far, || self.spawn(&command, role));
                }
                Action::Signal { signal, hangs_up, reach } => {
                    self.signal(signal, hangs_up, reach);
                }
                Action::Tell { process, signal } => self.tell(process, signal),
                Action::AwaitMain => self.await_main(),
                Action::AwaitGone => self.await_gone(),
                Action::AwaitLine => self.await_line(),
            }
        }
        let memory = self.service.memory();
        if !memory.phase.is_signalling() && !self.service.awaits_others() {
            self.sweep = None;
        }
        if !memory.awaits_main {
            self.arrival = None;
        }
        if memory.phase != Phase::Start {
            (self.line, self.unread) = (None, None);
        }
        if memory.phase == Phase::Exited {
            self.listen_if_told();
        }
        if let Err(error) = self.save() {
            self.warn(&error, "cannot record what runs");
        }
        self.count();
    }

    /// Tells that something cannot be written, as full disks have it: of all units, and once in a
    /// while.
    fn warn(&self, error: &io::Error, what: &str) {
        if let Some(untold) = self.machine.unwritten.happens(self.machine.now()) {
            tracing::warn!(%error, unit = %self.unit, untold, "{what}");
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(killing) = &self.killing {
            killing.abort();
        }
    }
}
