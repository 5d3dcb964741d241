//! Units with `MoveAfterFailures=`: the leader restarts and moves those that have failed.

use std::time::Duration;

use fleet_core::failures::{FailureAction, FailureObservation, FailureStep, advance};
use fleet_core::{Revision, Snapshot, Timestamp};
use fleet_store::RegistryError;
use fleet_store::registry::{Leadership, RecordUpdate, UnitWrite};
use fleet_unitfile::UnitName;

use super::Engine;

/// Time after which a unit in a rollout is observed again.
const HELD_INTERVAL: Duration = Duration::from_secs(60);

/// The counted failures of a unit after a pass.
#[derive(Default)]
pub(super) struct Counted {
    /// Revision of the write, if anything was written.
    pub(super) written: Option<Revision>,
    /// Whether the unit has counted failures.
    pub(super) is_active: bool,
    /// Time by the wall clock at which to decide again at the latest.
    pub(super) due: Option<Timestamp>,
}

impl Engine {
    /// Counts the failures of a unit, which may not exist, and restarts or moves the unit if that
    /// is due.
    ///
    /// A move only removes the placement. The next plan places the unit, and avoids the machines
    /// on which it has failed often.
    pub(super) async fn advance_failures(
        &self,
        leadership: &Leadership,
        name: &UnitName,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<Counted, RegistryError> {
        let seen = snapshot.failures_of(name.as_str()).map(|record| &**record);
        let unit = snapshot.unit(name.as_str());
        let observation = unit.map_or(FailureObservation::Exempt, |unit| {
            let restarted = leadership.restarted_generation(unit, snapshot);
            FailureObservation::of(unit, snapshot, restarted)
        });
        let FailureStep { record: next, action, next: due } = advance(seen, &observation, now);
        let is_held = observation == FailureObservation::Held;
        // Nothing else shows the end of a rollout.
        let due = due.or(is_held.then(|| now.after(HELD_INTERVAL)));
        let is_active = is_held || next.is_some();
        let mut counted = Counted { written: None, is_active, due };
        if next.as_ref() == seen {
            return Ok(counted);
        }
        let placement = snapshot.placement(name.as_str());
        let (writes, removed) = match action {
            None => (Vec::new(), None),
            Some(FailureAction::Restart) => (vec![UnitWrite::Restart(name.clone())], None),
            Some(FailureAction::Move) => (vec![UnitWrite::Restart(name.clone())], placement),
        };
        if let Some(unit) = unit
            && let Some(record) = &next
        {
            let kept = placement.filter(|_| removed.is_none());
            let failures = record.describe(unit, kept.map(|at| &at.machine));
            tracing::info!(unit = %name, failures, ?action, "a unit has failed");
        }
        let (next, writes) = (next.as_ref(), &writes[..]);
        let update = RecordUpdate { unit: name, seen, next, writes, snapshot };
        let mirror = &self.config.mirror;
        counted.written = Some(leadership.advance_failures(&update, removed, mirror).await?);
        Ok(counted)
    }
}
