//! `convert`: units of another init as stanzas, and what is lost on the way.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use fleet_core::graph::convert::{Converted, Loss, Origin, Source, Stanza, Weight, convert};
use fleet_core::graph::text::LARGEST_FILE;
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::args::{ConvertArgs, From, Text};
use super::files::{self, read_file};
use crate::fleetctl::error::CliError;

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
    let mut converted = convert(origin, sources);
    converted.losses.extend(found.drop_ins.iter().map(|path| drop_in(path)));
    tell(&converted, &found.others, args.output)?;
    let losses = converted.losses.iter().filter(|it| it.weight == Weight::Loss).count();
    match losses {
        0 => Ok(()),
        1 => Err(CliError::failed("there is 1 loss")),
        _ => Err(CliError::failed(format!("there are {losses} losses"))),
    }
}

fn tell(converted: &Converted, others: &[PathBuf], format: Text) -> Result<(), CliError> {
    let mut to = io::stderr();
    for other in others {
        let text = "passed over: its name or its first line is none of such a unit";
        let _unread = writeln!(to, "{}: {text}", other.display()).is_err();
    }
    if format == Text::Json {
        let mut out = io::stdout();
        let failed = |error| CliError::failed("cannot print the stanzas").because(error);
        serde_json::to_writer_pretty(&mut out, &Document::of(converted)).map_err(failed)?;
        return Ok(writeln!(out)?);
    }
    for loss in &converted.losses {
        let _unread = writeln!(to, "{loss}").is_err();
    }
    let text = converted.text();
    if text.len() > LARGEST_FILE {
        let error = CliError::failed(format!("the stanzas have more than {LARGEST_FILE} bytes"));
        return Err(error.help("convert fewer files at once: each output is a file of its own"));
    }
    Ok(io::stdout().write_all(text.as_bytes())?)
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

/// What was converted, as JSON.
#[derive(Serialize)]
struct Document<'a> {
    stanzas: Vec<StanzaRow<'a>>,
    losses: Vec<LossRow<'a>>,
}

#[derive(Serialize)]
struct StanzaRow<'a> {
    unit: &'a str,
    from: &'a str,
    text: &'a str,
}

#[derive(Serialize)]
struct LossRow<'a> {
    file: &'a str,
    line: usize,
    column: usize,
    weight: &'static str,
    message: &'a str,
    help: &'a str,
}

impl<'a> Document<'a> {
    fn of(converted: &'a Converted) -> Self {
        let stanza = |it: &'a Stanza| StanzaRow {
            unit: it.unit.name.as_str(),
            from: &it.from,
            text: &it.text,
        };
        let loss = |it: &'a Loss| {
            let Loss { file, line, column, weight, message, help } = it;
            let (line, column, weight) = (*line, *column, weight.as_str());
            LossRow { file, line, column, weight, message, help }
        };
        Self {
            stanzas: converted.stanzas.iter().map(stanza).collect(),
            losses: converted.losses.iter().map(loss).collect(),
        }
    }
}
