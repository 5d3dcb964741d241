//! The values that each directive gets.

use std::collections::BTreeSet;
use std::path::Path;

use fleet_unitfile::UnitFile;

/// Values of every form that some directive takes, and forms that look like them, one per line.
const ODD: &str = include_str!("values.txt");

/// Returns all values: the odd ones, and those in the unit files of the corpora and this machine.
pub(crate) fn all() -> Vec<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut all: BTreeSet<String> = ODD.lines().map(str::to_owned).collect();
    for folder in [tests.join("units"), tests.join("broken"), "/usr/lib/systemd/system".into()] {
        for source in files(&folder) {
            let (file, _) = UnitFile::parse_collecting(source);
            all.extend(file.options().map(|option| option.value().to_owned()));
        }
    }
    let of_corpus = all.clone();
    all.extend(of_corpus.iter().filter(|value| value.len() < 40).flat_map(|it| mutated(it)));
    // Each value must be one line, and must not join the next.
    all.retain(|value| !value.ends_with('\\') && value.len() < 255);
    all.into_iter().collect()
}

/// Returns values that are nearly those of a corpus.
fn mutated(value: &str) -> [String; 3] {
    let half = value.char_indices().nth(value.chars().count() / 2).map_or(0, |(at, _)| at);
    [format!("\"{value}\""), value[..half].trim().to_owned(), value.to_uppercase()]
}

#[expect(clippy::disallowed_methods, reason = "tests may read files; the crate itself may not")]
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().filter(|path| path.is_file()).map(|path| std::fs::read(path).unwrap()).collect()
}
