//! `convert`: units of another init as stanzas, and what is lost on the way.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fleet_agent::machine_facts;
use fleet_core::graph::convert::{Converted, Loss, Origin, Source, Stanza, Weight, convert_on};
use fleet_core::graph::text::LARGEST_FILE;
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::args::{ConvertArgs, From};
use super::files::{self, read_file};
use crate::fleetctl::error::{CliError, Exit};
use crate::fleetctl::global_args::Format;
use crate::fleetctl::output::{Output, Record};

/// Runs the command.
pub(super) fn run(args: &ConvertArgs) -> Result<(), CliError> {
    let mut found = Found::default();
    for path in &args.paths {
        if path.is_dir() {
            found.read_directory(path, args.from)?;
        } else {
            found.read(path)?;
        }
    }
    let sources = files::once(found.sources, |source| Path::new(&source.path));
    let origin = match args.from {
        From::Systemd => Origin::Systemd,
        From::Openrc => Origin::Openrc,
        From::Sysv => Origin::Sysv,
    };
    let mut converted = convert_on(origin, sources, &machine_facts());
    converted.losses.extend(found.drop_ins.iter().map(|path| drop_in(path)));
    tell(&converted, &found.others, args.output)?;
    let losses = converted.losses.iter().filter(|it| it.weight == Weight::Loss).count();
    let lossy = match losses {
        0 => return Ok(()),
        1 => CliError::failed("there is 1 loss"),
        _ => CliError::failed(format!("there are {losses} losses")),
    };
    Err(lossy.ends_in(Exit::Lossy))
}

/// Prints the stanzas. The losses are data among them where programs read them, and otherwise are
/// on standard error: what people get on standard output is a file.
fn tell(converted: &Converted, others: &[PathBuf], format: Format) -> Result<(), CliError> {
    let mut to = io::stderr();
    for other in others {
        let text = "passed over: its name or its first line is none of such a unit";
        let _unread = writeln!(to, "{}: {text}", other.display()).is_err();
    }
    let mut output = Output::on_stdout(format);
    let stanzas = converted.stanzas.iter().map(Row::of_stanza);
    if matches!(format, Format::Json | Format::Jsonl) {
        let all: Vec<Row<'_>> = stanzas.chain(converted.losses.iter().map(Row::of_loss)).collect();
        return output.list(&all, "");
    }
    for loss in &converted.losses {
        let _unread = writeln!(to, "{loss}").is_err();
    }
    if format == Format::Name {
        return output.list(&stanzas.collect::<Vec<_>>(), "");
    }
    let text = converted.text();
    if text.len() > LARGEST_FILE {
        let error = CliError::failed(format!("the stanzas have more than {LARGEST_FILE} bytes"));
        return Err(error.help("convert fewer files at once: each output is a file of its own"));
    }
    output.document(text.as_bytes())
}

/// The files that a person named.
#[derive(Default)]
struct Found {
    sources: Vec<Source>,
    /// Names in directories that were passed over.
    others: Vec<PathBuf>,
    /// Directories with pieces of unit files.
    drop_ins: Vec<PathBuf>,
}

impl Found {
    fn read(&mut self, path: &Path) -> Result<(), CliError> {
        let source = read_file(path)?;
        self.sources.push(Source { path: path.display().to_string(), source });
        Ok(())
    }

    fn read_directory(&mut self, path: &Path, from: From) -> Result<(), CliError> {
        let cannot =
            |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
        let mut paths = Vec::new();
        for entry in fs::read_dir(path).map_err(cannot)? {
            paths.push(entry.map_err(cannot)?.path());
        }
        paths.sort();
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("~");
            if name.starts_with('.') {
                continue;
            }
            let is_file = path.is_file() && !name.ends_with('~') && !name.contains(".dpkg-");
            let fits = match from {
                From::Systemd => name.parse::<UnitName>().is_ok(),
                From::Openrc => begins_with_interpreter(&path, "openrc-run|runscript"),
                From::Sysv => begins_with_interpreter(&path, ""),
            };
            if is_file && fits {
                self.read(&path)?;
            } else if from == From::Systemd && is_drop_in(&path) {
                self.drop_ins.push(path);
            } else {
                self.others.push(path);
            }
        }
        Ok(())
    }
}

/// Whether the first line of a file names an interpreter with one of these in its path.
fn begins_with_interpreter(path: &Path, names: &str) -> bool {
    if !path.is_file() {
        return false;
    }
    let Ok(source) = read_file(path) else { return false };
    let first = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    first.starts_with("#!") && names.split('|').any(|name| first.contains(name))
}

/// Whether it is a directory whose files add to a unit of systemd.
fn is_drop_in(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let unit = name.strip_suffix(".d").map(str::parse::<UnitName>);
    path.is_dir() && unit.is_some_and(|unit| unit.is_ok())
}

fn drop_in(path: &Path) -> Loss {
    Loss {
        file: path.display().to_string(),
        line: 1,
        column: 1,
        weight: Weight::Loss,
        message: "what is in this directory adds to a unit, and is not read".to_owned(),
        help: "write all of it into the unit file, as `systemctl cat` shows it".to_owned(),
    }
}

/// What programs read: a stanza, or something that is lost.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Row<'a> {
    Stanza { unit: &'a str, from: &'a str, text: &'a str },
    Loss(LossRow<'a>),
    Remark(LossRow<'a>),
}

#[derive(Serialize)]
struct LossRow<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    message: &'a str,
    help: &'a str,
}

impl<'a> Row<'a> {
    fn of_stanza(it: &'a Stanza) -> Self {
        Self::Stanza { unit: it.unit.name.as_str(), from: &it.from, text: &it.text }
    }

    fn of_loss(it: &'a Loss) -> Self {
        let Loss { file, line, column, weight, message, help } = it;
        let row = LossRow { file, line: *line, column: *column, message, help };
        match weight {
            Weight::Loss => Self::Loss(row),
            Weight::Remark => Self::Remark(row),
        }
    }
}

impl Record for Row<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Stanza { unit, .. } => unit,
            Self::Loss(row) | Self::Remark(row) => row.file,
        }
    }
}
