//! Keys for stopping a unit.

use std::time::Duration;

use super::write::{unless, word, yes_or_no};
use super::{Form, Key, duration, duration_or_none, one_of, read};
use crate::graph::text::Code;
use crate::graph::text::diagnostic::Problems;
use crate::graph::text::types::Types;
use crate::graph::text::value::Value;
use crate::graph::{Kill, KillMode, Signal, WatchdogAction};

const MODES: [(&str, KillMode); 3] = [
    ("control-group", KillMode::ControlGroup),
    ("mixed", KillMode::Mixed),
    ("process", KillMode::Process),
];

pub(super) const KEYS: &[Key] = &[
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
pub(in crate::graph::text) fn stop_timeout(
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
