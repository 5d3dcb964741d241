//! `convert`: prints units of another init as stanzas, and reports what is lost.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use fleet_agent::native::linux::machine_specifiers;
use fleet_core::graph::convert::{
    Conversion, ConversionNote, ConvertOptions, ConvertedUnit, InitSystem, NoteSeverity,
    SourceFile, convert_with,
};
use fleet_core::graph::format::MAX_FILE_SIZE;
use fleet_unitfile::UnitName;
use serde::Serialize;

use super::args::{ConvertArgs, From};
use super::files;
use super::files::read_file;
use crate::ui::error::{CliError, Exit};
use crate::ui::global_args::Format;
use crate::ui::output::{Output, Record};

/// Runs the command.
pub(super) fn run(args: &ConvertArgs) -> Result<(), CliError> {
    let mut scan = PathScan { enabled: args.enabled, ..PathScan::default() };
    for path in &args.paths {
        if path.is_dir() {
            scan.read_directory(path, args.from)?;
        } else {
            scan.read(path, args.from)?;
        }
    }
    let sources = scan.take_sources()?;
    let origin = match args.from {
        From::Systemd => InitSystem::Systemd,
        From::Openrc => InitSystem::Openrc,
        From::Sysv => InitSystem::Sysv,
        From::Dinit => InitSystem::Dinit,
    };
    let options = ConvertOptions { specifiers: machine_specifiers(), enabled: args.enabled };
    let mut converted = convert_with(origin, sources, &options);
    converted.notes.extend(scan.losses);
    converted.notes.extend(scan.drop_ins.values().map(|path| drop_in(path)));
    print(&converted, &scan.skipped, args.output)?;
    let losses = converted.notes.iter().filter(|it| it.severity == NoteSeverity::Loss).count();
    let lossy = match losses {
        0 => return Ok(()),
        1 => CliError::failed("1 setting or unit could not be converted"),
        _ => CliError::failed(format!("{losses} settings or units could not be converted")),
    };
    Err(lossy.with_exit(Exit::Lossy))
}

/// Prints the stanzas and the losses.
///
/// In the table format, standard output is a file of stanzas, so the losses go to standard error.
/// In the JSON formats, the losses are records that follow the stanzas.
fn print(converted: &Conversion, skipped: &[PathBuf], format: Format) -> Result<(), CliError> {
    let mut to = io::stderr();
    for other in skipped {
        let text = "skipped: not a unit file by its name or first line";
        let _unread = writeln!(to, "{}: {text}", other.display()).is_err();
    }
    let mut output = Output::on_stdout(format);
    let stanzas = converted.units.iter().map(Row::of_stanza);
    if matches!(format, Format::Json | Format::Jsonl) {
        let all: Vec<Row<'_>> = stanzas.chain(converted.notes.iter().map(Row::of_loss)).collect();
        return output.list(&all, "");
    }
    for loss in &converted.notes {
        let _unread = writeln!(to, "{loss}").is_err();
    }
    if format == Format::Name {
        return output.list(&stanzas.collect::<Vec<_>>(), "");
    }
    let text = converted.text();
    if text.len() > MAX_FILE_SIZE {
        let error = CliError::failed(format!(
            "the converted units have more than {MAX_FILE_SIZE} bytes, the limit of a unit file"
        ));
        return Err(error.help("convert fewer files at once, each time into another .unit file"));
    }
    output.document(text.as_bytes())
}

/// Files found below the given paths.
#[derive(Default)]
struct PathScan {
    /// Whether links in the directories of starting units count.
    enabled: bool,
    sources: Vec<SourceFile>,
    /// Links in directories such as `all.target.wants`.
    starts: Vec<StartLink>,
    /// Links that give a systemd unit another name: each link's name, and the file of the unit.
    links: Vec<(String, PathBuf)>,
    /// Skipped names in directories.
    skipped: Vec<PathBuf>,
    /// One loss for each directory entry that has the name of a unit but leads to no file, such as
    /// a broken link.
    losses: Vec<ConversionNote>,
    /// Drop-in directories: their canonical path, and the path by which they were found first.
    drop_ins: BTreeMap<PathBuf, PathBuf>,
}

/// A link that makes one unit start another.
struct StartLink {
    /// Unit whose directory has the link.
    starter: String,
    /// Whether it requires the other unit, instead of wanting it.
    requires: bool,
    /// Name of the other unit.
    unit: String,
    path: PathBuf,
}

impl PathScan {
    fn read(&mut self, path: &Path, from: From) -> Result<(), CliError> {
        if from == From::Systemd {
            drop_ins_beside(path).into_iter().for_each(|path| self.add_drop_in(path));
            if let Some(link) = as_link(path) {
                self.links.push(link);
                return Ok(());
            }
        }
        let source = read_file(path)?;
        let path = path.display().to_string();
        self.sources.push(SourceFile { path, source, ..SourceFile::default() });
        Ok(())
    }

    /// Returns the files, each with the names that links give its unit.
    fn take_sources(&mut self) -> Result<Vec<SourceFile>, CliError> {
        self.read_started()?;
        for (alias, file) in std::mem::take(&mut self.links) {
            let is_named = |it: &SourceFile| Path::new(&it.path).file_name() == file.file_name();
            if !self.sources.iter().any(is_named) {
                self.read(&file, From::Systemd)?;
            }
            for source in self.sources.iter_mut().filter(|it| is_named(it)) {
                source.aliases.push(alias.clone());
            }
        }
        for StartLink { starter, requires, unit, .. } in &self.starts {
            let is_named = |it: &&mut SourceFile| {
                it.aliases.contains(unit) || Path::new(&it.path).file_name() == Some(unit.as_ref())
            };
            if let Some(source) = self.sources.iter_mut().find(is_named) {
                let starters =
                    if *requires { &mut source.required_by } else { &mut source.wanted_by };
                starters.push(starter.clone());
            }
        }
        Ok(files::deduplicated(std::mem::take(&mut self.sources), |source| Path::new(&source.path)))
    }

    /// Reads the files of the started units that no path has named.
    fn read_started(&mut self) -> Result<(), CliError> {
        let starts = std::mem::take(&mut self.starts);
        for StartLink { unit, path, .. } in &starts {
            let has_source =
                |it: &SourceFile| Path::new(&it.path).file_name() == Some(unit.as_ref());
            if self.sources.iter().any(has_source) || self.links.iter().any(|it| it.0 == *unit) {
                continue;
            }
            match fs::canonicalize(path) {
                // An instance has the name of the link.
                _ if !path.is_file() => self.read_irregular(path)?,
                Ok(file) if file.file_name() == Some(unit.as_ref()) => {
                    self.read(&file, From::Systemd)?;
                }
                _ => self.read(path, From::Systemd)?,
            }
        }
        self.starts = starts;
        Ok(())
    }

    /// Adds the links of a directory such as `all.target.wants`.
    fn add_starts(
        &mut self,
        directory: &Path,
        starter: &str,
        requires: bool,
    ) -> Result<(), CliError> {
        for path in entries(directory)? {
            match unit_name(&path) {
                Some(unit) => {
                    let (starter, unit) = (starter.to_owned(), unit.to_string());
                    self.starts.push(StartLink { starter, requires, unit, path });
                }
                None => self.skipped.push(path),
            }
        }
        Ok(())
    }

    fn read_directory(&mut self, path: &Path, from: From) -> Result<(), CliError> {
        for path in entries(path)? {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("~");
            if name.starts_with('.') {
                continue;
            }
            let is_file = path.is_file() && !name.ends_with('~') && !name.contains(".dpkg-");
            let fits = match from {
                From::Systemd => name.parse::<UnitName>().is_ok(),
                From::Openrc => begins_with_interpreter(&path, "openrc-run|runscript"),
                From::Sysv => begins_with_interpreter(&path, ""),
                From::Dinit => is_file && !begins_with_interpreter(&path, ""),
            };
            if is_file && fits {
                self.read(&path, from)?;
            } else if from == From::Systemd && fits && !path.is_dir() {
                self.read_irregular(&path)?;
            } else if from == From::Systemd && is_drop_in(&path) {
                self.add_drop_in(path);
            } else if let Some((starter, requires)) =
                starter(&path).filter(|_| from == From::Systemd && self.enabled)
            {
                self.add_starts(&path, starter, requires)?;
            } else {
                self.skipped.push(path);
            }
        }
        Ok(())
    }

    /// Handles a directory entry that has the name of a unit but is not a regular file.
    ///
    /// A link to `/dev/null` masks the unit and is read like a file. Any other entry, such as a
    /// broken link, is recorded as a loss.
    fn read_irregular(&mut self, path: &Path) -> Result<(), CliError> {
        if fs::canonicalize(path).is_ok_and(|file| file == Path::new("/dev/null")) {
            return self.read(path, From::Systemd);
        }
        let (message, help) = match path.is_symlink() {
            true => (
                "the unit is left out: the link is broken",
                "pass the unit file itself; write its other names into `provides:` of the stanza",
            ),
            false => ("the unit is left out: not a regular file", "pass a regular file instead"),
        };
        self.losses.push(loss(path, message, help));
        Ok(())
    }

    fn add_drop_in(&mut self, path: PathBuf) {
        let same = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        self.drop_ins.entry(same).or_insert(path);
    }
}

/// Returns the paths in a directory, in order.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, CliError> {
    let read = || {
        let entries = fs::read_dir(directory)?;
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()
    };
    let cannot = || format!("cannot read {}", directory.display());
    let mut paths = read().map_err(|error| CliError::failed(cannot()).because(error))?;
    paths.sort();
    Ok(paths)
}

/// Returns the unit to which a directory of links belongs, and whether it requires the linked
/// units (`all.target.requires`) or wants them (`all.target.wants`).
fn starter(path: &Path) -> Option<(&str, bool)> {
    let name = path.file_name()?.to_str()?;
    let wants = name.strip_suffix(".wants").map(|unit| (unit, false));
    let found = wants.or_else(|| name.strip_suffix(".requires").map(|unit| (unit, true)))?;
    (path.is_dir() && found.0.parse::<UnitName>().is_ok()).then_some(found)
}

/// Returns whether the file's first line begins with `#!` and contains one of the names. `|`
/// separates the names, as in `openrc-run|runscript`; an empty text fits every script.
fn begins_with_interpreter(path: &Path, names: &str) -> bool {
    if !path.is_file() {
        return false;
    }
    let Ok(source) = read_file(path) else { return false };
    let first = source.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first = String::from_utf8_lossy(first);
    first.starts_with("#!") && names.split('|').any(|name| first.contains(name))
}

/// Returns whether the path is a directory with drop-ins for one systemd unit (`web.service.d`) or
/// for all units of a type (`service.d`).
fn is_drop_in(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let unit = name.strip_suffix(".d").map(|name| format!("all.{name}").parse::<UnitName>());
    path.is_dir() && unit.is_some_and(|unit| unit.is_ok())
}

/// Returns the existing drop-in directories beside a unit file.
///
/// For `a-b@1.service`, systemd applies the drop-ins in `a-b@1.service.d`, `a-.service.d` (a prefix
/// that ends in a dash), `a-b@.service.d` (the template) and `service.d` (the type).
fn drop_ins_beside(path: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    if let Some(unit) = unit_name(path) {
        let kind = unit.unit_type();
        let dashes = unit.stem().match_indices('-');
        names.extend(dashes.map(|(at, _)| format!("{}-.{kind}", &unit.stem()[..at])));
        names.extend(unit.template().map(|it| it.to_string()));
        names.extend([unit.to_string(), kind.to_string()]);
    }
    let directories = names.into_iter().map(|name| path.with_file_name(format!("{name}.d")));
    directories.filter(|path| path.is_dir()).collect()
}

/// Returns the name of a link and its target file, if that name is an alias of the unit in the
/// target file. A link to a template is no alias: `a@1.service` → `a@.service` makes an instance,
/// which is a unit of its own.
fn as_link(path: &Path) -> Option<(String, PathBuf)> {
    let file = fs::canonicalize(path).ok()?;
    let (own, other) = (unit_name(path)?, unit_name(&file)?);
    let is_other = own != other && own.unit_type() == other.unit_type();
    let is_alias = is_other && !own.is_template() && !other.is_template();
    is_alias.then(|| (own.to_string(), file))
}

fn unit_name(path: &Path) -> Option<UnitName> {
    path.file_name()?.to_str()?.parse().ok()
}

fn drop_in(path: &Path) -> ConversionNote {
    let message = "drop-in directory: its files are not read";
    loss(path, message, "merge them into the unit file, as `systemctl cat` shows them")
}

fn loss(path: &Path, message: &str, help: &str) -> ConversionNote {
    ConversionNote {
        file: path.display().to_string(),
        line: 1,
        column: 1,
        severity: NoteSeverity::Loss,
        message: message.to_owned(),
        help: help.to_owned(),
    }
}

/// A record for machine formats: a stanza, or a loss or remark.
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
    fn of_stanza(it: &'a ConvertedUnit) -> Self {
        Self::Stanza { unit: it.unit.name.as_str(), from: &it.from, text: &it.text }
    }

    fn of_loss(it: &'a ConversionNote) -> Self {
        let ConversionNote { file, line, column, severity, message, help } = it;
        let row = LossRow { file, line: *line, column: *column, message, help };
        match severity {
            NoteSeverity::Loss => Self::Loss(row),
            NoteSeverity::Remark => Self::Remark(row),
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
