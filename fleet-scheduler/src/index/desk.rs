//! Desks: who is on a machine, and what of it matters to others.

use fleet_core::Requirements;
use fleet_core::{Resource, Resources};

use super::classes::Class;
use super::lookup::Lookup;
use super::slots::{PatternNo, UnitNo};

/// One machine's units. The desk does not know which machine that is; planning also tries out desks
/// that belong to none.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// The single and the unreadable units, in no order.
    pub(crate) units: Vec<UnitNo>,
    /// The global units, in no order.
    pub(crate) globals: Vec<UnitNo>,
    /// What of a pattern is there; patterns of which nothing is have no entry.
    counts: Lookup<PatternNo, Counts>,
    /// How many of the units name others by `MachineOf=`.
    pub(crate) tied: u32,
    used: Sum,
    /// Of how many patterns units are there that one replaces by it and that it matches.
    uneasy: u32,
}

/// How many units are there that have to do with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Those that it matches.
    pub(crate) matching: u32,
    /// Those that have it in `Conflicts=`.
    pub(crate) keepers: u32,
    /// Those that have it in `Replaces=`.
    pub(crate) replacers: u32,
    /// Those of these that it matches themselves.
    own: u32,
    /// Of a template, the smallest `MaxPerMachine=` of its instances there.
    pub(crate) limit: u32,
}

/// Reservations added up without end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum([u128; 3]);

/// The limit of who sets none.
pub(crate) const NO_LIMIT: u32 = u32::MAX;

impl Counts {
    const NONE: Self = Self { matching: 0, keepers: 0, replacers: 0, own: 0, limit: NO_LIMIT };

    /// Whether by this pattern somebody there may replace somebody else there. Units that it
    /// matches and that all have it themselves do not replace each other.
    fn is_uneasy(self) -> bool {
        let alike = self.own == self.matching && self.own == self.replacers;
        self.matching > 0 && self.replacers > 0 && !alike
    }
}

impl Sum {
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

impl Desk {
    /// How many units are there.
    pub(crate) fn load(&self) -> u32 {
        u32::try_from(self.units.len() + self.globals.len()).unwrap_or(u32::MAX)
    }

    /// What of a pattern is there.
    pub(crate) fn of(&self, pattern: PatternNo) -> Counts {
        if self.counts.is_empty() {
            return Counts::NONE;
        }
        self.counts.get(&pattern).copied().unwrap_or(Counts::NONE)
    }

    /// Whether no pattern has anything to do with anybody there.
    pub(crate) fn has_no_patterns(&self) -> bool {
        self.counts.is_empty()
    }

    /// Whether somebody there may replace somebody else there; if not, nobody does.
    pub(crate) fn is_uneasy(&self) -> bool {
        self.uneasy > 0
    }

    /// What all that are there reserve.
    pub(crate) fn used(&self) -> Sum {
        self.used
    }

    /// Counts a unit that comes. The caller puts it into its list.
    pub(crate) fn count_in(&mut self, class: &Class, tied: bool) {
        self.tied += u32::from(tied);
        self.used.add(&class.requirements.reserve);
        for pattern in &class.matched {
            self.change(*pattern, |counts| counts.matching += 1);
        }
        for pattern in &class.conflicts {
            self.change(*pattern, |counts| counts.keepers += 1);
        }
        for pattern in each_once(&class.replaces) {
            let own = u32::from(class.matched.binary_search(&pattern).is_ok());
            self.change(pattern, |counts| {
                counts.replacers += 1;
                counts.own += own;
            });
        }
        if let Some(template) = class.template.some() {
            let own = limit(&class.requirements);
            self.change(template, |counts| counts.limit = counts.limit.min(own));
        }
    }

    /// Counts out a unit that has left its list. `others` are the limits of the instances of its
    /// template that stay; they are only asked for if they matter.
    pub(crate) fn count_out(&mut self, class: &Class, tied: bool, others: impl FnOnce() -> u32) {
        self.tied -= u32::from(tied);
        self.used.sub(&class.requirements.reserve);
        let own = limit(&class.requirements);
        let template = class.template.some().filter(|_| own != NO_LIMIT);
        if let Some(template) = template.filter(|template| self.of(*template).limit == own) {
            let others = others();
            self.change(template, |counts| counts.limit = others);
        }
        for pattern in &class.matched {
            self.change(*pattern, |counts| counts.matching -= 1);
        }
        for pattern in &class.conflicts {
            self.change(*pattern, |counts| counts.keepers -= 1);
        }
        for pattern in each_once(&class.replaces) {
            let own = u32::from(class.matched.binary_search(&pattern).is_ok());
            self.change(pattern, |counts| {
                counts.replacers -= 1;
                counts.own -= own;
            });
        }
    }

    /// Changes what is counted of a pattern.
    fn change(&mut self, pattern: PatternNo, change: impl FnOnce(&mut Counts)) {
        let counts = self.counts.get_or_insert(pattern, Counts::NONE);
        self.uneasy -= u32::from(counts.is_uneasy());
        change(counts);
        self.uneasy += u32::from(counts.is_uneasy());
        if counts.matching == 0 && counts.keepers == 0 && counts.replacers == 0 {
            self.counts.remove(&pattern);
        }
    }
}

/// Patterns without those that are written twice.
fn each_once(patterns: &[PatternNo]) -> impl Iterator<Item = PatternNo> {
    let is_first = |(at, pattern): &(usize, &PatternNo)| !patterns[..*at].contains(pattern);
    patterns.iter().enumerate().filter(is_first).map(|(_, pattern)| *pattern)
}

/// The limit that a unit sets to the instances of its template.
pub(crate) fn limit(wants: &Requirements) -> u32 {
    wants.max_per_machine.unwrap_or(NO_LIMIT)
}
