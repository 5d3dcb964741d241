//! The file of central settings, which has no stanzas: a goal, limits, choices and defaults.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use fleet_unitfile::Span;

use super::Code;
use super::diagnostic::{InitDiagnostic, Problems, short};
use super::fields::{self, Field, Folding};
use super::keys::{self, duration_or_none, nearest, target};
use super::value::Value;
use crate::graph::{Name, Settings, Target};

/// What was read of a file of central settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CentralConfig {
    /// The settings; what could not be read has its default.
    pub settings: Settings,
    /// Where the goal is named.
    pub goal: Option<Span>,
    /// Where units are chosen for targets.
    pub alternatives: Option<Span>,
    /// Whether more units may be chosen than that, which could not be read.
    pub chooses_more: bool,
    /// What is masked, and where.
    pub mask: Vec<(Target, Span)>,
    /// All that is wrong or odd, in the order of the file.
    pub diagnostics: Vec<InitDiagnostic>,
}

/// Reads a file of central settings.
///
/// ```
/// use fleet_core::graph::text::read_central;
///
/// let central = read_central(b"goal: desktop\nmax-starting: 8\n");
/// assert_eq!(central.settings.goal.unwrap().as_str(), "desktop");
/// assert!(central.diagnostics.is_empty());
/// ```
#[must_use]
pub fn read_central(source: &[u8]) -> CentralConfig {
    let mut problems = Problems::default();
    let fields = fields::read(source, folding, &mut problems);
    let mut reader = Reader { central: CentralConfig::default(), given: BTreeMap::new(), problems };
    fields.iter().for_each(|field| reader.field(field));
    CentralConfig { diagnostics: reader.problems.locate(source), ..reader.central }
}

const KEYS: [&str; 7] = [
    "goal",
    "max-starting",
    "alternatives",
    "mask",
    "start-timeout",
    "stop-timeout",
    "reload-timeout",
];

fn folding(key: &str) -> Folding {
    match key {
        "alternatives" | "mask" => Folding::Allowed,
        key if KEYS.contains(&key) => Folding::Refused,
        _ => Folding::Ignored,
    }
}

struct Reader {
    central: CentralConfig,
    /// The line in which each key is given.
    given: BTreeMap<String, usize>,
    problems: Problems,
}

impl Reader {
    fn field(&mut self, field: &Field) {
        let before = self.problems.errors();
        self.read(field);
        let has_errors = !field.sound || self.problems.errors() > before;
        // What was meant for one cannot be read either.
        self.central.chooses_more |=
            has_errors && nearest(&field.key, KEYS.into_iter()) == Some("alternatives");
    }

    fn read(&mut self, field: &Field) {
        if !field.sound {
            return;
        }
        if !KEYS.contains(&field.key.as_str()) {
            return self.unknown(field);
        }
        if let Some(line) = self.given.get(&field.key) {
            let message = format!("{} is given in line {line} before", field.key);
            let help = "remove one of the two lines";
            return self.problems.add(Code::RepeatedKey, field.key_span, message, help);
        }
        self.given.insert(field.key.clone(), field.line);
        if field.value.text().is_empty() {
            let message = format!("{} has no value", field.key);
            let help = "write one, or remove the line";
            return self.problems.add(Code::Empty, field.key_span, message, help);
        }
        self.value(&field.key, &field.value);
    }

    fn value(&mut self, key: &str, value: &Value) {
        let settings = &mut self.central.settings;
        let problems = &mut self.problems;
        let times = &mut settings.timeouts;
        match key {
            "goal" => {
                settings.goal = keys::one_target(value, problems);
                self.central.goal = Some(value.span());
            }
            "max-starting" => {
                let number = keys::number(value, problems, 1..=u32::MAX);
                settings.max_starting = number.and_then(NonZeroU32::new);
            }
            "alternatives" => {
                settings.alternatives = alternatives(value, problems);
                self.central.alternatives = Some(value.span());
            }
            "mask" => {
                self.central.mask = keys::target_items(value, problems);
                settings.mask = self.central.mask.iter().map(|(it, _)| it.clone()).collect();
            }
            "start-timeout" => {
                times.start = duration_or_none(value, problems).unwrap_or(times.start);
            }
            "stop-timeout" => {
                times.stop = keys::stop_time_out(value, problems).unwrap_or(times.stop);
            }
            _ => times.reload = duration_or_none(value, problems).unwrap_or(times.reload),
        }
    }

    fn unknown(&mut self, field: &Field) {
        let (code, message, help) = match field.key.as_str() {
            "unit" | "name" => (
                Code::UnknownKey,
                "a unit in the file of central settings".to_owned(),
                "write it into a file of its own, whose name ends in .unit".to_owned(),
            ),
            key if key.starts_with("x-") => (
                Code::Extension,
                format!("{} is passed over", short(key)),
                "remove it if that is not meant".to_owned(),
            ),
            key => {
                let meant = nearest(key, KEYS.into_iter());
                let help = meant.map_or_else(
                    || format!("write one of {}", KEYS.join(", ")),
                    |meant| format!("did you mean {meant}?"),
                );
                (Code::UnknownKey, format!("there is no key `{}` here", short(key)), help)
            }
        };
        self.problems.add(code, field.key_span, message, help);
    }
}

/// `target=unit` in a list.
fn alternatives(value: &Value, problems: &mut Problems) -> BTreeMap<Target, Name> {
    let mut chosen = BTreeMap::new();
    for (item, span) in keys::list(value, problems) {
        let Some((one, other)) = item.split_once('=') else {
            let message = format!("`{}` chooses no unit", short(item));
            problems.add(Code::BadValue, span, message, "write target=unit");
            continue;
        };
        let target = target(one.trim_end(), span, problems);
        let name = keys::name(other.trim_start(), span, problems);
        let (Some(target), Some(name)) = (target, name) else { continue };
        if let Some(first) = chosen.insert(target.clone(), name) {
            let message = format!("`{target}` is `{first}` before");
            problems.add(Code::BadValue, span, message, "choose one unit for it");
        }
    }
    chosen
}
