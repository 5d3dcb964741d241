//! Which units run on although they are placed nowhere, because the leader
//! may not have seen yet that their machine is back.
//!
//! A unit that no other machine takes loses its placement when its machine is lost. Once that is
//! back, it may see the cluster before it is given its units again, and must not end them for that
//! only to start them anew. A unit that is placed elsewhere is ended at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::{KnownUnit, Revision, Snapshot, TargetState, Timestamp};
use fleet_store::Mirror;
use fleet_unitfile::UnitName;

use super::assignment::is_fenced;
use crate::wake::Wake;

/// How long a leader may take to see that a machine is back: an instant, unless one has to be
/// elected first.
const PATIENCE: Duration = Duration::from_secs(15);

/// The units that a machine had when it came back, and that nobody has placed since.
#[derive(Debug)]
pub(crate) struct Returned {
    /// What is decided on these units concerns no machine, or another one.
    news: Wake,
    joined: Revision,
    until: Option<Timestamp>,
    units: BTreeSet<UnitName>,
}

impl Returned {
    pub(crate) fn new(mirror: &Mirror) -> Self {
        let (joined, units) = (Revision::ZERO, BTreeSet::new());
        Self { news: Wake::of(mirror), joined, until: None, units }
    }

    /// Looks at the cluster, which the machine joined at revision `joined`.
    pub(crate) fn look(
        &mut self,
        joined: Revision,
        snapshot: &Snapshot,
        known: &BTreeMap<UnitName, KnownUnit>,
        now: Timestamp,
    ) {
        if self.joined != joined && snapshot.revision >= joined {
            self.joined = joined;
            self.until = Some(now.after(PATIENCE));
            self.units = known.keys().cloned().collect();
        }
        // Who is placed once is never waited for again: what becomes of it then was decided.
        self.units.retain(|unit| is_unplaced(snapshot, unit));
        if self.until.is_none_or(|until| until <= now) || self.units.is_empty() {
            self.units.clear();
            self.until = None;
        }
    }

    /// The units to leave as they are.
    pub(crate) fn units(&self) -> &BTreeSet<UnitName> {
        &self.units
    }

    /// Returns when one of the units is no longer to be left; never while there is none.
    pub(crate) async fn moved(&mut self, mirror: &Mirror) {
        loop {
            if self.units.is_empty() {
                return std::future::pending().await;
            }
            if !self.news.next().await {
                return;
            }
            let Some(snapshot) = mirror.current() else { continue };
            if !self.units.iter().all(|unit| is_unplaced(&snapshot, unit)) {
                return;
            }
        }
    }

    /// When to look again without news; nothing if none is waited for.
    pub(crate) fn until(&self) -> Option<Timestamp> {
        self.until
    }
}

/// Whether a unit is to run, is placed nowhere, and does no harm where it runs.
fn is_unplaced(snapshot: &Snapshot, unit: &UnitName) -> bool {
    let wanted = snapshot.unit(unit.as_str()).is_some_and(|unit| {
        unit.desired == TargetState::Launched && !unit.is_global() && !is_fenced(unit)
    });
    wanted && snapshot.placement(unit.as_str()).is_none()
}
