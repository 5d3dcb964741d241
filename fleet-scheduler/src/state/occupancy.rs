//! Occupancy: the units on a machine, and aggregates that the rules need.

use fleet_core::Requirements;
use fleet_core::{Resource, Resources};

use super::classes::EquivalenceClass;
use super::slots::Lookup;
use super::slots::{PatternNo, UnitNo};

/// The units on one machine. The type does not refer to the machine, because planning also builds
/// tentative occupancies.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    /// The single and unreadable units, unordered.
    pub(crate) units: Vec<UnitNo>,
    /// The global units, unordered.
    pub(crate) globals: Vec<UnitNo>,
    /// Counts per pattern. A pattern without any count has no entry.
    counts: Lookup<PatternNo, PatternCounts>,
    /// Number of units that name others in `MachineOf=`.
    pub(crate) tied: u32,
    used: ResourceSum,
    /// Number of patterns by which one unit here may replace another unit here.
    replacement_patterns: u32,
}

/// Number of units that involve a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PatternCounts {
    /// Units that the pattern matches.
    pub(crate) matching: u32,
    /// Units that have it in `Conflicts=`.
    pub(crate) conflicting: u32,
    /// Units that have it in `Replaces=`.
    pub(crate) replacers: u32,
    /// Units that have it in `Replaces=` and match it themselves.
    self_replacing: u32,
    /// For a template, the smallest `MaxPerMachine=` of its instances here.
    pub(crate) limit: u32,
}

/// A sum of reservations that cannot overflow.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceSum([u128; 3]);

/// The limit of a unit that sets none.
pub(crate) const NO_LIMIT: u32 = u32::MAX;

impl PatternCounts {
    const NONE: Self =
        Self { matching: 0, conflicting: 0, replacers: 0, self_replacing: 0, limit: NO_LIMIT };

    /// Returns whether this pattern may let one unit here replace another.
    ///
    /// If the units that have the pattern in `Replaces=` are exactly the units that it matches,
    /// they all name each other. None of them then replaces another.
    fn may_replace(self) -> bool {
        let alike = self.self_replacing == self.matching && self.self_replacing == self.replacers;
        self.matching > 0 && self.replacers > 0 && !alike
    }
}

impl ResourceSum {
    pub(crate) fn add(&mut self, amounts: &Resources) {
        for (sum, resource) in self.0.iter_mut().zip(Resource::ALL) {
            *sum += u128::from(amounts[resource]);
        }
    }

    pub(crate) fn sub(&mut self, amounts: &Resources) {
        for (sum, resource) in self.0.iter_mut().zip(Resource::ALL) {
            *sum -= u128::from(amounts[resource]);
        }
    }

    /// Returns the first resource with a sum that exceeds the offer, and that sum.
    pub(crate) fn first_over(&self, offered: &Resources) -> Option<(Resource, u128)> {
        let sums = Resource::ALL.into_iter().zip(self.0);
        sums.into_iter().find(|(resource, sum)| *sum > u128::from(offered[*resource]))
    }

    /// Returns the sum as amounts, each capped at the largest number.
    pub(crate) fn saturating(self) -> Resources {
        let amount = |sum| u64::try_from(sum).unwrap_or(u64::MAX);
        let [cpu, memory, disk] = self.0.map(amount);
        Resources { cpu, memory, disk }
    }
}

impl Occupancy {
    /// Returns the number of units.
    pub(crate) fn load(&self) -> u32 {
        u32::try_from(self.units.len() + self.globals.len()).unwrap_or(u32::MAX)
    }

    /// Returns the counts of a pattern.
    pub(crate) fn counts_of(&self, pattern: PatternNo) -> PatternCounts {
        if self.counts.is_empty() {
            return PatternCounts::NONE;
        }
        self.counts.get(&pattern).copied().unwrap_or(PatternCounts::NONE)
    }

    /// Returns whether no pattern involves any unit here.
    pub(crate) fn has_no_patterns(&self) -> bool {
        self.counts.is_empty()
    }

    /// Returns whether a unit here may replace another one here; `false` is certain.
    pub(crate) fn may_replace(&self) -> bool {
        self.replacement_patterns > 0
    }

    /// Returns the sum of all reservations.
    pub(crate) fn used(&self) -> ResourceSum {
        self.used
    }

    /// Adds an arriving unit to the aggregates. The caller adds the unit to `units` or `globals`.
    pub(crate) fn add(&mut self, class: &EquivalenceClass, tied: bool) {
        self.tied += u32::from(tied);
        self.used.add(&class.requirements.reserve);
        for pattern in &class.matched {
            self.change(*pattern, |counts| counts.matching += 1);
        }
        for pattern in &class.conflicts {
            self.change(*pattern, |counts| counts.conflicting += 1);
        }
        for pattern in unique(&class.replaces) {
            let own = u32::from(class.matched.binary_search(&pattern).is_ok());
            self.change(pattern, |counts| {
                counts.replacers += 1;
                counts.self_replacing += own;
            });
        }
        if let Some(template) = class.template.some() {
            let own = limit(&class.requirements);
            self.change(template, |counts| counts.limit = counts.limit.min(own));
        }
    }

    /// Removes a unit from the aggregates. The caller has already removed it from `units` or
    /// `globals`. `others` returns the smallest limit of the remaining instances of the unit's
    /// template; it is called only if needed.
    pub(crate) fn remove(
        &mut self,
        class: &EquivalenceClass,
        tied: bool,
        others: impl FnOnce() -> u32,
    ) {
        self.tied -= u32::from(tied);
        self.used.sub(&class.requirements.reserve);
        let own = limit(&class.requirements);
        let template = class.template.some().filter(|_| own != NO_LIMIT);
        if let Some(template) = template.filter(|template| self.counts_of(*template).limit == own) {
            let others = others();
            self.change(template, |counts| counts.limit = others);
        }
        for pattern in &class.matched {
            self.change(*pattern, |counts| counts.matching -= 1);
        }
        for pattern in &class.conflicts {
            self.change(*pattern, |counts| counts.conflicting -= 1);
        }
        for pattern in unique(&class.replaces) {
            let own = u32::from(class.matched.binary_search(&pattern).is_ok());
            self.change(pattern, |counts| {
                counts.replacers -= 1;
                counts.self_replacing -= own;
            });
        }
    }

    /// Changes the counts of a pattern.
    fn change(&mut self, pattern: PatternNo, change: impl FnOnce(&mut PatternCounts)) {
        let counts = self.counts.get_or_insert(pattern, PatternCounts::NONE);
        self.replacement_patterns -= u32::from(counts.may_replace());
        change(counts);
        self.replacement_patterns += u32::from(counts.may_replace());
        if counts.matching == 0 && counts.conflicting == 0 && counts.replacers == 0 {
            self.counts.remove(&pattern);
        }
    }
}

/// Returns the patterns without duplicates.
fn unique(patterns: &[PatternNo]) -> impl Iterator<Item = PatternNo> {
    let is_first = |(at, pattern): &(usize, &PatternNo)| !patterns[..*at].contains(pattern);
    patterns.iter().enumerate().filter(is_first).map(|(_, pattern)| *pattern)
}

/// Returns the limit that a unit sets on the instances of its template.
pub(crate) fn limit(wants: &Requirements) -> u32 {
    wants.max_per_machine.unwrap_or(NO_LIMIT)
}
