//! Tests of the memory use of parsing, with all kinds of sources.
//!
//! This is a test binary of its own, because it counts the allocations of the whole process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_unitfile::{Reader, UnitFile};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Only one test at a time may allocate.
static TURN: Mutex<()> = Mutex::new(());

/// Returns the peak of additional memory during `work`.
fn peak_of<T>(_turn: &MutexGuard<'_, ()>, work: impl FnOnce() -> T) -> (usize, T) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let result = work();
    (ALLOCATOR.peak_usage() - before, result)
}

/// Repeats a piece after a head up to a given length.
fn repeated(head: &[u8], piece: &[u8], len: usize) -> Vec<u8> {
    let mut source = head.to_vec();
    while source.len() < len {
        source.extend_from_slice(piece);
    }
    source
}

/// Sources that are particularly expensive in memory.
fn sources() -> Vec<(&'static str, Vec<u8>)> {
    let of = |piece: &str| repeated(b"[A]\n", piece.as_bytes(), 2_000_000);
    let longest = format!("A={}\n", "x".repeat(1024 * 1024 - 3));
    let one_of_several = format!("A={}\n", "x\\\n".repeat(500_000));
    let no_headers = |piece: &str| repeated(b"", piece.as_bytes(), 2_000_000);
    let names = (0..400_000).map(|name| format!("[{name:x}]\n"));
    let named = (0..400_000).map(|name| format!("[{name:x}]\nA=\n"));
    vec![
        ("a million lines of four bytes", of("A=b\n")),
        ("the shortest options", of("A=\n")),
        ("lines as long as they may be", of(&longest)),
        ("one line as long as it may be", of(&longest)[..longest.len() + 4].to_vec()),
        ("two lines each", of("A=b\\\nc\n")),
        ("names of two lines", of("A\\\n=\n")),
        ("empty values of two lines", of("A=\\\n\n")),
        ("comments between lines", of("A=b\\\n#\n c\n")),
        ("a million lines in one", of(&one_of_several)),
        ("lines that go on forever", of("A=b\\\n")),
        ("headers in values", of("\\\n[x]")),
        ("comments", of("# What this is.\n")),
        ("empty lines", of("\n")),
        ("one header, again and again", no_headers("[A]\n")),
        ("one header of two lines", no_headers("[A\\\nB]\n")),
        ("other headers", names.collect::<String>().into_bytes()),
        ("other headers with an option each", named.collect::<String>().into_bytes()),
        ("headers that cannot be read", no_headers("[\nA=b\n")),
        ("lines that cannot be read", of("x\n")),
        ("comments that are not text", repeated(b"[A]\n#\xff\n", b"A=b\n", 2_000_000)),
        ("lines that are not text", repeated(b"[A]\n", b"A=\xff\n", 2_000_000)),
        ("carriage returns", of("A=b\r\n")),
        ("zero bytes", of("A=b\0")),
    ]
}

#[test]
fn unit_file_memory_is_at_most_three_times_its_source() {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for (what, source) in sources() {
        let (peak, unit) = peak_of(&turn, || UnitFile::parse_collecting(&source).0);
        let tenths = peak * 10 / source.len();
        assert!(peak <= 3 * source.len(), "{what}: {tenths} tenths of {}", source.len());
        assert_eq!(unit.source(), source, "{what}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test may read its own files")]
fn real_unit_file_memory_is_below_one_and_a_half_times() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/units");
    let mut units = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        units.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    let source = repeated(b"", &units, 100_000_000);
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (peak, unit) = peak_of(&turn, || UnitFile::parse_collecting(&source).0);
    assert!(peak < source.len() + source.len() / 2, "{peak} of {}", source.len());
    assert!(unit.options().len() > 1_000_000);
}

#[test]
fn reader_does_not_allocate_per_line() {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Even a short-lived copy of it would be counted.
    let long = "x".repeat(4096);
    let source = format!("# {long}\n[{long}]\n{long} = {long}\n\n").repeat(100);
    let read = || {
        let options = Reader::new(&source).options();
        options.map(|it| it.section().len() + it.name().len() + it.value().len()).sum::<usize>()
    };
    let (peak, sum) = peak_of(&turn, read);
    assert_eq!(sum, 100 * 3 * long.len());
    assert!(peak < 1024, "{peak} bytes");
}
