//! Restart policy of a service.

use std::time::Duration;

use super::value::Span;
use crate::graph::{DelayGrowth, Restart, RestartLimit, RestartWhen, StatusSet};

/// Values of `Restart=`.
pub(super) const WHEN: [(&str, RestartWhen); 7] = [
    ("no", RestartWhen::Never),
    ("on-success", RestartWhen::OnSuccess),
    ("on-failure", RestartWhen::OnFailure),
    ("on-abnormal", RestartWhen::OnAbnormal),
    ("on-abort", RestartWhen::OnAbort),
    ("on-watchdog", RestartWhen::OnWatchdog),
    ("always", RestartWhen::Always),
];

/// Restart settings collected so far.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    pub(super) when: Option<RestartWhen>,
    pub(super) delay: Option<Duration>,
    pub(super) steps: Option<u32>,
    pub(super) max_delay: Option<Duration>,
    pub(super) prevent: StatusSet,
    pub(super) force: StatusSet,
    pub(super) in_unit: Limits,
    pub(super) in_service: Limits,
}

/// Start rate limit. The options are valid in two sections.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Limits {
    pub(super) interval: Option<Span>,
    pub(super) burst: Option<u32>,
}

impl Restarts {
    /// Returns the policy, with systemd's defaults for missing settings.
    pub(super) fn policy(&self) -> Restart {
        let delay = self.delay.unwrap_or(Duration::from_millis(100));
        let (growth, max_delay) = match (self.steps, self.max_delay) {
            (Some(steps), Some(longest)) if steps > 0 && longest > delay => {
                (DelayGrowth::Steps(steps), longest)
            }
            _ => (DelayGrowth::Factor(1), delay),
        };
        Restart {
            when: self.when.unwrap_or(RestartWhen::Never),
            prevent: self.prevent.clone(),
            force: self.force.clone(),
            delay,
            max_delay,
            growth,
            limit: self.limit(),
            reset: None,
        }
    }

    /// Returns the start rate limit. Options in `[Unit]` override those in `[Service]`, where old
    /// versions of systemd expected them.
    fn limit(&self) -> RestartLimit {
        let interval = self.in_unit.interval.or(self.in_service.interval);
        let burst = self.in_unit.burst.or(self.in_service.burst).unwrap_or(5);
        let interval = interval.unwrap_or(Span(Some(Duration::from_secs(10))));
        match interval.0.unwrap_or(Duration::MAX) {
            interval if burst == 0 || interval.is_zero() => RestartLimit::None,
            interval => RestartLimit::Starts { burst, interval },
        }
    }

    /// Returns whether an option for growing delays has no effect.
    pub(super) fn has_unused_growth(&self) -> bool {
        let grows = matches!(self.policy().growth, DelayGrowth::Steps(_));
        !grows && (self.steps.is_some_and(|steps| steps > 0) || self.max_delay.is_some())
    }
}
