//! Measures the parsing speed of unit files.
//!
//! `cargo run --release -p fleet-unitfile --example throughput -- FILE…`
//!
//! Reads all files into memory, then parses them repeatedly for a second and prints one JSON line:
//! the parsed `bytes`, the elapsed `seconds`, and `mb_per_s` (millions of bytes per second). Each
//! parse makes a `UnitFile` with its own copy of the source. Exit code: 1 if a file cannot be read,
//! 2 for a usage error.

use std::hint::black_box;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fleet_unitfile::UnitFile;

/// Minimum duration of the measurement.
const LEAST: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        return complain("usage: throughput FILE…", 2);
    }
    let mut sources = Vec::new();
    for path in paths {
        match read(&path) {
            Ok(source) => sources.push(source),
            Err(error) => return complain(&format!("{path}: {error}"), 1),
        }
    }
    let (bytes, seconds) = measure(&sources);
    let mb_per_s = bytes as f64 / 1e6 / seconds;
    let line = serde_json::json!({"bytes": bytes, "seconds": seconds, "mb_per_s": mb_per_s});
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(1),
    }
}

/// Parses all sources until the time is up. Returns the parsed bytes and the elapsed seconds.
#[expect(clippy::disallowed_methods, reason = "an example that measures time needs a clock")]
fn measure(sources: &[Vec<u8>]) -> (usize, f64) {
    let round: usize = sources.iter().map(Vec::len).sum();
    let start = Instant::now();
    let mut bytes = 0;
    loop {
        for source in sources {
            drop(black_box(UnitFile::parse_collecting(black_box(source))));
        }
        bytes += round;
        if start.elapsed() >= LEAST {
            return (bytes, start.elapsed().as_secs_f64());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "an example is a program of its own")]
fn read(path: &str) -> io::Result<Vec<u8>> {
    std::fs::read(path)
}

fn complain(message: &str, code: u8) -> ExitCode {
    // If standard error is closed, only the exit code reports the error.
    drop(writeln!(io::stderr(), "{message}"));
    ExitCode::from(code)
}
