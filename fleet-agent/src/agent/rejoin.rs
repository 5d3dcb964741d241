//! Grace period in which unplaced units keep running after their machine has rejoined.
//!
//! When a machine is lost, a unit that no other machine can take loses its placement. A machine
//! that comes back may read the cluster's state before the leader has placed the unit again. If the
//! machine stopped the unit in the meantime, it would only have to start the unit again. In
//! contrast, a unit that is placed elsewhere is stopped at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::{KnownUnit, Revision, Snapshot, TargetState, Timestamp};
use fleet_store::Mirror;
use fleet_unitfile::UnitName;

use super::desired_state::is_fenced;
use crate::mirror_changes::ClusterChanges;

/// Time that a leader gets to notice that a machine is back. A leader notices this almost at once,
/// unless it has to be elected first.
const GRACE: Duration = Duration::from_secs(15);

/// Units that the machine had when it rejoined, and that have not been placed since.
#[derive(Debug)]
pub(crate) struct RejoinGrace {
    /// Changes of the whole cluster. Changes of this machine are not enough, because the leader may
    /// place one of these units on any machine.
    changes: ClusterChanges,
    joined: Revision,
    until: Option<Timestamp>,
    units: BTreeSet<UnitName>,
}

impl RejoinGrace {
    pub(crate) fn new(mirror: &Mirror) -> Self {
        let (joined, units) = (Revision::ZERO, BTreeSet::new());
        Self { changes: ClusterChanges::of(mirror), joined, until: None, units }
    }

    /// Evaluates the cluster, which the machine joined at revision `joined`.
    pub(crate) fn update(
        &mut self,
        joined: Revision,
        snapshot: &Snapshot,
        known: &BTreeMap<UnitName, KnownUnit>,
        now: Timestamp,
    ) {
        if self.joined != joined && snapshot.revision >= joined {
            self.joined = joined;
            self.until = Some(now.after(GRACE));
            self.units = known.keys().cloned().collect();
        }
        // A unit that has been placed once is dropped for good: later changes are decisions.
        self.units.retain(|unit| is_unplaced(snapshot, unit));
        if self.until.is_none_or(|until| until <= now) || self.units.is_empty() {
            self.units.clear();
            self.until = None;
        }
    }

    /// Returns the units to leave alone.
    pub(crate) fn units(&self) -> &BTreeSet<UnitName> {
        &self.units
    }

    /// Waits until one of the protected units is placed, or is no longer wanted, or until the
    /// mirror has ended. Waits forever if no unit is protected.
    pub(crate) async fn changed(&mut self, mirror: &Mirror) {
        loop {
            if self.units.is_empty() {
                return std::future::pending().await;
            }
            if !self.changes.next().await {
                return;
            }
            let Some(snapshot) = mirror.current() else { continue };
            if !self.units.iter().all(|unit| is_unplaced(&snapshot, unit)) {
                return;
            }
        }
    }

    /// Returns the end of the grace period, at which the units have to be compared again even if
    /// nothing has changed. Returns `None` if no unit is protected.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

/// Whether a unit should run, has no placement, and may safely run here.
fn is_unplaced(snapshot: &Snapshot, unit: &UnitName) -> bool {
    let wanted = snapshot.unit(unit.as_str()).is_some_and(|unit| {
        unit.desired == TargetState::Launched && !unit.is_global() && !is_fenced(unit)
    });
    wanted && snapshot.placement(unit.as_str()).is_none()
}
