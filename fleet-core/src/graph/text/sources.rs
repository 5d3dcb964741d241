//! Several files that together describe a system.

use fleet_unitfile::{Severity, Span};

use super::diagnostic::{Diagnostic, Problems};
use super::{Central, Code, Stanza, read_central, read_stanzas};
use crate::graph::{Settings, Unit};

/// How many units a system may have.
pub const MOST_UNITS: usize = 100_000;

/// What a file of a system holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Stanzas of units.
    Units,
    /// The central settings.
    Central,
}

impl Role {
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
pub struct File {
    /// What it is called in messages.
    pub name: String,
    /// What it holds.
    pub role: Role,
    /// Its bytes.
    pub source: Vec<u8>,
}

/// The files of a system and what they say, before it is known whether the units fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// The central settings.
    pub settings: Settings,
    /// Where the goal is named: the index of a file, and the place in it.
    pub goal: Option<(usize, Span)>,
    /// All stanzas with the index of their file, in the order of the files and within them.
    pub stanzas: Vec<(usize, Stanza)>,
    /// The files.
    pub files: Vec<File>,
    /// For each file, all that is wrong or odd in it.
    pub diagnostics: Vec<Vec<Diagnostic>>,
}

impl Sources {
    /// Reads files. The order in which they are handed in does not count: they are read by name.
    #[must_use]
    pub fn read(mut files: Vec<File>) -> Self {
        files.sort_by(|one, other| one.name.cmp(&other.name));
        let (settings, goal, mut diagnostics) = read_settings(&files);
        let mut stanzas = Vec::new();
        for (index, file) in files.iter().enumerate() {
            if file.role == Role::Units {
                let mut read = read_stanzas(&file.source, &settings.time_outs);
                let room = MOST_UNITS.saturating_sub(stanzas.len());
                diagnostics[index] = std::mem::take(&mut read.diagnostics);
                diagnostics[index].extend(too_many(&file.source, &read.stanzas, room));
                stanzas.extend(read.stanzas.into_iter().take(room).map(|stanza| (index, stanza)));
            }
        }
        Self { settings, goal, stanzas, files, diagnostics }
    }

    /// The units of all sound stanzas.
    pub fn units(&self) -> impl Iterator<Item = &Unit> {
        self.stanzas.iter().filter_map(|(_, stanza)| stanza.unit.as_ref())
    }

    /// Whether nothing is an error.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.diagnostics.iter().flatten().all(|it| it.severity() < Severity::Error)
    }
}

/// The central settings with the place of the goal, and what is wrong with them by file.
fn read_settings(files: &[File]) -> (Settings, Option<(usize, Span)>, Vec<Vec<Diagnostic>>) {
    let mut diagnostics = vec![Vec::new(); files.len()];
    let mut central = files.iter().enumerate().filter(|(_, file)| file.role == Role::Central);
    let Some((index, file)) = central.next() else {
        return (Settings::default(), None, diagnostics);
    };
    let Central { settings, goal, diagnostics: found } = read_central(&file.source);
    diagnostics[index] = found;
    for (other, second) in central {
        let mut problems = Problems::default();
        let message = format!("the central settings are in {}", file.name);
        problems.add(Code::RepeatedKey, Span::default(), message, "keep one of the two files");
        diagnostics[other] = problems.locate(&second.source);
    }
    (settings, goal.map(|span| (index, span)), diagnostics)
}

fn too_many(source: &[u8], stanzas: &[Stanza], room: usize) -> Vec<Diagnostic> {
    let Some(first) = stanzas.get(room) else { return Vec::new() };
    let mut problems = Problems::default();
    let message = format!("this is one unit more than the {MOST_UNITS} that there may be");
    problems.add(Code::TooLarge, first.name_span, message, "remove units that nobody needs");
    problems.locate(source)
}
