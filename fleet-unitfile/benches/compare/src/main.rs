//! Compares the speed and correctness of crates that read unit files.
//!
//! `cargo run --release [FOLDER]`
//!
//! The unit files below `FOLDER`, or below `/usr/lib/systemd`, are concatenated into one text. The
//! crates take turns at reading this text and accessing each of its options. The table shows for
//! each crate:
//!
//! - the speed of its fastest turn, in millions of bytes per second of processor time;
//! - the number of options that it finds, or 0 if it refuses the text;
//! - the small test texts that it reads differently than systemd.

mod probes;
mod readers;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use crate::readers::{READERS, Reader};

/// Number of turns of each crate, and minimum duration of a turn.
const ROUNDS: usize = 9;
const TURN: Duration = Duration::from_millis(200);

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "/usr/lib/systemd".to_owned());
    let source = concatenated(Path::new(&folder));
    assert!(!source.is_empty(), "no unit files below {folder}");
    // Some of the other crates panic, which the table reports.
    std::panic::set_hook(Box::new(|_| {}));
    let mut fastest = vec![0.0_f64; READERS.len()];
    for _ in 0..ROUNDS {
        for (reader, fastest) in READERS.iter().zip(&mut fastest) {
            *fastest = fastest.max(speed(reader, &source));
        }
    }
    println!("{} bytes of {folder}\n", source.len());
    println!("| reader | MB/s | options | reads in another way than systemd |");
    println!("|---|---|---|---|");
    for (reader, speed) in READERS.iter().zip(fastest) {
        let list = probes::caught(|| (reader.list)(&source)).flatten();
        let options = list.map_or(0, |list| list.len());
        let wrong = probes::wrong(reader);
        let speed = if options > 0 { format!("{speed:.0}") } else { "–".to_owned() };
        println!("| {} | {speed} | {options} | {wrong} |", reader.name);
    }
}

/// Millions of bytes per second.
fn speed(reader: &Reader, source: &str) -> f64 {
    let start = worked();
    let mut bytes = 0;
    while worked() - start < TURN {
        if probes::caught(|| black_box((reader.look)(black_box(source)))).flatten().is_none() {
            return 0.0;
        }
        bytes += source.len();
    }
    bytes as f64 / 1e6 / (worked() - start).as_secs_f64()
}

/// Returns the processor time of this thread, which depends little on other processes.
#[expect(clippy::disallowed_methods, reason = "a benchmark needs a clock")]
fn worked() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.expect("Linux reports the processor time of a thread"))
}

/// Returns the text of every UTF-8 unit file below a directory, in the order of their paths.
#[expect(clippy::disallowed_methods, reason = "a benchmark may read the files of the machine")]
fn concatenated(folder: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return String::new();
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let texts = paths.iter().map(|path| match path {
        _ if path.is_symlink() => String::new(),
        _ if path.is_dir() => concatenated(path),
        _ if is_unit(path) => std::fs::read_to_string(path).unwrap_or_default(),
        _ => String::new(),
    });
    texts.collect()
}

fn is_unit(path: &Path) -> bool {
    let types = ["service", "socket", "timer", "target", "mount", "automount", "path", "slice"];
    path.extension().is_some_and(|extension| types.iter().any(|it| extension == *it))
}
