//! Benchmarks of parsing speed and memory use.
//!
//! `cargo bench -p fleet-unitfile --bench read`
//!
//! The unit files of this machine are read as one text. If the machine has none, those of the tests
//! are read instead. The table shows bytes per second. `benches/compare` compares this crate with
//! other crates.

use std::hint::black_box;
use std::path::Path;
use std::sync::LazyLock;

use divan::counter::BytesCount;
use divan::{AllocProfiler, Bencher};
use fleet_unitfile::{Reader, UnitFile};

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

static SOURCE: LazyLock<String> = LazyLock::new(|| {
    let machine = concatenated(Path::new("/usr/lib/systemd"));
    if machine.is_empty() {
        concatenated(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/units"))
    } else {
        machine
    }
});

fn main() {
    divan::main();
}

/// The borrowing reader: every option accessed, none kept.
#[divan::bench]
fn reader(bencher: Bencher<'_, '_>) {
    bench(bencher, |source| {
        let options = Reader::new(source).options();
        options.fold(0, |sum, it| sum + it.name().len() + it.value().len())
    });
}

/// A `UnitFile`, with its own copy of the source.
#[divan::bench]
fn unit_file(bencher: Bencher<'_, '_>) {
    bench(bencher, |source| UnitFile::parse_collecting(source).0);
}

/// A `UnitFile`, with every option accessed.
#[divan::bench]
fn unit_file_options(bencher: Bencher<'_, '_>) {
    bench(bencher, |source| {
        let (unit, _) = UnitFile::parse_collecting(source);
        unit.options().fold(0, |sum, it| sum + it.name().len() + it.value().len())
    });
}

/// A `UnitFile` of `len` bytes in options of four bytes each. The time should be proportional to
/// `len`.
#[divan::bench(args = [1_000_000, 10_000_000, 100_000_000], sample_count = 5)]
fn unit_file_of_short_lines(bencher: Bencher<'_, '_>, len: usize) {
    let source = "[A]\n".to_owned() + &"K=v\n".repeat(len / 4);
    let bencher = bencher.counter(BytesCount::of_str(&source));
    bencher.bench_local(|| UnitFile::parse_collecting(black_box(&source)).0);
}

fn bench<T>(bencher: Bencher<'_, '_>, read: impl Fn(&str) -> T) {
    let source: &str = &SOURCE;
    let bencher = bencher.counter(BytesCount::of_str(source));
    bencher.bench_local(|| read(black_box(source)));
}

/// Returns the text of every UTF-8 unit file below a directory, in the order of their paths.
#[expect(clippy::disallowed_methods, reason = "a benchmark may read the files of the machine")]
fn concatenated(folder: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return String::new();
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let texts = paths.iter().map(|path| {
        let is_unit = path.extension().is_some_and(|extension| {
            let types = ["service", "socket", "timer", "target", "mount", "path", "slice"];
            types.iter().any(|unit_type| extension == *unit_type)
        });
        match path {
            _ if path.is_symlink() => String::new(),
            _ if path.is_dir() => concatenated(path),
            _ if is_unit => std::fs::read_to_string(path).unwrap_or_default(),
            _ => String::new(),
        }
    });
    texts.collect()
}
