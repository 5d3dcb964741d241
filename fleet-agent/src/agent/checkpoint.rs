//! The last desired state of an agent's machine, kept in memory and on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{DesiredUnit, KnownUnit, MachineId, Timestamp};
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::desired_state::{DesiredState, is_fenced};
use super::state::AgentState;

/// Least interval between two writes, except for urgent ones. The checkpoint has all units of the
/// machine, and these change in bursts.
const PACE: Duration = Duration::from_secs(1);

/// The last desired state, with its persisted copy.
pub(crate) struct Checkpoint {
    machine: MachineId,
    state: Arc<dyn AgentState>,
    noted: DesiredState,
    /// State to persist next.
    owed: Option<DesiredState>,
    /// Time before which nothing is persisted unless it is urgent.
    rests_until: Timestamp,
    fenced: watch::Sender<Arc<BTreeSet<UnitName>>>,
}

impl Checkpoint {
    pub(crate) fn new(
        machine: MachineId,
        state: Arc<dyn AgentState>,
        fenced: watch::Sender<Arc<BTreeSet<UnitName>>>,
    ) -> Self {
        let (noted, rests_until) = (DesiredState::default(), Timestamp::default());
        Self { machine, state, noted, owed: None, rests_until, fenced }
    }

    /// Reads the state that an earlier daemon persisted.
    pub(crate) async fn recall(&mut self) {
        self.noted = DesiredState::read(&*self.state, &self.machine).await;
        self.tell(self.noted.fenced.clone());
    }

    /// Records the desired units of the machine; undecided units keep their previous state.
    ///
    /// A new fenced unit is persisted at once, before it may be started. Everything else can be
    /// [persisted](Self::settle) when it delays nothing.
    pub(crate) async fn remember(
        &mut self,
        desired: &BTreeMap<UnitName, DesiredUnit>,
        undecided: &BTreeSet<UnitName>,
        known: &BTreeMap<UnitName, KnownUnit>,
    ) {
        let mut units = desired.clone();
        for unit in undecided {
            if let Some(before) = self.noted.units.get(unit) {
                units.entry(unit.clone()).or_insert_with(|| before.clone());
            }
        }
        let now = units.iter().filter(|(_, wanted)| is_fenced(&wanted.unit));
        let now = now.map(|(unit, _)| unit);
        // A unit that is still there may still run, though it is no longer wanted.
        let before = self.noted.fenced.iter().filter(|unit| known.contains_key(*unit));
        let fenced = now.chain(before).cloned().collect();
        let next = DesiredState { units, fenced };
        self.owed = None;
        if next.is_equivalent(&self.noted) {
            return;
        }
        self.tell(next.fenced.clone());
        let urgent = !next.fenced.is_subset(&self.noted.fenced);
        self.owed = Some(next);
        if urgent {
            self.settle().await;
        }
    }

    /// Persists the pending state, if any.
    pub(crate) async fn settle(&mut self) {
        let Some(next) = &self.owed else { return };
        match next.write(&*self.state, &self.machine).await {
            Ok(()) => self.noted = self.owed.take().unwrap_or_default(),
            Err(error) => tracing::warn!(%error, "cannot store the desired state of this machine"),
        }
    }

    /// Persists the pending state if the interval has passed. Returns when that will be otherwise.
    pub(crate) async fn settle_in_time(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.owed.is_some() && now >= self.rests_until {
            self.settle().await;
            self.rests_until = now.after(PACE);
        }
        self.owed.is_some().then_some(self.rests_until)
    }

    /// Whether the persisted state says that the unit is fenced.
    pub(crate) fn is_noted(&self, unit: &UnitName) -> bool {
        self.noted.fenced.contains(unit)
    }

    /// Returns the last desired units that are not fenced.
    pub(crate) fn wanted_anyway(&self) -> BTreeMap<UnitName, DesiredUnit> {
        let units = self.noted.units.iter().filter(|(_, wanted)| !is_fenced(&wanted.unit));
        units.map(|(unit, wanted)| (unit.clone(), wanted.clone())).collect()
    }

    fn tell(&self, fenced: BTreeSet<UnitName>) {
        self.fenced.send_if_modified(|told| {
            let changed = **told != fenced;
            if changed {
                *told = Arc::new(fenced);
            }
            changed
        });
    }
}
