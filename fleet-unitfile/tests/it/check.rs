//! Tests of the findings in broken files and in the unit files of this machine, and of the
//! directive tables.

mod access;
mod ignored;
mod quadlet;
mod verify;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fleet_unitfile::check::{FindingCode, directives, directives_version};
use fleet_unitfile::{Finding, Severity, UnitFile, UnitName, UnitOption, UnitType};
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns all findings of a file, from grammar and checks, in source order.
fn findings(name: &str, source: &[u8]) -> (UnitFile, Vec<Finding>) {
    UnitFile::check_source(&UnitName::parse(name).unwrap(), source)
}

#[expect(clippy::disallowed_methods, reason = "tests may read files; the crate itself may not")]
fn files(folder: &Path) -> Vec<(String, PathBuf, Vec<u8>)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.symlink_metadata().unwrap().is_file());
    paths.sort();
    let named = paths.into_iter().map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let source = std::fs::read(&path).unwrap();
        (name, path, source)
    });
    named.collect()
}

fn broken() -> Vec<(String, PathBuf, Vec<u8>)> {
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/broken"))
}

#[test]
fn findings_in_broken_files() {
    let corpus = broken();
    assert!(corpus.len() >= 85, "a file of the corpus is missing");
    let mut report = String::new();
    for (name, _, source) in corpus {
        let (_, findings) = findings(&name, &source);
        if findings.is_empty() {
            report.push_str(&format!("{name}: nothing\n\n"));
        }
        for finding in findings {
            report.push_str(&format!("{}\n", finding.render()));
        }
    }
    insta::assert_snapshot!("broken", report);
}

#[test]
fn corpus_covers_every_code_of_text_files() {
    let corpus = broken();
    let all = corpus.iter().flat_map(|(name, _, source)| findings(name, source).1);
    let mut seen: BTreeSet<FindingCode> = all.map(|finding| finding.code()).collect();
    // The grammar has a corpus of its own for its codes.
    seen.extend(FindingCode::ALL.iter().filter(|code| code.as_str() < "U0100"));
    // These need a version.
    seen.extend([FindingCode::TooNew, FindingCode::Removed]);
    let missing: Vec<_> = FindingCode::ALL.iter().filter(|code| !seen.contains(code)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn installed_unit_files_have_no_errors() {
    for folder in ["/usr/lib/systemd/system", "/usr/lib/systemd/user"] {
        for (name, path, source) in files(Path::new(folder)) {
            if UnitName::parse(&name).is_err() {
                continue;
            }
            let (file, findings) = findings(&name, &source);
            assert_eq!(file.source(), source);
            let again = UnitFile::from_options(file.options().map(UnitOption::from)).unwrap();
            assert_eq!(again.hash(), file.hash(), "{}", path.display());
            let errors = findings.iter().filter(|it| it.severity() == Severity::Error);
            let errors: Vec<String> = errors.map(ToString::to_string).collect();
            assert!(errors.is_empty(), "{}: {errors:?}", path.display());
        }
    }
}

#[test]
fn codes_are_ordered_and_well_formed() {
    let texts: Vec<&str> = FindingCode::ALL.iter().map(|code| code.as_str()).collect();
    assert!(texts.is_sorted_by(|a, b| a < b), "{texts:?}");
    assert!(texts.iter().all(|text| text.len() == 5 && text.starts_with('U')));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "tests may read files; the crate itself may not")]
fn code_reference_lists_all_codes() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/unit-file-findings.md");
    let text = std::fs::read_to_string(path).unwrap();
    let listed: Vec<&str> = text.lines().filter(|line| line.starts_with("| `U")).collect();
    let expected: Vec<String> = FindingCode::ALL
        .iter()
        .map(|code| format!("| `{code}` | {} | {} |", code.severity(), code.meaning()))
        .collect();
    assert_eq!(listed, expected, "the table should be:\n{}", expected.join("\n"));
}

/// Returns the directives of the installed systemd as `(section, name)`. `None` if systemd is not
/// installed, or has another version than the tables.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
fn installed() -> Option<BTreeSet<(String, String)>> {
    let ask = |argument: &str| {
        let output = std::process::Command::new("/usr/lib/systemd/systemd").arg(argument).output();
        output.ok().and_then(|output| String::from_utf8(output.stdout).ok())
    };
    let version = ask("--version")?;
    if version.split_whitespace().nth(1) != Some(directives_version()) {
        return None;
    }
    let mut section = String::new();
    let mut all = BTreeSet::new();
    for line in ask("--dump-configuration-items")?.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((name, _)) = line.split_once('=') {
            all.insert((section.clone(), name.to_owned()));
        }
    }
    Some(all)
}

#[test]
fn directive_tables_match_systemd() {
    let ours: BTreeSet<(String, String)> = directives()
        .filter(|it| !it.is_newer)
        .map(|it| (it.section.to_owned(), it.name.to_owned()))
        .collect();
    assert!(ours.len() > 1000 && ours.contains(&("Service".into(), "ExecStart".into())));
    if let Some(theirs) = installed() {
        let missing: Vec<_> = theirs.difference(&ours).collect();
        let extra: Vec<_> = ours.difference(&theirs).collect();
        assert!(missing.is_empty() && extra.is_empty(), "missing {missing:?}, extra {extra:?}");
    }
}

#[test]
fn huge_files_are_checked_in_bounded_time() {
    let line = |n: usize| format!("[Section{n}]\n[Service]\nOption{n}=1\n");
    let source: String = (0..30_000).map(line).collect();
    let (_, found) = findings("web.service", source.as_bytes());
    // The other finding is the missing command.
    assert_eq!(found.len(), 201);
}

#[test]
fn findings_are_bounded_and_keep_errors() {
    let mut source = "[Service]\n".to_owned();
    source.push_str(&"Nice=x\n".repeat(5000));
    source.push_str("ExecStart=bin/web\n");
    let (_, found) = findings("web.service", source.as_bytes());
    assert_eq!(found.len(), 201);
    assert_eq!(found[200].code(), FindingCode::Program);
    assert_eq!(found[200].location().line, 5002);
}

/// Generates lines from real names and from pieces that are hard to split.
fn source() -> impl Strategy<Value = String> {
    let names: Vec<&str> = directives().map(|it| it.name).collect();
    let sections: Vec<&str> = directives().map(|it| it.section).collect();
    let pieces = [
        "%",
        "%i",
        "%z",
        "\"",
        "'",
        "\\",
        "\\\n",
        " ",
        ":",
        "/",
        "-",
        "+",
        "~",
        "@",
        ".",
        "..",
        ";",
        "=",
        ",",
        "5",
        "K",
        "infinity",
        "yes",
        "SIG",
        "a@.service",
        "ä",
        "\u{10ffff}",
        "\t",
        "*",
        "Mon",
        "0x",
        "9999999999999999999",
        "[",
        "]",
    ];
    let value = vec(prop::sample::select(pieces.to_vec()), 0..8).prop_map(|it| it.concat());
    let option = (prop::sample::select(names), value).prop_map(|(name, it)| format!("{name}={it}"));
    let header = prop::sample::select(sections).prop_map(|section| format!("[{section}]"));
    let line = prop_oneof![4 => option, 1 => header, 1 => "\\PC{0,12}"];
    vec(line, 0..40).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn findings_have_valid_spans(
        source in source(),
        unit_type in prop::sample::select(UnitType::ALL.to_vec()),
    ) {
        let name = format!("srv-web.{unit_type}");
        let (file, findings) = findings(&name, source.as_bytes());
        let mut last = 0;
        for finding in &findings {
            let span = finding.span();
            prop_assert!(span.start <= span.end && span.end <= source.len(), "{finding:?}");
            prop_assert!(source.is_char_boundary(span.start), "{finding:?}");
            prop_assert!(source.is_char_boundary(span.end), "{finding:?}");
            prop_assert!(last <= span.start, "{finding:?} is out of order");
            last = span.start;
            prop_assert_eq!(finding.location(), file.location(span.start));
            let shown = finding.render().to_string();
            let code = format!("[{}]: ", finding.code());
            prop_assert!(shown.contains(&code) && shown.contains("= help: "), "{}", shown);
        }
    }

    #[test]
    fn comments_and_x_sections_change_no_findings(source in source()) {
        let name = UnitName::parse("web.service").unwrap();
        let describe = |source: &str| {
            let findings = UnitFile::parse_collecting(source).0.check(&name);
            let found = findings.iter().map(|it| (it.code(), it.message().to_owned()));
            found.filter(|(code, _)| *code != FindingCode::Repeated).collect::<Vec<_>>()
        };
        // An unfinished last line would swallow the following text.
        let source = source + "\n\n";
        let more = format!("{source}# a comment\n[X-Mine]\nNice=high\nAnything=goes\n");
        prop_assert_eq!(describe(&source), describe(&more));
    }
}
