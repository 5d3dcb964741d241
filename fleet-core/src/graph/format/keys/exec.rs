//! Keys for commands, timeouts, exits, stops and restarts.

use std::time::Duration;

use super::read::{duration_or_none, number, one_of};
use super::{Form, Key, read};
use crate::graph::format::command;
use crate::graph::format::diagnostic::{Code, Problems};
use crate::graph::format::finish::default_max_delay;
use crate::graph::format::lexer::Value;
use crate::graph::format::print::{duration, some, statuses, unless, word, yes_or_no};
use crate::graph::format::stanza::{Draft, TypeWord, Types};
use crate::graph::model::{
    Command, DelayGrowth, Kill, KillMode, NotifyAccess, OnCleanExit, Restart, RestartLimit,
    RestartWhen, Run, Signal, WatchdogAction,
};

/// Declares a key with a list of commands, one per line.
macro_rules! commands {
    ($name:literal, $types:expr, $($field:ident).+) => {
        Key::new(
            $name,
            $types,
            Form::Folds,
            |value, draft, problems| {
                read_command(value, draft, problems, |run| &mut run.$($field).+);
            },
            |unit, _| unit.run.$($field).+.iter().map(command::write).collect(),
        )
    };
}

const RELOADABLE: Types = Types::RUNNING.without(TypeWord::Oneshot);
const WITH_ENDS: Types = Types::RUNNING.without(TypeWord::Scripted);

pub(super) const KEYS: &[Key] = &[
    commands!("exec-condition", Types::RUNNING, exec_condition),
    commands!("exec-start-pre", Types::RUNNING, start_pre),
    commands!("exec-start", Types::RUNNING, start),
    commands!("exec-start-post", Types::RUNNING, start_post),
    commands!("exec-reload", RELOADABLE, reload),
    Key::new(
        "reload-signal",
        TypeWord::Notified.alone(),
        Form::Line,
        |value, draft, problems| draft.run().reload_signal = read::signal(value, problems),
        |unit, _| some(unit.run.reload_signal),
    ),
    commands!("exec-stop", Types::RUNNING, stop),
    commands!("exec-stop-post", Types::RUNNING, stop_post),
    Key::new(
        "success-exit",
        WITH_ENDS,
        Form::Fold,
        |value, draft, problems| draft.run().success = read::statuses(value, problems),
        |unit, _| statuses(&unit.run.success),
    ),
    Key::new(
        "clean-exit",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            draft.run().on_clean_exit = one_of(value, problems, &CLEAN_EXIT).unwrap_or_default();
        },
        |unit, _| word(&CLEAN_EXIT, unit.run.on_clean_exit),
    ),
    Key::new(
        "start-timeout",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let time = duration_or_none(value, problems);
            draft.unit.timeouts.start = time.unwrap_or(draft.unit.timeouts.start);
        },
        |unit, defaults| {
            unless(&unit.timeouts.start, &defaults.start, duration(unit.timeouts.start))
        },
    ),
    Key::new(
        "reload-timeout",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let time = duration_or_none(value, problems);
            draft.unit.timeouts.reload = time.unwrap_or(draft.unit.timeouts.reload);
        },
        |unit, defaults| {
            unless(&unit.timeouts.reload, &defaults.reload, duration(unit.timeouts.reload))
        },
    ),
    Key::new(
        "runtime-max",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            draft.run().runtime_max = duration_or_none(value, problems).flatten();
        },
        |unit, _| some(unit.run.runtime_max.map(|time| duration(Some(time)))),
    ),
    Key::new(
        "watchdog",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| draft.run().watchdog = duration_or_none(value, problems).flatten(),
        |unit, _| some(unit.run.watchdog.map(|time| duration(Some(time)))),
    ),
    Key::new(
        "notify-access",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let access = one_of(value, problems, &ACCESS);
            draft.run().notify_access = access.unwrap_or_default();
        },
        |unit, _| word(&ACCESS, unit.run.notify_access),
    ),
];

const ACCESS: [(&str, NotifyAccess); 4] = [
    ("none", NotifyAccess::None),
    ("main", NotifyAccess::Main),
    ("exec", NotifyAccess::Exec),
    ("all", NotifyAccess::All),
];

const CLEAN_EXIT: [(&str, OnCleanExit); 3] = [
    ("fail", OnCleanExit::Fail),
    ("complete", OnCleanExit::Complete),
    ("remain", OnCleanExit::Remain),
];

fn read_command(
    value: &Value,
    draft: &mut Draft,
    problems: &mut Problems,
    list: fn(&mut Run) -> &mut Vec<Command>,
) {
    if let Some(command) = command::read(value, draft, problems) {
        list(draft.run()).push(command);
    }
}

const WHEN: [(&str, RestartWhen); 7] = [
    ("never", RestartWhen::Never),
    ("on-success", RestartWhen::OnSuccess),
    ("on-failure", RestartWhen::OnFailure),
    ("on-abnormal", RestartWhen::OnAbnormal),
    ("on-abort", RestartWhen::OnAbort),
    ("on-watchdog", RestartWhen::OnWatchdog),
    ("always", RestartWhen::Always),
];

pub(super) const RESTART_KEYS: &[Key] = &[
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

const MODES: [(&str, KillMode); 3] = [
    ("control-group", KillMode::ControlGroup),
    ("mixed", KillMode::Mixed),
    ("process", KillMode::Process),
];

pub(super) const STOP_KEYS: &[Key] = &[
    Key::new(
        "stop-timeout",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let time = stop_timeout(value, problems);
            draft.unit.timeouts.stop = time.unwrap_or(draft.unit.timeouts.stop);
        },
        |unit, defaults| unless(&unit.timeouts.stop, &defaults.stop, duration(unit.timeouts.stop)),
    ),
    Key::new(
        "stop-mode",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            draft.run().kill.mode = one_of(value, problems, &MODES).unwrap_or_default();
        },
        |unit, _| word(&MODES, unit.run.kill.mode),
    ),
    Key::new(
        "stop-signal",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            draft.run().kill.signal = read::signal(value, problems).unwrap_or(Signal::TERM);
        },
        |unit, _| unless(&unit.run.kill.signal, &Signal::TERM, unit.run.kill.signal.to_string()),
    ),
    Key::new(
        "stop-hangup",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            draft.run().kill.send_sighup = read::yes_or_no(value, problems).unwrap_or_default();
        },
        |unit, _| unless(&unit.run.kill.send_sighup, &false, yes_or_no(true)),
    ),
    Key::new(
        "stop-final-signal",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let kill = &mut draft.unit.run.kill;
            if value.text() == "none" {
                kill.send_sigkill = false;
            } else {
                kill.final_signal = read::signal(value, problems).unwrap_or(Signal::KILL);
            }
        },
        |unit, _| write_final(&unit.run.kill),
    ),
    Key::new(
        "abort-signal",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            draft.run().watchdog_action.signal =
                read::signal(value, problems).unwrap_or(Signal::ABRT);
        },
        |unit, _| {
            let signal = unit.run.watchdog_action.signal;
            unless(&signal, &WatchdogAction::default().signal, signal.to_string())
        },
    ),
    Key::new(
        "abort-timeout",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            draft.run().watchdog_action.timeout = duration_or_none(value, problems).flatten();
        },
        |unit, _| {
            let time = unit.run.watchdog_action.timeout;
            unless(&time, &WatchdogAction::default().timeout, duration(time))
        },
    ),
];

/// Reads a stop timeout, and warns if it is `none`.
pub(in crate::graph::format) fn stop_timeout(
    value: &Value,
    problems: &mut Problems,
) -> Option<Option<Duration>> {
    let time = duration_or_none(value, problems);
    if time == Some(None) {
        value.refuse(
            problems,
            Code::NoStopTimeout,
            "a unit that does not exit by itself is then never stopped",
            "write how long it may take, such as 90s",
        );
    }
    time
}

fn write_final(kill: &Kill) -> Vec<String> {
    if !kill.send_sigkill {
        return vec!["none".to_owned()];
    }
    unless(&kill.final_signal, &Signal::KILL, kill.final_signal.to_string())
}
