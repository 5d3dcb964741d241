//! Converts units of other inits to stanzas.
//!
//! ```text
//! unit files of systemd ── compile, link ─┐
//! scripts of OpenRC ── shell, service ────┼── graph_fit ── stanzas
//! scripts with an LSB header ── sysv ─────┤       └── notes
//! service descriptions of dinit ── dinit ─┘
//! ```
//!
//! Nothing is dropped silently. Each setting that a stanza cannot express becomes a
//! [`ConversionNote`] with its position and a remedy. Each assumption about facts that the files do
//! not contain becomes a note too. Scripts are parsed and never executed. Reading the printed
//! stanzas yields the same units, and these form a valid graph.

mod dinit;
mod draft;
mod graph_fit;
mod openrc;
mod systemd;
mod systemd_relations;
mod sysv;

use fleet_unitfile::SpecifierContext;

use crate::graph::format;
use crate::graph::format::{MAX_FILE_SIZE, MAX_UNITS};
use crate::graph::model::{InitUnit, Timeouts};
use draft::{Draft, Report};

pub use self::draft::{ConversionNote, NoteSeverity};

/// Init system of the source files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitSystem {
    /// Unit files of systemd: `.service` and `.target`.
    Systemd,
    /// Service scripts of OpenRC.
    Openrc,
    /// Init scripts with their dependencies in an LSB header.
    Sysv,
    /// Service descriptions of dinit.
    Dinit,
}

/// A file of another init.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceFile {
    /// Path used in messages; its last component is the name of the unit.
    pub path: String,
    /// The file's bytes.
    pub source: Vec<u8>,
    /// Names of links to the file. For units from systemd they become aliases of the unit; for
    /// other units they are ignored.
    pub aliases: Vec<String>,
    /// Units of systemd that want this unit by a link in their directory `NAME.wants`.
    pub wanted_by: Vec<String>,
    /// Units of systemd that require this unit by a link in their directory `NAME.requires`.
    pub required_by: Vec<String>,
}

/// Result of a conversion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conversion {
    /// The units, sorted by name.
    pub units: Vec<ConvertedUnit>,
    /// Losses and remarks, ordered by file and line.
    pub notes: Vec<ConversionNote>,
}

/// A converted unit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvertedUnit {
    /// Origin of the unit, for a comment above its stanza.
    pub from: String,
    /// The unit.
    pub unit: InitUnit,
    /// Its stanza.
    pub text: String,
}

/// Converts files of another init to stanzas.
///
/// ```
/// use fleet_core::graph::convert::{InitSystem, SourceFile, convert};
///
/// let source = b"[Service]\nExecStart=/usr/bin/web\nProtectHome=yes\n".to_vec();
/// let path = "web.service".to_owned();
/// let files = vec![SourceFile { path, source, ..SourceFile::default() }];
/// let converted = convert(InitSystem::Systemd, files);
/// assert!(converted.units[0].text.contains("exec-start: /usr/bin/web\n"));
/// assert_eq!((converted.notes[0].line, converted.is_exact()), (3, false));
/// ```
#[must_use]
pub fn convert(origin: InitSystem, sources: Vec<SourceFile>) -> Conversion {
    convert_with(origin, sources, &ConvertOptions::default())
}

/// Facts that the files do not contain.
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    /// Values of specifiers. Each use of a value that may differ on other machines gets a remark.
    pub specifiers: SpecifierContext,
    /// Whether units of systemd are enabled, so that `WantedBy=` and `RequiredBy=` apply. Otherwise
    /// these options become remarks.
    pub enabled: bool,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self { specifiers: SpecifierContext::system_manager(), enabled: false }
    }
}

/// Converts files with these options.
#[must_use]
pub fn convert_with(
    origin: InitSystem,
    mut sources: Vec<SourceFile>,
    options: &ConvertOptions,
) -> Conversion {
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    let mut report = Report::new(&sources);
    let readable = readable(&sources, &mut report);
    let drafts = match origin {
        InitSystem::Systemd => systemd::drafts(&readable, options, &mut report),
        InitSystem::Openrc => openrc::drafts(&readable, &mut report),
        InitSystem::Sysv => sysv::drafts(&readable, &mut report),
        InitSystem::Dinit => dinit::drafts(&readable, &mut report),
    };
    let drafts = graph_fit::fit(drafts, &mut report);
    let mut stanzas: Vec<ConvertedUnit> = drafts.into_iter().map(stanza).collect();
    stanzas.sort_by(|one, other| one.unit.name.cmp(&other.unit.name));
    Conversion { units: stanzas, notes: report.into_notes() }
}

impl Conversion {
    /// Returns whether there are no losses. Remarks are not losses.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.notes.iter().all(|note| note.severity == NoteSeverity::Remark)
    }

    /// Returns all stanzas as one file, each below a comment with its origin.
    #[must_use]
    pub fn text(&self) -> String {
        let stanza = |it: &ConvertedUnit| format!("# {}\n{}", it.from, it.text);
        self.units.iter().map(stanza).collect::<Vec<_>>().join("\n")
    }
}

/// Returns the text of each readable file with the file's index. Reports files that are too large
/// or not UTF-8, and any files beyond the maximum number of units.
fn readable<'a>(sources: &'a [SourceFile], report: &mut Report<'_>) -> Vec<(usize, &'a str)> {
    let mut readable = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        if readable.len() == MAX_UNITS {
            let message = format!("there are more than {MAX_UNITS} files");
            report.left_out(file, 1, message, "convert fewer files at once");
            break;
        }
        match std::str::from_utf8(&source.source) {
            Ok(_) if source.source.len() > MAX_FILE_SIZE => {
                let message = format!("the file has more than {MAX_FILE_SIZE} bytes");
                report.left_out(file, 1, message, "write its stanza by hand");
            }
            Ok(text) => readable.push((file, text)),
            Err(error) => {
                let before = &source.source[..error.valid_up_to()];
                let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
                let message = "the file is not UTF-8 text";
                report.left_out(file, line, message, "write it in UTF-8");
            }
        }
    }
    readable
}

fn stanza(draft: Draft) -> ConvertedUnit {
    let text = format::print(&draft.unit, &Timeouts::default()).text;
    ConvertedUnit { from: draft.from, unit: draft.unit, text }
}
