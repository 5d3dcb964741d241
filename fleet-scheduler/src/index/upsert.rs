//! Updates of units: moves a unit with a changed definition to another class, and updates its ties
//! to the units that it names in `MachineOf=`.

use std::sync::Arc;

use fleet_core::{Pattern, Peer, Requirements};
use fleet_unitfile::UnitName;

use super::classes::{ClassKey, Classes, EquivalenceClass, NOTHING};
use super::units::{PeerRef, UnitKind, WaitState};
use super::{ClassNo, Cluster, MachineNo, OrderNo, PatternNo, UnitNo};
use crate::policy::Ranking;

impl Cluster {
    /// Changes the kind or the requirements of a name.
    pub(super) fn upsert(
        &mut self,
        unit: UnitNo,
        kind: UnitKind,
        wants: Option<Arc<Requirements>>,
        wanted: bool,
    ) {
        let slot = &mut self.units.slots[unit];
        slot.wanted = wanted;
        if slot.kind == kind && slot.requirements == wants {
            self.units.forget_if_idle(unit);
            return;
        }
        self.touched = true;
        self.requeue_tied(unit);
        self.remove_definition(unit);
        let slot = &mut self.units.slots[unit];
        slot.kind = kind;
        slot.requirements = wants;
        self.insert_definition(unit);
        self.requeue_tied(unit);
        self.units.forget_if_idle(unit);
    }

    /// Removes a unit from everything but its name and its placement.
    fn remove_definition(&mut self, unit: UnitNo) {
        self.withdraw(unit);
        self.forget_waiting(unit);
        let name = self.units.name(unit).clone();
        if self.globals.remove(&name).is_some() {
            let machines: Vec<MachineNo> = self.machines.present().collect();
            for machine in machines {
                if self.is_on(unit, machine) {
                    self.detach(unit, machine);
                }
                self.mark_dirty(machine);
            }
        }
        self.remove_peers(unit);
        self.remove_as_member(unit);
        let class = std::mem::take(&mut self.units.slots[unit].class);
        if class != ClassNo::NONE {
            self.release(class);
        }
    }

    /// Adds a unit according to its kind.
    pub(super) fn insert_definition(&mut self, unit: UnitNo) {
        match self.units.slots[unit].kind {
            UnitKind::Single => {
                self.add_peers(unit);
                self.classify(unit);
            }
            UnitKind::Global => {
                self.classify(unit);
                self.globals.insert(self.units.name(unit).clone(), unit);
                let machines: Vec<MachineNo> = self.machines.present().collect();
                machines.into_iter().for_each(|machine| self.mark_dirty(machine));
            }
            UnitKind::Unreadable => self.classify(unit),
            UnitKind::Unknown | UnitKind::Inactive => {}
        }
        self.apply_placement(unit);
    }

    fn add_peers(&mut self, unit: UnitNo) {
        let Some(wants) = self.units.slots[unit].requirements.clone() else { return };
        for peer in &wants.machine_of {
            let peer = match peer {
                Peer::Named(name) => {
                    let other = self.units.intern(name);
                    self.units.affinity_mut(other).followers.push(unit);
                    PeerRef::Named(other)
                }
                Peer::Matching(pattern) => {
                    let pattern = self.acquire(pattern);
                    self.add_follower(pattern, unit);
                    PeerRef::Matching(pattern)
                }
            };
            self.units.affinity_mut(unit).peers.push(peer);
        }
    }

    /// Records that a unit has a pattern in its `MachineOf=`.
    ///
    /// If this is the first unit with the pattern, the matching units become tied. Those that are
    /// parked with their class are then queued again, because tied units must not be parked with a
    /// class.
    fn add_follower(&mut self, pattern: PatternNo, unit: UnitNo) {
        let slot = &self.patterns.slots[pattern];
        if slot.members.is_none() {
            let takes_part = |unit: &UnitNo| self.units.slots[*unit].class != ClassNo::NONE;
            let members = self.matching(pattern).filter(takes_part);
            let members = members.map(|unit| (self.units.name(unit).clone(), unit)).collect();
            self.patterns.slots[pattern].members = Some(members);
        }
        let slot = &mut self.patterns.slots[pattern];
        slot.unplaced_followers.insert(unit);
        let followers = &mut slot.followers;
        followers.push(unit);
        if followers.len() > 1 {
            return;
        }
        let is_parked = |unit: &UnitNo| self.units.slots[*unit].wait == WaitState::Parked;
        let parked: Vec<UnitNo> = self.members(pattern).filter(is_parked).collect();
        parked.into_iter().for_each(|unit| self.requeue(unit));
    }

    /// Adds a unit to the members of its matching patterns.
    fn add_as_member(&mut self, unit: UnitNo) {
        let slot = &self.units.slots[unit];
        for pattern in &self.classes.slots[slot.class].matched {
            if let Some(members) = &mut self.patterns.slots[*pattern].members {
                members.insert(slot.name().clone(), unit);
            }
        }
    }

    /// Undoes [`add_as_member`](Self::add_as_member).
    fn remove_as_member(&mut self, unit: UnitNo) {
        let slot = &self.units.slots[unit];
        let Some(class) = slot.class.some() else { return };
        for pattern in &self.classes.slots[class].matched {
            if let Some(members) = &mut self.patterns.slots[*pattern].members {
                members.remove(slot.name());
            }
        }
    }

    fn remove_peers(&mut self, unit: UnitNo) {
        let Some(affinity) = &mut self.units.slots[unit].affinity else { return };
        for peer in std::mem::take(&mut affinity.peers) {
            let remove = |from: &mut Vec<UnitNo>| {
                if let Some(at) = from.iter().position(|other| *other == unit) {
                    from.swap_remove(at);
                }
            };
            match peer {
                PeerRef::Named(other) => {
                    remove(&mut self.units.affinity_mut(other).followers);
                    if other != unit {
                        self.units.forget_if_idle(other);
                    }
                }
                PeerRef::Matching(pattern) => {
                    let slot = &mut self.patterns.slots[pattern];
                    remove(&mut slot.followers);
                    slot.unplaced_followers.remove(&unit);
                    self.patterns.release(pattern);
                }
            }
        }
    }

    /// Increments the user count of a pattern, adding the pattern if it is unknown, and returns its
    /// number. If the pattern is new, also moves the units that it matches to other classes.
    fn acquire(&mut self, pattern: &Pattern) -> PatternNo {
        let (number, is_new) = self.patterns.acquire(pattern);
        if is_new {
            let slot = &self.patterns.slots[number];
            let alike = self.units.with_prefix(slot.literal());
            let matched = alike.filter(|(name, _)| slot.matches(name)).map(|(_, unit)| unit);
            let matched: Vec<UnitNo> = matched.collect();
            matched.into_iter().for_each(|unit| self.reclassify(unit));
        }
        number
    }

    /// Moves a unit to another class, because a new pattern matches the unit's name.
    fn reclassify(&mut self, unit: UnitNo) {
        let old = self.units.slots[unit].class;
        if old == ClassNo::NONE {
            return;
        }
        self.requeue(unit);
        self.remove_as_member(unit);
        let machines = self.machines_of(unit);
        machines.iter().for_each(|machine| self.detach(unit, *machine));
        self.classify(unit);
        machines.iter().for_each(|machine| self.attach(unit, *machine));
        self.release(old);
    }

    /// Returns the machines that a unit is on.
    fn machines_of(&self, unit: UnitNo) -> Vec<MachineNo> {
        let slot = &self.units.slots[unit];
        if slot.kind == UnitKind::Global {
            return self.machines.present().filter(|machine| self.is_on(unit, *machine)).collect();
        }
        slot.machine.some().into_iter().collect()
    }

    /// Finds or creates the class of a unit.
    pub(super) fn classify(&mut self, unit: UnitNo) {
        let name = self.units.name(unit).clone();
        let wants = self.class_requirements(unit);
        let single = self.units.slots[unit].kind == UnitKind::Single;
        let template = self.acquire_template(&name, &wants, single);
        let owner = (single && self.policy.is_custom()).then(|| name.clone());
        let found = {
            let matched = self.covering(&name);
            self.classes.find(ClassKey { wants: &wants, owner: owner.as_ref(), matched: &matched })
        };
        let class = match found {
            Some(class) => {
                template.into_iter().for_each(|pattern| self.patterns.release(pattern));
                class
            }
            None => self.make_class(&name, wants, owner, template),
        };
        self.classes.slots[class].users += 1;
        self.units.slots[unit].class = class;
        self.add_as_member(unit);
    }

    fn covering(&self, name: &UnitName) -> Vec<PatternNo> {
        if self.patterns.is_empty() { Vec::new() } else { self.patterns.covering(name) }
    }

    /// Returns the requirements that count for the class of a unit.
    fn class_requirements(&self, unit: UnitNo) -> Arc<Requirements> {
        let slot = &self.units.slots[unit];
        match (&slot.requirements, slot.kind) {
            (Some(wants), UnitKind::Single) => wants.clone(),
            (Some(wants), UnitKind::Global) => Arc::new(Requirements {
                global: true,
                metadata: wants.metadata.clone(),
                metadata_expr: wants.metadata_expr.clone(),
                conflicts: wants.conflicts.clone(),
                ..Requirements::default()
            }),
            _ => NOTHING.clone(),
        }
    }

    /// Increments the user count of the pattern that stands for a unit's template, and returns its
    /// number. Returns `None` if the instances of the template need not be counted.
    fn acquire_template(
        &mut self,
        name: &UnitName,
        wants: &Requirements,
        single: bool,
    ) -> Option<PatternNo> {
        let limited = wants.max_per_machine.is_some() || !wants.spread.is_empty();
        let counts = limited || self.policy.ranking == Ranking::Spread;
        if !single || !counts || !name.is_instance() {
            return None;
        }
        let text = template_text(name);
        if let Some(known) = self.patterns.acquire_known(&text) {
            return Some(known);
        }
        let pattern: Pattern = text.parse().ok()?;
        Some(self.acquire(&pattern))
    }

    fn make_class(
        &mut self,
        name: &UnitName,
        requirements: Arc<Requirements>,
        owner: Option<UnitName>,
        template: Option<PatternNo>,
    ) -> ClassNo {
        let patterns = |index: &mut Self, all: &[Pattern]| -> Vec<PatternNo> {
            all.iter().map(|pattern| index.acquire(pattern)).collect()
        };
        let conflicts = patterns(self, &requirements.conflicts);
        let replaces = patterns(self, &requirements.replaces);
        let matched = self.covering(name);
        self.patterns.add_class(&matched);
        let counted = match template {
            None if matched.is_empty() || !name.is_instance() => None,
            None => self.patterns.find(&template_text(name)),
            Some(template) => Some(template),
        };
        let counted = counted.filter(|pattern| matched.binary_search(pattern).is_ok());
        let filter = self.filters.acquire(&requirements, &self.machines);
        let pin = requirements.machine_id.as_ref().map(|id| {
            let machine = self.intern_machine(id);
            self.machines.slots[machine].named += 1;
            machine
        });
        self.classes.insert(EquivalenceClass {
            requirements,
            owner,
            conflicts,
            replaces,
            matched,
            template: counted.unwrap_or_default(),
            counts_template: template.is_some(),
            filter,
            pin: pin.unwrap_or_default(),
            ..EquivalenceClass::default()
        })
    }

    /// Removes a user of a class.
    fn release(&mut self, number: ClassNo) {
        let class = &mut self.classes.slots[number];
        class.users -= 1;
        if class.users > 0 || number == Classes::PLAIN {
            return;
        }
        let class = self.classes.remove(number);
        self.refusal_cache.forget(number);
        for order in [class.order, class.private_order] {
            self.release_order(order, class.template);
        }
        self.filters.release(class.filter);
        let template = Some(class.template).filter(|_| class.counts_template);
        let used = class.conflicts.iter().chain(&class.replaces).chain(&template);
        used.for_each(|pattern| self.patterns.release(*pattern));
        self.patterns.remove_class(&class.matched);
        if let Some(pin) = class.pin.some() {
            self.machines.slots[pin].named -= 1;
            self.machines.forget_if_idle(pin);
        }
    }

    /// Removes a class from the users of a machine order. If the class has a `template`, the order
    /// also forgets the instance counts of that template.
    fn release_order(&mut self, order: OrderNo, template: PatternNo) {
        let Some(order) = order.some() else { return };
        if let Some(template) = template.some() {
            // Another class of the template would count the instances again.
            self.orders.slots[order].forget(template);
            self.patterns.slots[template].orders.retain(|other| *other != order);
        }
        self.orders.release(order);
    }

    /// Returns the class of a unit that takes part.
    pub(crate) fn class(&self, unit: UnitNo) -> &EquivalenceClass {
        &self.classes.slots[self.units.slots[unit].class]
    }
}

/// Returns a pattern that matches exactly the instances of a unit's template.
fn template_text(name: &UnitName) -> String {
    format!("{}@?*.{}", name.prefix(), name.unit_type())
}
