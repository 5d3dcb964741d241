//! `verify`: checks local unit files with the rules of the cluster and of systemd.

use std::path::{Path, PathBuf};
use std::process::Command;

use fleet_unitfile::check::SystemdVersion;
use fleet_unitfile::{Severity, UnitFile, UnitName};

use crate::fleetctl::Context;
use crate::fleetctl::args::{ManagerArg, VerifyArgs};
use crate::fleetctl::colocation::warnings;
use crate::fleetctl::local::read_file;
use crate::fleetctl::manager_check::CheckedUnit;
use crate::fleetctl::manifest_diff::unit_files_in;
use crate::ui::error::CliError;
use crate::ui::findings::{Finding, check, verify, verify_drop_in, verify_native};
use crate::ui::output::Record;

impl Record for Finding {
    fn name(&self) -> &str {
        self.file.to_str().unwrap_or_default()
    }
}

/// Runs the command. All files are checked, even after errors.
pub(super) fn run(context: &mut Context, args: &VerifyArgs) -> Result<(), CliError> {
    let files = expanded(&args.files)?;
    let version = args.systemd_version.or_else(installed_version);
    let mut broken = 0_usize;
    let mut apart = placed_apart(&files)?;
    for path in &files {
        let mut findings = check_file(path, args.manager, version)?;
        findings.extend(apart.extract_if(.., |it| it.file == *path));
        for finding in &findings {
            context.output.record(finding, &format!("{finding}\n"))?;
        }
        if findings.iter().any(|finding| finding.severity == Severity::Error) {
            broken += 1;
        } else {
            context.progress.note(&format!("{}: ok", path.display()));
        }
    }
    context.output.finish()?;
    match broken {
        0 => Ok(()),
        _ => Err(CliError::failed(format!("{broken} of {} unit files have errors", files.len()))),
    }
}

/// Returns the warnings about units that the cluster may place apart from the units among these
/// that they start.
fn placed_apart(files: &[PathBuf]) -> Result<Vec<Finding>, CliError> {
    let mut units = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Ok(name) = UnitName::parse(&name) {
            let file = Some(UnitFile::parse_collecting(read_file(path)?).0);
            units.push(CheckedUnit { name, path: path.clone(), file });
        }
    }
    let known = units.iter().filter_map(|it| Some((it.name.clone(), it.file.clone()?)));
    Ok(warnings(&units, &known.collect()))
}

/// Replaces each folder by the unit files in it.
fn expanded(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let files = paths.iter().map(|path| match path.is_dir() {
        true => unit_files_in(path),
        false => Ok(vec![path.clone()]),
    });
    Ok(CliError::all_or_none(files.collect())?.into_iter().flatten().collect())
}

/// Returns the version of this machine's systemd; `None` if there is none.
fn installed_version() -> Option<SystemdVersion> {
    let output = Command::new("systemctl").arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next()?.parse().ok()
}

fn check_file(
    path: &Path,
    manager: ManagerArg,
    version: Option<SystemdVersion>,
) -> Result<Vec<Finding>, CliError> {
    let source = read_file(path)?;
    if let Some((unit, main)) = drop_in(path) {
        let main = if main.is_file() { Some(read_file(&main)?) } else { None };
        return Ok(verify_drop_in(path, &unit, &source, main.as_deref(), version));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match UnitName::parse(&name) {
        Ok(name) => Ok(match manager {
            ManagerArg::Systemd => verify(path, &name, &source, version),
            ManagerArg::Native => verify_native(path, &name, &source),
        }),
        Err(error) => {
            // systemd's rules depend on the type in the name.
            let mut findings = check(path, &placeholder_name(), &source).1;
            findings.insert(0, name_finding(path, error.to_string()));
            Ok(findings)
        }
    }
}

/// Returns the unit of a drop-in such as `web.service.d/10-more.conf`, and the path that its unit
/// file would have; `None` for any other file. A drop-in of all units of a type, as in `service.d`,
/// gets a placeholder name.
fn drop_in(path: &Path) -> Option<(UnitName, PathBuf)> {
    if path.extension()? != "conf" {
        return None;
    }
    let directory = path.parent()?;
    let unit = directory.file_name()?.to_str()?.strip_suffix(".d")?;
    let name = UnitName::parse(unit).or_else(|_| UnitName::parse(&format!("unit.{unit}"))).ok()?;
    Some((name, directory.with_file_name(unit)))
}

/// Returns the name under which the content of a file with an invalid name is checked.
fn placeholder_name() -> UnitName {
    UnitName::parse("unit.service").expect("a plain name with a type")
}

fn name_finding(path: &Path, message: String) -> Finding {
    let help = "rename the file to the name of the unit".to_owned();
    let (file, severity) = (path.to_owned(), Severity::Error);
    Finding { file, line: 1, column: 1, severity, code: None, message, help }
}
