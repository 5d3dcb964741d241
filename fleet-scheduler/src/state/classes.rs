//! Equivalence classes: units with equal requirements, and with names that match the same patterns.
//! Every machine treats the units of a class alike, except for the ties of these units to other
//! units.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

use fleet_core::{Expression, Requirements};
use fleet_unitfile::UnitName;
use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHasher};

use super::slots::{ClassNo, FilterNo, MachineNo, OrderNo, PatternNo, Slots, UnitNo, index_slots};

/// The requirements of a unit that has none.
pub(crate) static NOTHING: LazyLock<Arc<Requirements>> = LazyLock::new(Arc::default);

/// An equivalence class of units.
#[derive(Debug, Default)]
pub(crate) struct EquivalenceClass {
    /// The requirements that all units of the class have. Options that are not part of the class
    /// key, such as `MachineOf=`, may differ between these units.
    pub(crate) requirements: Arc<Requirements>,
    /// The only unit of the class, if custom rules or scores can distinguish any two units.
    /// Otherwise `None`: any number of units may belong to the class.
    pub(crate) owner: Option<UnitName>,
    /// The patterns of `Conflicts=`, in the order written.
    pub(crate) conflicts: Vec<PatternNo>,
    /// The patterns of `Replaces=`, in the order written.
    pub(crate) replaces: Vec<PatternNo>,
    /// Every pattern that matches the units of the class, in the order of the pattern numbers.
    pub(crate) matched: Vec<PatternNo>,
    /// The matching pattern that stands for the template, if its instances are counted.
    pub(crate) template: PatternNo,
    /// Whether the class itself is a user of that pattern.
    pub(crate) counts_template: bool,
    pub(crate) filter: FilterNo,
    /// The machine of `MachineID=`.
    pub(crate) pin: MachineNo,
    pub(crate) users: u32,
    /// The machine order by which the units of the class try machines. Other classes may share it.
    /// It is created when it is first needed.
    pub(crate) order: OrderNo,
    /// A machine order that only this class uses, if it has one. The order omits each machine that
    /// refuses the class, until that machine changes or a unit leaves it.
    pub(crate) private_order: OrderNo,
    /// Number of machines tried in vain while the class had no private order.
    pub(crate) skips: usize,
    /// Position in the change log `MachineOrders::loosened_machines` at the last search in which
    /// every machine refused the class. Only machines logged after this position may accept the
    /// class. `None` if no search has failed so far.
    pub(crate) refused: Option<u64>,
    /// Whether the refusals of the class have been counted before.
    pub(crate) was_counted: bool,
    /// Its units that every machine refuses.
    pub(crate) parked: BTreeMap<UnitName, UnitNo>,
    /// Number of the placement round in which a parked unit of the class was queued again, or 0 if
    /// that unit was then refused. Only one unit is queued at a time: if it is refused, all others
    /// would be refused too.
    pub(crate) requeued_in: u64,
    /// The value of `MachineOrders::facts_version` at the last search, if the class filter or a
    /// cordon excluded every machine then. Otherwise `None`.
    pub(crate) filtered_out: Option<u64>,
}

/// All classes.
#[derive(Debug)]
pub(crate) struct Classes {
    slots: Slots<ClassNo, EquivalenceClass>,
    table: HashTable<ClassNo>,
    /// The classes that have parked units.
    pub(crate) parked: BTreeSet<ClassNo>,
    /// The classes with parked units that a machine may accept after another unit has left it. For
    /// each of the other classes, every machine is cordoned or fails the filter.
    retryable: BTreeSet<ClassNo>,
    /// The version of the machine facts at which `retryable` was computed.
    facts: u64,
    /// Number of placement rounds so far.
    pub(crate) round: u64,
}

/// The identity of a class: requirements, owner and matching patterns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClassKey<'a> {
    pub(crate) wants: &'a Requirements,
    pub(crate) owner: Option<&'a UnitName>,
    pub(crate) matched: &'a [PatternNo],
}

index_slots!(Classes, ClassNo, EquivalenceClass);

impl Classes {
    /// The class of units without requirements and matching patterns.
    pub(crate) const PLAIN: ClassNo = ClassNo(0);

    pub(crate) fn new(filter: FilterNo) -> Self {
        let mut slots = Slots::default();
        let requirements = NOTHING.clone();
        slots.insert(EquivalenceClass {
            requirements,
            filter,
            users: 1,
            ..EquivalenceClass::default()
        });
        let (parked, retryable) = Default::default();
        Self { slots, table: HashTable::new(), parked, retryable, facts: 0, round: 0 }
    }

    /// Returns the class of a key, if there is one.
    pub(crate) fn find(&self, key: ClassKey<'_>) -> Option<ClassNo> {
        if key.owner.is_none() && key.matched.is_empty() && asks_for_nothing(key.wants) {
            return Some(Self::PLAIN);
        }
        let same = |class: &ClassNo| same_key(self.slots[*class].key(), key);
        self.table.find(hash(key), same).copied()
    }

    pub(crate) fn insert(&mut self, class: EquivalenceClass) -> ClassNo {
        let hash_of_new = hash(class.key());
        let number = self.slots.insert(class);
        let slots = &self.slots;
        self.table.insert_unique(hash_of_new, number, |number| hash(slots[*number].key()));
        number
    }

    /// Removes a class that has no users.
    pub(crate) fn remove(&mut self, number: ClassNo) -> EquivalenceClass {
        let hash = hash(self.slots[number].key());
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
        self.unpark(number);
        self.slots.remove(number)
    }

    /// Records that a class has parked units. `facts` is the value of `facts_version` when the
    /// machines refused these units.
    pub(crate) fn park(&mut self, number: ClassNo, facts: u64) {
        self.parked.insert(number);
        if self.slots[number].filtered_out == Some(facts) {
            self.retryable.remove(&number);
        } else {
            self.retryable.insert(number);
        }
    }

    /// Records that a class has no parked units.
    pub(crate) fn unpark(&mut self, number: ClassNo) {
        self.parked.remove(&number);
        self.retryable.remove(&number);
    }

    /// Returns the classes with parked units that a machine may accept after another unit has left
    /// it.
    pub(crate) fn retryable(&self) -> impl Iterator<Item = ClassNo> {
        self.retryable.iter().copied()
    }

    /// Recomputes the set of retryable classes if `facts`, the new `facts_version`, differs from
    /// the previous one.
    ///
    /// A class with parked units is left out if both conditions hold:
    ///
    /// - At the previous version, the filter or a cordon excluded every machine.
    /// - `still_refused` returns true for the class.
    pub(crate) fn refresh_retryable(
        &mut self,
        facts: u64,
        still_refused: impl Fn(&EquivalenceClass) -> bool,
    ) {
        let before = std::mem::replace(&mut self.facts, facts);
        if before == facts {
            return;
        }
        self.retryable.clear();
        for number in &self.parked {
            let class = &mut self.slots[*number];
            if class.filtered_out == Some(before) && still_refused(class) {
                class.filtered_out = Some(facts);
            } else if class.filtered_out != Some(facts) {
                self.retryable.insert(*number);
            }
        }
    }
}

impl EquivalenceClass {
    fn key(&self) -> ClassKey<'_> {
        let (owner, matched) = (self.owner.as_ref(), self.matched.as_slice());
        ClassKey { wants: &self.requirements, owner, matched }
    }

    /// Returns whether any of these patterns matches its units.
    pub(crate) fn matches_any(&self, patterns: &[PatternNo]) -> bool {
        patterns.iter().any(|pattern| self.matched.binary_search(pattern).is_ok())
    }
}

/// Returns whether these requirements are empty, except for options outside the class key, such as
/// `MachineOf=`.
fn asks_for_nothing(wants: &Requirements) -> bool {
    wants.machine_id.is_none()
        && wants.metadata.is_empty()
        && wants.metadata_expr.is_none()
        && wants.conflicts.is_empty()
        && wants.replaces.is_empty()
        && wants.max_per_machine.is_none()
        && wants.reserve.is_zero()
        && wants.prefer.is_empty()
        && wants.failed_on.is_empty()
        && wants.spread.is_empty()
}

fn same_key(one: ClassKey<'_>, other: ClassKey<'_>) -> bool {
    let (a, b) = (one.wants, other.wants);
    one.matched == other.matched
        && one.owner == other.owner
        && (std::ptr::eq(a, b)
            || a.machine_id == b.machine_id
                && a.metadata == b.metadata
                && a.metadata_expr == b.metadata_expr
                && a.conflicts == b.conflicts
                && a.replaces == b.replaces
                && a.max_per_machine == b.max_per_machine
                && a.reserve == b.reserve
                && a.prefer == b.prefer
                && a.failed_on == b.failed_on
                && a.spread == b.spread)
}

fn hash(key: ClassKey<'_>) -> u64 {
    let mut hasher: FxHasher = FxBuildHasher.build_hasher();
    let wants = key.wants;
    (key.owner, key.matched).hash(&mut hasher);
    (&wants.machine_id, &wants.metadata, wants.max_per_machine).hash(&mut hasher);
    (wants.reserve, &wants.prefer, &wants.failed_on).hash(&mut hasher);
    wants.metadata_expr.as_ref().map(Expression::as_str).hash(&mut hasher);
    for pattern in wants.conflicts.iter().chain(&wants.replaces) {
        pattern.as_str().hash(&mut hasher);
    }
    for spread in &wants.spread {
        spread.key.hash(&mut hasher);
    }
    hasher.finish()
}
