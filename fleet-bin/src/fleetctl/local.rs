//! Unit files on this computer that go with the units named on the command line.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use fleet_unitfile::{Severity, UnitFile, UnitName};

use super::error::CliError;
use super::names::UnitArg;
use super::progress::Progress;
use crate::findings::{Finding, check};

/// What is read of a file at most, in bytes: what the API takes. A longer one is refused.
const MAX_BYTES: u64 = 8 << 20;

/// A unit named on the command line, with its file on this computer if there is one.
#[derive(Debug, Clone)]
pub(crate) struct LocalUnit {
    /// The unit's name.
    pub(crate) name: UnitName,
    /// Where its file would be.
    pub(crate) path: PathBuf,
    /// Its file, or the one of its template.
    pub(crate) file: Option<LocalFile>,
}

/// A unit file on this computer, without errors.
#[derive(Debug, Clone)]
pub(crate) struct LocalFile {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// What it says.
    pub(crate) file: UnitFile,
}

/// What was read: the units, and what is wrong or odd with their files.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// The units whose files are sound or not there.
    pub(crate) units: Vec<LocalUnit>,
    /// What is wrong or odd.
    pub(crate) findings: Vec<Finding>,
}

impl Local {
    /// The units, if all files are sound. What is wrong or odd is told either way.
    ///
    /// # Errors
    ///
    /// A file has errors.
    pub(crate) fn sound<W: Write>(
        self,
        progress: &mut Progress<W>,
    ) -> Result<Vec<LocalUnit>, CliError> {
        self.findings.iter().for_each(|finding| progress.note(&finding.to_string()));
        match self.broken() {
            0 => Ok(self.units),
            1 => Err(CliError::failed("nothing was sent: a unit file has errors")),
            n => Err(CliError::failed(format!("nothing was sent: {n} unit files have errors"))),
        }
    }

    /// How many files have errors.
    fn broken(&self) -> usize {
        let errors = self.findings.iter().filter(|it| it.severity == Severity::Error);
        let mut files: Vec<&Path> = errors.map(|finding| finding.file.as_path()).collect();
        files.dedup();
        files.len()
    }

    /// Adds what was found, once: instances of one template share its file.
    fn tell(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }
}

/// Reads and checks the files of all these units, before anything is sent anywhere.
///
/// For an instance without a file of its own, the file of its template in the same folder counts.
///
/// # Errors
///
/// A file is there and cannot be read.
pub(crate) fn read_units(args: Vec<UnitArg>) -> Result<Local, CliError> {
    let mut local = Local::default();
    for UnitArg { name, path } in args {
        let Some((found, source)) = find(&name, &path)? else {
            local.units.push(LocalUnit { name, path, file: None });
            continue;
        };
        let (file, findings) = check(&found, &name, &source);
        local.tell(findings);
        if let Some(file) = file {
            let file = Some(LocalFile { path: found, file });
            local.units.push(LocalUnit { name, path, file });
        }
    }
    Ok(local)
}

/// Reads one file that must be there.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    read(path)?.ok_or_else(|| {
        CliError::failed(format!("there is no file {}", path.display()))
            .help("name the path of a unit file")
    })
}

fn find(name: &UnitName, path: &Path) -> Result<Option<(PathBuf, Vec<u8>)>, CliError> {
    if let Some(source) = read(path)? {
        return Ok(Some((path.to_owned(), source)));
    }
    let Some(template) = name.template() else {
        return Ok(None);
    };
    let path = path.with_file_name(template.as_str());
    Ok(read(&path)?.map(|source| (path, source)))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, CliError> {
    let cannot = |error| CliError::failed(format!("cannot read {}", path.display())).because(error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot(error)),
    };
    let mut source = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut source).map_err(cannot)?;
    if source.len() as u64 > MAX_BYTES {
        return Err(CliError::failed(format!("{} is longer than 8 MiB", path.display())));
    }
    Ok(Some(source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleetctl::names::unit_arg;

    fn local(folder: &Path, args: &[&str]) -> Result<Local, CliError> {
        let arg = |arg: &&str| unit_arg(folder.join(arg).to_str().unwrap()).unwrap();
        read_units(args.iter().map(arg).collect())
    }

    #[test]
    fn the_own_file_comes_before_the_template() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("web@.service", "[Service]\nExecStart=/bin/template\n");
        write("web@2.service", "[Service]\nExecStart=/bin/own\n");
        let found = local(folder.path(), &["web@1", "web@2", "other"]).unwrap();
        let starts: Vec<_> = found
            .units
            .iter()
            .map(|unit| unit.file.as_ref().and_then(|it| it.file.last("Service", "ExecStart")))
            .collect();
        assert_eq!(starts, [Some("/bin/template"), Some("/bin/own"), None]);
        assert_eq!(found.broken(), 0);
    }

    #[test]
    fn an_instance_is_checked_under_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[X-Fleet]\nMachineOf=web@%i.service\n";
        std::fs::write(folder.path().join("web@.service"), text).unwrap();
        let found = local(folder.path(), &["web@1"]).unwrap();
        assert_eq!((found.broken(), found.units.len()), (1, 0));
        assert!(found.findings[0].message.contains("web@1.service"), "{:?}", found.findings);
    }

    #[test]
    fn what_is_there_and_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("web.service")).unwrap();
        let error = local(folder.path(), &["web"]).unwrap_err().to_string();
        assert!(error.starts_with("cannot read ") && error.ends_with("web.service"), "{error}");
        let error = read_file(&folder.path().join("none.service")).unwrap_err().to_string();
        assert!(error.starts_with("there is no file "), "{error}");
    }
}
