//! `check`: reports everything that is wrong in the files of an init.

use std::io::{self, Write};

use fleet_unitfile::Severity;

use super::args::CheckArgs;
use super::files::{self, Files};
use crate::findings::Finding;
use crate::fleetctl::error::CliError;
use crate::fleetctl::output::Output;

/// Runs the command.
pub(super) fn run(args: &CheckArgs) -> Result<(), CliError> {
    let mut read = files::read(&args.paths)?;
    read.check_host();
    let mut output = Output::on_stdout(args.output);
    let findings = read.findings();
    for (finding, excerpt) in &findings {
        output.record(finding, &with_excerpt(finding, excerpt))?;
    }
    output.finish()?;
    print_summary(&read);
    let errors = findings.iter().filter(|(it, _)| it.severity == Severity::Error).count();
    match errors {
        0 => Ok(()),
        1 => Err(CliError::failed("the files have 1 error")),
        _ => Err(CliError::failed(format!("the files have {errors} errors"))),
    }
}

/// Formats a finding with its source lines before the remedy.
fn with_excerpt(finding: &Finding, excerpt: &str) -> String {
    let text = finding.to_string();
    let (message, help) = text.split_once('\n').unwrap_or((&text, ""));
    format!("{message}\n{excerpt}\n{help}\n")
}

/// Reports on standard error which files were read and skipped.
fn print_summary(read: &Files) {
    let mut to = io::stderr();
    for other in &read.skipped {
        let name = other.display();
        let text = if files::is_systemd_unit(other) {
            "skipped: a systemd unit file; fleet-init convert turns it into a stanza"
        } else {
            "skipped: neither a unit file (NAME.unit) nor init.conf"
        };
        let _unread = writeln!(to, "{name}: {text}").is_err();
    }
    if read.graph.is_some() {
        let units = match read.sources.stanzas.len() {
            1 => "1 unit".to_owned(),
            units => format!("{units} units"),
        };
        let _unread = writeln!(to, "ok: {units}").is_err();
    }
}
