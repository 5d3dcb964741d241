//! `verify`: unit files of this computer, checked as the cluster and systemd would.

use std::path::{Path, PathBuf};

use fleet_unitfile::{Severity, UnitName};

use crate::findings::{Finding, check, verify};
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::local::read_file;
use crate::fleetctl::output::Record;
use crate::fleetctl::wanted::unit_files_in;

impl Record for Finding {
    fn name(&self) -> &str {
        self.file.to_str().unwrap_or_default()
    }
}

/// Runs the command. Every file is checked, whatever is wrong with others.
pub(super) fn run(context: &mut Context, files: &[PathBuf]) -> Result<(), CliError> {
    let files = expanded(files)?;
    let mut broken = 0_usize;
    for path in &files {
        let findings = of_file(path)?;
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

/// The files, with those of a folder in its place.
fn expanded(paths: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let files = paths.iter().map(|path| match path.is_dir() {
        true => unit_files_in(path),
        false => Ok(vec![path.clone()]),
    });
    Ok(CliError::all_or_none(files.collect())?.into_iter().flatten().collect())
}

fn of_file(path: &Path) -> Result<Vec<Finding>, CliError> {
    let source = read_file(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match UnitName::parse(&name) {
        Ok(name) => Ok(verify(path, &name, &source)),
        Err(error) => {
            // What systemd would say depends on the name.
            let mut findings = check(path, &stand_in(), &source).1;
            findings.insert(0, of_name(path, error.to_string()));
            Ok(findings)
        }
    }
}

/// What a file is checked under whose own name is none, so that all else is still found.
fn stand_in() -> UnitName {
    UnitName::parse("unit.service").expect("a plain name with a type")
}

fn of_name(path: &Path, message: String) -> Finding {
    let help = "give the file the name that the unit is to have".to_owned();
    let (file, severity) = (path.to_owned(), Severity::Error);
    Finding { file, line: 1, column: 1, severity, code: None, message, help }
}
