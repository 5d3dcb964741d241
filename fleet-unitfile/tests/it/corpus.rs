//! Tests with complete unit files: the corpus in `tests/units`, and the files of the machine.

use std::path::{Path, PathBuf};

use fleet_unitfile::{UnitFile, UnitOption};

use crate::folded;

/// Returns the path and content of each file in a directory for which `passes` is true, ordered by
/// path. If the directory does not exist, there are none.
#[expect(clippy::disallowed_methods, reason = "tests may read files; the crate itself may not")]
fn files(folder: &Path, passes: fn(&Path) -> bool) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| passes(path) && path.symlink_metadata().unwrap().is_file());
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

fn corpus(extension: fn(&Path) -> bool) -> Vec<(PathBuf, Vec<u8>)> {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/units"), extension)
}

fn is_bad(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "bad")
}

/// Checks properties that every valid unit file has.
fn is_sound(path: &Path, source: &[u8]) {
    let unit =
        UnitFile::parse(source).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(unit.source(), source);
    assert!(!unit.options().is_empty(), "{} has no options", path.display());
    let again = UnitFile::from_options(unit.options().map(UnitOption::from)).unwrap();
    assert_eq!(again.hash(), unit.hash(), "{}", path.display());
    assert_eq!(again.canonical(), unit.canonical(), "{}", path.display());
}

#[test]
fn valid_corpus_files_round_trip() {
    let good = corpus(|path| !is_bad(path));
    assert_eq!(good.len(), 7, "a file of the corpus is missing, or not counted here");
    good.iter().for_each(|(path, source)| is_sound(path, source));
}

#[test]
fn invalid_corpus_files_are_refused_at_their_error() {
    let report = corpus(is_bad).into_iter().map(|(path, source)| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        format!("{name}: {}", UnitFile::parse(source).unwrap_err())
    });
    insta::assert_snapshot!(folded(&report.collect::<Vec<_>>().join("\n")), @r##"
    colon.service.bad: line 2, column 1: missing "=" in "ExecStart: /bin/true": write
        Name=value, start a comment with "#", or end the line above with a backslash to
        continue it
    comment-after-header.service.bad: line 3, column 1: section header without "]" at its
        end in "[Service] # the main part": write [Section], and put further text on the
        next line
    early.service.bad: line 1, column 1: option before the first section in
        "Description=early": put a section header such as [Unit] above the option
    escaped-backslash.service.bad: line 6, column 3: missing "=" in "b": write Name=value,
        start a comment with "#", or end the line above with a backslash to continue it
    latin1.service.bad: line 2, column 24: text that is not UTF-8 in "ExecStart=/bin/echo
        caf�": save the file as UTF-8
    "##);
}

#[test]
fn all_options_of_a_file_are_read() {
    let corpus = corpus(|path| path.ends_with("commented.service"));
    let [(_, source)] = &corpus[..] else { panic!("one such file") };
    let unit = UnitFile::parse(source).unwrap();
    let lines: Vec<_> = unit.options().map(|option| format!("{option:?}")).collect();
    insta::assert_snapshot!(folded(&lines.join("
")), @r##"
    [Unit] Description="Nightly import"
    [Unit] Requires="database.service"
    [Unit] After="database.service \\\n      srv-import.mount"
    [Service] Type="oneshot"
    [Service] Environment="\"GREETING=good night\" \\\n    LEVEL=3"
    [Service] ExecStart="/usr/bin/import \\\n    --from /srv/import \\\n    --pattern
        '\\\\.csv$' \\\n"
    [Service] ExecStartPost=""
    [Service] ExecStartPost="-/usr/bin/notify \"import of %n is done\" # this is no
        comment"
    "##);
}

#[test]
fn unit_files_of_this_machine_round_trip() {
    for folder in ["/usr/lib/systemd/system", "/etc/systemd/system"] {
        for (path, source) in files(Path::new(folder), is_unit) {
            // A masked unit may be an empty file.
            if !source.is_empty() {
                is_sound(&path, &source);
            }
        }
    }
}

fn is_unit(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    fleet_unitfile::UnitName::parse(&name).is_ok()
}
