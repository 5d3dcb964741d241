//! Compares the checks with `systemd-analyze verify`, which must report the same lines of the same
//! files.
//!
//! Requires the systemd version of the directive tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fleet_unitfile::check::{Directive, FindingCode, directives, directives_version};
use fleet_unitfile::{Finding, Severity, UnitFile};

use super::{broken, findings};

/// Types of which systemd reads no files, so that it has no verdict.
const NOT_READ: [&str; 4] = [".busname", ".container", ".scope", ".snapshot"];

/// Findings that systemd 252 intentionally does not have.
const ON_PURPOSE: [FindingCode; 5] = [
    // systemd reads this section only to enable a unit.
    FindingCode::Install,
    // systemd reports this about the unit, not about a line.
    FindingCode::Masked,
    // systemd silently uses the last value.
    FindingCode::Repeated,
    // systemd silently fills in the unit's own instance or prefix.
    FindingCode::Template,
    // systemd reports this for some options only.
    FindingCode::OutdatedKey,
];

/// Options in which systemd 252 silently skips unknown words.
const SKIPPED: [&str; 3] = ["AmbientCapabilities", "CapabilityBoundingSet", "SecureBits"];

/// Returns the output of `systemd-analyze verify` for the files of a directory. `None` if systemd
/// is not installed, or has another version than the directive tables.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
pub(super) fn verify(folder: &Path, names: &[String]) -> Option<String> {
    let run = |arguments: &[String]| {
        let mut command = std::process::Command::new("systemd-analyze");
        command.args(arguments).current_dir(folder).output().ok()
    };
    let version = String::from_utf8(run(&["--version".to_owned()])?.stdout).ok()?;
    if version.split_whitespace().nth(1) != Some(directives_version()) {
        return None;
    }
    let arguments = ["verify".to_owned(), "--man=no".to_owned()];
    let output = run(&[&arguments, names].concat())?;
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Returns the lines of each file that systemd warns about.
pub(super) fn lines(report: &str) -> BTreeSet<(String, usize)> {
    let lines = report.lines().filter_map(|line| {
        let (path, rest) = line.split_once(": ").filter(|(path, _)| path.starts_with('/'))?;
        let (path, line) = path.rsplit_once(':').filter(|_| !rest.is_empty())?;
        let name = path.rsplit('/').next()?;
        Some((name.to_owned(), line.parse().ok()?))
    });
    lines.collect()
}

/// Returns the last line of the option that a finding is about. systemd reports this line if a
/// value continues over several lines.
fn last_line(file: &UnitFile, finding: &Finding) -> usize {
    let about = file.options().find(|option| {
        let span = option.span();
        span.start <= finding.span().start && finding.span().start < span.end
    });
    about.map_or(finding.location().line, |option| file.location(option.span().end).line)
}

#[test]
fn systemd_refuses_exactly_the_files_with_errors() {
    let corpus = broken();
    let names: Vec<String> = corpus.iter().map(|(name, ..)| name.clone()).collect();
    let read = |name: &&String| !NOT_READ.iter().any(|suffix| name.ends_with(suffix));
    let read: Vec<String> = names.iter().filter(read).cloned().collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let Some(report) = verify(&folder, &read) else { return };
    let theirs: BTreeSet<String> = report
        .lines()
        .filter_map(|line| {
            line.strip_prefix("Unit ")?.strip_suffix(" has a bad unit file setting.")
        })
        .map(|name| name.replace("web@i.", "web@."))
        .collect();
    let ours: BTreeSet<String> = corpus
        .iter()
        .filter(|(name, ..)| read.contains(name))
        .filter(|(name, _, source)| {
            let (_, findings) = findings(name, source);
            // systemd only warns about lines that strict parsing refuses.
            let errors = findings.iter().filter(|it| it.severity() == Severity::Error);
            // It refuses the name of a slice before it reads the file.
            errors
                .into_iter()
                .any(|it| it.code() >= FindingCode::Program && it.code() != FindingCode::SliceName)
        })
        .map(|(name, ..)| name.clone())
        .collect();
    assert_eq!(ours, theirs);
}

#[test]
fn systemd_warns_about_the_same_lines() {
    let corpus = broken();
    let read = |name: &String| !NOT_READ.iter().any(|suffix| name.ends_with(suffix));
    let names: Vec<String> =
        corpus.iter().map(|(name, ..)| name.clone()).filter(|name| read(name)).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken");
    let Some(report) = verify(&folder, &names) else { return };
    let theirs = lines(&report);
    let (mut ours, mut fatal) = (BTreeMap::new(), BTreeMap::new());
    for (name, _, source) in corpus.iter().filter(|(name, ..)| read(name)) {
        let (file, findings) = findings(name, source);
        let reported = findings.iter().filter(|it| it.code() < FindingCode::NoCommand);
        // systemd does not report outdated options.
        for finding in reported.filter(|it| it.severity() > Severity::Hint) {
            let line = last_line(&file, finding);
            let key = (name.clone(), line);
            if !ON_PURPOSE.contains(&finding.code()) || theirs.contains(&key) {
                ours.insert(key, finding.to_string());
            }
            // systemd stops reading at the first error in a value.
            if finding.code() >= FindingCode::Program {
                fatal.entry(name.clone()).or_insert(line);
            }
        }
    }
    let missed: Vec<_> = theirs.iter().filter(|key| !ours.contains_key(*key)).collect();
    assert!(missed.is_empty(), "systemd alone complains of {missed:?}:\n{report}");
    let alone = ours.iter().filter(|((name, line), message)| {
        let stopped = fatal.get(name).is_some_and(|fatal| line > fatal);
        let skipped = SKIPPED.iter().any(|option| message.contains(option));
        !theirs.contains(&(name.clone(), *line)) && !stopped && !skipped
    });
    let alone: Vec<_> = alone.collect();
    assert!(alone.is_empty(), "we alone complain of {alone:?}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test hands files to another program")]
fn systemd_knows_the_same_specifier_letters() {
    let all = ('0'..='9').chain('A'..='Z').chain('a'..='z');
    // The specifier %D is newer.
    let letters: Vec<char> = all.filter(|letter| *letter != 'D').collect();
    let options = letters.iter().map(|it| format!("Description=%{it}\nAfter=a%{it}.service\n"));
    let source = format!("[Service]\nExecStart=/bin/true\n[Unit]\n{}", options.collect::<String>());
    let (_, findings) = findings("a.service", source.as_bytes());
    let unknown = findings.iter().filter(|it| it.code() == FindingCode::Specifier);
    let ours: BTreeSet<usize> = unknown.map(|it| it.location().line).collect();
    let context = fleet_unitfile::SpecifierContext::new();
    let name = fleet_unitfile::UnitName::parse("a.service").unwrap();
    for (at, letter) in letters.iter().enumerate() {
        let expanded = context.expand(&format!("%{letter}"), &name);
        let none = matches!(
            expanded,
            Err(fleet_unitfile::specifier::SpecifierError::NotASpecifier { .. })
        );
        // systemd still expands the old specifiers for control groups, with a warning.
        let is_old = ['c', 'r', 'R'].contains(letter);
        assert_eq!(none && !is_old, ours.contains(&(at * 2 + 4)), "%{letter}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.service"), &source).unwrap();
    let Some(report) = verify(folder.path(), &["a.service".to_owned()]) else { return };
    let deprecated = |line: &&str| !line.contains("which is deprecated");
    let report: String = report.lines().filter(deprecated).map(|it| format!("{it}\n")).collect();
    let theirs: BTreeSet<usize> = lines(&report).into_iter().map(|(_, line)| line).collect();
    assert_eq!(ours, theirs, "{report}");
}

/// Values of every sort; most options refuse most of them.
const VALUES: [&str; 28] = [
    "yes",
    "5",
    "-5",
    "1.5",
    "5s",
    "1h 5parsec",
    "infinity",
    "1G",
    "1X",
    "SIGTERM",
    "SIGFOO",
    "/abs/path",
    "rel/path",
    "foo.service",
    "foo.slice",
    "foo",
    "a b",
    "5:10",
    "65536",
    "daily",
    "none",
    "auto",
    "inherit",
    "https://x.y",
    "A=b",
    "kill",
    "-/x",
    "127.0.0.1:80",
];

/// For each section, a unit type that has this section, and the text of a valid unit of that type.
const SOUND: [(&str, &str, &str); 8] = [
    ("Unit", "service", "[Service]\nExecStart=/bin/true\n[Unit]\n"),
    ("Service", "service", "[Service]\nExecStart=/bin/true\n"),
    ("Socket", "socket", "[Socket]\nListenStream=/x\n"),
    ("Timer", "timer", "[Timer]\nOnBootSec=1\n"),
    ("Path", "path", "[Path]\nPathExists=/x\n"),
    ("Slice", "slice", "[Slice]\n"),
    ("Swap", "swap", "[Swap]\n"),
    ("Automount", "automount", "[Automount]\n"),
];

#[test]
#[expect(clippy::disallowed_methods, reason = "the test hands files to another program")]
fn every_directive_is_checked_without_false_positives() {
    let folder = tempfile::tempdir().unwrap();
    let mut alarms = BTreeMap::new();
    let mut names = Vec::new();
    for (section, unit_type, start) in SOUND {
        let known = directives().filter(|it| {
            let of_scope = |other: Directive| (other.section, other.name) == ("Scope", it.name);
            let is_shared = section != "Service" && directives().any(of_scope);
            it.section == section && !it.is_newer && !is_shared && !SKIPPED.contains(&it.name)
        });
        for Directive { name: option, .. } in known {
            let name = format!("x{}-{option}.{unit_type}", names.len());
            let source = VALUES
                .iter()
                .fold(start.to_owned(), |source, value| source + &format!("{option}={value}\n"));
            std::fs::write(folder.path().join(&name), &source).unwrap();
            let (_, findings) = findings(&name, source.as_bytes());
            // If a value makes systemd stop, it reports nothing after it.
            let fatal = findings.iter().find(|it| it.severity() == Severity::Error);
            let end = fatal.map_or(usize::MAX, |fatal| fatal.location().line);
            // Rules about the whole unit have no line.
            let reported = findings
                .iter()
                .filter(|it| it.location().line <= end && it.code() < FindingCode::NoCommand)
                .filter(|it| it.severity() > Severity::Hint);
            for finding in reported.filter(|it| !ON_PURPOSE.contains(&it.code())) {
                alarms.insert((name.clone(), finding.location().line), finding.to_string());
            }
            names.push(name);
        }
    }
    let Some(report) = verify(folder.path(), &names) else { return };
    let theirs = lines(&report);
    assert!(theirs.len() > 5000, "{} lines", theirs.len());
    // The remaining ones are options whose values are not checked.
    let found = theirs.iter().filter(|key| alarms.contains_key(*key)).count();
    assert!(found * 8 > theirs.len() * 7, "{found} of {} are found", theirs.len());
    let false_alarms: Vec<_> = alarms.iter().filter(|(key, _)| !theirs.contains(*key)).collect();
    assert!(false_alarms.is_empty(), "{} false alarms: {false_alarms:#?}", false_alarms.len());
}
