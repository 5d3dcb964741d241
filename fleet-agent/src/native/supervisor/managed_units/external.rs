//! External units, which this manager does not run, but which loaded units need.
//!
//! An external unit that has to be probed has a placeholder in the graph, its stand-in. The
//! stand-in starts when a unit needs the external unit, and is active once a probe succeeds. It has
//! no processes and no stored state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_core::graph::systemd::CompiledUnit;
use fleet_core::graph::{
    ActionKind, Activity, EventKind, Incarnation, Name, ObservedUnit, Phase, UnitAction,
};
use fleet_unitfile::UnitName;
use futures_util::future::join_all;
use tokio::sync::mpsc;

use super::super::Supervisor;
use super::super::run_channel::{RunReceiver, run_channel};
use super::super::run_task::RunReport;
use super::super::supervised_unit::{RunHandle, SupervisedUnit};
use super::calls::name_of;
use crate::Clock;
use crate::native::run::machine::state::{RunState, ServicePhase};
use crate::native::supervisor::external::{External, stand_in};

/// All external units.
#[derive(Default)]
pub(super) struct ExternalRegistry {
    pub(super) assumed_active: BTreeSet<UnitName>,
    probed: BTreeMap<Name, (External, CompiledUnit)>,
}

impl ExternalRegistry {
    pub(super) fn new(all: BTreeMap<UnitName, External>) -> Self {
        let mut externals = Self::default();
        for (unit, external) in all {
            if external == External::Up {
                externals.assumed_active.insert(unit);
            } else {
                externals.probed.insert(name_of(&unit), (external, stand_in(&unit)));
            }
        }
        externals
    }

    /// Returns the stand-ins of the probed units, by name.
    pub(super) fn stand_ins(&self) -> impl Iterator<Item = (&Name, &CompiledUnit)> {
        self.probed.iter().map(|(name, (_, compiled))| (name, compiled))
    }

    /// Probes all units, and returns those that are up.
    pub(super) async fn find_up(&self, clock: &dyn Clock) -> Vec<Name> {
        let probes = self
            .probed
            .iter()
            .map(async |(name, (external, _))| external.is_up(clock).await.then(|| name.clone()));
        join_all(probes).await.into_iter().flatten().collect()
    }

    /// Returns the observed state of an external unit that was already up when this manager was
    /// opened. The planner takes this state over.
    pub(super) fn observed_up(
        &self,
        name: &Name,
        run: Incarnation,
        clock: &dyn Clock,
    ) -> ObservedUnit {
        let unit = self.probed.get(name).map(|(_, compiled)| Arc::clone(&compiled.unit));
        ObservedUnit {
            phase: Phase::Active(Activity::Running),
            since: clock.now(),
            active_since: Some(clock.now()),
            incarnation: Some(run),
            definition: unit,
            processes: true,
            ..ObservedUnit::default()
        }
    }
}

impl Supervisor {
    /// Starts the stand-in of an external unit, which waits for the unit to be up, and returns
    /// `true`. Returns `false` if the action is not for an external unit.
    pub(in super::super) fn await_external(
        &mut self,
        action: &UnitAction,
    ) -> std::io::Result<bool> {
        if self.managed.is_loaded(&action.unit) {
            return Ok(false);
        }
        let Some((external, _)) = self.managed.externals.probed.get(&action.unit) else {
            return Ok(false);
        };
        let (sender, receiver) = run_channel();
        let watch = ExternalWatch {
            external: external.clone(),
            clock: Arc::clone(&self.context.clock),
            unit: action.unit.clone(),
            incarnation: action.incarnation,
            receiver,
            reports: self.report_sender.clone(),
        };
        let mut entry = SupervisedUnit::new(&self.context, &action.unit)?;
        let task = tokio::spawn(watch.run()).abort_handle();
        entry.handle = Some(RunHandle { incarnation: action.incarnation, sender, task });
        self.units.insert(action.unit.clone(), entry);
        Ok(true)
    }
}

impl Supervisor {
    /// Forgets the external unit of this name, because a loaded unit has taken its place.
    pub(super) fn replace_external(&mut self, name: &Name) {
        let managed = &mut self.managed;
        if managed.externals.probed.contains_key(name) {
            managed.taken_over.insert(name.clone());
            // The stand-in must not be started as a service.
            (managed.graph_is_stale, managed.relink_by) = (true, Some(self.context.now()));
            if let Some(handle) = self.units.remove(name).and_then(|entry| entry.handle) {
                handle.task.abort();
            }
        }
    }
}

/// Task of a started stand-in. Once the external unit is up, the task reports the stand-in as
/// ready. When the task is asked to stop, it reports that the stand-in has ended.
struct ExternalWatch {
    external: External,
    clock: Arc<dyn Clock>,
    unit: Name,
    incarnation: Incarnation,
    receiver: RunReceiver,
    reports: mpsc::Sender<RunReport>,
}

impl ExternalWatch {
    async fn run(mut self) {
        let mut is_up = false;
        loop {
            tokio::select! {
                update = self.receiver.next() => {
                    let Some((_, action)) = update else { return };
                    if matches!(action, Some(ActionKind::Stop { .. } | ActionKind::Kill)) {
                        return self.report(EventKind::AllGone, ServicePhase::Dead).await;
                    }
                }
                () = self.external.wait_until_up(&*self.clock), if !is_up => {
                    is_up = true;
                    self.report(EventKind::Ready, ServicePhase::Running).await;
                }
            }
        }
    }

    async fn report(&self, happening: EventKind, phase: ServicePhase) {
        let report = RunReport {
            unit: self.unit.clone(),
            incarnation: self.incarnation,
            events: vec![happening],
            run_state: Arc::new(RunState { phase, ..RunState::default() }),
            problem: None,
        };
        // The supervisor may be gone.
        drop(self.reports.send(report).await);
    }
}
