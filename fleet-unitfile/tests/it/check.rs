//! What checking finds: in a corpus of broken files, in the files of this machine, and in the
//! tables themselves.

mod access;
mod ignored;
mod verify;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fleet_unitfile::{
    Finding, FindingCode, Severity, UnitFile, UnitName, UnitOption, UnitType, check, directives,
    directives_version,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Everything that is wrong with a file, of grammar and meaning, in the order of the source.
fn findings(name: &str, source: &[u8]) -> (UnitFile, Vec<Finding>) {
    let (file, diagnostics) = UnitFile::parse_collecting(source);
    let mut findings: Vec<Finding> = diagnostics.iter().map(Finding::from).collect();
    findings.extend(check(&UnitName::parse(name).unwrap(), &file));
    findings.sort_by_key(|finding| finding.span().start);
    (file, findings)
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
fn what_is_found_in_broken_files() {
    let corpus = broken();
    assert!(corpus.len() >= 85, "a file of the corpus is missing");
    let mut report = String::new();
    for (name, _, source) in corpus {
        let (file, findings) = findings(&name, &source);
        if findings.is_empty() {
            report.push_str(&format!("{name}: nothing\n\n"));
        }
        for finding in findings {
            report.push_str(&format!("{}\n", finding.render(&name, file.source())));
        }
    }
    insta::assert_snapshot!("broken", report);
}

#[test]
fn the_corpus_shows_every_code_that_a_text_file_can_draw() {
    let corpus = broken();
    let all = corpus.iter().flat_map(|(name, _, source)| findings(name, source).1);
    let mut seen: BTreeSet<FindingCode> = all.map(|finding| finding.code()).collect();
    // Those of the grammar are shown by its own corpus.
    seen.extend(FindingCode::ALL.iter().filter(|code| code.as_str() < "U0100"));
    let missing: Vec<_> = FindingCode::ALL.iter().filter(|code| !seen.contains(code)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn files_that_a_distribution_installs_have_no_errors() {
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
fn codes_have_an_order_and_a_form() {
    let texts: Vec<&str> = FindingCode::ALL.iter().map(|code| code.as_str()).collect();
    assert!(texts.is_sorted_by(|a, b| a < b), "{texts:?}");
    assert!(texts.iter().all(|text| text.len() == 5 && text.starts_with('U')));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "tests may read files; the crate itself may not")]
fn the_document_of_codes_tells_them_all() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/unitfile-codes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let told: Vec<&str> = text.lines().filter(|line| line.starts_with("| `U")).collect();
    let expected: Vec<String> = FindingCode::ALL
        .iter()
        .map(|code| format!("| `{code}` | {} | {} |", code.severity(), code.meaning()))
        .collect();
    assert_eq!(told, expected, "the table should be:\n{}", expected.join("\n"));
}

/// What the systemd that is installed has of directives, as `(section, name)`; `None` where it is
/// not installed, or another version than the tables are of.
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
fn the_tables_are_the_list_of_systemd() {
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
fn sections_and_names_without_end_take_no_time_without_end() {
    let line = |n: usize| format!("[Section{n}]\n[Service]\nOption{n}=1\n");
    let source: String = (0..30_000).map(line).collect();
    let (_, found) = findings("web.service", source.as_bytes());
    // And that there is no command.
    assert_eq!(found.len(), 201);
}

#[test]
fn who_has_very_much_wrong_is_told_of_the_first_and_of_errors() {
    let mut source = "[Service]\n".to_owned();
    source.push_str(&"Nice=x\n".repeat(5000));
    source.push_str("ExecStart=bin/web\n");
    let (_, found) = findings("web.service", source.as_bytes());
    assert_eq!(found.len(), 201);
    assert_eq!(found[200].code(), FindingCode::Program);
    assert_eq!(found[200].location().line, 5002);
}

/// Lines out of real names and out of pieces on which values fall apart.
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
    fn whatever_is_written_is_told_of_in_places_that_there_are(
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
            let shown = finding.render(&name, file.source()).to_string();
            let code = format!("[{}]: ", finding.code());
            prop_assert!(shown.contains(&code) && shown.contains("= help: "), "{}", shown);
        }
    }

    #[test]
    fn comments_and_private_sections_change_nothing(source in source()) {
        let name = UnitName::parse("web.service").unwrap();
        let told = |source: &str| {
            let findings = check(&name, &UnitFile::parse_collecting(source).0);
            let told = findings.iter().map(|it| (it.code(), it.message().to_owned()));
            told.filter(|(code, _)| *code != FindingCode::Repeated).collect::<Vec<_>>()
        };
        // An unfinished last line would swallow what follows it.
        let source = source + "\n\n";
        let more = format!("{source}# a comment\n[X-Mine]\nNice=high\nAnything=goes\n");
        prop_assert_eq!(told(&source), told(&more));
    }
}
