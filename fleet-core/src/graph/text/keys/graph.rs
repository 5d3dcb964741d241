//! Keys for type, targets and dependencies.

use std::collections::BTreeSet;

use super::write::{list, some, unless};
use super::{Form, Key, nearest, read, target_items};
use crate::graph::text::Code;
use crate::graph::text::diagnostic::{Problems, short};
use crate::graph::text::draft::Draft;
use crate::graph::text::types::{TypeWord, Types};
use crate::graph::text::value::Value;
use crate::graph::{EdgeKind, InitUnit, LinePattern, Readiness, ServiceType};

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
                vec![super::duration(Some(time))]
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
        let help = match nearest(text, TypeWord::ALL.into_iter().map(TypeWord::as_str)) {
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
