//! Units of other inits as stanzas, and what is lost on the way.
//!
//! ```text
//! unit files of systemd ── compile, link ─┐
//! scripts of OpenRC ── shell, service ────┼── whole ── stanzas
//! scripts with an LSB header ── sysv ─────┘     └── losses
//! ```
//!
//! Nothing is guessed in silence: what a stanza cannot say, and what the files do not tell, is a
//! [`ConversionNote`] with its place and what to write instead. Scripts are read and never run. What is
//! printed reads back as the same units, and makes a graph.

mod draft;
mod graph_fit;
mod note;
mod openrc;
mod systemd;
mod sysv;

use fleet_unitfile::SpecifierContext;

use super::text::{MAX_FILE_SIZE, MAX_UNITS};
use super::{InitUnit, Timeouts, text};
use draft::Draft;
use note::Report;
pub use note::{ConversionNote, NoteSeverity};

/// Which init files are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitSystem {
    /// InitUnit files of systemd, `.service` and `.target`.
    Systemd,
    /// Service scripts of OpenRC.
    Openrc,
    /// Init scripts, whose dependencies are in the header that the Linux Standard Base gave them.
    Sysv,
}

/// A file of another init.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceFile {
    /// What it is called in messages; the last part of the path is the name of its unit.
    pub path: String,
    /// Its bytes.
    pub source: Vec<u8>,
    /// Other names of its unit, as links to the file give them. Only units of systemd have such.
    pub aliases: Vec<String>,
}

/// What became of some files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversion {
    /// The units, in the order of their names.
    pub units: Vec<ConvertedUnit>,
    /// All that is not in the stanzas, in the order of the files and their lines.
    pub notes: Vec<ConversionNote>,
}

/// A unit as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertedUnit {
    /// Where it comes from, for a comment above it.
    pub from: String,
    /// The unit.
    pub unit: InitUnit,
    /// Its stanza.
    pub text: String,
}

/// Turns files of another init into stanzas.
///
/// ```
/// use fleet_core::graph::convert::{InitSystem, SourceFile, convert};
///
/// let source = b"[Service]\nExecStart=/usr/bin/web\nProtectHome=yes\n".to_vec();
/// let path = "web.service".to_owned();
/// let files = vec![SourceFile { path, source, aliases: Vec::new() }];
/// let converted = convert(InitSystem::Systemd, files);
/// assert!(converted.units[0].text.contains("exec-start: /usr/bin/web\n"));
/// assert_eq!((converted.notes[0].line, converted.is_exact()), (3, false));
/// ```
#[must_use]
pub fn convert(origin: InitSystem, sources: Vec<SourceFile>) -> Conversion {
    convert_with(origin, sources, &SpecifierContext::system_manager())
}

/// The same for a machine: what specifiers stand for there is what they become. What of it may be
/// otherwise elsewhere is remarked.
#[must_use]
pub fn convert_with(
    origin: InitSystem,
    mut sources: Vec<SourceFile>,
    facts: &SpecifierContext,
) -> Conversion {
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    let mut report = Report::new(&sources);
    let readable = readable(&sources, &mut report);
    let drafts = match origin {
        InitSystem::Systemd => systemd::drafts(&readable, facts, &mut report),
        InitSystem::Openrc => openrc::drafts(&readable, &mut report),
        InitSystem::Sysv => sysv::drafts(&readable, &mut report),
    };
    let drafts = graph_fit::fit(drafts, &mut report);
    let mut stanzas: Vec<ConvertedUnit> = drafts.into_iter().map(stanza).collect();
    stanzas.sort_by(|one, other| one.unit.name.cmp(&other.unit.name));
    Conversion { units: stanzas, notes: report.into_losses() }
}

impl Conversion {
    /// Whether nothing is lost, whatever there is to remark.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.notes.iter().all(|loss| loss.severity == NoteSeverity::Remark)
    }

    /// All stanzas as one file, each below a comment that says where it comes from.
    #[must_use]
    pub fn text(&self) -> String {
        let stanza = |it: &ConvertedUnit| format!("# {}\n{}", it.from, it.text);
        self.units.iter().map(stanza).collect::<Vec<_>>().join("\n")
    }
}

/// The files that are text, with their indices; as many as there may be units.
fn readable<'a>(sources: &'a [SourceFile], report: &mut Report<'_>) -> Vec<(usize, &'a str)> {
    let mut readable = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        if readable.len() == MAX_UNITS {
            let message = format!("this is one file more than the {MAX_UNITS} that may be units");
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
                let message = "the file is no text in UTF-8";
                report.left_out(file, line, message, "write it in UTF-8");
            }
        }
    }
    readable
}

fn stanza(draft: Draft) -> ConvertedUnit {
    let text = text::print(&draft.unit, &Timeouts::default()).text;
    ConvertedUnit { from: draft.from, unit: draft.unit, text }
}
