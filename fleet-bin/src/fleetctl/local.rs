//! Local unit files of the units on the command line.

use std::io::Write;
use std::path::{Path, PathBuf};

use fleet_unitfile::{NameErrorKind, Severity, UnitFile, UnitName};

use super::progress::Progress;
use crate::ui::drop_ins::{drop_in_folder, has_drop_ins_in, own_drop_ins};
use crate::ui::error::CliError;
use crate::ui::findings::{Finding, check_text, unused_drop_ins};
use crate::ui::names::UnitArg;
use crate::ui::unit_text::{SourcePath, UnitText, read};

/// A unit on the command line with its local file, if any.
#[derive(Debug, Clone)]
pub(crate) struct LocalUnit {
    /// Name of the unit.
    pub(crate) name: UnitName,
    /// Path where its own file would be.
    pub(crate) path: PathBuf,
    /// Its own file, or the file of its template.
    pub(crate) file: Option<LocalFile>,
}

/// A local unit file with its drop-ins, without errors.
#[derive(Debug, Clone)]
pub(crate) struct LocalFile {
    /// Path of the file, with the origin of each line.
    pub(crate) path: SourcePath,
    /// Parsed content, with the drop-ins.
    pub(crate) file: UnitFile,
}

/// Units on the command line, and the findings in their files.
#[derive(Debug, Default)]
pub(crate) struct LocalUnits {
    /// Units with a valid file or without any.
    pub(crate) units: Vec<LocalUnit>,
    /// Errors, warnings and hints.
    pub(crate) findings: Vec<Finding>,
}

impl LocalUnits {
    /// Prints all findings. Returns the units if no file has an error; warnings do not matter.
    ///
    /// # Errors
    ///
    /// A file has an error.
    pub(crate) fn checked<W: Write>(
        self,
        progress: &mut Progress<W>,
    ) -> Result<Vec<LocalUnit>, CliError> {
        self.findings.iter().for_each(|finding| progress.note(&finding.to_string()));
        match self.error_count() {
            0 => Ok(self.units),
            1 => Err(CliError::failed("nothing was sent: a unit file has errors")),
            n => Err(CliError::failed(format!("nothing was sent: {n} unit files have errors"))),
        }
    }

    /// Returns the number of files with errors.
    fn error_count(&self) -> usize {
        let errors = self.findings.iter().filter(|it| it.severity == Severity::Error);
        let mut files: Vec<&Path> = errors.map(|finding| finding.file.as_path()).collect();
        files.dedup();
        files.len()
    }

    /// Adds findings, each once: instances of one template share its file.
    fn add_findings(&mut self, findings: Vec<Finding>) {
        for finding in findings {
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }
}

/// Reads and checks the files of all units with their drop-ins. If an instance (`web@1.service`)
/// has no file of its own, reads the file of its template (`web@.service`) in the same folder.
///
/// A unit without any file is returned with `file: None`. Drop-ins among the arguments are skipped
/// if their unit is one too.
///
/// # Errors
///
/// A file exists but cannot be read, or a drop-in is given without its unit.
pub(crate) fn read_units(args: Vec<UnitArg>) -> Result<LocalUnits, CliError> {
    let mut local = LocalUnits::default();
    for UnitArg { name, path } in &args {
        // As a unit, the folder `web@.service.d` would be an instance of `web@.service`.
        if are_drop_ins_of(&args, path)? {
            continue;
        }
        let Some((found, source)) = find(name, path)? else {
            refuse_other_quadlet(path)?;
            let unused = own_drop_ins(name, path)?.into_iter();
            local.add_findings(unused.map(|it| unused_drop_ins(&it, Severity::Warning)).collect());
            local.units.push(LocalUnit { name: name.clone(), path: path.clone(), file: None });
            continue;
        };
        let text = UnitText::read(name, &found, &source)?;
        let (file, findings) = check_text(name, &text);
        local.add_findings(findings);
        if let Some(file) = file {
            let file = Some(LocalFile { path: text.path().clone(), file });
            local.units.push(LocalUnit { name: name.clone(), path: path.clone(), file });
        }
    }
    Ok(local)
}

/// Whether an argument is a drop-in or a folder of drop-ins, and the unit is among the arguments.
///
/// # Errors
///
/// The argument is a drop-in or a folder of drop-ins, but its unit is not given.
fn are_drop_ins_of(args: &[UnitArg], path: &Path) -> Result<bool, CliError> {
    let others = args.iter().filter(|unit| unit.path != *path);
    // As an argument, the name counts as that of a service.
    let path = path.with_extension("");
    let Some(folder) = drop_in_folder(&path).filter(|_| path.exists()) else { return Ok(false) };
    if others.into_iter().any(|unit| has_drop_ins_in(&unit.name, &unit.path, &folder)) {
        return Ok(true);
    }
    Err(CliError::failed(format!("cannot send the drop-ins in {} alone", path.display()))
        .help("give the path of the unit file: the drop-ins beside it are sent with it"))
}

/// Refuses an existing file of podman's Quadlet that is no unit, such as `front.network`. As an
/// argument, its name counts as that of a service.
fn refuse_other_quadlet(path: &Path) -> Result<(), CliError> {
    let file = path.with_extension("");
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    match UnitName::parse(&name) {
        Err(error) if error.kind() == NameErrorKind::UnsupportedQuadlet && file.is_file() => {
            Err(CliError::failed(format!("cannot send {}", file.display())).because(error))
        }
        _ => Ok(()),
    }
}

/// Reads a file that must exist.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, CliError> {
    read(path)?.ok_or_else(|| {
        CliError::failed(format!("there is no file {}", path.display()))
            .help("give the path of a unit file")
    })
}

/// Reads the file of a unit, or else the file of its template in the same folder.
///
/// # Errors
///
/// The file exists but cannot be read.
pub(crate) fn find(name: &UnitName, path: &Path) -> Result<Option<(PathBuf, Vec<u8>)>, CliError> {
    if let Some(source) = read(path)? {
        return Ok(Some((path.to_owned(), source)));
    }
    let Some(template) = name.template() else {
        return Ok(None);
    };
    let path = path.with_file_name(template.as_str());
    Ok(read(&path)?.map(|source| (path, source)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::names::unit_arg;

    fn local(folder: &Path, args: &[&str]) -> Result<LocalUnits, CliError> {
        let arg = |arg: &&str| unit_arg(folder.join(arg).to_str().unwrap()).unwrap();
        read_units(args.iter().map(arg).collect())
    }

    #[test]
    fn own_file_precedes_the_template() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("web@.service", "[Service]\nExecStart=/bin/template\n");
        write("web@2.service", "[Service]\nExecStart=/bin/own\n");
        let found = local(folder.path(), &["web@1", "web@2", "other"]).unwrap();
        let starts: Vec<_> = found
            .units
            .iter()
            .map(|unit| unit.file.as_ref().and_then(|it| it.file.get("Service", "ExecStart")))
            .collect();
        assert_eq!(starts, [Some("/bin/template"), Some("/bin/own"), None]);
        assert_eq!(found.error_count(), 0);
    }

    #[test]
    fn instance_is_checked_under_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let text = "[X-Fleet]\nMachineOf=web@%i.service\n";
        std::fs::write(folder.path().join("web@.service"), text).unwrap();
        let found = local(folder.path(), &["web@1"]).unwrap();
        assert_eq!((found.error_count(), found.units.len()), (1, 0));
        assert!(found.findings[0].message.contains("web@1.service"), "{:?}", found.findings);
    }

    #[test]
    fn other_files_of_quadlet_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("front.network"), "[Network]\n").unwrap();
        let error = local(folder.path(), &["front.network"]).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.ends_with("only .container files are units"), "{error}: {cause}");
        let units = local(folder.path(), &["back.network"]).unwrap().units;
        assert_eq!(units[0].name, "back.network.service", "there is no such file");
    }

    #[test]
    fn unreadable_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("web.service")).unwrap();
        let error = local(folder.path(), &["web"]).unwrap_err().to_string();
        assert!(error.starts_with("cannot read ") && error.ends_with("web.service"), "{error}");
        let error = read_file(&folder.path().join("none.service")).unwrap_err().to_string();
        assert!(error.starts_with("there is no file "), "{error}");
    }
}
