//! Keys for commands, timeouts and exits.

use super::read::{duration_or_none, one_of};
use super::{Form, Key, read};
use crate::graph::format::command;
use crate::graph::format::diagnostic::Problems;
use crate::graph::format::draft::{Draft, TypeWord, Types};
use crate::graph::format::lexer::Value;
use crate::graph::format::print::{duration, some, statuses, unless, word};
use crate::graph::model::{Command, NotifyAccess, OnCleanExit, Run};

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
