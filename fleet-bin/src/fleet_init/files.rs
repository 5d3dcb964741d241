//! The files of a system on this computer.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use fleet_core::graph::text::{FileRole, FileSet, InitFile, MAX_FILE_SIZE};
use fleet_core::graph::{Graph, Target};
use fleet_unitfile::{Severity, UnitName};
use rustix::fs::{Access, Mode, OFlags, access, open};

use crate::findings::Finding;
use crate::fleetctl::error::CliError;
use crate::fleetctl::names::nearest;

/// How many files that were passed over are named.
const MOST_NAMES: usize = 4;

/// What was read of the files that a person named.
#[derive(Debug)]
pub(crate) struct Files {
    /// What they say.
    pub(crate) sources: FileSet,
    /// The graph of the units, if nothing is wrong.
    pub(crate) graph: Option<Graph>,
    /// Names in directories that were passed over.
    pub(crate) others: Vec<PathBuf>,
}

/// How a file is read.
type Reader = fn(&Path) -> Result<Vec<u8>, CliError>;

/// Reads files and directories.
///
/// # Errors
///
/// One of them cannot be read.
pub(crate) fn read(paths: &[PathBuf]) -> Result<Files, CliError> {
    read_by(paths, read_file)
}

/// Reads files and directories, none of which has to be waited for.
///
/// # Errors
///
/// One of them cannot be read, or is a pipe and the like.
pub(crate) fn read_regular(paths: &[PathBuf]) -> Result<Files, CliError> {
    read_by(paths, read_regular_file)
}

fn read_by(paths: &[PathBuf], read: Reader) -> Result<Files, CliError> {
    let (mut files, mut others) = (Vec::new(), Vec::new());
    for path in paths {
        if path.is_dir() {
            read_directory(path, read, &mut files, &mut others)?;
        } else {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            match FileRole::of(name) {
                None if is_of_systemd(path) => return Err(of_systemd(path)),
                role => files.push(file(path, role.unwrap_or(FileRole::Units), read)?),
            }
        }
    }
    Ok(Files { others, ..of(once(files, |file| Path::new(&file.name))) })
}

/// What files say whose contents are known.
pub(crate) fn of(files: Vec<InitFile>) -> Files {
    let mut sources = FileSet::read(files);
    sources.check_programs(|program| is_executable(Path::new(program)));
    let graph = sources.graph();
    Files { sources, graph, others: Vec::new() }
}

impl Files {
    /// All that is wrong or odd, each with the lines that show where.
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

    /// The graph and the goal, which may be named on the command line.
    ///
    /// # Errors
    ///
    /// Something is wrong with the files, or there is no such goal.
    pub(crate) fn whole(
        &self,
        goal: Option<&Target>,
    ) -> Result<(&Graph, Option<Target>), CliError> {
        let Some(graph) = &self.graph else {
            let findings = self.findings().into_iter().map(|(finding, _)| finding);
            let errors = findings.filter(|finding| finding.severity == Severity::Error);
            let mut errors: Vec<CliError> = errors.map(|it| in_one(&it)).collect();
            errors.insert(0, CliError::failed("the units are not fit for a graph"));
            return Err(CliError::combined(errors).err().unwrap_or_else(|| CliError::failed("")));
        };
        if let Some(goal) = goal.filter(|goal| graph.provider(goal).is_none()) {
            let error = CliError::usage(format!("no unit provides the goal {goal}"));
            let targets = graph.units().flat_map(|unit| &unit.provides).map(Target::as_str);
            return Err(match nearest(goal.as_str(), targets) {
                Some(near) => error.help(format!("did you mean {near}?")),
                None => error.help("name a target that a unit provides"),
            });
        }
        let goal = goal.or(self.sources.settings().goal.as_ref());
        Ok((graph, goal.cloned()))
    }

    /// An error of which what was passed over may be the reason, with that.
    pub(crate) fn with_others(&self, error: CliError) -> CliError {
        let of_systemd: Vec<_> = self.others.iter().filter(|it| is_of_systemd(it)).collect();
        if let Some(one) = of_systemd.first() {
            let folder = one.parent().unwrap_or(one).display();
            let help =
                format!("`fleet-init convert --from systemd {folder}` writes them as stanzas");
            let passed_over = in_short(&of_systemd);
            return error.help(format!("passed over units of systemd: {passed_over}")).help(help);
        }
        if self.others.is_empty() || !self.sources.stanzas.is_empty() {
            return error;
        }
        error
            .help(format!("passed over: {}", in_short(&self.others)))
            .help("unit files end in .unit, and the settings are in init.conf")
    }
}

/// Paths by name, as far as a person reads them.
fn in_short<P: AsRef<Path>>(paths: &[P]) -> String {
    let names = paths.iter().take(MOST_NAMES).map(|it| it.as_ref().display().to_string());
    let names: Vec<String> = names.collect();
    match paths.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Whether a path is named as the unit files of systemd are.
pub(super) fn is_of_systemd(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| UnitName::parse(name).is_ok())
}

fn of_systemd(path: &Path) -> CliError {
    let path = path.display();
    let error = CliError::usage(format!("{path} is a unit file of systemd, and not of fleet-init"));
    error
        .help(format!("`fleet-init convert --from systemd {path}` writes it as stanzas"))
        .help("`fleetctl verify` checks it for a fleet cluster, which runs it as it is")
}

fn in_one(finding: &Finding) -> CliError {
    let text = finding.to_string();
    let (message, help) = text.split_once("\nhelp: ").unwrap_or((&text, ""));
    CliError::failed(message).help(help)
}

fn read_directory(
    path: &Path,
    read: Reader,
    files: &mut Vec<InitFile>,
    others: &mut Vec<PathBuf>,
) -> Result<(), CliError> {
    let cannot = |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
    for entry in fs::read_dir(path).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        match name.and_then(FileRole::of).filter(|_| !path.is_dir()) {
            Some(role) => files.push(file(&path, role, read)?),
            None if name.is_some_and(|name| name.starts_with('.')) => {}
            None => others.push(path),
        }
    }
    others.sort();
    Ok(())
}

fn file(path: &Path, role: FileRole, read: Reader) -> Result<InitFile, CliError> {
    Ok(InitFile { name: path.display().to_string(), role, source: read(path)? })
}

/// The bytes of a file, and one more than there may be if there are too many: enough to be refused.
///
/// # Errors
///
/// It cannot be read, or might never end.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    let cannot = |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
    // A pipe that a shell made for this command ends. One with a name need not even begin.
    let is_of_shell = path.starts_with("/dev") || path.starts_with("/proc");
    if !is_of_shell && fs::metadata(path).map_err(cannot)?.file_type().is_fifo() {
        let error = CliError::failed(format!("{} is a pipe and no file", path.display()));
        return Err(error.help("name a file, or /dev/stdin"));
    }
    bytes_of(fs::File::open(path).map_err(cannot)?).map_err(cannot)
}

/// Like [`read_file`], of what is the same whenever it is read, and never waited for.
fn read_regular_file(path: &Path) -> Result<Vec<u8>, CliError> {
    let cannot = |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = open(path, flags, Mode::empty());
    let file = fs::File::from(opened.map_err(|error| cannot(error.into()))?);
    if !file.metadata().map_err(cannot)?.is_file() {
        let path = path.display();
        let error = CliError::failed(format!("{path} is no regular file, and is not read again"));
        return Err(error.help("start it with a file or a directory that can be"));
    }
    bytes_of(file).map_err(cannot)
}

fn bytes_of(file: fs::File) -> io::Result<Vec<u8>> {
    let mut source = Vec::new();
    file.take(MAX_FILE_SIZE as u64 + 1).read_to_end(&mut source)?;
    Ok(source)
}

/// Files in the order of their names. One that was named twice, or in two spellings, is there once.
pub(super) fn once<T>(mut files: Vec<T>, path: impl Fn(&T) -> &Path) -> Vec<T> {
    files.sort_by(|one, other| path(one).cmp(path(other)));
    let mut seen = BTreeSet::new();
    // In a directory, a link to another file of it is a file of its own.
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
    fn who_serves_others_reads_no_pipe() {
        let (pipe, mut end) = io::pipe().unwrap();
        end.write_all(b"unit: a\ntype: virtual\nprovides: a\n").unwrap();
        drop(end);
        let path = PathBuf::from(format!("/proc/self/fd/{}", pipe.as_raw_fd()));
        let error = read_regular(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert!(error.contains("is no regular file"), "{error}");
        // The shell's own pipes are read by who is there for nothing else.
        assert_eq!(read(&[path]).unwrap().sources.stanzas.len(), 1);
    }
}
