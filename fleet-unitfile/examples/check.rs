//! Reports errors and warnings in unit files.
//!
//! `cargo run -p fleet-unitfile --example check -- FILE…`
//!
//! Findings are written to standard output, each with its source line. The name of a file is the
//! name of the unit. Exit code: 0 if no file has an error, 1 if one has or cannot be read, 2 for a
//! usage error.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use fleet_unitfile::{Severity, UnitFile, UnitName};

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        complain("usage: check FILE...");
        return ExitCode::from(2);
    }
    let sound = paths.iter().filter(|path| match tell(path) {
        Ok(is_sound) => is_sound,
        Err(error) => {
            complain(&format!("{path}: {error}"));
            false
        }
    });
    ExitCode::from(u8::from(sound.count() < paths.len()))
}

/// Prints the findings of a file. Returns whether none of them is an error.
fn tell(path: &str) -> io::Result<bool> {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
    let name = UnitName::parse(&name).map_err(io::Error::other)?;
    #[expect(clippy::disallowed_methods, reason = "an example is a program of its own")]
    let source = std::fs::read(path)?;
    let (_, findings) = UnitFile::check_source(&name, source);
    let is_sound = findings.iter().all(|finding| finding.severity() < Severity::Error);
    let mut stdout = io::stdout().lock();
    for finding in findings {
        writeln!(stdout, "{}", finding.in_file(path).render())?;
    }
    Ok(is_sound)
}

fn complain(message: &str) {
    // If standard error is closed, only the exit code reports the error.
    drop(writeln!(io::stderr(), "{message}"));
}
