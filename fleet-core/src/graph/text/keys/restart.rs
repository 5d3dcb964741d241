//! Keys for the restart policy.

use super::write::{some, statuses, unless};
use super::{Form, Key, duration, number, one_of, read};
use crate::graph::text::diagnostic::Problems;
use crate::graph::text::draft::Draft;
use crate::graph::text::finish::default_max_delay;
use crate::graph::text::types::Types;
use crate::graph::text::value::Value;
use crate::graph::{DelayGrowth, Restart, RestartLimit, RestartWhen};

const WHEN: [(&str, RestartWhen); 7] = [
    ("never", RestartWhen::Never),
    ("on-success", RestartWhen::OnSuccess),
    ("on-failure", RestartWhen::OnFailure),
    ("on-abnormal", RestartWhen::OnAbnormal),
    ("on-abort", RestartWhen::OnAbort),
    ("on-watchdog", RestartWhen::OnWatchdog),
    ("always", RestartWhen::Always),
];

pub(super) const KEYS: &[Key] = &[
    Key::new(
        "restart",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let when = one_of(value, problems, &WHEN);
            draft.unit.restart.when = when.unwrap_or(RestartWhen::OnFailure);
        },
        |unit, _| {
            let found = WHEN.iter().find(|(_, when)| *when == unit.restart.when);
            unless(&unit.restart.when, &RestartWhen::OnFailure, found.map_or("", |(word, _)| word))
        },
    ),
    Key::new(
        "restart-prevent",
        Types::RUNNING,
        Form::Fold,
        |value, draft, problems| draft.unit.restart.prevent = read::statuses(value, problems),
        |unit, _| statuses(&unit.restart.prevent),
    ),
    Key::new(
        "restart-force",
        Types::RUNNING,
        Form::Fold,
        |value, draft, problems| draft.unit.restart.force = read::statuses(value, problems),
        |unit, _| statuses(&unit.restart.force),
    ),
    Key::new(
        "restart-delay",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let delay = read::duration(value, problems);
            draft.unit.restart.delay = delay.unwrap_or_default();
        },
        |unit, _| {
            let delay = unit.restart.delay;
            unless(&delay, &Restart::default().delay, duration(Some(delay)))
        },
    ),
    Key::new(
        "restart-max-delay",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let delay = read::duration(value, problems);
            draft.unit.restart.max_delay = delay.unwrap_or_default();
        },
        |unit, _| {
            let delay = unit.restart.max_delay;
            unless(&delay, &default_max_delay(unit.restart.delay), duration(Some(delay)))
        },
    ),
    Key::new(
        "restart-factor",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| draft.factor = number(value, problems, 1..=1000),
        |unit, _| match unit.restart.growth {
            DelayGrowth::Factor(2) | DelayGrowth::Steps(_) => Vec::new(),
            DelayGrowth::Factor(factor) => some(Some(factor)),
        },
    ),
    Key::new(
        "restart-steps",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| draft.steps = number(value, problems, 0..=u32::MAX),
        |unit, _| match unit.restart.growth {
            DelayGrowth::Steps(steps) => some(Some(steps)),
            DelayGrowth::Factor(_) => Vec::new(),
        },
    ),
    Key::new("restart-limit", Types::RUNNING, Form::Line, read_limit, |unit, _| {
        match unit.restart.limit {
            RestartLimit::None => Vec::new(),
            RestartLimit::Failures(failures) => some(Some(failures)),
            RestartLimit::Starts { burst, interval } => {
                vec![format!("{burst} in {}", duration(Some(interval)))]
            }
        }
    }),
    Key::new(
        "restart-reset",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            if value.text() != "auto" {
                draft.unit.restart.reset = read::duration(value, problems);
            }
        },
        |unit, _| some(unit.restart.reset.map(|time| duration(Some(time)))),
    ),
];

/// Reads a maximum number of failures, such as `5`, or a maximum number of starts in an interval,
/// such as `5 in 10s`.
fn read_limit(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let text = value.text();
    let limit = match text.split_once(" in ") {
        Some((burst, interval)) => starts(burst, interval),
        None => text.parse().ok().map(|most| match most {
            0 => RestartLimit::None,
            most => RestartLimit::Failures(most),
        }),
    };
    match limit {
        Some(limit) => draft.unit.restart.limit = limit,
        None => read::refuse(value, problems, "write a number, or one in a time such as 5 in 10s"),
    }
}

fn starts(burst: &str, interval: &str) -> Option<RestartLimit> {
    let burst = burst.trim().parse().ok().filter(|burst| *burst > 0)?;
    let interval = read::duration_text(interval.trim()).ok().filter(|it| !it.is_zero())?;
    Some(RestartLimit::Starts { burst, interval })
}
