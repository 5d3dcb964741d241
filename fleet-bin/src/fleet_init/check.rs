//! `check`: reports everything that is wrong in the files of an init.

use std::io::{self, Write};

use fleet_core::graph::text::Code;
use fleet_unitfile::Severity;

use super::args::CheckArgs;
use super::files::{self, Files};
use crate::ui::error::CliError;
use crate::ui::findings::Finding;
use crate::ui::output::Output;

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
        0 if read.sources.stanzas.is_empty() => {
            let error = CliError::failed("the files contain no units");
            Err(read.with_skipped(error.help("write units into a file whose name ends in .unit")))
        }
        0 => Ok(()),
        1 => Err(CliError::failed("the files have 1 error")),
        _ => Err(CliError::failed(format!("the files have {errors} errors"))),
    }
}

/// Formats a finding with its source lines before the remedy.
fn with_excerpt(finding: &Finding, excerpt: &str) -> String {
    let text = finding.to_string();
    let (message, help) = text.split_once('\n').unwrap_or((&text, ""));
    // An unreadable file has no lines.
    let excerpt = if finding.code == Some(Code::Unreadable.as_str()) { "" } else { excerpt };
    let lines = [message, excerpt, help].into_iter().filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Reports on standard error which files were read and skipped.
fn print_summary(read: &Files) {
    let mut to = io::stderr();
    for other in &read.skipped {
        let name = other.display();
        let text = if files::is_systemd_unit(other) {
            "skipped: a systemd unit file; fleet-init convert turns it into a stanza"
        } else if other.is_dir() {
            "skipped: a directory; its files are not read"
        } else {
            "skipped: neither a unit file (NAME.unit) nor init.conf"
        };
        let _unread = writeln!(to, "{name}: {text}").is_err();
    }
    if read.graph.is_some() && !read.sources.stanzas.is_empty() {
        let units = match read.sources.stanzas.len() {
            1 => "1 unit".to_owned(),
            units => format!("{units} units"),
        };
        let _unread = writeln!(to, "ok: {units}").is_err();
    }
}
