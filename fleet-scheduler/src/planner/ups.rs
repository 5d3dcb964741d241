//! Who is up: how many instances of a template run, and whether some may be taken down to be moved.

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::UnitName;

use crate::drain::HoldReason;
use crate::index::{Index, Kind, Mark, UnitNo};

/// How many instances of each template are up, as far as anybody has asked.
#[derive(Debug)]
pub(super) struct Ups<'a> {
    min_available: u32,
    down: &'a BTreeSet<UnitName>,
    counted: BTreeMap<UnitName, u32>,
}

impl<'a> Ups<'a> {
    pub(super) fn new(min_available: u32, down: &'a BTreeSet<UnitName>) -> Self {
        Self { min_available, down, counted: BTreeMap::new() }
    }

    /// These have been moved and are not up any more.
    pub(super) fn lose(&mut self, lost: &BTreeMap<UnitName, u32>) {
        for (template, lost) in lost {
            if let Some(up) = self.counted.get_mut(template) {
                *up = up.saturating_sub(*lost);
            }
        }
    }
}

impl Index {
    /// How many instances of each template are not up any more since these units left the machines
    /// where they are placed.
    pub(super) fn loss(
        &self,
        ups: &Ups<'_>,
        units: impl Iterator<Item = UnitNo>,
    ) -> BTreeMap<UnitName, u32> {
        let mut lost = BTreeMap::new();
        if ups.min_available > 0 {
            let names = units.map(|unit| self.units.name(unit));
            let up = names.filter(|name| !ups.down.contains(*name));
            for template in up.filter_map(UnitName::template) {
                *lost.entry(template).or_insert(0) += 1;
            }
        }
        lost
    }

    /// The units that left, since a mark, the machines where they are placed.
    pub(super) fn moved_since(&self, mark: Mark) -> BTreeSet<UnitNo> {
        let events = self.since(mark).iter().filter(|event| event.left.is_some());
        let from_home = events.filter(|event| self.units.slots[event.unit].placed == event.machine);
        from_home.map(|event| event.unit).filter(|unit| self.is_single(*unit)).collect()
    }

    /// What forbids that so many instances are taken down, which they are already.
    pub(super) fn held_by_minimum(
        &self,
        ups: &mut Ups<'_>,
        lost: &BTreeMap<UnitName, u32>,
    ) -> Option<HoldReason> {
        lost.iter().find_map(|(template, lost)| {
            let up = ups.counted.get(template).copied();
            let up = up.unwrap_or_else(|| self.count_up(ups, template).saturating_add(*lost));
            ups.counted.insert(template.clone(), up);
            let min_available = ups.min_available;
            let enough = up >= min_available.saturating_add(*lost);
            (!enough).then(|| HoldReason::MinAvailable {
                template: template.clone(),
                up,
                min_available,
            })
        })
    }

    /// How many instances are up of those that have not moved in an earlier part of the plan.
    fn count_up(&self, ups: &Ups<'_>, template: &UnitName) -> u32 {
        let prefix = format!("{}@", template.prefix());
        let alike = self.units.beginning(&prefix);
        let alike = alike.filter(|(name, _)| name.unit_type() == template.unit_type());
        let up = alike.filter(|(name, unit)| name.is_instance() && self.is_up(ups, *unit)).count();
        u32::try_from(up).unwrap_or(u32::MAX)
    }

    fn is_up(&self, ups: &Ups<'_>, unit: UnitNo) -> bool {
        let slot = &self.units.slots[unit];
        slot.kind == Kind::Single
            && slot.placed.some().is_some_and(|at| self.machines.slots[at].is_present())
            && slot.seat == slot.placed
            && !ups.down.contains(slot.name())
    }
}
