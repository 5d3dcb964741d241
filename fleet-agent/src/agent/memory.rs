//! What an agent knows its machine to have had to run, and keeps in a note.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fleet_core::{DesiredUnit, KnownUnit, MachineId, Timestamp};
use fleet_unitfile::UnitName;
use tokio::sync::watch;

use super::assignment::{Assignment, is_fenced};
use super::notes::Notes;

/// How often the note is written at most, but for what is urgent: it tells of all units of the
/// machine, which come in swarms.
const PACE: Duration = Duration::from_secs(1);

/// The last assignment, and what of it is noted.
pub(crate) struct Memory {
    machine: MachineId,
    notes: Arc<dyn Notes>,
    noted: Assignment,
    /// What is to be noted instead.
    owed: Option<Assignment>,
    /// Before when nothing more is noted that is not urgent.
    rests_until: Timestamp,
    fenced: watch::Sender<Arc<BTreeSet<UnitName>>>,
}

impl Memory {
    pub(crate) fn new(
        machine: MachineId,
        notes: Arc<dyn Notes>,
        fenced: watch::Sender<Arc<BTreeSet<UnitName>>>,
    ) -> Self {
        let (noted, rests_until) = (Assignment::default(), Timestamp::default());
        Self { machine, notes, noted, owed: None, rests_until, fenced }
    }

    /// Takes over what an earlier daemon noted.
    pub(crate) async fn recall(&mut self) {
        self.noted = Assignment::read(&*self.notes, &self.machine).await;
        self.tell(self.noted.fenced.clone());
    }

    /// Takes in what the machine should have; of undecided units what it should have before stays.
    ///
    /// Before a unit may be started that must not run where the cluster is out of reach, that is
    /// noted. All else can be [settled](Self::settle) when nobody waits for it.
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
        // What is still there may still run, though it is not wanted any more.
        let before = self.noted.fenced.iter().filter(|unit| known.contains_key(*unit));
        let fenced = now.chain(before).cloned().collect();
        let next = Assignment { units, fenced };
        self.owed = None;
        if next.is_same(&self.noted) {
            return;
        }
        self.tell(next.fenced.clone());
        let urgent = !next.fenced.is_subset(&self.noted.fenced);
        self.owed = Some(next);
        if urgent {
            self.settle().await;
        }
    }

    /// Notes what is to be noted, if anything is.
    pub(crate) async fn settle(&mut self) {
        let Some(next) = &self.owed else { return };
        match next.write(&*self.notes, &self.machine).await {
            Ok(()) => self.noted = self.owed.take().unwrap_or_default(),
            Err(error) => tracing::warn!(%error, "cannot note what this machine should run"),
        }
    }

    /// Notes what is to be noted if it is time for that. Returns when it is time otherwise.
    pub(crate) async fn settle_in_time(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.owed.is_some() && now >= self.rests_until {
            self.settle().await;
            self.rests_until = now.after(PACE);
        }
        self.owed.is_some().then_some(self.rests_until)
    }

    /// Whether the next daemon will know that the unit must not run where the cluster is out of
    /// reach.
    pub(crate) fn is_noted(&self, unit: &UnitName) -> bool {
        self.noted.fenced.contains(unit)
    }

    /// What the machine should have had, but for what must not run without the cluster.
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
