//! Pure: decides which obstacles of the units of a command are reported. A few units are reported
//! one by one, and many units with a common cause by one summary.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_core::Timestamp;
use fleet_unitfile::UnitName;

/// Time for which an obstacle must last before it is reported. Shorter obstacles are normal. For
/// example, a unit with `MachineOf=` has no machine until the other unit is placed.
const REPORT_AFTER: Duration = Duration::from_millis(300);

/// Maximum number of units that are reported one by one for a common cause.
const MAX_SINGLE: usize = 3;

/// A unit that has not reached its goal, and its current obstacle.
pub(super) type Waiting<'a> = (&'a UnitName, Option<&'a str>);

/// Obstacles of the units of a command.
pub(super) struct Obstacles {
    /// The units as a plural noun, such as `jobs`.
    noun: &'static str,
    /// Number of units, with those that have reached their goal.
    total: usize,
    units: BTreeMap<UnitName, Obstacle>,
    /// Causes that were reported by a summary.
    summarized: BTreeSet<String>,
}

/// The current obstacle of a unit.
struct Obstacle {
    cause: String,
    since: Timestamp,
    /// The text that was reported.
    reported: Option<String>,
}

impl Obstacles {
    pub(super) fn new(noun: &'static str, total: usize) -> Self {
        Self { noun, total, units: BTreeMap::new(), summarized: BTreeSet::new() }
    }

    /// Records an observation of all units that have not reached their goal. Returns the notices to
    /// print. Each cause leads to at most one summary.
    pub(super) fn observe(&mut self, waiting: &[Waiting<'_>], now: Timestamp) -> Vec<String> {
        let mut new: BTreeMap<String, Vec<(&UnitName, &str)>> = BTreeMap::new();
        for (name, obstacle) in waiting {
            let Some(text) = obstacle else {
                // A later obstacle must last again, unless it was reported.
                if self.units.get(*name).is_some_and(|known| known.reported.is_none()) {
                    self.units.remove(*name);
                }
                continue;
            };
            let cause = cause(text);
            let known = self.units.get(*name).filter(|known| known.cause == cause);
            let (since, is_reported) =
                known.map_or((now, false), |known| (known.since, known.reported.is_some()));
            if known.is_none() {
                let obstacle = Obstacle { cause: cause.clone(), since, reported: None };
                self.units.insert((*name).clone(), obstacle);
            }
            if !is_reported && now.since(since) >= REPORT_AFTER {
                new.entry(cause).or_default().push((*name, *text));
            }
        }
        let notices =
            new.into_iter().flat_map(|(cause, units)| self.report(cause, &units, waiting));
        notices.collect()
    }

    /// Returns the notices for units whose obstacle of this cause is not reported yet.
    fn report(
        &mut self,
        cause: String,
        new: &[(&UnitName, &str)],
        waiting: &[Waiting<'_>],
    ) -> Vec<String> {
        if self.summarized.contains(&cause) {
            return Vec::new();
        }
        let is_same = |known: &&Obstacle| known.cause == cause && known.reported.is_some();
        if self.units.values().filter(is_same).count() + new.len() > MAX_SINGLE {
            self.summarized.insert(cause);
            return vec![self.summary(waiting)];
        }
        for (name, text) in new {
            if let Some(obstacle) = self.units.get_mut(*name) {
                obstacle.reported = Some((*text).to_owned());
            }
        }
        new.iter().map(|(name, text)| format!("{name}: waiting: {text}")).collect()
    }

    /// Returns whether this obstacle of a unit was reported.
    pub(super) fn was_reported(&self, name: &UnitName, text: &str) -> bool {
        self.units.get(name).is_some_and(|known| known.reported.as_deref() == Some(text))
    }

    /// Describes all units that have not reached their goal, in one line.
    pub(super) fn summary(&self, waiting: &[Waiting<'_>]) -> String {
        let mut by_cause: BTreeMap<String, usize> = BTreeMap::new();
        for text in waiting.iter().filter_map(|(_, obstacle)| *obstacle) {
            *by_cause.entry(cause(text)).or_default() += 1;
        }
        let unobstructed = waiting.len() - by_cause.values().sum::<usize>();
        let mut parts = Vec::new();
        if unobstructed > 0 {
            parts.push(format!("{unobstructed} in progress"));
        }
        for (cause, count) in by_cause {
            let verb = if count == 1 { "waits" } else { "wait" };
            parts.push(format!("{count} {verb}{cause}"));
        }
        let Self { noun, total, .. } = self;
        format!("waiting for {} of {total} {noun}: {}", waiting.len(), parts.join(", "))
    }
}

/// Returns the common part of obstacles that have the same cause, to follow the word "waits": the
/// rules that refuse machines, or else the first clause.
fn cause(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let rules = words.windows(3).filter(|words| {
        words[1] == "refuses" && words[2].bytes().all(|byte| byte.is_ascii_digit())
    });
    let mut rules: Vec<String> = rules.map(|words| format!("{}=", words[0])).collect();
    rules.sort();
    match (rules.is_empty(), text.split_once("; ")) {
        (false, _) => format!(" for a machine ({})", rules.join(", ")),
        (true, Some((clause, _))) => format!(": {clause}"),
        (true, None) => format!(": {text}"),
    }
}

#[cfg(test)]
mod tests {
    use fleet_core::reason::{NearestMachine, Reason, tally};
    use fleet_core::{MachineId, Refusal};

    use super::*;

    fn names(count: usize) -> Vec<UnitName> {
        (1..=count).map(|number| format!("a@{number}.service").parse().unwrap()).collect()
    }

    /// Text of a reason in which a machine has this many instances.
    fn full(machines: usize, count: u32) -> String {
        let template: UnitName = "a@.service".parse().unwrap();
        let refusal = Refusal::MaxPerMachine { template, limit: 2, count };
        let id = |number: usize| -> MachineId { format!("m{number}").parse().unwrap() };
        let refusals = (0..machines).map(|number| (id(number), refusal.clone()));
        let nearest = NearestMachine { machine: id(0), unit: None, refusal: refusal.clone() };
        let (tallies, nearest) = (tally(refusals), Some(nearest));
        Reason::NoMachineFits { machines: 3, tallies, nearest }.to_string()
    }

    /// Passes observations, each with its time in milliseconds and the obstacles of the first
    /// units. Returns the notices.
    fn notices(total: usize, observations: &[(u64, &[&str])]) -> String {
        let names = names(total);
        let mut obstacles = Obstacles::new("jobs", total);
        let mut all = Vec::new();
        for (at, texts) in observations {
            let texts = texts.iter().copied().map(Some).chain(std::iter::repeat(None));
            let waiting: Vec<_> = names.iter().zip(texts).collect();
            let new = obstacles.observe(&waiting, Timestamp::from_millis(*at));
            all.extend(new.into_iter().map(|notice| format!("{at}: {notice}")));
        }
        all.join("\n")
    }

    #[test]
    fn many_units_with_one_cause_give_one_notice() {
        let (first, later) = (full(3, 2), full(2, 2));
        let (first, later) = (first.as_str(), later.as_str());
        let all = notices(
            100,
            &[
                (0, &[]),
                (100, &[first; 84]),
                (399, &[first; 84]),
                (400, &[later; 84]),
                (700, &[first; 80]),
                (900, &[]),
                (1000, &[first; 70]),
                (1300, &[first; 70]),
                (1400, &["no machine is present"; 70]),
                (1700, &["no machine is present"; 70]),
            ],
        );
        insta::assert_snapshot!(all, @r"
        400: waiting for 100 of 100 jobs: 16 in progress, 84 wait for a machine (MaxPerMachine=)
        1700: waiting for 100 of 100 jobs: 30 in progress, 70 wait: no machine is present
        ");
    }

    #[test]
    fn few_units_are_reported_one_by_one() {
        let absent = "its machine m1 is not present; bring it back";
        let all = notices(
            5,
            &[
                (0, &[absent, absent]),
                (300, &[absent, absent]),
                (400, &[absent, absent, absent, absent]),
                (700, &[absent, absent, absent, absent]),
                (900, &[absent, absent, absent, absent]),
            ],
        );
        insta::assert_snapshot!(all, @r"
        300: a@1.service: waiting: its machine m1 is not present; bring it back
        300: a@2.service: waiting: its machine m1 is not present; bring it back
        700: waiting for 5 of 5 jobs: 1 in progress, 4 wait: its machine m1 is not present
        ");
    }

    #[test]
    fn obstacle_is_reported_once_it_lasts() {
        let (held, nowhere) = ("on m1 it waits for b.service", "no machine is present");
        let all = notices(
            1,
            &[
                (0, &[nowhere]),
                (100, &[]),
                (200, &[nowhere]),
                (499, &[nowhere]),
                (500, &[nowhere]),
                (900, &[nowhere]),
                (1000, &[held]),
                (1300, &[held]),
                (1400, &[]),
                (1500, &[held]),
                (1900, &[held]),
            ],
        );
        insta::assert_snapshot!(all, @r"
        500: a@1.service: waiting: no machine is present
        1300: a@1.service: waiting: on m1 it waits for b.service
        ");
    }
}
