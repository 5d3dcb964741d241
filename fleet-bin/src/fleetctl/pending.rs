//! Pure: how long one unit is waited for, given what each look at it means.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_unitfile::UnitName;

use super::report::{Action, Outcome};
use super::wait::{Goal, Sight, Verdict};

/// How long something that is in the way must stay there to be taken for what will stay.
const SETTLED: Duration = Duration::from_secs(2);

/// How long it must be there to be told: units of one command that need one another come to
/// machines a moment after each other.
const NEWS: Duration = Duration::from_millis(300);

/// How long a process that was just started must run for its unit to count as active. What ends
/// at once, for want of a file or a port, is found out by this.
const STAYS: Duration = Duration::from_millis(200);

/// A unit that a command acted on, and what for.
#[derive(Debug, Clone)]
pub(crate) struct Awaited {
    /// The unit.
    pub(crate) name: UnitName,
    /// What was asked for.
    pub(crate) action: Action,
    /// What to wait for.
    pub(crate) goal: Goal,
    /// Whether it was there before the command, so that nothing new is to be expected of it.
    pub(crate) is_settled: bool,
}

/// One unit that is still waited for.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The unit.
    pub(crate) awaited: Awaited,
    last: Option<Last>,
    told: Option<String>,
}

/// What the last look at a unit meant, and for how long that is so.
#[derive(Debug)]
struct Last {
    verdict: Verdict,
    since: Timestamp,
    now: Timestamp,
    looks: u32,
    is_late: bool,
}

/// How the wait for a unit ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Whether it is there.
    pub(crate) outcome: Outcome,
    /// Why not, or what else there is to say.
    pub(crate) text: String,
    /// The machine on which it failed, if it failed on one.
    pub(crate) machine: Option<String>,
}

impl Pending {
    /// A unit at which nobody has looked yet.
    pub(crate) fn new(awaited: Awaited) -> Self {
        Self { awaited, last: None, told: None }
    }

    /// A look at the unit; `is_late` says that no other one will follow if it can be helped.
    pub(crate) fn look(&mut self, sight: &Sight, now: Timestamp, is_late: bool) {
        let verdict = self.awaited.goal.judge(sight);
        let before = self.last.take().filter(|last| last.verdict == verdict);
        let (since, looks) = before.map_or((now, 1), |last| (last.since, last.looks + 1));
        self.last = Some(Last { verdict, since, now, looks, is_late });
    }

    /// How the wait ended, if it did.
    ///
    /// A failure must be seen twice: between the moment when a machine notes that it starts a unit
    /// and the start itself, the end of an earlier run may still be seen.
    pub(crate) fn ending(&self) -> Option<Ending> {
        let last = self.last.as_ref()?;
        let ending = |outcome, text: &str, machine: Option<&String>| {
            Some(Ending { outcome, text: text.to_owned(), machine: machine.cloned() })
        };
        match &last.verdict {
            Verdict::Reached => ending(Outcome::Reached, "", None),
            Verdict::Runs if self.awaited.is_settled || last.lasts(STAYS) => {
                ending(Outcome::Reached, "", None)
            }
            Verdict::Enough(text) if last.lasts(SETTLED) => ending(Outcome::Reached, text, None),
            Verdict::Stuck(text) if last.lasts(SETTLED) => ending(Outcome::Failed, text, None),
            Verdict::Failed { text, machine } if last.looks > 1 => {
                ending(Outcome::Failed, text, machine.as_ref())
            }
            Verdict::Pending(text) if last.is_late => ending(Outcome::Late, text, None),
            _ => None,
        }
    }

    /// What is in the way, if that was not told yet; from now on it was.
    pub(crate) fn news(&mut self) -> Option<String> {
        let last = self.last.as_ref().filter(|last| last.lasts(NEWS))?;
        let Verdict::Stuck(text) = &last.verdict else { return None };
        if self.told.as_ref() == Some(text) {
            return None;
        }
        self.told = Some(text.clone());
        self.told.clone()
    }

    /// Whether this is what was told last.
    pub(crate) fn was_told(&self, text: &str) -> bool {
        self.told.as_deref() == Some(text)
    }

    /// What is being waited for, in words.
    pub(crate) fn what(&self) -> &str {
        match self.last.as_ref().map(|last| &last.verdict) {
            Some(Verdict::Pending(text) | Verdict::Stuck(text) | Verdict::Enough(text)) => text,
            Some(Verdict::Failed { text, .. }) => text,
            Some(Verdict::Runs | Verdict::Reached) => "it runs",
            None => "",
        }
    }
}

impl Last {
    /// Whether it has been so for that long, or there is no time left to see.
    fn lasts(&self, duration: Duration) -> bool {
        self.is_late || self.now.since(self.since) >= duration
    }
}

#[cfg(test)]
mod tests {
    use fleet_http::wire;

    use super::*;

    /// What is seen of a unit that was to be started.
    fn sight(machine: &str, active: &str, sub: &str) -> Sight {
        let unit = wire::Unit {
            desired_state: "launched".into(),
            machine_id: machine.into(),
            reason: if machine.is_empty() { "no machine is present".into() } else { "".into() },
            ..wire::Unit::default()
        };
        let state = wire::UnitState {
            machine_id: "m1".into(),
            asked: "launched".into(),
            systemd_active_state: active.into(),
            systemd_sub_state: sub.into(),
            ..wire::UnitState::default()
        };
        Sight { unit: Some(unit), states: vec![state], ..Sight::default() }
    }

    fn pending(is_settled: bool) -> Pending {
        let (action, goal) = (Action::Start, Goal::Active { generation: 0 });
        Pending::new(Awaited { name: "web.service".parse().unwrap(), action, goal, is_settled })
    }

    /// Looks at these moments, and returns the first moment at which the wait is over, and how.
    fn ends(mut pending: Pending, looks: &[(u64, &Sight)], late: u64) -> Option<(u64, Outcome)> {
        looks.iter().find_map(|(at, sight)| {
            pending.look(sight, Timestamp::from_millis(*at), *at >= late);
            Some((*at, pending.ending()?.outcome))
        })
    }

    #[test]
    fn a_process_must_stay_up_for_a_moment() {
        let (runs, failed) = (sight("m1", "active", "running"), sight("m1", "failed", "failed"));
        let exited = sight("m1", "active", "exited");
        for (is_settled, looks, late, expected) in [
            (
                false,
                vec![(0, &runs), (100, &runs), (210, &runs)],
                9000,
                Some((210, Outcome::Reached)),
            ),
            (
                false,
                vec![(0, &runs), (100, &failed), (200, &failed)],
                9000,
                Some((200, Outcome::Failed)),
            ),
            // A new process has to stay up anew.
            (false, vec![(0, &runs), (100, &failed), (190, &runs), (300, &runs)], 9000, None),
            (true, vec![(0, &runs)], 9000, Some((0, Outcome::Reached))),
            (false, vec![(0, &runs)], 0, Some((0, Outcome::Reached))),
            (false, vec![(0, &exited)], 9000, Some((0, Outcome::Reached))),
        ] {
            assert_eq!(ends(pending(is_settled), &looks, late), expected, "{looks:?}");
        }
    }

    #[test]
    fn what_is_in_the_way_ends_the_wait_when_it_stays() {
        let (nowhere, starting) = (sight("", "", ""), sight("m1", "activating", "start"));
        for (looks, late, expected) in [
            (
                vec![(0, &nowhere), (1999, &nowhere), (2000, &nowhere)],
                9000,
                Some((2000, Outcome::Failed)),
            ),
            (vec![(0, &nowhere), (1000, &starting), (2500, &nowhere)], 9000, None),
            (vec![(0, &nowhere), (500, &nowhere)], 500, Some((500, Outcome::Failed))),
            (
                vec![(0, &starting), (8999, &starting), (9001, &starting)],
                9000,
                Some((9001, Outcome::Late)),
            ),
        ] {
            assert_eq!(ends(pending(false), &looks, late), expected, "{looks:?}");
        }
    }

    #[test]
    fn what_is_in_the_way_is_news_once() {
        let mut pending = pending(false);
        let mut tells = |at: u64, sight: &Sight| {
            pending.look(sight, Timestamp::from_millis(at), false);
            pending.news()
        };
        assert_eq!(tells(0, &sight("m1", "activating", "start")), None);
        let news = Some("no machine is present".to_owned());
        assert_eq!(tells(100, &sight("", "", "")), None, "it may have gone by the next look");
        assert_eq!(tells(399, &sight("", "", "")), None);
        assert_eq!(tells(400, &sight("", "", "")), news);
        assert_eq!(tells(500, &sight("", "", "")), None);
        assert!(pending.was_told("no machine is present"));
    }
}
