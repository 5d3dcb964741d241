//! Pure: decides how long to wait for one unit, given its observations.

use std::time::Duration;

use fleet_core::Timestamp;
use fleet_unitfile::UnitName;

use super::report::{Action, UnitOutcome};
use super::wait::{Goal, Observation, Verdict};

/// Time after which an obstacle counts as permanent.
const PERMANENT_AFTER: Duration = Duration::from_secs(2);

/// Time for which a new process must run before its unit counts as active. Many broken services
/// exit within this time, for example because a file is missing or a port is in use.
const STAYS_UP: Duration = Duration::from_millis(200);

/// The same for a process that an automatic restart began: its unit has failed already.
const STAYS_UP_AFTER_RESTART: Duration = Duration::from_secs(1);

/// Number of automatic restarts during a wait from which the unit counts as being in a crash loop.
/// A unit may need a few attempts until another one is ready.
const CRASH_LOOP: u32 = 3;

/// A unit of a command, with the goal to wait for.
#[derive(Debug, Clone)]
pub(crate) struct WaitTarget {
    /// Name of the unit.
    pub(crate) name: UnitName,
    /// Requested action.
    pub(crate) action: Action,
    /// Goal to wait for.
    pub(crate) goal: Goal,
    /// Whether the unit already had its desired state and its file, so that the command changes
    /// nothing.
    pub(crate) is_settled: bool,
}

/// State of the wait for one unit.
#[derive(Debug)]
pub(crate) struct WaitState {
    /// Unit and goal.
    pub(crate) target: WaitTarget,
    last: Option<LastObservation>,
    restarts: Option<RestartCount>,
}

/// Automatic restarts of a unit since its start.
#[derive(Debug)]
struct RestartCount {
    first: u32,
    last: u32,
    since: Timestamp,
    /// Latest description of the obstacle.
    obstacle: Option<String>,
}

/// Last verdict, and how long it has lasted.
#[derive(Debug)]
struct LastObservation {
    verdict: Verdict,
    since: Timestamp,
    now: Timestamp,
    observations: u32,
    is_late: bool,
}

/// End of the wait for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitResult {
    /// Whether the goal was reached.
    pub(crate) outcome: UnitOutcome,
    /// Reason for a failure, or a remark on success.
    pub(crate) text: String,
    /// Machine of the failure, if any.
    pub(crate) machine: Option<String>,
}

impl WaitState {
    /// Starts the wait, without an observation.
    pub(crate) fn new(target: WaitTarget) -> Self {
        Self { target, last: None, restarts: None }
    }

    /// Records an observation. `is_late` marks the final one, after the deadline.
    pub(crate) fn observe(&mut self, observation: &Observation, now: Timestamp, is_late: bool) {
        let verdict = self.target.goal.evaluate(observation);
        self.count_restarts(&verdict, observation, now);
        let before = self.last.take().filter(|last| last.verdict == verdict);
        let (since, observations) =
            before.map_or((now, 1), |last| (last.since, last.observations + 1));
        self.last = Some(LastObservation { verdict, since, now, observations, is_late });
    }

    /// Counts the automatic restarts of a unit that runs, or that is about to run again.
    fn count_restarts(&mut self, verdict: &Verdict, observation: &Observation, now: Timestamp) {
        let obstacle = match verdict {
            Verdict::Running(_) => None,
            Verdict::Stuck(text) => Some(text),
            _ => return,
        };
        let last = observation.states.iter().map(|state| state.restarts).max().unwrap_or(0);
        let new = RestartCount { first: last, last, since: now, obstacle: None };
        let count = self.restarts.get_or_insert(new);
        count.last = last;
        if let Some(text) = obstacle {
            count.obstacle = Some(text.clone());
        }
    }

    /// Returns the description of a crash loop: the unit has a process again and again, but none
    /// stays up.
    fn crash_loop(&self, last: &LastObservation) -> Option<&str> {
        let count = self.restarts.as_ref()?;
        let restarts = count.last.saturating_sub(count.first);
        let has_lasted = last.now.since(count.since) >= PERMANENT_AFTER && restarts >= CRASH_LOOP;
        let is_loop = has_lasted || (last.is_late && restarts > 0);
        is_loop.then(|| count.obstacle.as_deref().unwrap_or("it exits and restarts repeatedly"))
    }

    /// Returns the result if the wait is over.
    ///
    /// A failure counts only if it is observed twice. Between the time when the agent records a new
    /// start and the start itself, the state still shows the failure of the previous run.
    pub(crate) fn result(&self) -> Option<WaitResult> {
        let last = self.last.as_ref()?;
        let end = |outcome, text: &str, machine: Option<&String>| {
            Some(WaitResult { outcome, text: text.to_owned(), machine: machine.cloned() })
        };
        let crash_loop = self.crash_loop(last);
        let was_restarted = self.restarts.as_ref().is_some_and(|count| count.last > 0);
        let stays_up = if was_restarted { STAYS_UP_AFTER_RESTART } else { STAYS_UP };
        match &last.verdict {
            Verdict::Reached => end(UnitOutcome::Reached, "", None),
            Verdict::Running(_) if self.target.is_settled || last.has_lasted(stays_up) => {
                end(UnitOutcome::Reached, "", None)
            }
            Verdict::Running(_) | Verdict::Stuck(_) if crash_loop.is_some() => {
                end(UnitOutcome::Failed, crash_loop.unwrap_or_default(), None)
            }
            Verdict::Running(_) if last.is_late => end(UnitOutcome::Reached, "", None),
            Verdict::PartlyReached(text) if last.lasts(PERMANENT_AFTER) => {
                end(UnitOutcome::Reached, text, None)
            }
            // As in systemd, this is no failure.
            Verdict::Skipped(text) if last.observations > 1 => {
                end(UnitOutcome::Reached, text, None)
            }
            Verdict::Stuck(text) if last.lasts(PERMANENT_AFTER) => {
                end(UnitOutcome::Failed, text, None)
            }
            Verdict::Failed { text, machine } if last.observations > 1 => {
                end(UnitOutcome::Failed, text, machine.as_ref())
            }
            Verdict::Pending(text) | Verdict::Held(text) if last.is_late => {
                end(UnitOutcome::Late, text, None)
            }
            _ => None,
        }
    }

    /// Returns the current obstacle of the unit.
    pub(crate) fn obstacle(&self) -> Option<&str> {
        match &self.last.as_ref()?.verdict {
            Verdict::Stuck(text) | Verdict::Held(text) => Some(text),
            _ => None,
        }
    }

    /// Describes the present state of the wait.
    pub(crate) fn description(&self) -> &str {
        match self.last.as_ref().map(|last| &last.verdict) {
            Some(
                Verdict::Pending(text)
                | Verdict::Held(text)
                | Verdict::Skipped(text)
                | Verdict::Stuck(text)
                | Verdict::PartlyReached(text),
            ) => text,
            Some(Verdict::Failed { text, .. }) => text,
            Some(Verdict::Running(_) | Verdict::Reached) => "it runs",
            None => "",
        }
    }
}

impl LastObservation {
    /// Whether the verdict has lasted for this time, or the deadline has passed.
    fn lasts(&self, duration: Duration) -> bool {
        self.is_late || self.has_lasted(duration)
    }

    fn has_lasted(&self, duration: Duration) -> bool {
        self.now.since(self.since) >= duration
    }
}

#[cfg(test)]
mod tests {
    use fleet_http::wire;

    use super::*;

    /// Returns an observation of a unit that is to be started.
    fn observation(machine: &str, active: &str, sub: &str) -> Observation {
        let unit = wire::UnitEntity {
            desired_state: "launched".into(),
            machine_id: machine.into(),
            reason: if machine.is_empty() { "no machine is present".into() } else { "".into() },
            ..wire::UnitEntity::default()
        };
        let state = wire::UnitStateEntity {
            machine_id: "m1".into(),
            requested_state: "launched".into(),
            systemd_active_state: active.into(),
            systemd_sub_state: sub.into(),
            ..wire::UnitStateEntity::default()
        };
        Observation { unit: Some(unit), states: vec![state], ..Observation::default() }
    }

    fn pending(is_settled: bool) -> WaitState {
        let (action, goal) = (Action::Start, Goal::Active { generation: 0 });
        WaitState::new(WaitTarget {
            name: "web.service".parse().unwrap(),
            action,
            goal,
            is_settled,
        })
    }

    /// Passes observations to a wait, each with its time in milliseconds. Those at `late` or later
    /// are after the deadline. Returns the time at which the wait ends, and its outcome; `None` if
    /// the wait does not end.
    fn ends(
        mut pending: WaitState,
        observations: &[(u64, &Observation)],
        late: u64,
    ) -> Option<(u64, UnitOutcome)> {
        observations.iter().find_map(|(at, observation)| {
            pending.observe(observation, Timestamp::from_millis(*at), *at >= late);
            Some((*at, pending.result()?.outcome))
        })
    }

    #[test]
    fn new_process_must_stay_up() {
        let (runs, failed) =
            (observation("m1", "active", "running"), observation("m1", "failed", "failed"));
        let exited = observation("m1", "active", "exited");
        for (is_settled, observations, late, expected) in [
            (
                false,
                vec![(0, &runs), (100, &runs), (210, &runs)],
                9000,
                Some((210, UnitOutcome::Reached)),
            ),
            (
                false,
                vec![(0, &runs), (100, &failed), (200, &failed)],
                9000,
                Some((200, UnitOutcome::Failed)),
            ),
            // A new process must stay up again.
            (false, vec![(0, &runs), (100, &failed), (190, &runs), (300, &runs)], 9000, None),
            (true, vec![(0, &runs)], 9000, Some((0, UnitOutcome::Reached))),
            (false, vec![(0, &runs)], 0, Some((0, UnitOutcome::Reached))),
            (false, vec![(0, &exited)], 9000, Some((0, UnitOutcome::Reached))),
        ] {
            assert_eq!(
                ends(pending(is_settled), &observations, late),
                expected,
                "{observations:?}"
            );
        }
    }

    /// Each process lives for 100 ms, and both looks at the unit meet one that runs.
    #[test]
    fn crash_loop_is_no_start() {
        let attempt = |active: &str, sub: &str, restarts: u32| {
            let mut observation = observation("m1", active, sub);
            observation.states[0].restarts = restarts;
            observation.states[0].main_pid = Some(100 + restarts);
            observation.states[0].exit = "exited with status 3".into();
            observation
        };
        let runs = |restarts: u32| attempt("active", "running", restarts);
        let between = |restarts: u32| attempt("activating", "auto-restart", restarts);
        let all = [0, 2, 4, 9, 12].map(runs);
        let looks = |pause: u64, late: u64| {
            let looks = all.iter().zip(0..).map(|(it, n)| (pause * n, it));
            ends(pending(false), &looks.collect::<Vec<_>>(), late)
        };
        assert_eq!(looks(250, 9000), None, "there was too little time");
        assert_eq!(looks(700, 9000), Some((2100, UnitOutcome::Failed)));
        assert_eq!(looks(250, 500), Some((500, UnitOutcome::Failed)), "time is up");
        // The second attempt comes up, or stays up.
        let (first, second) = (between(0), runs(1));
        let retried = [(0, &first), (1900, &first), (2500, &second), (2710, &second)];
        assert_eq!(ends(pending(false), &retried, 9000), None, "it has failed already");
        let retried = [(0, &first), (1900, &first), (2500, &second), (3510, &second)];
        assert_eq!(ends(pending(false), &retried, 9000), Some((3510, UnitOutcome::Reached)));
        // The reason is that of the last failure.
        let mut wait = pending(false);
        for (observation, n) in [runs(1), between(1), runs(3), between(3), runs(5)].iter().zip(0..)
        {
            wait.observe(observation, Timestamp::from_millis(600 * n), false);
        }
        let text = wait.result().map(|result| result.text);
        assert_eq!(text.as_deref(), Some("m1 keeps restarting it: exited with status 3"));
    }

    #[test]
    fn lasting_obstacle_ends_the_wait() {
        let (nowhere, starting) =
            (observation("", "", ""), observation("m1", "activating", "start"));
        for (observations, late, expected) in [
            (
                vec![(0, &nowhere), (1999, &nowhere), (2000, &nowhere)],
                9000,
                Some((2000, UnitOutcome::Failed)),
            ),
            (vec![(0, &nowhere), (1000, &starting), (2500, &nowhere)], 9000, None),
            (vec![(0, &nowhere), (500, &nowhere)], 500, Some((500, UnitOutcome::Failed))),
            (
                vec![(0, &starting), (8999, &starting), (9001, &starting)],
                9000,
                Some((9001, UnitOutcome::Late)),
            ),
        ] {
            assert_eq!(ends(pending(false), &observations, late), expected, "{observations:?}");
        }
    }
}
