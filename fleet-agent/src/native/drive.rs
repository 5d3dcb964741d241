//! Drives the state machine of one unit: does what it says, and tells it what happens.

mod notices;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use fleet_core::Timestamp;
use fleet_core::graph::{Command, Kind, Unit};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::process::{Pid, test_kill_process_group};
use tokio::task::AbortHandle;

use super::birth::Child;
use super::cgroup::Group;
use super::conditions::judge;
use super::identity::look_up;
use super::life::{Action, Phase, ProcessId, Reach, Role};
use super::log::Log;
use super::machine::Machine;
use super::notify::{NOTIFY_SOCKET, NotifySocket, address};
use super::outcome::End;
use super::pidfile::Arrival;
use super::proc::{INVOCATION_ID, Watched, child};
use super::process::{SpawnProblem, spawn};
use super::record::{Asked, Run, UnitDirectory};
use super::resources::settings;
use super::service::Service;
use super::signals::{Sig, short_name};
use super::sweep::{Targets, sweep};
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
    leaders: BTreeSet<ProcessId>,
    /// What was asked last, and told to `service`.
    asked: Asked,
    /// How many runs there were.
    run: u64,
    written: Option<Run>,
    /// Where processes of the run say how they are, if they may.
    notify: Option<NotifySocket>,
    /// Tells when the file that names the main process may have come.
    arrival: Option<Arrival>,
    /// Comes when a line of the output says that the unit is ready.
    line: Option<BoxFuture<'static, io::Result<()>>>,
    /// The place at which the log ended when the run began.
    log_from: u64,
    /// The user that the unit runs as.
    owner: u32,
    processes: FuturesUnordered<BoxFuture<'static, (ProcessId, End)>>,
    sweep: Option<BoxFuture<'static, ()>>,
    /// Until the state machine wants to be woken.
    sleep: Sleep,
    /// What kills all processes of the run, if anybody asked for that.
    killing: Option<AbortHandle>,
    problem: Option<String>,
    active: bool,
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
            leaders: BTreeSet::new(),
            asked: Asked::default(),
            run: 0,
            written: None,
            notify: None,
            arrival: None,
            line: None,
            log_from: 0,
            owner: 0,
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
        self.bound_log(self.longest_file());
        // A log that was cut since holds nothing but what is newer.
        self.log_from = run.log_from.min(self.log.end().unwrap_or(0));
        self.leaders = run.leaders.iter().copied().collect();
        self.written = Some(run);
        for (process, watched) in running {
            self.watch(process, watched);
        }
        if !self.service.is_at_rest() {
            self.listen();
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
    ///
    /// What ends comes first, and what is said comes last: who says much keeps nobody waiting.
    pub(crate) async fn wait(&mut self) {
        let due = self.service.due();
        tokio::select! {
            biased;
            Some(ended) = self.processes.next() => self.on_ended(ended),
            () = async { self.sweep.as_mut().expect("only while sweeping").await },
                if self.sweep.is_some() =>
            {
                self.sweep = None;
                self.service.on_gone(self.machine.now());
            }
            () = self.sleep.until(due) => self.on_time(),
            arrived = async { self.arrival.as_ref().expect("only while awaited").next().await },
                if self.arrival.is_some() =>
            {
                if let Err(error) = arrived {
                    tracing::error!(%error, unit = %self.unit, "cannot wait for its pid file");
                    self.arrival = None;
                }
                self.look_for_main();
            }
            found = async { self.line.as_mut().expect("only while awaited").await },
                if self.line.is_some() =>
            {
                self.line = None;
                self.on_line(found);
            }
            heard = async { self.notify.as_ref().expect("only while listening").next().await },
                if self.notify.is_some() =>
            {
                self.on_heard(heard);
            }
        }
    }

    fn on_time(&mut self) {
        // An end in the same moment wins.
        if let Some(Some(ended)) = self.processes.next().now_or_never() {
            return self.on_ended(ended);
        }
        // What was said by then counts.
        self.hear();
        self.service.on_time(self.machine.now());
    }

    fn on_ended(&mut self, (process, end): (ProcessId, End)) {
        self.hear();
        self.forget_group(process);
        self.service.on_exited(process, end, self.machine.now());
    }

    /// Does all that the state machine wants done.
    pub(crate) fn act(&mut self) {
        while let Some(action) = self.service.next_action() {
            match action {
                Action::NewRun => self.begin_run(),
                Action::Spawn { command, role } => self.spawn(&command, role),
                Action::Signal { signal, hangs_up, reach } => {
                    self.signal(signal, hangs_up, reach);
                }
                Action::Tell { process, signal } => self.tell(process, signal),
                Action::AwaitMain => self.await_main(),
                Action::AwaitLine => self.await_line(),
            }
        }
        let memory = self.service.memory();
        if !memory.phase.is_signalling() {
            self.sweep = None;
        }
        if !memory.awaits_main {
            self.arrival = None;
        }
        if memory.phase != Phase::Start {
            self.line = None;
        }
        if let Err(error) = self.save() {
            self.warn(&error, "cannot record what runs");
        }
        self.count();
    }

    fn begin_run(&mut self) {
        self.run += 1;
        self.remove_group();
        self.invocation = new_invocation();
        self.group = self.machine.group(&self.unit, &self.invocation);
        self.leaders.clear();
        self.problem = None;
        self.owner = look_up(&self.spec.run.surroundings)
            .ok()
            .and_then(|identity| identity.uid)
            .unwrap_or(0);
        self.bound_log(self.longest_file());
        self.log_from = self.log.end().unwrap_or(0);
        self.listen();
        if let Err((why, is_failure)) = judge(&self.spec.run.conditions) {
            self.problem = Some(why);
            self.service.on_condition(is_failure, self.machine.now());
        }
    }

    /// How long the processes of the unit may have a file, if that is limited.
    fn longest_file(&self) -> Option<u64> {
        self.spec.run.surroundings.limits.get("fsize").and_then(|&(soft, _)| soft)
    }

    fn bound_log(&self, longest: Option<u64>) {
        if let Err(error) = self.log.keep_below(longest) {
            self.warn(&error, "cannot keep a log as short as its unit may have files");
        }
    }

    /// Runs a command. Its run is written down before, so that the process is found again even if
    /// this daemon ends in between.
    fn spawn(&mut self, command: &Command, role: Role) {
        if let Err(error) = self.log.look() {
            self.warn(&error, "cannot look at the log");
        }
        let started = self.save().map_err(|error| SpawnProblem {
            words: format!("cannot record that it runs: {error}"),
            end: End::NeverWas,
        });
        let extra = self.variables(role);
        let started = started.and_then(|()| {
            let (context, log) = (&self.spec.run.surroundings, self.log.path());
            let limits = settings(&self.spec.run.resources);
            let group = self.group.as_ref().map(|group| (group, &limits[..]));
            spawn(command, context, log, group, &self.machine.environment, &extra)
        });
        match started {
            Ok(started) => self.on_spawned(started),
            Err(problem) => self.on_spawn_failed(problem),
        }
    }

    fn on_spawned(&mut self, mut started: Child) {
        let now = self.machine.now();
        // A child that has ended keeps its number until it is waited for.
        let process = match started.id().map_or(Ok(None), child) {
            Ok(Some(process)) => process,
            Ok(None) => return self.service.on_spawn_failed(End::Unseen, now),
            Err(error) => return self.give_up(started, &error),
        };
        self.leaders.insert(process);
        self.processes.push(Box::pin(async move {
            let end = started.wait().await.unwrap_or(End::Unseen);
            (process, end)
        }));
        self.service.on_spawned(process, now);
    }

    /// Ends a process that cannot be told from a later one of its number: nobody could watch it.
    fn give_up(&mut self, mut started: Child, error: &io::Error) {
        if let Err(error) = started.start_kill() {
            tracing::error!(%error, unit = %self.unit, "cannot end a process that goes unwatched");
        }
        let words = format!("cannot watch it: {error}");
        self.on_spawn_failed(SpawnProblem { words, end: End::NeverWas });
    }

    fn on_spawn_failed(&mut self, problem: SpawnProblem) {
        if let Err(error) = self.log.note(&problem.words) {
            self.warn(&error, "cannot write to the log");
        }
        self.problem = Some(problem.words);
        self.service.on_spawn_failed(problem.end, self.machine.now());
    }

    /// What a command is told of the service that it belongs to.
    fn variables(&self, role: Role) -> Vec<(&'static str, String)> {
        let mut variables = vec![(INVOCATION_ID, self.invocation.clone())];
        if self.notify.is_some() {
            variables.push((NOTIFY_SOCKET, address(&self.invocation)));
        }
        if let (Role::Main, Some(span)) = (role, self.spec.run.watchdog) {
            variables.push(("WATCHDOG_USEC", span.as_micros().to_string()));
        }
        let memory = self.service.memory();
        if let (Role::Control, Some(main)) = (role, memory.main) {
            variables.push(("MAINPID", main.pid.to_string()));
        }
        if !matches!(memory.phase, Phase::Stop | Phase::StopPost) {
            return variables;
        }
        if let Some(outcome) = memory.outcome {
            variables.push(("SERVICE_RESULT", outcome.as_str().to_owned()));
        }
        let (code, status) = match memory.exit {
            Some(End::Code(code)) => ("exited", code.to_string()),
            Some(End::Signal(signal)) => ("killed", short_name(signal)),
            Some(End::Dumped(signal)) => ("dumped", short_name(signal)),
            _ => return variables,
        };
        variables.extend([("EXIT_CODE", code.to_owned()), ("EXIT_STATUS", status)]);
        variables
    }

    /// Sends a signal to one process that goes on, or that nobody waits for.
    fn tell(&self, process: ProcessId, signal: Sig) {
        let told =
            Watched::open(process).and_then(|held| held.map_or(Ok(()), |it| it.signal(signal)));
        if let Err(error) = told {
            tracing::warn!(%error, unit = %self.unit, "cannot signal a process");
        }
    }

    /// Kills all that belongs to the run, also what its `KillMode=` would leave. What becomes of it
    /// is seen as any other end.
    pub(crate) fn kill_all(&mut self) {
        if self.killing.as_ref().is_some_and(|it| !it.is_finished()) {
            return;
        }
        let killing = sweep(Arc::clone(&self.machine), self.everything(), vec![Sig::KILL]);
        self.killing = Some(tokio::spawn(killing).abort_handle());
    }

    /// All processes of the run, as far as they can be found.
    fn everything(&self) -> Targets {
        match &self.group {
            Some(group) => Targets::Group(group.clone()),
            None => {
                let (invocation, leaders) = (self.invocation.clone(), self.leaders.clone());
                Targets::Run { invocation, leaders }
            }
        }
    }

    fn signal(&mut self, signal: Sig, hangs_up: bool, reach: Reach) {
        let memory = self.service.memory();
        let targets = match reach {
            Reach::Leaders => {
                Targets::Leaders(memory.main.into_iter().chain(memory.control).collect())
            }
            Reach::All => self.everything(),
        };
        let signals = if hangs_up { vec![signal, Sig::HUP] } else { vec![signal] };
        self.sweep = Some(Box::pin(sweep(Arc::clone(&self.machine), targets, signals)));
    }

    /// Takes away what a run that is over needs no more.
    fn end_run(&mut self) {
        self.notify = None;
        if let Kind::BackgroundPidfile { path } = &self.spec.kind {
            // It names nobody now. Most services take it away themselves.
            drop(std::fs::remove_file(path));
        }
        self.remove_group();
    }

    /// Removes the control group of a run that is over. What its `KillMode=` left stays in it.
    fn remove_group(&self) {
        if let Some(Err(error)) = self.group.as_ref().map(Group::remove) {
            tracing::warn!(%error, unit = %self.unit, "cannot remove a control group");
        }
    }

    /// Once a group has no member its number may be given to strangers.
    fn forget_group(&mut self, leader: ProcessId) {
        let pid = i32::try_from(leader.pid).ok().and_then(Pid::from_raw);
        let empty = |pid| test_kill_process_group(pid) == Err(rustix::io::Errno::SRCH);
        if pid.is_none_or(empty) {
            self.leaders.remove(&leader);
        }
    }

    /// Tells that something cannot be written, as full disks have it: of all units, and once in a
    /// while.
    fn warn(&self, error: &io::Error, what: &str) {
        if let Some(untold) = self.machine.unwritten.happens(self.machine.now()) {
            tracing::warn!(%error, unit = %self.unit, untold, "{what}");
        }
    }

    fn save(&mut self) -> io::Result<()> {
        let run = Run {
            asked: self.asked,
            invocation: self.invocation.clone(),
            leaders: self.leaders.iter().copied().collect(),
            log_from: self.log_from,
            group: self.group.clone(),
            memory: self.service.memory().clone(),
        };
        if self.run == 0 && self.written.is_none() || self.written.as_ref() == Some(&run) {
            return Ok(());
        }
        self.directory.write_run(&run)?;
        self.written = Some(run);
        Ok(())
    }

    fn count(&mut self) {
        let active = !self.service.is_at_rest();
        if active != self.active {
            self.active = active;
            if !active {
                self.end_run();
            }
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

/// A random name for a run, as systemd writes it.
fn new_invocation() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes to every process");
    format!("{:032x}", u128::from_ne_bytes(bytes))
}
