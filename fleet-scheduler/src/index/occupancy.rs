//! Desks: who is on a machine, and what of it matters to others.

use fleet_core::Requirements;
use fleet_core::{Resource, Resources};

use super::classes::EquivalenceClass;
use super::lookup::Lookup;
use super::slots::{PatternNo, UnitNo};

/// One machine's units. The occupancy does not know which machine that is; planning also tries out desks
/// that belong to none.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    /// The single and the unreadable units, in no order.
    pub(crate) units: Vec<UnitNo>,
    /// The global units, in no order.
    pub(crate) globals: Vec<UnitNo>,
    /// What of a pattern is there; patterns of which nothing is have no entry.
    counts: Lookup<PatternNo, PatternCounts>,
    /// How many of the units name others by `MachineOf=`.
    pub(crate) tied: u32,
    used: ResourceSum,
    /// Of how many patterns units are there that one replaces by it and that it matches.
    replacement_patterns: u32,
}

/// How many units are there that have to do with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PatternCounts {
    /// Those that it matches.
    pub(crate) matching: u32,
    /// Those that have it in `Conflicts=`.
    pub(crate) conflicting: u32,
    /// Those that have it in `Replaces=`.
    pub(crate) replacers: u32,
    /// Those of these that it matches themselves.
    self_replacing: u32,
    /// Of a template, the smallest `MaxPerMachine=` of its instances there.
    pub(crate) limit: u32,
}

/// Reservations added up without end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceSum([u128; 3]);

/// The limit of who sets none.
pub(crate) const NO_LIMIT: u32 = u32::MAX;

impl PatternCounts {
    const NONE: Self =
        Self { matching: 0, conflicting: 0, replacers: 0, self_replacing: 0, limit: NO_LIMIT };

    /// Whether by this pattern somebody there may replace somebody else there. Units that it
    /// matches and that all have it themselves do not replace each other.
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

    /// The first resource of which it is more than that, with the sum.
    pub(crate) fn first_over(&self, offered: &Resources) -> Option<(Resource, u128)> {
        let sums = Resource::ALL.into_iter().zip(self.0);
        sums.into_iter().find(|(resource, sum)| *sum > u128::from(offered[*resource]))
    }

    /// The same as amounts, each at most as large as a number can be.
    pub(crate) fn saturating(self) -> Resources {
        let amount = |sum| u64::try_from(sum).unwrap_or(u64::MAX);
        let [cpu, memory, disk] = self.0.map(amount);
        Resources { cpu, memory, disk }
    }
}

impl Occupancy {
    /// How many units are there.
    pub(crate) fn load(&self) -> u32 {
        u32::try_from(self.units.len() + self.globals.len()).unwrap_or(u32::MAX)
    }

    /// What of a pattern is there.
    pub(crate) fn counts_of(&self, pattern: PatternNo) -> PatternCounts {
        if self.counts.is_empty() {
            return PatternCounts::NONE;
        }
        self.counts.get(&pattern).copied().unwrap_or(PatternCounts::NONE)
    }

    /// Whether no pattern has anything to do with anybody there.
    pub(crate) fn has_no_patterns(&self) -> bool {
        self.counts.is_empty()
    }

    /// Whether somebody there may replace somebody else there; if not, nobody does.
    pub(crate) fn may_replace(&self) -> bool {
        self.replacement_patterns > 0
    }

    /// What all that are there reserve.
    pub(crate) fn used(&self) -> ResourceSum {
        self.used
    }

    /// PatternCounts a unit that comes. The caller puts it into its list.
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

    /// PatternCounts out a unit that has left its list. `others` are the limits of the instances of its
    /// template that stay; they are only asked for if they matter.
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

    /// Changes what is counted of a pattern.
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

/// Patterns without those that are written twice.
fn unique(patterns: &[PatternNo]) -> impl Iterator<Item = PatternNo> {
    let is_first = |(at, pattern): &(usize, &PatternNo)| !patterns[..*at].contains(pattern);
    patterns.iter().enumerate().filter(is_first).map(|(_, pattern)| *pattern)
}

/// The limit that a unit sets to the instances of its template.
pub(crate) fn limit(wants: &Requirements) -> u32 {
    wants.max_per_machine.unwrap_or(NO_LIMIT)
}
