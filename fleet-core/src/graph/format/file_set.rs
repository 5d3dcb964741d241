//! A set of files that together describe an init.

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::{Severity, Span};

use super::central::{CentralConfig, read_central};
use super::diagnostic::{Code, InitDiagnostic, Problems, short};
use super::finish;
use super::stanza::{HostResource, Stanza, read_stanzas_with};
use super::system_check::SystemCheck;
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
