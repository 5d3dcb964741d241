//! Keys of the dependencies, the type and the conditions of a unit.

use std::collections::BTreeSet;
use std::fmt;

use fleet_unitfile::spelling::suggest;

use super::read::target_items;
use super::{Form, Key, read};
use crate::graph::format::diagnostic::{Code, Problems, short};
use crate::graph::format::lexer::Value;
use crate::graph::format::print::{list, some, unless};
use crate::graph::format::stanza::{Draft, TypeWord, Types};
use crate::graph::model::{
    ConditionKind, ConditionTest, EdgeKind, InitUnit, LinePattern, Readiness, ServiceType,
    UnitCondition,
};

/// Maximum length of a pattern in bytes. Compiling a longer pattern could use too much memory.
const MAX_PATTERN_SIZE: usize = 4096;

pub(super) const KEYS: &[Key] = &[
    Key::new("type", Types::ALL, Form::Line, read_type, |unit, _| {
        vec![TypeWord::of(unit).as_str().to_owned()]
    }),
    Key::new(
        "description",
        Types::ALL,
        Form::Line,
        |value, draft, _| value.text().clone_into(&mut draft.unit.description),
        |unit, _| unless(&unit.description, &String::new(), unit.description.clone()),
    ),
    Key::new("provides", Types::ALL, Form::Fold, read_provides, |unit, _| list(&unit.provides)),
    Key::new(
        "depends-on",
        Types::ALL,
        Form::Folds,
        |value, draft, problems| read_edges(EdgeKind::DependsOn, value, draft, problems),
        |unit, _| edges(EdgeKind::DependsOn, unit),
    ),
    Key::new(
        "depends-ms",
        Types::ALL,
        Form::Folds,
        |value, draft, problems| read_edges(EdgeKind::DependsMs, value, draft, problems),
        |unit, _| edges(EdgeKind::DependsMs, unit),
    ),
    Key::new(
        "requisite",
        Types::ALL,
        Form::Folds,
        |value, draft, problems| read_edges(EdgeKind::Requisite, value, draft, problems),
        |unit, _| edges(EdgeKind::Requisite, unit),
    ),
    Key::new(
        "waits-for",
        Types::ALL,
        Form::Folds,
        |value, draft, problems| read_edges(EdgeKind::WaitsFor, value, draft, problems),
        |unit, _| edges(EdgeKind::WaitsFor, unit),
    ),
    Key::new(
        "pulls",
        Types::ALL,
        Form::Folds,
        |value, draft, problems| read_edges(EdgeKind::Pulls, value, draft, problems),
        |unit, _| edges(EdgeKind::Pulls, unit),
    ),
    Key::new(
        "after",
        Types::ALL,
        Form::Folds,
        |value, draft, problems| read_edges(EdgeKind::After, value, draft, problems),
        |unit, _| edges(EdgeKind::After, unit),
    ),
    Key::new(
        "ready-wait",
        TypeWord::Supervised.alone(),
        Form::Line,
        |value, draft, problems| draft.ready_wait = read::duration(value, problems),
        |unit, _| match unit.kind {
            ServiceType::ForegroundSupervised(Readiness::Alive(time)) => {
                vec![crate::graph::format::print::duration(Some(time))]
            }
            _ => Vec::new(),
        },
    ),
    Key::new("ready-grep", TypeWord::Supervised.alone(), Form::Line, read_pattern, |unit, _| {
        match &unit.kind {
            ServiceType::ForegroundSupervised(Readiness::Line(pattern)) => {
                some(Some(pattern.as_str()))
            }
            _ => Vec::new(),
        }
    }),
    Key::new(
        "pidfile",
        TypeWord::Pidfile.alone(),
        Form::Line,
        |value, draft, problems| draft.pidfile = read::path(value, problems),
        |unit, _| match &unit.kind {
            ServiceType::BackgroundPidfile { path } => vec![path.clone()],
            _ => Vec::new(),
        },
    ),
    Key::new(
        "remain",
        TypeWord::Oneshot.alone(),
        Form::Line,
        |value, draft, problems| {
            draft.remain = read::yes_or_no(value, problems).unwrap_or(true);
        },
        |unit, _| match unit.kind {
            ServiceType::Oneshot { remain: false } => vec!["no".to_owned()],
            _ => Vec::new(),
        },
    ),
];

fn read_type(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let text = value.text();
    draft.type_word = TypeWord::ALL.into_iter().find(|word| word.as_str() == text);
    if draft.type_word.is_none() {
        let help = match suggest(text, TypeWord::ALL.into_iter().map(TypeWord::as_str)) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("write one of {}", Types::ALL.names()),
        };
        value.refuse(
            problems,
            Code::UnknownType,
            format!("there is no type `{}`", short(text)),
            help,
        );
    }
}

fn read_provides(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let (mut known, before) = (BTreeSet::new(), problems.errors());
    let items = target_items(value, problems);
    draft.provides_incomplete |= problems.errors() > before;
    for (target, span) in items {
        if !known.insert(target.clone()) {
            let message = format!("`{target}` is already in this list");
            problems.add(Code::ProvidedTwice, span, message, "remove it here");
            continue;
        }
        draft.unit.provides.push(target);
        draft.provides.push(span);
    }
}

fn read_edges(kind: EdgeKind, value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let items = target_items(value, problems).into_iter();
    draft.edges.extend(items.map(|(target, span)| (kind, target, span)));
}

fn edges(kind: EdgeKind, unit: &InitUnit) -> Vec<String> {
    list(unit.edges.iter().filter(|(it, _)| *it == kind).map(|(_, target)| target))
}

fn read_pattern(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    if value.text().len() > MAX_PATTERN_SIZE {
        let message = format!("this regular expression has {} bytes", value.text().len());
        let help = format!("write one of at most {MAX_PATTERN_SIZE} bytes");
        return value.refuse(problems, Code::BadPattern, message, help);
    }
    match LinePattern::new(value.text()) {
        Ok(pattern) => draft.ready_grep = Some(pattern),
        Err(problem) => {
            let at = problem.at.min(value.text().len());
            let next = value.text().get(at..).and_then(|rest| rest.chars().next());
            let end = at + next.map_or(0, char::len_utf8);
            problems.add(Code::BadPattern, value.part(at..end), problem.message, problem.help);
        }
    }
}

pub(super) const CONDITION_KEYS: &[Key] = &[
    Key::new(
        "condition",
        Types::RUNNING,
        Form::Lines,
        |value, draft, problems| read_condition(false, value, draft, problems),
        |unit, _| conditions(false, unit),
    ),
    Key::new(
        "assert",
        Types::RUNNING,
        Form::Lines,
        |value, draft, problems| read_condition(true, value, draft, problems),
        |unit, _| conditions(true, unit),
    ),
];

/// Reads `|`, `!`, a test and its argument: `!path-exists /etc/nologin`.
fn read_condition(assert: bool, value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let (any, text) = marked(value.text(), '|');
    let (negated, text) = marked(text, '!');
    let (word, about) = text.split_once([' ', '\t']).unwrap_or((text, ""));
    let about = about.trim_matches([' ', '\t']);
    let found = ConditionKind::ALL.iter().find(|kind| kind.word() == word);
    let Some(kind) = found else {
        let names = ConditionKind::ALL.iter().map(|kind| kind.word());
        let help = match suggest(word, names.clone()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("begin it with one of {}", names.collect::<Vec<_>>().join(", ")),
        };
        return read::refuse(value, problems, help);
    };
    let test = match ConditionTest::new(*kind, about) {
        Ok(test) => test,
        Err(remedy) => return read::refuse(value, problems, format!("{remedy} after {word}")),
    };
    draft.run().conditions.push(UnitCondition { test, negated, any, assert });
}

fn marked(text: &str, mark: char) -> (bool, &str) {
    text.strip_prefix(mark).map_or((false, text), |rest| (true, rest.trim_start_matches(' ')))
}

fn conditions(assert: bool, unit: &InitUnit) -> Vec<String> {
    let conditions = unit.run.conditions.iter().filter(|it| it.assert == assert);
    conditions.map(ToString::to_string).collect()
}

impl fmt::Display for UnitCondition {
    /// Writes the condition as the value of `condition` or `assert` in a stanza.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = if self.any { "|" } else { "" };
        let negated = if self.negated { "!" } else { "" };
        write!(f, "{any}{negated}{} {}", self.test.kind.word(), self.test.argument)
    }
}
