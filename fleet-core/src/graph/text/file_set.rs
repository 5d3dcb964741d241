//! Several files that together describe a system.

use fleet_unitfile::{Severity, Span};

use super::candidates::Candidates;
use super::diagnostic::{InitDiagnostic, Problems, short};
use super::system_check::Whole;
use super::{CentralConfig, Code, Stanza, read_central, read_stanzas};
use crate::graph::{Graph, InitUnit, Settings};

/// How many units a system may have.
pub const MAX_UNITS: usize = 100_000;

/// What a file of a system holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRole {
    /// Stanzas of units.
    Units,
    /// The central settings.
    Central,
}

impl FileRole {
    /// What a file in a directory holds, by its name: `init.conf` the central settings, and what
    /// ends in `.unit` stanzas. Other files, and hidden ones, are no part of a system.
    #[must_use]
    pub fn of(file_name: &str) -> Option<Self> {
        match file_name {
            "init.conf" => Some(Self::Central),
            name if name.ends_with(".unit") && !name.starts_with('.') => Some(Self::Units),
            _ => None,
        }
    }
}

/// A file as it is handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitFile {
    /// What it is called in messages.
    pub name: String,
    /// What it holds.
    pub role: FileRole,
    /// Its bytes.
    pub source: Vec<u8>,
}

/// The files of a system and what they say, before it is known whether the units fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSet {
    /// The central settings, with the index of their file if there is one.
    pub central: (Option<usize>, CentralConfig),
    /// All stanzas with the index of their file, in the order of the files and within them.
    pub stanzas: Vec<(usize, Stanza)>,
    /// The files.
    pub files: Vec<InitFile>,
    /// For each file, all that is wrong or odd in it.
    pub diagnostics: Vec<Vec<InitDiagnostic>>,
}

impl FileSet {
    /// Reads files. The order in which they are handed in does not count: they are read by name.
    #[must_use]
    pub fn read(mut files: Vec<InitFile>) -> Self {
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let mut diagnostics = vec![Vec::new(); files.len()];
        let central = read_settings(&files, &mut diagnostics);
        let mut stanzas = Vec::new();
        for (index, file) in files.iter().enumerate() {
            if file.role == FileRole::Units {
                let mut read = read_stanzas(&file.source, &central.1.settings.timeouts);
                let room = MAX_UNITS.saturating_sub(stanzas.len());
                diagnostics[index] = std::mem::take(&mut read.diagnostics);
                diagnostics[index].extend(too_many(&file.source, &read.stanzas, room));
                stanzas.extend(read.stanzas.into_iter().take(room).map(|stanza| (index, stanza)));
            }
        }
        Self { central, stanzas, files, diagnostics }
    }

    /// The central settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.central.1.settings
    }

    /// The graph of the units, if nothing is an error. What is wrong with the units as a whole is
    /// added to the diagnostics, each thing in the file where it can be put right.
    pub fn graph(&mut self) -> Option<Graph> {
        let (units, candidates) = Candidates::of(self);
        let (graph, flaws) = match Graph::strict(units, self.settings()) {
            Ok(graph) => (Some(graph), Vec::new()),
            Err(flaws) => (None, flaws),
        };
        let mut whole = Whole::new(self, candidates);
        whole.repeated_units();
        flaws.iter().for_each(|flaw| whole.flaw(flaw));
        // What is odd can be told once each unit says what it needs.
        let are_sound = self.stanzas.iter().all(|(_, stanza)| stanza.unit.is_some());
        if let Some(graph) = graph.as_ref().filter(|_| are_sound) {
            whole.warn(graph);
        }
        let found = whole.into_problems();
        self.tell(found);
        graph.filter(|_| self.is_sound())
    }

    /// Adds a warning for each program that is not there, which is what the caller is asked.
    pub fn check_programs(&mut self, is_there: impl Fn(&str) -> bool) {
        let mut found: Vec<Problems> = self.files.iter().map(|_| Problems::default()).collect();
        for (file, stanza) in &self.stanzas {
            for (program, span) in stanza.programs.iter().filter(|(it, _)| !is_there(it)) {
                let message = format!("`{}` is no executable file here", short(program));
                let help = "install it, or correct the path";
                found[*file].add(Code::NoProgram, *span, message, help);
            }
        }
        self.tell(found);
    }

    /// Adds what was found, file by file.
    fn tell(&mut self, found: Vec<Problems>) {
        for (index, problems) in found.into_iter().enumerate() {
            let located = problems.locate(&self.files[index].source);
            self.diagnostics[index].extend(located);
            self.diagnostics[index].sort_by_key(|it| (it.span.start, it.code));
        }
    }

    /// The units of all sound stanzas.
    pub fn units(&self) -> impl Iterator<Item = &InitUnit> {
        self.stanzas.iter().filter_map(|(_, stanza)| stanza.unit.as_ref())
    }

    /// Whether nothing is an error.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.diagnostics.iter().flatten().all(|it| it.severity() < Severity::Error)
    }
}

/// The central settings, and what is wrong with them by file.
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
        let message = format!("the central settings are in {}", file.name);
        problems.add(Code::RepeatedKey, Span::default(), message, "keep one of the two files");
        diagnostics[other] = problems.locate(&second.source);
    }
    (Some(index), central)
}

fn too_many(source: &[u8], stanzas: &[Stanza], room: usize) -> Vec<InitDiagnostic> {
    let Some(first) = stanzas.get(room) else { return Vec::new() };
    let mut problems = Problems::default();
    let message = format!("this is one unit more than the {MAX_UNITS} that there may be");
    problems.add(Code::TooLarge, first.name_span, message, "remove units that nobody needs");
    problems.locate(source)
}
