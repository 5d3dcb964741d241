//! `verify`: checks local unit files with the rules of the cluster and of systemd.

use std::path::{Path, PathBuf};
use std::process::Command;

use fleet_agent::wall_time;
use fleet_core::Timestamp;
use fleet_unitfile::check::SystemdVersion;
use fleet_unitfile::{Severity, UnitName};

use crate::fleetctl::Context;
use crate::fleetctl::args::{ManagerArg, VerifyArgs};
use crate::fleetctl::colocation::{start_order_error, warnings};
use crate::fleetctl::local::{find, read_file};
use crate::fleetctl::manager_check::CheckedUnit;
use crate::fleetctl::manifest_diff::unit_files_in;
use crate::ui::drop_ins::drop_in_files;
use crate::ui::error::CliError;
use crate::ui::findings::{
    Finding, check, orphaned_drop_ins, schedule_findings, verify, verify_drop_in, verify_native,
};
use crate::ui::output::Record;
use crate::ui::unit_text::{SourcePath, UnitText};

impl Record for Finding {
    fn name(&self) -> &str {
        self.file.to_str().unwrap_or_default()
    }
}

/// Runs the command. All files are checked, even after errors.
pub(super) fn run(context: &mut Context, args: &VerifyArgs) -> Result<(), CliError> {
    let files = expanded(&args.files)?;
    let version = args.systemd_version.or_else(installed_version);
    let (mut broken, now) = (0_usize, wall_time());
    let mut joint = joint_findings(&files)?;
    for orphan in args.files.iter().map(|path| orphaned_drop_ins(path)) {
        for finding in orphan? {
            context.output.record(&finding, &format!("{finding}\n"))?;
            broken += 1;
        }
    }
    let count = files.len() + broken;
    for path in &files {
        let (text, mut findings) = check_file(path, args.manager, version, now)?;
        findings.extend(joint.extract_if(.., |it| text.contains(&it.file)));
        // Findings in a drop-in that is itself an argument are reported for that argument.
        findings.retain(|it| it.file == *path || !files.contains(&it.file));
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
        _ => Err(CliError::failed(format!("{broken} of {count} unit files have errors"))),
    }
}

/// Returns the warnings about units that the cluster may place apart from the units among these
/// that they start, and the error about a cycle of `StartAfter=` among these.
fn joint_findings(files: &[PathBuf]) -> Result<Vec<Finding>, CliError> {
    let mut units = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Ok(name) = UnitName::parse(&name) {
            let text = UnitText::read(&name, path, &read_file(path)?)?;
            let file = Some(text.file().clone());
            units.push(CheckedUnit { name, path: text.path().clone(), file });
        }
    }
    let known = units.iter().filter_map(|it| Some((it.name.clone(), it.file.clone()?)));
    let mut findings = warnings(&units, &known.collect());
    findings.extend(start_order_error(&units));
    Ok(findings)
}

/// Replaces each folder by the unit files or drop-ins in it.
fn expanded(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let files = paths.iter().map(|path| match path.is_dir() {
        true => match drop_in_files(path)? {
            Some(files) => Ok(files),
            None => unit_files_in(path),
        },
        false => Ok(vec![path.clone()]),
    });
    Ok(CliError::all_or_none(files.collect())?.into_iter().flatten().collect())
}

/// Returns the version of this machine's systemd; `None` if there is none.
fn installed_version() -> Option<SystemdVersion> {
    let output = Command::new("systemctl").arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next()?.parse().ok()
}

/// Checks a file. Returns its findings, and the files that they can be about.
fn check_file(
    path: &Path,
    manager: ManagerArg,
    version: Option<SystemdVersion>,
    now: Timestamp,
) -> Result<(SourcePath, Vec<Finding>), CliError> {
    let source = read_file(path)?;
    let check_unit = |name: &UnitName, text: &UnitText| {
        let mut findings = match manager {
            ManagerArg::Systemd => verify(name, text, version),
            ManagerArg::Native => verify_native(name, text),
        };
        findings.extend(schedule_findings(name, text.path(), text.file(), now));
        findings
    };
    let only = SourcePath::from(path.to_owned());
    if let Some((unit, main)) = drop_in(path) {
        let main = if main.is_dir() { None } else { find(&unit, &main)? };
        if let Some((main, main_source)) = main {
            let text = UnitText::read(&unit, &main, &main_source)?;
            if text.path().contains(path) {
                let mut findings = check_unit(&unit, &text);
                findings.retain(|it| it.file == path);
                return Ok((only, findings));
            }
        }
        return Ok((only, verify_drop_in(path, &unit, &source, version)));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match UnitName::parse(&name) {
        Ok(name) => {
            let text = UnitText::read(&name, path, &source)?;
            let findings = check_unit(&name, &text);
            Ok((text.path().clone(), findings))
        }
        Err(error) => {
            // systemd's rules depend on the type in the name.
            let mut findings = check(path, &placeholder_name(), &source).1;
            findings.insert(0, name_finding(path, error.to_string()));
            Ok((only, findings))
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
