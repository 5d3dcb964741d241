//! Publishes what the service manager says of this machine's units.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{
    ActiveState, LoadState, MachineId, Revision, SystemdState, TargetState, UnitState,
};
use fleet_store::Presence;
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::problems::{Problem, Problems, chain};
use crate::{Beat, Clock, Drift, ManagedUnit, ServiceError, ServiceManager, Shutdown};

/// How long to wait before a publication that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Writes each unit's state when it changes, under the machine's presence.
pub(crate) struct Publisher {
    pub(crate) machine: MachineId,
    pub(crate) manager: Arc<dyn ServiceManager>,
    pub(crate) problems: Arc<Problems>,
    pub(crate) presence: watch::Receiver<Option<Arc<Presence>>>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Told a revision that the mirror has to come to.
    pub(crate) written: watch::Sender<Revision>,
    pub(crate) beat: Beat,
}

/// What has been published, and what has to be looked at again.
#[derive(Default)]
struct Ledger {
    /// What the store says of each unit; nothing where a write failed, which may have happened.
    published: BTreeMap<UnitName, Option<UnitState>>,
    dirty: BTreeSet<UnitName>,
}

impl Publisher {
    /// Runs until told to end.
    pub(crate) async fn run(mut self, mut shutdown: Shutdown) {
        let mut states = self.manager.changes();
        let mut problems = self.problems.changes();
        let mut ledger = Ledger::default();
        self.presence.mark_changed();
        loop {
            // Whatever changes while a publication is under way goes into the next one. The order
            // is fixed, so that simulated clusters can be replayed.
            tokio::select! {
                biased;
                () = shutdown.wait() => return,
                changed = self.presence.changed() => match changed {
                    Ok(()) => self.beat.turn(self.begin_anew(&mut ledger)).await,
                    Err(_) => return,
                },
                units = problems.next() => ledger.dirty.extend(units),
                units = states.next() => ledger.dirty.extend(units),
                () = self.clock.sleep(RETRY), if self.owes(&ledger) => {}
            }
            if let Err(error) = self.beat.turn(self.publish(&mut ledger)).await {
                tracing::warn!(error = &*error, "cannot publish unit states");
            }
        }
    }

    /// A new presence begins with nothing published: states go with the presence they were
    /// published under.
    async fn begin_anew(&self, ledger: &mut Ledger) {
        ledger.published.clear();
        ledger.dirty.extend(self.problems.units());
        match self.manager.list().await {
            Ok(units) => ledger.dirty.extend(units.into_iter().map(|unit| unit.unit)),
            Err(error) => tracing::warn!(error = chain(&error), "cannot list this machine's units"),
        }
    }

    /// Whether the last publication failed and could now succeed.
    fn owes(&self, ledger: &Ledger) -> bool {
        !ledger.dirty.is_empty() && self.presence.borrow().is_some()
    }

    async fn publish(&self, ledger: &mut Ledger) -> Result<(), Box<dyn std::error::Error>> {
        let Some(presence) = self.presence.borrow().clone() else {
            return Ok(());
        };
        let (mut put, mut remove, mut unseen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for unit in &ledger.dirty {
            let state = match self.state(unit).await {
                Ok(state) => state,
                Err(error) => {
                    // What cannot be seen of one unit keeps no other from being published.
                    tracing::warn!(%unit, error = chain(&error), "cannot see a unit's state");
                    unseen.insert(unit.clone());
                    continue;
                }
            };
            match (state, ledger.published.get(unit)) {
                (Some(state), Some(Some(before))) if *before == state => {}
                (Some(state), _) => put.push(state),
                (None, Some(_)) => remove.push(unit.clone()),
                (None, None) => {}
            }
        }
        ledger.published.extend(put.iter().map(|state| (state.unit.clone(), None)));
        if !put.is_empty() || !remove.is_empty() {
            let revision = presence.publish_states(&put, &remove).await?;
            // To remove what is not there makes no revision.
            if remove.is_empty() {
                self.written.send_replace(revision);
            }
        }
        for state in put {
            ledger.published.insert(state.unit.clone(), Some(state));
        }
        ledger.published.retain(|unit, _| !remove.contains(unit));
        ledger.dirty = unseen;
        Ok(())
    }

    /// What to publish of a unit; nothing when this machine has nothing to do with it.
    async fn state(&self, unit: &UnitName) -> Result<Option<UnitState>, ServiceError> {
        let problem = self.problems.get(unit);
        Ok(match (self.manager.get(unit).await?, problem) {
            (Some(managed), problem) => {
                let drift = self.manager.drift(unit).await?;
                Some(self.managed(managed, problem, drift))
            }
            (None, Some(problem)) => Some(self.not_loaded(unit, problem)),
            (None, None) => None,
        })
    }

    fn managed(
        &self,
        managed: ManagedUnit,
        problem: Option<Problem>,
        drift: Option<Drift>,
    ) -> UnitState {
        let recovered =
            matches!(managed.state.active, ActiveState::Active | ActiveState::Reloading);
        let problem = problem.filter(|problem| !(problem.start_failed && recovered));
        let problem = problem.map(|problem| problem.text);
        UnitState {
            unit: managed.unit,
            machine: self.machine.clone(),
            hash: managed.known.hash,
            asked: managed.known.asked,
            epoch: managed.known.epoch,
            generation: managed.known.generation,
            systemd: managed.state,
            problem: problem.or_else(|| drift.map(|drift| drift.to_string())),
        }
    }

    fn not_loaded(&self, unit: &UnitName, problem: Problem) -> UnitState {
        let load = if problem.bad_setting { LoadState::BadSetting } else { LoadState::Error };
        UnitState {
            unit: unit.clone(),
            machine: self.machine.clone(),
            hash: problem.order.hash,
            asked: TargetState::Inactive,
            epoch: problem.order.epoch,
            generation: problem.order.generation,
            systemd: SystemdState::new(load, ActiveState::Inactive, "dead"),
            problem: Some(problem.text),
        }
    }
}
