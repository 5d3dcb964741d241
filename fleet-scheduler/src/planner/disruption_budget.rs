//! The disruption budget: counts the running instances of each template, and checks whether some of
//! them may stop so that they can move.

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::UnitName;

use crate::drain::HoldReason;
use crate::index::undo_log::LogPosition;
use crate::index::{Cluster, undo_log};
use crate::state::{State, UnitKind, UnitNo};

/// Number of running instances per template, counted on demand.
#[derive(Debug)]
pub(super) struct DisruptionBudget<'a> {
    min_available: u32,
    down: &'a BTreeSet<UnitName>,
    counted: BTreeMap<UnitName, u32>,
}

impl<'a> DisruptionBudget<'a> {
    pub(super) fn new(min_available: u32, down: &'a BTreeSet<UnitName>) -> Self {
        Self { min_available, down, counted: BTreeMap::new() }
    }

    /// Subtracts instances that have just been moved. They count as not running, because they have
    /// yet to start on their new machines.
    pub(super) fn spend(&mut self, lost: &BTreeMap<UnitName, u32>) {
        for (template, lost) in lost {
            if let Some(up) = self.counted.get_mut(template) {
                *up = up.saturating_sub(*lost);
            }
        }
    }
}

/// Counts, per template, the running instances among some units that are about to leave their
/// machines. The result is empty if the budget sets no minimum.
pub(super) fn disrupted(
    state: &State,
    budget: &DisruptionBudget<'_>,
    units: impl Iterator<Item = UnitNo>,
) -> BTreeMap<UnitName, u32> {
    let mut lost = BTreeMap::new();
    if budget.min_available > 0 {
        let names = units.map(|unit| state.units.name(unit));
        let up = names.filter(|name| !budget.down.contains(*name));
        for template in up.filter_map(UnitName::template) {
            *lost.entry(template).or_insert(0) += 1;
        }
    }
    lost
}

/// Returns the single units that have left the machine of their recorded placement since this log
/// position.
pub(super) fn moved_since(cluster: &Cluster, start: LogPosition) -> BTreeSet<UnitNo> {
    let entries = undo_log::since(cluster, start).iter().filter(|entry| entry.left.is_some());
    let from_home = entries.filter(|entry| cluster.state.units[entry.unit].placed == entry.machine);
    from_home.map(|entry| entry.unit).filter(|unit| cluster.state.is_single(*unit)).collect()
}

/// Returns a reason to hold units back if too few instances of a template would stay up. `lost`
/// counts, per template, the instances that have just left their machines.
pub(super) fn check_min_available(
    state: &State,
    budget: &mut DisruptionBudget<'_>,
    lost: &BTreeMap<UnitName, u32>,
) -> Option<HoldReason> {
    lost.iter().find_map(|(template, lost)| {
        let up = budget.counted.get(template).copied();
        let up = up.unwrap_or_else(|| count_up(state, budget, template).saturating_add(*lost));
        budget.counted.insert(template.clone(), up);
        let min_available = budget.min_available;
        let enough = up >= min_available.saturating_add(*lost);
        (!enough).then(|| HoldReason::MinAvailable {
            template: template.clone(),
            up,
            min_available,
        })
    })
}

/// Counts the running instances of a template that are still on the machine of their recorded
/// placement.
fn count_up(state: &State, budget: &DisruptionBudget<'_>, template: &UnitName) -> u32 {
    let prefix = format!("{}@", template.prefix());
    let alike = state.units.with_prefix(&prefix);
    let alike = alike.filter(|(name, _)| name.unit_type() == template.unit_type());
    let up = alike.filter(|(name, unit)| name.is_instance() && is_up(state, budget, *unit)).count();
    u32::try_from(up).unwrap_or(u32::MAX)
}

fn is_up(state: &State, budget: &DisruptionBudget<'_>, unit: UnitNo) -> bool {
    let slot = &state.units[unit];
    slot.kind == UnitKind::Single
        && slot.placed.some().is_some_and(|at| state.machines[at].is_present())
        && slot.machine == slot.placed
        && !budget.down.contains(slot.name())
}
