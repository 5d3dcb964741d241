//! Reads the files of an init on this machine.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use fleet_agent::native::linux::{group_exists, user_exists};
use fleet_core::graph::format::{FileRole, FileSet, HostResource, InitFile, MAX_FILE_SIZE};
use fleet_core::graph::{Graph, Target};
use fleet_unitfile::{Severity, UnitName};
use rustix::fs::{Access, Mode, OFlags, access, open};

use crate::ui::error::CliError;
use crate::ui::findings::Finding;
use crate::ui::names::nearest;

/// Maximum number of skipped files named in a message.
const MAX_NAMES: usize = 4;

/// Files that were read from the given paths.
#[derive(Debug)]
pub(crate) struct Files {
    /// The files with their stanzas and settings.
    pub(crate) sources: FileSet,
    /// The graph of the units; `None` if there are errors.
    pub(crate) graph: Option<Graph>,
    /// Skipped names in directories.
    pub(crate) skipped: Vec<PathBuf>,
}

/// Function that reads one file.
type Reader = fn(&Path) -> Result<Vec<u8>, CliError>;

/// Reads files and directories.
///
/// # Errors
///
/// A file cannot be read.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Files, CliError> {
    read_by(paths, read_file)
}

/// Reads files and directories, and never blocks, because anything except a regular file is
/// refused.
///
/// # Errors
///
/// A file cannot be read, or is not a regular file (for example a pipe).
pub(crate) fn read_regular(paths: &[PathBuf]) -> Result<Files, CliError> {
    read_by(paths, read_regular_file)
}

fn read_by(paths: &[PathBuf], read: Reader) -> Result<Files, CliError> {
    let (mut files, mut skipped, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for path in paths {
        if path.is_dir() {
            let directory = read_directory(path, read)?;
            files.extend(directory.files);
            skipped.extend(directory.skipped);
            unreadable.extend(directory.unreadable);
        } else {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match FileRole::of(name) {
                None if is_systemd_unit(path) => return Err(systemd_unit_error(path)),
                role => files.push(file(path, role.unwrap_or(FileRole::Units), read)?),
            }
        }
    }
    skipped.sort();
    let mut sources = FileSet::read(deduplicated(files, |file| Path::new(&file.name)));
    for (path, role, error) in unreadable {
        let (problem, help) = error.parts();
        let help = help.into_iter().next();
        let help = help.unwrap_or_else(|| "make it readable, or remove it".to_owned());
        sources.add_unreadable(path.display().to_string(), role, &problem, help);
    }
    Ok(Files { skipped, ..with_graph(sources) })
}

/// Parses files from their contents.
pub(crate) fn of(files: Vec<InitFile>) -> Files {
    with_graph(FileSet::read(files))
}

fn with_graph(mut sources: FileSet) -> Files {
    let graph = sources.graph();
    Files { sources, graph, skipped: Vec::new() }
}

impl Files {
    /// Adds warnings about programs, accounts and paths that are missing on this machine. The
    /// lookup of accounts may wait for the network.
    pub(crate) fn check_host(&mut self) {
        self.sources.check_host(|resource| match resource {
            HostResource::Program(path) => is_executable(Path::new(path)),
            HostResource::User(name) => user_exists(name),
            HostResource::Group(name) => group_exists(name),
            HostResource::Directory(path) => Path::new(path).is_dir(),
            HostResource::EnvironmentFile(path) => {
                Path::new(path).exists() && !Path::new(path).is_dir()
            }
        });
    }

    /// Returns all errors and warnings of the files, each with an excerpt of the source lines in
    /// question.
    pub(crate) fn findings(&self) -> Vec<(Finding, String)> {
        let files = self.sources.files.iter().zip(&self.sources.diagnostics);
        let findings = files.flat_map(|(file, diagnostics)| {
            diagnostics.iter().map(|it| {
                let finding = Finding {
                    file: PathBuf::from(&file.name),
                    line: it.location.line,
                    column: it.location.column,
                    severity: it.severity(),
                    code: Some(it.code.as_str()),
                    message: it.message.clone(),
                    help: it.help.clone(),
                };
                (finding, it.excerpt(&file.source))
            })
        });
        findings.collect()
    }

    /// Returns the graph and the goal. The goal is the parameter `goal` or, if it is `None`, the
    /// goal of the files.
    ///
    /// # Errors
    ///
    /// The files have errors, or no unit provides the parameter `goal`.
    pub(crate) fn graph_and_goal(
        &self,
        goal: Option<&Target>,
    ) -> Result<(&Graph, Option<Target>), CliError> {
        let Some(graph) = &self.graph else {
            let findings = self.findings().into_iter().map(|(finding, _)| finding);
            let errors = findings.filter(|finding| finding.severity == Severity::Error);
            let mut errors: Vec<CliError> = errors.map(|it| error_of(&it)).collect();
            errors.insert(0, CliError::failed("the unit files have errors"));
            return Err(CliError::combined(errors).err().unwrap_or_else(|| CliError::failed("")));
        };
        if let Some(goal) = goal.filter(|goal| graph.provider(goal).is_none()) {
            let error = CliError::usage(format!("no unit provides the goal {goal}"));
            let targets = graph.units().flat_map(|unit| &unit.provides).map(Target::as_str);
            return Err(match nearest(goal.as_str(), targets) {
                Some(near) => error.help(format!("did you mean {near}?")),
                None => error.help("name a target that one of the units provides"),
            });
        }
        let goal = goal.or(self.sources.settings().goal.as_ref());
        Ok((graph, goal.cloned()))
    }

    /// Adds the names of skipped files to an error, if these files may be its cause.
    pub(crate) fn with_skipped(&self, error: CliError) -> CliError {
        let systemd_unit_error: Vec<_> =
            self.skipped.iter().filter(|it| is_systemd_unit(it)).collect();
        if let Some(one) = systemd_unit_error.first() {
            let folder = one.parent().unwrap_or(one).display();
            let help =
                format!("convert these units with `fleet-init convert --from systemd {folder}`");
            let passed_over = abbreviated(&systemd_unit_error);
            return error.help(format!("skipped these systemd units: {passed_over}")).help(help);
        }
        if self.skipped.is_empty() || !self.sources.stanzas.is_empty() {
            return error;
        }
        error
            .help(format!("skipped these files: {}", abbreviated(&self.skipped)))
            .help("unit files must be named NAME.unit, and the file of settings init.conf")
    }
}

/// Joins the first paths, and then gives only the number of the others (`a, b and 7 more`).
fn abbreviated<P: AsRef<Path>>(paths: &[P]) -> String {
    let names = paths.iter().take(MAX_NAMES).map(|it| it.as_ref().display().to_string());
    let names: Vec<String> = names.collect();
    match paths.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Whether a path has the name of a systemd unit file.
pub(super) fn is_systemd_unit(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| UnitName::parse(name).is_ok())
}

fn systemd_unit_error(path: &Path) -> CliError {
    let path = path.display();
    let error = CliError::usage(format!("{path} is a unit file of systemd, not of fleet-init"));
    error.help(format!("convert it with `fleet-init convert --from systemd {path}`")).help(format!(
        "a fleet cluster runs the unit as it is; check it with `fleetctl verify {path}`"
    ))
}

fn error_of(finding: &Finding) -> CliError {
    let text = finding.to_string();
    let (message, help) = text.split_once("\nhelp: ").unwrap_or((&text, ""));
    CliError::failed(message).help(help)
}

/// Contents of a directory.
#[derive(Default)]
struct Directory {
    files: Vec<InitFile>,
    skipped: Vec<PathBuf>,
    unreadable: Vec<(PathBuf, FileRole, CliError)>,
}

fn read_directory(path: &Path, read: Reader) -> Result<Directory, CliError> {
    let mut directory = Directory::default();
    let cannot = |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
    for entry in fs::read_dir(path).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        match name.and_then(FileRole::of).filter(|_| !path.is_dir()) {
            Some(role) => match file(&path, role, read) {
                Ok(file) => directory.files.push(file),
                Err(error) => directory.unreadable.push((path, role, error)),
            },
            None if name.is_some_and(|name| name.starts_with('.')) => {}
            None => directory.skipped.push(path),
        }
    }
    Ok(directory)
}

fn file(path: &Path, role: FileRole, read: Reader) -> Result<InitFile, CliError> {
    Ok(InitFile { name: path.display().to_string(), role, source: read(path)? })
}

/// Reads at most one byte more than the size limit from a file. From that extra byte, the caller
/// detects that the file is too large.
///
/// # Errors
///
/// The file cannot be read. A named pipe is refused, because it might never end.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    let cannot = |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
    // A pipe that the shell made for this command ends; a named pipe may never begin.
    let is_of_shell = path.starts_with("/dev") || path.starts_with("/proc");
    if !is_of_shell && fs::metadata(path).map_err(cannot)?.file_type().is_fifo() {
        let error =
            CliError::failed(format!("{} is a named pipe, not a regular file", path.display()));
        return Err(error.help("give a regular file, or /dev/stdin"));
    }
    bytes_of(fs::File::open(path).map_err(cannot)?).map_err(cannot)
}

/// Like [`read_file`], but only for regular files, and without blocking.
fn read_regular_file(path: &Path) -> Result<Vec<u8>, CliError> {
    let cannot = |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty());
    let file = fs::File::from(opened.map_err(|error| cannot(error.into()))?);
    if !file.metadata().map_err(cannot)?.is_file() {
        let path = path.display();
        let error = CliError::failed(format!("cannot reload {path}, which is not a regular file"));
        return Err(error.help("restart fleet-init with a regular file or a directory instead"));
    }
    bytes_of(file).map_err(cannot)
}

fn bytes_of(file: fs::File) -> io::Result<Vec<u8>> {
    let mut source = Vec::new();
    file.take(MAX_FILE_SIZE as u64 + 1).read_to_end(&mut source)?;
    Ok(source)
}

/// Sorts files by name and removes duplicates, even if their paths are written differently
/// (`./a.unit` and `a.unit`).
pub(super) fn deduplicated<T>(mut files: Vec<T>, path: impl Fn(&T) -> &Path) -> Vec<T> {
    files.sort_by(|one, other| path(one).cmp(path(other)));
    let mut seen = BTreeSet::new();
    // A link in a directory to another file of it counts as a separate file.
    let spelt = |path: &Path| {
        let name = path.file_name().map(ToOwned::to_owned);
        let folder =
            path.parent().map(|it| if it.as_os_str().is_empty() { ".".as_ref() } else { it });
        (folder.and_then(|folder: &Path| fs::canonicalize(folder).ok()), name)
    };
    files.retain(|file| seen.insert(spelt(path(file))));
    files
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_reload_reads_no_pipe() {
        let (pipe, mut end) = io::pipe().unwrap();
        end.write_all(b"unit: a\ntype: virtual\nprovides: a\n").unwrap();
        drop(end);
        let path = PathBuf::from(format!("/proc/self/fd/{}", pipe.as_raw_fd()));
        let error = read_regular(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("is not a regular file"), "{error}");
        // One-shot commands may read the shell's pipes.
        assert_eq!(read(&[path]).unwrap().sources.stanzas.len(), 1);
    }
}
