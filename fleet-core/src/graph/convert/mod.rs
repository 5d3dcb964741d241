//! Units of other inits as stanzas, and what is lost on the way.
//!
//! ```text
//! unit files of systemd ── compile, link ─┐
//! scripts of OpenRC ── shell, service ────┼── whole ── stanzas
//! scripts with an LSB header ── sysv ─────┘     └── losses
//! ```
//!
//! Nothing is guessed in silence: what a stanza cannot say, and what the files do not tell, is a
//! [`Loss`] with its place and what to write instead. Scripts are read and never run. What is
//! printed reads back as the same units, and makes a graph.

mod draft;
mod loss;
mod openrc;
mod systemd;
mod sysv;
mod whole;

use fleet_unitfile::Facts;

use super::text::{LARGEST_FILE, MOST_UNITS};
use super::{TimeOuts, Unit, text};
use draft::Draft;
use loss::Report;
pub use loss::{Loss, Weight};

/// Which init files are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Unit files of systemd, `.service` and `.target`.
    Systemd,
    /// Service scripts of OpenRC.
    Openrc,
    /// Init scripts, whose dependencies are in the header that the Linux Standard Base gave them.
    Sysv,
}

/// A file of another init.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// What it is called in messages; the last part of the path is the name of its unit.
    pub path: String,
    /// Its bytes.
    pub source: Vec<u8>,
    /// Other names of its unit, as links to the file give them. Only units of systemd have such.
    pub aliases: Vec<String>,
}

/// What became of some files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Converted {
    /// The units, in the order of their names.
    pub stanzas: Vec<Stanza>,
    /// All that is not in the stanzas, in the order of the files and their lines.
    pub losses: Vec<Loss>,
}

/// A unit as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stanza {
    /// Where it comes from, for a comment above it.
    pub from: String,
    /// The unit.
    pub unit: Unit,
    /// Its stanza.
    pub text: String,
}

/// Turns files of another init into stanzas.
///
/// ```
/// use fleet_core::graph::convert::{Origin, Source, convert};
///
/// let source = b"[Service]\nExecStart=/usr/bin/web\nProtectHome=yes\n".to_vec();
/// let path = "web.service".to_owned();
/// let files = vec![Source { path, source, aliases: Vec::new() }];
/// let converted = convert(Origin::Systemd, files);
/// assert!(converted.stanzas[0].text.contains("exec-start: /usr/bin/web\n"));
/// assert_eq!((converted.losses[0].line, converted.is_exact()), (3, false));
/// ```
#[must_use]
pub fn convert(origin: Origin, sources: Vec<Source>) -> Converted {
    convert_on(origin, sources, &Facts::system_manager())
}

/// The same for a machine: what specifiers stand for there is what they become. What of it may be
/// otherwise elsewhere is remarked.
#[must_use]
pub fn convert_on(origin: Origin, mut sources: Vec<Source>, facts: &Facts) -> Converted {
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    let mut report = Report::new(&sources);
    let readable = readable(&sources, &mut report);
    let drafts = match origin {
        Origin::Systemd => systemd::drafts(&readable, facts, &mut report),
        Origin::Openrc => openrc::drafts(&readable, &mut report),
        Origin::Sysv => sysv::drafts(&readable, &mut report),
    };
    let drafts = whole::fit(drafts, &mut report);
    let mut stanzas: Vec<Stanza> = drafts.into_iter().map(stanza).collect();
    stanzas.sort_by(|one, other| one.unit.name.cmp(&other.unit.name));
    Converted { stanzas, losses: report.into_losses() }
}

impl Converted {
    /// Whether nothing is lost, whatever there is to remark.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.losses.iter().all(|loss| loss.weight == Weight::Remark)
    }

    /// All stanzas as one file, each below a comment that says where it comes from.
    #[must_use]
    pub fn text(&self) -> String {
        let stanza = |it: &Stanza| format!("# {}\n{}", it.from, it.text);
        self.stanzas.iter().map(stanza).collect::<Vec<_>>().join("\n")
    }
}

/// The files that are text, with their indices; as many as there may be units.
fn readable<'a>(sources: &'a [Source], report: &mut Report<'_>) -> Vec<(usize, &'a str)> {
    let mut readable = Vec::new();
    for (file, source) in sources.iter().enumerate() {
        if readable.len() == MOST_UNITS {
            let message = format!("this is one file more than the {MOST_UNITS} that may be units");
            report.left_out(file, 1, message, "convert fewer files at once");
            break;
        }
        match std::str::from_utf8(&source.source) {
            Ok(_) if source.source.len() > LARGEST_FILE => {
                let message = format!("the file has more than {LARGEST_FILE} bytes");
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

fn stanza(draft: Draft) -> Stanza {
    let text = text::print(&draft.unit, &TimeOuts::default()).text;
    Stanza { from: draft.from, unit: draft.unit, text }
}
