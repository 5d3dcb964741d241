//! Reads the file of central settings: goal, limits, alternatives and defaults. This file has no
//! stanzas.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use fleet_unitfile::Span;
use fleet_unitfile::spelling::suggest;

use super::diagnostic::{Code, InitDiagnostic, Problems, short};
use super::keys::{duration_or_none, target};
use super::lexer::{Field, Folding, Value};
use super::{keys, lexer};
use crate::graph::build::Settings;
use crate::graph::model::{Name, Target};

/// Result of reading the central settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CentralConfig {
    /// The settings. Values that could not be read have their defaults.
    pub settings: Settings,
    /// Position of the goal.
    pub goal: Option<Span>,
    /// Position of the alternatives.
    pub alternatives: Option<Span>,
    /// Whether further alternatives may exist in values that could not be read.
    pub alternatives_incomplete: bool,
    /// Masked targets and their positions.
    pub mask: Vec<(Target, Span)>,
    /// All errors and warnings, in the order of the file.
    pub diagnostics: Vec<InitDiagnostic>,
}

/// Reads the central settings.
///
/// ```
/// use fleet_core::graph::format::read_central;
///
/// let central = read_central(b"goal: desktop\nmax-starting: 8\n");
/// assert_eq!(central.settings.goal.unwrap().as_str(), "desktop");
/// assert!(central.diagnostics.is_empty());
/// ```
#[must_use]
pub fn read_central(source: &[u8]) -> CentralConfig {
    let mut problems = Problems::default();
    let fields = lexer::read(source, folding, &mut problems);
    let mut reader = Reader { central: CentralConfig::default(), given: BTreeMap::new(), problems };
    fields.iter().for_each(|field| reader.field(field));
    CentralConfig { diagnostics: reader.problems.locate(source), ..reader.central }
}

const KEYS: [&str; 8] = [
    "goal",
    "max-starting",
    "alternatives",
    "mask",
    "start-timeout",
    "stop-timeout",
    "reload-timeout",
    "output",
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
    /// Line of each key given so far.
    given: BTreeMap<String, usize>,
    problems: Problems,
}

impl Reader {
    fn field(&mut self, field: &Field) {
        let before = self.problems.errors();
        self.read(field);
        let has_errors = !field.valid || self.problems.errors() > before;
        // The line may have been meant as `alternatives`.
        self.central.alternatives_incomplete |=
            has_errors && suggest(&field.key, KEYS) == Some("alternatives");
    }

    fn read(&mut self, field: &Field) {
        if !field.valid {
            return;
        }
        if !KEYS.contains(&field.key.as_str()) {
            return self.unknown(field);
        }
        if let Some(line) = self.given.get(&field.key) {
            let message = format!("{} is already given in line {line}", field.key);
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
            "output" => settings.output = keys::read_output(value, problems),
            "stop-timeout" => {
                times.stop = keys::stop_timeout(value, problems).unwrap_or(times.stop);
            }
            _ => times.reload = duration_or_none(value, problems).unwrap_or(times.reload),
        }
    }

    fn unknown(&mut self, field: &Field) {
        let (code, message, help) = match field.key.as_str() {
            "unit" | "name" => (
                Code::UnknownKey,
                "units are not allowed in the central settings".to_owned(),
                "write it into a separate file whose name ends in .unit".to_owned(),
            ),
            key if key.starts_with("x-") => (
                Code::Extension,
                format!("{} is ignored", short(key)),
                "if that is not intended, remove the line".to_owned(),
            ),
            key => {
                let meant = suggest(key, KEYS);
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

/// Reads a list of `target=unit`.
fn alternatives(value: &Value, problems: &mut Problems) -> BTreeMap<Target, Name> {
    let mut chosen = BTreeMap::new();
    for (item, span) in keys::list(value, problems) {
        let Some((one, other)) = item.split_once('=') else {
            let message = format!("`{}` is not of the form target=unit", short(item));
            problems.add(Code::BadValue, span, message, "write target=unit");
            continue;
        };
        let target = target(one.trim_end(), span, problems);
        let name = keys::name(other.trim_start(), span, problems);
        let (Some(target), Some(name)) = (target, name) else { continue };
        if let Some(first) = chosen.insert(target.clone(), name) {
            let message = format!("`{target}` is already assigned to `{first}`");
            problems.add(Code::BadValue, span, message, "choose one unit for it");
        }
    }
    chosen
}
