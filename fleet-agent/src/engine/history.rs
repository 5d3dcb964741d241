//! Histories of units: the leader records what has happened to each unit, with times and causes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use fleet_core::history::UnitHistory;
use fleet_core::{Revision, Timestamp};
use fleet_scheduler::Step;
use fleet_store::RegistryError;
use fleet_store::mirror::{FullDelta, ResultChange};
use fleet_store::registry::Leadership;
use fleet_unitfile::UnitName;
use futures_util::stream::{self, StreamExt as _};

use super::{Engine, TermEnd, warn};

/// Time in which changes of a unit are collected, so that a busy unit causes few writes.
const INTERVAL: Duration = Duration::from_secs(1);

/// Wait after a failure of the store. A history that is late harms nothing.
const RETRY: Duration = Duration::from_secs(5);

/// Number of histories that are read at a time.
const CONCURRENT: usize = 16;

/// Causes of the last decisions about units, until the histories have them.
#[derive(Debug, Default)]
pub(super) struct Causes(Mutex<BTreeMap<UnitName, String>>);

impl Causes {
    /// Stores the causes of steps that were carried out.
    pub(super) fn extend(&self, steps: &[Step]) {
        let causes = steps.iter().map(|step| (step.unit.clone(), step.cause.to_string()));
        self.lock().extend(causes);
    }

    fn take(&self, unit: &UnitName) -> Option<String> {
        self.lock().remove(unit)
    }

    /// Ignores poisoning: no panic can leave the map partially modified.
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<UnitName, String>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Engine {
    /// Records the histories of a term. Cancel-safe: the next leader compares each history with its
    /// unit. No failure of a history ends the term.
    pub(super) async fn run_history(&self, leadership: &Leadership, causes: &Causes) -> TermEnd {
        let (mirror, clock) = (&self.config.mirror, &*self.config.clock);
        if mirror.wait_for(leadership.elected()).await.is_err() {
            return TermEnd::Shutdown;
        }
        let mut progress = mirror.subscribe();
        let (mut seen, mut noticed) = (Revision::ZERO, clock.wall());
        loop {
            // Marked as seen before the changes are read, so that no change is missed.
            progress.borrow_and_update();
            let delta = mirror.full_delta_since(seen);
            if delta.inputs.is_current {
                match self.record_history(leadership, causes, &delta, seen, noticed).await {
                    Ok(()) => seen = delta.inputs.snapshot.revision,
                    Err(RegistryError::Deposed { .. }) => return TermEnd::Deposed,
                    Err(error) => {
                        warn("cannot record the history of units: trying again", &error);
                        clock.sleep(RETRY).await;
                        continue;
                    }
                }
            }
            if progress.changed().await.is_err() {
                return TermEnd::Shutdown;
            }
            // Later, a machine may already have acted on the change.
            noticed = clock.wall();
            clock.sleep(INTERVAL).await;
        }
    }

    async fn record_history(
        &self,
        leadership: &Leadership,
        causes: &Causes,
        delta: &FullDelta,
        seen: Revision,
        noticed: Timestamp,
    ) -> Result<(), RegistryError> {
        let snapshot = &*delta.inputs.snapshot;
        let changed = changed_units(delta).filter(|_| seen > Revision::ZERO);
        let histories = match changed {
            Some(units) => self.histories_of(units).await?,
            None => {
                let mut histories = leadership.histories().await?;
                let (known, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = histories
                    .into_iter()
                    .partition(|(unit, _)| snapshot.unit(unit.as_str()).is_some());
                let is_gone = |unit: &UnitName| snapshot.fault(unit.as_str()).is_none();
                let gone: Vec<_> = gone.into_keys().filter(is_gone).collect();
                leadership.delete_histories(&gone).await?;
                histories = known;
                for unit in snapshot.units() {
                    histories.entry(unit.name.clone()).or_default();
                }
                histories.into_iter().collect()
            }
        };
        let mut changed = Vec::new();
        for (name, mut history) in histories {
            let cause = causes.take(&name);
            let Some(unit) = snapshot.unit(name.as_str()) else { continue };
            if history.observe(unit, snapshot, cause.as_deref(), noticed) {
                changed.push((name, history));
            }
        }
        leadership.write_histories(&changed).await
    }

    /// Reads the histories of some units. Leaves out those that a newer version of fleet wrote.
    async fn histories_of(
        &self,
        units: BTreeSet<UnitName>,
    ) -> Result<Vec<(UnitName, UnitHistory)>, RegistryError> {
        let registry = &self.config.registry;
        let mut reads = stream::iter(units)
            .map(async |unit| (registry.history(&unit).await, unit))
            .buffered(CONCURRENT);
        let mut histories = Vec::new();
        while let Some((history, unit)) = reads.next().await {
            match history {
                Ok(history) => histories.push((unit, history)),
                Err(RegistryError::Value { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(histories)
    }
}

/// Returns the units whose history may have changed. `None` if the mirror does not know them.
fn changed_units(delta: &FullDelta) -> Option<BTreeSet<UnitName>> {
    let (inputs, results) = (delta.inputs.changes.as_ref()?, delta.results.as_ref()?);
    let snapshot = &*delta.inputs.snapshot;
    let reported = results.iter().map(|change| match change {
        ResultChange::State(unit, _)
        | ResultChange::Reason(unit)
        | ResultChange::Progress(unit) => unit,
    });
    let on_machines = inputs.machines.iter().flat_map(|machine| snapshot.placements_on(machine));
    let all = inputs.units.iter().chain(&inputs.placements).chain(reported);
    Some(all.chain(on_machines.map(|(unit, _)| unit)).cloned().collect())
}
