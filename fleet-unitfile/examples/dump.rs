//! Prints the options of a unit file as JSON, and its diagnostics.
//!
//! `cargo run -p fleet-unitfile --example dump -- FILE`
//!
//! The options are written to standard output as an array of `{"section", "name", "value"}`, with
//! values as systemd reads them. Diagnostics are written to standard error as `FILE:LINE:COLUMN:
//! message`, each with its help on a line of its own; warnings are marked by `warning:`. Exit code:
//! 0 if the file is valid, 1 if it is not or cannot be read, 2 for a usage error.

use std::io::{self, Write as _};
use std::process::ExitCode;

use fleet_unitfile::{Diagnostic, Severity, UnitFile};
use serde_json::json;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), None) = (arguments.next(), arguments.next()) else {
        return complain("usage: dump FILE", 2);
    };
    match dump(&path) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => complain(&format!("{path}: {error}"), 1),
    }
}

/// Prints everything. Returns whether the file is valid.
fn dump(path: &str) -> io::Result<bool> {
    #[expect(clippy::disallowed_methods, reason = "an example is a program of its own")]
    let source = std::fs::read(path)?;
    let (unit, diagnostics) = UnitFile::parse_collecting(source);
    let options = unit.options().map(|option| {
        json!({"section": option.section(), "name": option.name(), "value": option.value()})
    });
    writeln!(io::stdout(), "{}", options.collect::<serde_json::Value>())?;
    diagnostics.iter().try_for_each(|diagnostic| explain(path, diagnostic))?;
    Ok(diagnostics.iter().all(|diagnostic| diagnostic.severity() < Severity::Error))
}

fn explain(path: &str, diagnostic: &Diagnostic) -> io::Result<()> {
    let (place, message) = (diagnostic.location(), diagnostic.message());
    let warning = match diagnostic.severity() {
        Severity::Error => String::new(),
        less => format!("{less}: "),
    };
    let mut stderr = io::stderr().lock();
    writeln!(stderr, "{path}:{}:{}: {warning}{message}", place.line, place.column)?;
    writeln!(stderr, "  help: {}", diagnostic.help())
}

fn complain(message: &str, code: u8) -> ExitCode {
    // If standard error is closed, only the exit code reports the error.
    drop(writeln!(io::stderr(), "{message}"));
    ExitCode::from(code)
}
