//! The files of the project: everything that git tracks or would track after `git add`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{fs, io};

use crate::rust::Source;

/// The pure crates: see `docs/explain/architecture.md`.
pub(crate) const PURE: [&str; 3] = ["fleet-unitfile", "fleet-core", "fleet-scheduler"];

/// One file, read once.
pub(crate) struct File {
    /// Relative to the top of the checkout, with `/` between the parts.
    pub(crate) path: String,
    /// Lossy: invalid UTF-8 is replaced, since no rule looks at it.
    pub(crate) text: String,
}

/// One Rust file, with its code separated from comments and strings.
pub(crate) struct RustFile {
    pub(crate) path: String,
    pub(crate) source: Source,
}

impl RustFile {
    /// Whether the file is a test, an example or a benchmark, and not shipped.
    pub(crate) fn is_auxiliary(&self) -> bool {
        is_auxiliary(&self.path)
    }

    /// Whether this line runs only under test.
    pub(crate) fn in_test(&self, line: usize) -> bool {
        is_test_file(&self.path) || self.source.in_test_module(line)
    }
}

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| {
    let mut files: Vec<File> = names().into_iter().filter_map(read).collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
});

static RUST: LazyLock<Vec<RustFile>> = LazyLock::new(|| {
    let rust = FILES.iter().filter(|file| has_extension(&file.path, "rs"));
    rust.map(|file| RustFile { path: file.path.clone(), source: Source::new(&file.text) }).collect()
});

/// Every file, sorted by path.
pub(crate) fn files() -> &'static [File] {
    &FILES
}

/// Every Rust file, sorted by path.
pub(crate) fn rust_files() -> &'static [RustFile] {
    &RUST
}

/// Returns the file at this path.
pub(crate) fn file(path: &str) -> Option<&'static File> {
    let found = FILES.binary_search_by(|file| file.path.as_str().cmp(path)).ok()?;
    Some(&FILES[found])
}

/// The top folder of the checkout.
pub(crate) fn top() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("a crate lies in a folder of the workspace").to_owned()
}

/// Whether a path ends in `.` and this extension.
pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// Whether the path belongs to a test, an example or a benchmark.
fn is_auxiliary(path: &str) -> bool {
    let folders = ["/tests/", "/benches/", "/examples/"];
    path.starts_with("examples/")
        || folders.iter().any(|folder| path.contains(folder))
        || is_test_file(path)
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Lists all files: from git, or by a walk outside a checkout (a source archive).
fn names() -> Vec<String> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(top())
        .output();
    match git {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout)
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        _ => walk(&top()).expect("the folders of the project can be read"),
    }
}

fn walk(top: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(top).expect("a walk stays below its top");
            if !path.is_dir() {
                found.push(name.to_string_lossy().into_owned());
            } else if name != Path::new("target") && name != Path::new(".git") {
                folders.push(path);
            }
        }
    }
    Ok(found)
}

/// Returns `None` for a file that git still lists but that was just deleted.
fn read(path: String) -> Option<File> {
    let bytes = fs::read(top().join(&path)).ok()?;
    Some(File { path, text: String::from_utf8_lossy(&bytes).into_owned() })
}

#[test]
fn tests_examples_and_benchmarks_are_auxiliary() {
    for path in ["fleet-core/tests/it/main.rs", "fleet-core/src/plan/tests.rs", "examples/src/a.rs"]
    {
        assert!(is_auxiliary(path), "{path}");
    }
    for path in ["fleet-core/src/testing.rs", "fleet-core/src/lib.rs"] {
        assert!(!is_auxiliary(path), "{path}");
    }
}

#[test]
fn a_walk_finds_the_files_that_git_lists() {
    let walked = walk(&top()).expect("the folders of the project can be read");
    for name in ["Cargo.toml", "fleet-bin/tests/tidy/tree.rs"] {
        assert!(walked.iter().any(|found| found == name), "{name}");
        assert!(file(name).is_some(), "{name}");
    }
}
