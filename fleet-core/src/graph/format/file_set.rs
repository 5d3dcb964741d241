//! A set of files that together describe an init, and its file of central settings: goal, limits,
//! alternatives and defaults. That file has no stanzas.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use fleet_unitfile::spelling::suggest;
use fleet_unitfile::{Severity, Span};

use super::diagnostic::{Code, InitDiagnostic, Problems, short};
use super::keys::{duration_or_none, target};
use super::lexer::{Field, Folding, Value};
use super::stanza::{HostResource, Stanza, read_stanzas_with};
use super::system_check::SystemCheck;
use super::{finish, keys, lexer};
use crate::graph::build::{Graph, Settings};
use crate::graph::model::{InitUnit, Name, Target};

/// Maximum number of units in a file set.
pub const MAX_UNITS: usize = 100_000;

/// Contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRole {
    /// Stanzas of units.
    Units,
    /// The central settings.
    Central,
}

impl FileRole {
    /// Returns the role of a file, judged by its name:
    ///
    /// - `init.conf` holds the central settings.
    /// - A name that ends in `.unit` holds stanzas, unless the file is hidden.
    /// - Any other file has no role and is ignored.
    #[must_use]
    pub fn of(file_name: &str) -> Option<Self> {
        match file_name {
            "init.conf" => Some(Self::Central),
            name if name.ends_with(".unit") && !name.starts_with('.') => Some(Self::Units),
            _ => None,
        }
    }
}

/// A file as passed by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitFile {
    /// Name used in messages.
    pub name: String,
    /// Contents of the file.
    pub role: FileRole,
    /// The file's bytes.
    pub source: Vec<u8>,
}

/// Files of an init and their contents, before the units are checked together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSet {
    /// The central settings, with the index of their file if there is one.
    pub central: (Option<usize>, CentralConfig),
    /// All stanzas in the order of the files, each with the index of its file.
    pub stanzas: Vec<(usize, Stanza)>,
    /// The files.
    pub files: Vec<InitFile>,
    /// Errors and warnings of each file.
    pub diagnostics: Vec<Vec<InitDiagnostic>>,
}

impl FileSet {
    /// Reads files in the order of their names.
    #[must_use]
    pub fn read(mut files: Vec<InitFile>) -> Self {
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let mut diagnostics = vec![Vec::new(); files.len()];
        let central = read_settings(&files, &mut diagnostics);
        let mut stanzas = Vec::new();
        for (index, file) in files.iter().enumerate() {
            if file.role == FileRole::Units {
                let Settings { timeouts, output, .. } = &central.1.settings;
                let mut read = read_stanzas_with(&file.source, timeouts, output.as_ref());
                let room = MAX_UNITS.saturating_sub(stanzas.len());
                diagnostics[index] = std::mem::take(&mut read.diagnostics);
                diagnostics[index].extend(too_many(&file.source, &read.stanzas, room));
                stanzas.extend(read.stanzas.into_iter().take(room).map(|stanza| (index, stanza)));
            }
        }
        Self { central, stanzas, files, diagnostics }
    }

    /// Adds a file that could not be read, with the reason and a remedy. Anything that it may
    /// contain is not reported as missing.
    pub fn add_unreadable(
        &mut self,
        name: String,
        role: FileRole,
        why: &str,
        help: impl Into<String>,
    ) {
        let mut problems = Problems::default();
        problems.add(Code::Unreadable, Span::default(), why, help);
        self.diagnostics.push(problems.locate(&[]));
        self.files.push(InitFile { name, role, source: Vec::new() });
        self.central.1.alternatives_incomplete |= role == FileRole::Central;
    }

    /// Returns the central settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.central.1.settings
    }

    /// Builds the graph, or returns `None` if there are errors. Errors of the set of units (such as
    /// a missing target) are added to the diagnostics of the file in which they can be corrected.
    pub fn graph(&mut self) -> Option<Graph> {
        let (units, candidates) = CandidateUnits::of(self);
        let (graph, errors) = match Graph::strict(units, self.settings()) {
            Ok(graph) => (Some(graph), Vec::new()),
            Err(errors) => (None, errors),
        };
        let mut check = SystemCheck::new(self, candidates);
        check.repeated_units();
        errors.iter().for_each(|error| check.report(error));
        // Warnings need complete units.
        let all_valid = self.stanzas.iter().all(|(_, stanza)| stanza.unit.is_some());
        if let Some(graph) = graph.as_ref().filter(|_| all_valid) {
            check.warn(graph);
        }
        let found = check.into_problems();
        self.add_problems(found);
        graph.filter(|_| self.is_valid())
    }

    /// Adds a warning for each program, account and path for which `exists` returns false.
    pub fn check_host(&mut self, exists: impl Fn(&HostResource) -> bool) {
        let mut found: Vec<Problems> = self.files.iter().map(|_| Problems::default()).collect();
        for (file, stanza) in &self.stanzas {
            for (missing, span) in stanza.host_resources.iter().filter(|(it, _)| !exists(it)) {
                let (code, message, help) = missing.missing(&short(missing.name()));
                found[*file].add(code, *span, message, help);
            }
        }
        self.add_problems(found);
    }

    /// Adds problems to the diagnostics of their files.
    fn add_problems(&mut self, found: Vec<Problems>) {
        for (index, problems) in found.into_iter().enumerate() {
            let located = problems.locate(&self.files[index].source);
            self.diagnostics[index].extend(located);
            self.diagnostics[index].sort_by_key(|it| (it.span.start, it.code));
        }
    }

    /// Returns the units of all stanzas without errors.
    pub fn units(&self) -> impl Iterator<Item = &InitUnit> {
        self.stanzas.iter().filter_map(|(_, stanza)| stanza.unit.as_ref())
    }

    /// Returns whether there are no errors.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.diagnostics.iter().flatten().all(|it| it.severity() < Severity::Error)
    }
}

/// Reads the central settings, and reports further files of that role.
fn read_settings(
    files: &[InitFile],
    diagnostics: &mut [Vec<InitDiagnostic>],
) -> (Option<usize>, CentralConfig) {
    let mut found = files.iter().enumerate().filter(|(_, file)| file.role == FileRole::Central);
    let Some((index, file)) = found.next() else { return (None, CentralConfig::default()) };
    let mut central = read_central(&file.source);
    diagnostics[index] = std::mem::take(&mut central.diagnostics);
    for (other, second) in found {
        let mut problems = Problems::default();
        let message = format!("the central settings are already in {}", file.name);
        problems.add(Code::RepeatedKey, Span::default(), message, "keep one of the two files");
        diagnostics[other] = problems.locate(&second.source);
    }
    (Some(index), central)
}

fn too_many(source: &[u8], stanzas: &[Stanza], room: usize) -> Vec<InitDiagnostic> {
    let Some(first) = stanzas.get(room) else { return Vec::new() };
    let mut problems = Problems::default();
    let message = format!("there are more than {MAX_UNITS} units");
    problems.add(Code::TooLarge, first.name_span, message, "remove unneeded units");
    problems.locate(source)
}

/// Origin of each unit of the checked set.
#[derive(Debug, Default)]
pub(super) struct CandidateUnits {
    /// Index of the stanza of each unit.
    pub(super) stanzas: BTreeMap<Name, usize>,
    /// Whether the provided targets of all units are known. Otherwise no target can be reported as
    /// missing.
    pub(super) is_complete: bool,
}

impl CandidateUnits {
    /// Returns the units of all stanzas with their origins.
    pub(super) fn of(files: &FileSet) -> (Vec<InitUnit>, Self) {
        let stanzas = || files.stanzas.iter().map(|(_, stanza)| stanza);
        let named: BTreeSet<&Name> = stanzas().filter_map(|stanza| stanza.name.as_ref()).collect();
        // Targets of earlier stanzas of the same name; the first one keeps them.
        let mut provided: BTreeMap<&Name, BTreeSet<&Target>> = BTreeMap::new();
        let (mut units, mut all) = (Vec::with_capacity(files.stanzas.len()), BTreeMap::new());
        let mut free = (0_u64..).map(placeholder_name).filter(|name| !named.contains(name));
        for (index, stanza) in stanzas().enumerate() {
            let own = stanza.name.clone().filter(|it| !all.contains_key(it));
            let Some(name) = own.or_else(|| free.next()) else { continue };
            let mut unit = unit(stanza, &name);
            if let Some(claimed) = stanza.name.as_ref().map(|it| provided.entry(it).or_default()) {
                unit.provides.retain(|target| !claimed.contains(target));
                claimed.extend(stanza.provides.iter().map(|(target, _)| target));
            }
            all.insert(name, index);
            units.push(unit);
        }
        (units, Self { stanzas: all, is_complete: is_complete(files) })
    }
}

/// Returns the unit of a stanza. For a stanza with errors, the unit has only the targets and
/// dependencies that could be read.
fn unit(stanza: &Stanza, name: &Name) -> InitUnit {
    if let Some(unit) = &stanza.unit {
        return InitUnit { name: name.clone(), ..unit.clone() };
    }
    let provides = stanza.provides.iter().map(|(target, _)| target.clone());
    InitUnit {
        edges: finish::edges(&stanza.edges),
        ..InitUnit::new_virtual(name.clone(), provides)
    }
}

/// Returns a placeholder name for a stanza that has no name, or has a name that is already taken.
fn placeholder_name(number: u64) -> Name {
    Name::new(&format!("unnamed-{number}")).expect("letters, a dash and digits make a name")
}

/// Returns whether the provided targets of all units are known.
fn is_complete(files: &FileSet) -> bool {
    let lost = |code| matches!(code, Code::OutsideStanza | Code::TooLarge | Code::Unreadable);
    !files.stanzas.iter().any(|(_, stanza)| stanza.provides_incomplete)
        && !files.diagnostics.iter().flatten().any(|it| lost(it.code))
}

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
