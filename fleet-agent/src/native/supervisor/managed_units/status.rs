//! Loaded units (a file, a requested state, and the reason why a unit is not in the graph), and
//! their published status in systemd's terms.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use fleet_core::graph::systemd::{CompiledUnit, Relation, ServiceDescriptors};
use fleet_core::graph::{
    DerivedState, Incarnation, InitUnit, Name, Retry, StatusReport, WaitReason,
};
use fleet_core::unit::LoadState;
use fleet_core::{ActiveState, Epoch, Generation, KnownUnit, SystemdState, TargetState};
use fleet_unitfile::{UnitHash, UnitName};

use super::super::compile::{ignored_options, ignored_sandboxing};
use super::super::units::SupervisedUnit;
use super::waiters::hit_start_limit;
use crate::lock::lock;
use crate::native::log::Log;
use crate::native::run::adopt::stop_only_definition;
use crate::native::run::machine::state::{RunState, ServicePhase, to_systemd_state};
use crate::native::state::unit_directory::RequestedState;
use crate::usage::process_start;
use crate::{ManagedUnit, wall_time};

/// Published status of all loaded units, shared with frontends. Only the supervisor changes it.
#[derive(Debug, Clone, Default)]
pub(in crate::native) struct Statuses(Arc<Mutex<BTreeMap<UnitName, Arc<PublishedStatus>>>>);

/// Published status of a unit.
#[derive(Debug)]
pub(in crate::native) struct PublishedStatus {
    pub(in crate::native) unit: ManagedUnit,
    pub(in crate::native) requested: RequestedState,
    pub(in crate::native) log: Arc<Log>,
    /// Latest `STATUS=` message.
    pub(in crate::native) text: Option<String>,
}

impl Statuses {
    /// Returns the status of a unit; `None` if it is not loaded.
    pub(in crate::native) fn get(&self, unit: &UnitName) -> Option<Arc<PublishedStatus>> {
        lock(&self.0).get(unit).cloned()
    }

    /// Returns the status of all units, ordered by name.
    pub(in crate::native) fn all(&self) -> Vec<Arc<PublishedStatus>> {
        lock(&self.0).values().cloned().collect()
    }

    /// Publishes the status of a unit, with the time since which it has its active state. Returns
    /// whether callers can see a change.
    pub(in super::super) fn publish(&self, mut status: PublishedStatus) -> bool {
        let mut all = lock(&self.0);
        let before = all.get(&status.unit.unit).cloned();
        let state = &mut status.unit.state;
        state.since = match before.as_ref().map(|before| &before.unit.state) {
            _ if *state == SystemdState::loaded() => None,
            Some(before) if is_same_run(before.active, state.active) => before.since,
            Some(_) => Some(wall_time()),
            // An earlier daemon has started it.
            None => state.main_pid.and_then(process_start),
        };
        let status = Arc::new(status);
        all.insert(status.unit.unit.clone(), Arc::clone(&status));
        before.is_none_or(|before| before.unit != status.unit)
    }

    pub(in super::super) fn remove(&self, unit: &UnitName) {
        lock(&self.0).remove(unit);
    }
}

/// Whether a unit that changes between these states stays up, or does not change at all.
fn is_same_run(before: ActiveState, after: ActiveState) -> bool {
    let is_up = |state| matches!(state, ActiveState::Active | ActiveState::Reloading);
    before == after || is_up(before) && is_up(after)
}

/// Returns the status of a unit to publish. `waits_for` is why it waits for an external unit.
pub(super) fn status_of(
    loaded: &LoadedUnit,
    state: Option<&StatusReport>,
    entry: &SupervisedUnit,
    waits_for: Option<String>,
) -> PublishedStatus {
    let mut shown = systemd_state_of(state, entry);
    if loaded.awaited.is_some() {
        shown = without_earlier_run(shown);
    }
    PublishedStatus {
        unit: ManagedUnit {
            unit: loaded.unit.clone(),
            known: known(loaded.hash, loaded.requested),
            state: shown,
            waits_for,
        },
        requested: loaded.requested,
        log: Arc::clone(&entry.log),
        text: entry.run_state.status.clone(),
    }
}

/// Returns the state to show while the requested run has not begun: an inactive unit shows nothing
/// of its earlier run.
fn without_earlier_run(state: SystemdState) -> SystemdState {
    match (state.active, state.sub.as_str()) {
        (ActiveState::Inactive | ActiveState::Failed, _) | (_, "auto-restart") => {
            SystemdState::loaded()
        }
        _ => state,
    }
}

/// Returns the state of a unit in systemd's terms. A unit with a current run has the state of that
/// run. Otherwise the state is derived from the planner's `state`.
fn systemd_state_of(state: Option<&StatusReport>, entry: &SupervisedUnit) -> SystemdState {
    let run_state = &*entry.run_state;
    let Some(state) = state.filter(|_| entry.handle.is_none()) else {
        return to_systemd_state(run_state);
    };
    let plain = |active, sub| SystemdState {
        result: Some("success".to_owned()),
        ..SystemdState::new(LoadState::Loaded, active, sub)
    };
    let as_if = |phase| to_systemd_state(&RunState { phase, ..run_state.clone() });
    match &state.state {
        // A target, which has no processes.
        DerivedState::Active(_) => plain(ActiveState::Active, "active"),
        what if hit_start_limit(what) => to_systemd_state(&entry.start_limit_state()),
        DerivedState::Failed { retry: Retry::At(_), .. }
        | DerivedState::Completed(Retry::At(_))
            if state.needed =>
        {
            as_if(ServicePhase::AutoRestart)
        }
        DerivedState::Waiting(WaitReason::Blocked(_)) => {
            SystemdState { result: Some("dependency".to_owned()), ..as_if(ServicePhase::Dead) }
        }
        DerivedState::Waiting(_) => as_if(ServicePhase::Dead),
        // The run could not be started, but does not count as failed yet.
        DerivedState::Starting => as_if(ServicePhase::Start),
        _ => to_systemd_state(run_state),
    }
}

/// All loaded units except timers and activators, by name in the graph.
pub(super) type LoadedUnits = BTreeMap<Name, LoadedUnit>;

/// A loaded unit.
pub(in crate::native) struct LoadedUnit {
    pub(in super::super) unit: UnitName,
    pub(in super::super) hash: UnitHash,
    pub(in super::super) requested: RequestedState,
    pub(in super::super) definition: Definition,
    /// Sequence number of the unit's load.
    pub(super) load_number: u64,
    /// Reason why the unit is not in the graph.
    pub(super) refused: Option<String>,
    /// Whether the unit is being unloaded.
    pub(super) unloading: bool,
    /// Set from a requested start or restart until its result is known, unless the unit was up. An
    /// earlier run that ended is not shown meanwhile, because it does not answer the request.
    pub(super) awaited: Option<AwaitedRun>,
}

/// A requested start whose result is not known yet.
pub(super) struct AwaitedRun {
    /// The run that has to end first.
    pub(super) before: Option<Incarnation>,
}

/// Definition of a loaded unit.
pub(in super::super) enum Definition {
    /// The compiled unit file.
    Valid(Box<CompiledUnit>),
    /// The unit file can no longer be run, for the given reason. A run that was started from an
    /// earlier definition continues and can be stopped.
    Invalid(String),
}

impl LoadedUnit {
    /// Returns the options of the unit file that are not honoured, each with its line.
    pub(super) fn ignored_options(&self) -> Vec<String> {
        match &self.definition {
            Definition::Valid(compiled) => ignored_options(compiled),
            Definition::Invalid(_) => Vec::new(),
        }
    }

    /// Returns those of the [`ignored_options`](Self::ignored_options) that confine processes.
    pub(super) fn ignored_sandboxing(&self) -> Vec<String> {
        match &self.definition {
            Definition::Valid(compiled) => ignored_sandboxing(compiled),
            Definition::Invalid(_) => Vec::new(),
        }
    }

    /// Creates the entry of a unit that is being loaded.
    pub(in super::super) fn new(
        unit: UnitName,
        hash: UnitHash,
        requested: RequestedState,
        definition: Definition,
    ) -> Self {
        let (load_number, refused, unloading, awaited) = (0, None, false, None);
        Self { unit, hash, requested, definition, load_number, refused, unloading, awaited }
    }

    /// Returns whether the unit should run even if no other unit needs it, because fleet has
    /// launched it, or a timer or activator has started it.
    pub(super) fn should_run(&self) -> bool {
        self.requested.should_run() && !self.unloading
    }

    pub(super) fn is_target(&self) -> bool {
        matches!(&self.definition, Definition::Valid(compiled) if compiled.unit.is_virtual())
    }

    pub(super) fn is_invalid(&self) -> bool {
        matches!(self.definition, Definition::Invalid(_))
    }

    /// Returns the definition of the unit, based on its own unit file alone.
    pub(super) fn definition(&self) -> Arc<InitUnit> {
        match &self.definition {
            Definition::Valid(compiled) => Arc::clone(&compiled.unit),
            Definition::Invalid(_) => Arc::new(stop_only_definition(name_of(&self.unit))),
        }
    }
}

impl Definition {
    /// Returns the compiled unit file.
    pub(in super::super) fn compiled(&self) -> Option<&CompiledUnit> {
        match self {
            Self::Valid(compiled) => Some(compiled),
            Self::Invalid(_) => None,
        }
    }

    /// Returns the relations of the unit to other units.
    pub(super) fn relations(&self) -> &[Relation] {
        self.compiled().map_or(&[], |compiled| &compiled.relations)
    }

    /// Returns the settings for the descriptors that the unit gets.
    pub(super) fn descriptors(&self) -> ServiceDescriptors {
        self.compiled().map(|compiled| compiled.descriptors.clone()).unwrap_or_default()
    }
}

/// Returns what fleet knows of a loaded unit.
pub(in super::super) fn known(hash: UnitHash, requested: RequestedState) -> KnownUnit {
    let launched = requested.launched;
    KnownUnit {
        hash,
        requested: if launched { TargetState::Launched } else { TargetState::Loaded },
        epoch: Epoch(requested.epoch),
        generation: Generation(requested.generation),
    }
}

/// Returns the name of a unit in the graph.
pub(in super::super) fn name_of(unit: &UnitName) -> Name {
    Name::new(unit.as_str()).expect("each name of a unit of systemd is one of the graph")
}

#[cfg(test)]
pub(in super::super) mod tests {
    use std::path::Path;
    use std::time::Duration;

    use fleet_core::graph::Name;
    use fleet_core::graph::systemd::AcceptedOptions;
    use fleet_core::{Epoch, Generation};
    use fleet_unitfile::UnitFile;
    use rustix::process::{Pid, Signal, kill_process};
    use tokio::sync::oneshot;

    use super::super::{ManagedUnitsConfig, name_of};
    use super::*;
    use crate::clock::pause;
    use crate::native::SupervisorConfig;
    use crate::native::supervisor::Supervisor;
    use crate::native::supervisor::command::{Command, PendingResult, SupervisorHandle};
    use crate::native::supervisor::requests::UnitRequest;

    /// Runs a function in the event loop and returns its result. Reports of runs that arrive
    /// meanwhile are handled only after the function has returned.
    pub(in super::super) async fn call<T: Send + 'static>(
        handle: &SupervisorHandle,
        what: impl FnOnce(&mut Supervisor) -> T + Send + 'static,
    ) -> T {
        let inspect = |reply: oneshot::Sender<T>| {
            Command::Inspect(Box::new(move |supervisor| drop(reply.send(what(supervisor)))))
        };
        handle.commands().call(inspect).await.expect("the supervisor runs")
    }

    pub(in super::super) async fn load(handle: &SupervisorHandle, unit: &UnitName, text: &str) {
        let file = UnitFile::parse(text).expect("it is well formed");
        handle.requests().load(unit, &file, Epoch(0)).await.expect("it is loaded");
    }

    /// Requests a state, without storing it.
    pub(in super::super) fn request(
        supervisor: &mut Supervisor,
        unit: &UnitName,
        requested: RequestedState,
    ) -> PendingResult {
        let (reply, answer) = oneshot::channel();
        let request = match requested.should_run() {
            true => UnitRequest::Start(Generation(requested.generation)),
            false => UnitRequest::Stop,
        };
        supervisor.managed.carry_out(&mut supervisor.core, unit, request, requested, reply);
        answer
    }

    pub(in super::super) fn start(generation: u64) -> RequestedState {
        RequestedState { generation, launched: true, ..RequestedState::default() }
    }

    pub(in super::super::super) async fn open(home: &Path) -> SupervisorHandle {
        let managed = ManagedUnitsConfig {
            accept: AcceptedOptions::default(),
            external: BTreeMap::new(),
            max_starting: None,
        };
        let config = SupervisorConfig { control_groups: false, ..SupervisorConfig::new(home) };
        SupervisorHandle::open_loaded(config, managed).await.expect("it opens")
    }

    /// Kills the main process of a unit, and waits until the current run of the unit is over.
    fn kill_and_wait(supervisor: &Supervisor, unit: &Name) {
        let entry = supervisor.core.units.get(unit).expect("it is supervised");
        let main = entry.run_state.main.expect("it has a main process").pid;
        let main = i32::try_from(main).ok().and_then(Pid::from_raw).expect("a pid");
        kill_process(main, Signal::KILL).expect("it runs");
        let run = entry.handle.as_ref().expect("it has a run");
        let is_over = |_| {
            pause(Duration::from_millis(1));
            run.task.is_finished()
        };
        assert!((0..60_000).any(is_over), "its run does not end");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn applied_request_is_stored_if_its_run_is_already_over() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let handle = open(home.path()).await;
        let unit: UnitName = "a.service".parse().expect("it is a name");
        load(&handle, &unit, "[Service]\nExecStart=/bin/sleep 1000\n").await;
        let name = unit.clone();
        let started = call(&handle, move |it| request(it, &name, start(1))).await;
        started.await.expect("it is answered").expect("it starts");
        let name = unit.clone();
        let ended = call(&handle, move |supervisor| {
            kill_and_wait(supervisor, &name_of(&name));
            // The event loop has not received the report yet.
            request(supervisor, &name, start(2))
        });
        ended.await.await.expect("it is answered").expect_err("it has failed");
        let run = handle.context().directory(unit.as_str()).read_run().expect("it can be read");
        assert_eq!(run.map(|run| run.requested), Some(start(2)), "the next daemon would start it");
    }

    #[tokio::test]
    async fn starting_unit_does_not_show_its_last_failure() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let handle = open(home.path()).await;
        let unit: UnitName = "a.service".parse().expect("it is a name");
        load(&handle, &unit, "[Service]\nType=oneshot\nExecStart=/bin/false\n").await;
        let name = unit.clone();
        let started = call(&handle, move |it| request(it, &name, start(1))).await;
        started.await.expect("it is answered").expect_err("it fails");
        let state = |observed: &PublishedStatus| {
            let state = &observed.unit.state;
            (state.active, state.sub.clone(), state.result.clone().unwrap_or_default())
        };
        let failed = state(&handle.requests().status(&unit).expect("it is loaded"));
        assert_eq!(failed, (ActiveState::Failed, "failed".to_owned(), "exit-code".to_owned()));
        let name = unit.clone();
        let starting = call(&handle, move |supervisor| {
            let started = request(supervisor, &name, start(2));
            supervisor.turn();
            let shown = supervisor.managed.statuses.get(&name).expect("it is loaded");
            (state(&shown), started)
        });
        let (starting, started) = starting.await;
        assert_eq!(starting, (ActiveState::Activating, "start".to_owned(), "success".to_owned()));
        started.await.expect("it is answered").expect_err("it fails again");
    }

    /// The status is read within the event loop: right after the request, and after the turn that
    /// begins the run.
    #[tokio::test]
    async fn requested_start_hides_the_earlier_run() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let handle = open(home.path()).await;
        let unset = (ActiveState::Inactive, "dead".to_owned(), None);
        let starting = (ActiveState::Activating, "start".to_owned(), Some("success".to_owned()));
        for (name, service, stops, expected) in [
            ("good.service", "Type=oneshot\nExecStart=/bin/true", false, &starting),
            ("bad.service", "Type=oneshot\nExecStart=/bin/false", false, &starting),
            ("stopped.service", "ExecStart=/bin/sleep 1000", true, &unset),
        ] {
            let unit: UnitName = name.parse().expect("it is a name");
            load(&handle, &unit, &format!("[Service]\n{service}\n")).await;
            let name = unit.clone();
            let started = call(&handle, move |it| request(it, &name, start(1))).await;
            drop(started.await.expect("it is answered"));
            if stops {
                let name = unit.clone();
                let stopped = call(&handle, move |it| request(it, &name, start(1).stopped())).await;
                stopped.await.expect("it is answered").expect("it stops");
            }
            let name = unit.clone();
            let shown = call(&handle, move |supervisor| {
                let shown = |supervisor: &Supervisor| {
                    let status = supervisor.managed.statuses.get(&name).expect("it is loaded");
                    let state = &status.unit.state;
                    (state.active, state.sub.clone(), state.result.clone())
                };
                let started = request(supervisor, &name, start(2));
                let requested = shown(supervisor);
                supervisor.turn();
                ([requested, shown(supervisor)], started)
            });
            let (shown, started) = shown.await;
            assert_eq!(shown, [unset.clone(), expected.clone()], "{unit}");
            drop(started.await.expect("it is answered"));
        }
    }
}
