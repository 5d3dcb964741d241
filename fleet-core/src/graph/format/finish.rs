//! Checks a stanza as a whole and builds its unit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_unitfile::Span;

use super::diagnostic::{Code, Problems};
use super::keys;
use super::stanza::{Draft, TypeWord, Types, repeated, sets_variable};
use crate::graph::model::{
    DelayGrowth, EdgeKind, ExecOutput, InitUnit, LinePattern, Readiness, Restart, RestartWhen,
    ServiceType, Target,
};

/// Reports errors that concern the stanza as a whole. `name` is the position of the stanza's name.
pub(super) fn check(draft: &mut Draft, name: Span, problems: &mut Problems) {
    check_missing(draft, name, problems);
    if let Some(word) = draft.type_word {
        check_types(draft, word, problems);
        check_starts(draft, word, problems);
        check_restart(draft, word, problems);
        check_effects(draft, word, problems);
    }
    check_pairs(draft, problems);
    check_readiness_log(draft, problems);
    check_variables(draft, problems);
    check_kinds(draft, problems);
}

/// Builds the unit of a stanza without errors. `output` is its output if it sets none and no
/// readiness line is searched in its log.
pub(super) fn unit(draft: Draft, output: Option<&ExecOutput>) -> Option<InitUnit> {
    let mut unit = draft.unit;
    let is_free = !draft.given.contains_key("output")
        && draft.ready_grep.is_none()
        && draft.type_word.is_some_and(|word| word != TypeWord::Virtual);
    if let Some(output) = output.filter(|_| is_free) {
        unit.run.exec_environment.output = output.clone();
    }
    unit.kind =
        kind(draft.type_word?, draft.ready_wait, draft.ready_grep, draft.pidfile, draft.remain)?;
    unit.edges = edges(&draft.edges);
    if !draft.given.contains_key("restart-max-delay") {
        unit.restart.max_delay = default_max_delay(unit.restart.delay);
    }
    unit.run.conditions.sort_by_key(|condition| condition.assert);
    let growth = draft.steps.map(DelayGrowth::Steps).or(draft.factor.map(DelayGrowth::Factor));
    unit.restart.growth = growth.unwrap_or(unit.restart.growth);
    Some(unit)
}

/// Returns the default maximum restart delay. It is one minute, or the initial delay if that is
/// longer.
pub(super) fn default_max_delay(delay: Duration) -> Duration {
    delay.max(Restart::default().max_delay)
}

fn kind(
    word: TypeWord,
    wait: Option<Duration>,
    grep: Option<LinePattern>,
    pidfile: Option<String>,
    remain: bool,
) -> Option<ServiceType> {
    Some(match word {
        TypeWord::Notified => ServiceType::ForegroundNotified,
        TypeWord::Supervised => ServiceType::ForegroundSupervised(match (wait, grep) {
            (Some(time), _) => Readiness::Alive(time),
            (None, Some(pattern)) => Readiness::Line(pattern),
            (None, None) => Readiness::Executed,
        }),
        TypeWord::Pidfile => ServiceType::BackgroundPidfile { path: pidfile? },
        TypeWord::Forking => ServiceType::BackgroundForking,
        TypeWord::Scripted => ServiceType::BackgroundScripted,
        TypeWord::Oneshot => ServiceType::Oneshot { remain },
        TypeWord::Virtual => ServiceType::Virtual,
    })
}

/// Sorts edges by kind, strongest first, and keeps the written order within a kind. Of the edges to
/// one target whose kind requires as well as orders, only the strongest is kept. Exact duplicates
/// are dropped.
pub(super) fn edges(written: &[(EdgeKind, Target, Span)]) -> Vec<(EdgeKind, Target)> {
    let mut strongest: BTreeMap<&Target, EdgeKind> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (kind, target, _) in written.iter().filter(|(kind, ..)| is_strong(*kind)) {
        let known = strongest.entry(target).or_insert(*kind);
        *known = (*known).min(*kind);
    }
    let counts =
        |kind: EdgeKind, target: &Target| !is_strong(kind) || strongest.get(target) == Some(&kind);
    let mut edges = Vec::new();
    for wanted in EdgeKind::ALL {
        for (kind, target, _) in written {
            if *kind == wanted && counts(*kind, target) && seen.insert((wanted, target)) {
                edges.push((wanted, target.clone()));
            }
        }
    }
    edges
}

/// Returns whether the kind both requires and orders.
fn is_strong(kind: EdgeKind) -> bool {
    kind.requires() && kind.orders()
}

fn check_missing(draft: &Draft, name: Span, problems: &mut Problems) {
    let mut need = |key: &str, why: String| {
        if !draft.given.contains_key(key) && !draft.meant.contains(key) {
            let message = format!("{key} is missing{why}");
            let help = format!("write `{key}: …` below this line");
            problems.add(Code::MissingKey, name, message, help);
        }
    };
    need("type", String::new());
    need("provides", String::new());
    let Some(word) = draft.type_word else { return };
    let why = || format!(", which a unit of type {} needs", word.as_str());
    // A oneshot may exist only for its stop commands.
    let is_given = |key| draft.given.contains_key(key) || draft.meant.contains(key);
    let only_stops = word == TypeWord::Oneshot && is_given("exec-stop");
    if Types::RUNNING.contains(word) && !only_stops {
        need("exec-start", why());
    }
    match word {
        TypeWord::Scripted => need("exec-stop", why()),
        TypeWord::Pidfile => need("pidfile", why()),
        _ => {}
    }
}

fn check_types(draft: &Draft, word: TypeWord, problems: &mut Problems) {
    for (name, given) in &draft.given {
        let Some(key) = keys::find(name).filter(|key| !key.types.contains(word)) else { continue };
        let is_command = word == TypeWord::Virtual && name.starts_with("exec-");
        let code = if is_command { Code::VirtualCommand } else { Code::WrongType };
        let message = format!("{name} is not allowed for units of type {}", word.as_str());
        let help = match (is_command, key.types == Types::RUNNING) {
            (true, _) => "remove it, or give the unit a type that runs something".to_owned(),
            (_, true) => "remove it: a virtual unit runs nothing".to_owned(),
            _ => format!("remove it, or make the type one of {}", key.types.names()),
        };
        for one in given {
            problems.add(code, one.key, message.clone(), help.clone());
        }
    }
}

/// Reports several start commands of a unit that is no oneshot.
fn check_starts(draft: &Draft, word: TypeWord, problems: &mut Problems) {
    let several = draft.given.get("exec-start").filter(|_| word != TypeWord::Oneshot);
    if let Some((first, others)) = several.and_then(|given| given.split_first()) {
        others.iter().for_each(|other| repeated("exec-start", *first, other.key, problems));
    }
}

fn check_restart(draft: &Draft, word: TypeWord, problems: &mut Problems) {
    let longest = draft.given.get("restart-max-delay").and_then(|given| given.first());
    let Restart { delay, max_delay, .. } = draft.unit.restart;
    let grows = draft.factor != Some(1) && draft.steps != Some(0);
    if let Some(given) = longest.filter(|_| grows && max_delay < delay) {
        let message = "restart-max-delay is shorter than restart-delay";
        let help = "write a longer time, or remove the line";
        problems.add(Code::BadDuration, given.value, message, help);
    }
    let when = draft.unit.restart.when;
    let after_success = matches!(when, RestartWhen::Always | RestartWhen::OnSuccess);
    let given = draft.given.get("restart").and_then(|given| given.first());
    if let Some(given) = given.filter(|_| after_success && word == TypeWord::Oneshot) {
        let message = "a oneshot that has succeeded is not started again";
        problems.add(Code::RestartAlways, given.value, message, "write on-failure");
    }
}

/// Reports keys that exclude each other.
fn check_pairs(draft: &Draft, problems: &mut Problems) {
    let pairs = [
        (Code::TwoReadinesses, "ready-wait", "ready-grep"),
        (Code::BadValue, "restart-factor", "restart-steps"),
    ];
    for (code, one, other) in pairs {
        let place = |key| draft.given.get(key).and_then(|given| given.first());
        if let (Some(first), Some(second)) = (place(one), place(other)) {
            let later = if first.line < second.line { second } else { first };
            let message = format!("{one} and {other} cannot be used together");
            problems.add(code, later.key, message, "remove one of them");
        }
    }
}

/// Reports a readiness line that is searched in an empty log.
fn check_readiness_log(draft: &Draft, problems: &mut Problems) {
    let environment = &draft.unit.run.exec_environment;
    let errors = environment.error.as_ref().unwrap_or(&environment.output);
    let is_logged = [&environment.output, errors].contains(&&ExecOutput::Log);
    let given = draft.given.get("ready-grep").and_then(|given| given.first());
    if let Some(given) = given.filter(|_| !is_logged) {
        let message = "ready-grep searches the log, but neither output nor error-output is log";
        let help = "write log for one of them, or use ready-wait";
        problems.add(Code::NoReadinessLog, given.key, message, help);
    }
}

/// Warns about a `clean-exit` that the type of the unit overrides.
fn check_effects(draft: &Draft, word: TypeWord, problems: &mut Problems) {
    let help = match word {
        TypeWord::Oneshot => "write `remain: yes` or `remain: no` instead",
        TypeWord::Scripted => "remove it",
        _ => return,
    };
    if let Some(given) = draft.given.get("clean-exit").and_then(|given| given.first()) {
        let message = format!("clean-exit has no effect for units of type {}", word.as_str());
        problems.add(Code::NoEffect, given.key, message, help);
    }
}

fn check_variables(draft: &Draft, problems: &mut Problems) {
    let run = &draft.unit.run;
    // A key that could not be read may set any variable.
    if draft.meant.iter().any(|key| ["env", "env-file", "pass-env"].contains(key)) {
        return;
    }
    if draft.given.contains_key("env-file") && run.exec_environment.environment_files.is_empty() {
        return;
    }
    let unknown = |name: &str| !sets_variable(run, name);
    for (name, span) in draft.variables.iter().filter(|(name, _)| unknown(name)) {
        let message = format!("no variable `{name}` is given to this command");
        let help = format!(
            "write `env: {name}=…`, `pass-env: {name}` or an `env-file`, or $$ for a dollar sign"
        );
        problems.add(Code::UnknownVariable, *span, message, help);
    }
}

fn check_kinds(draft: &Draft, problems: &mut Problems) {
    let mut seen: BTreeMap<&Target, EdgeKind> = BTreeMap::new();
    for (kind, target, span) in draft.edges.iter().filter(|(kind, ..)| is_strong(*kind)) {
        let Some(first) = seen.insert(target, *kind) else { continue };
        let strongest = first.min(*kind);
        seen.insert(target, strongest);
        let message = format!("`{target}` is already named; {strongest} takes precedence");
        problems.add(Code::SeveralKinds, *span, message, "name it once");
    }
}
