//! Specifiers of systemd, and paths and escapes in names.

use std::process::Command;

use fleet_unitfile::escape::{EscapeError, escape_path, unescape_path};
use fleet_unitfile::specifier::{Specifier, SpecifierError};
use fleet_unitfile::values::{cescape, cunescape};
use fleet_unitfile::{SpecifierContext, UnitName, UnitType};
use proptest::prelude::*;

use crate::properties::config;
use crate::report_skipped;

#[test]
fn name_specifiers_expand() {
    let template = UnitName::parse(r"a\x20b-c\x2dd@srv-x\x20y.service").unwrap();
    let plain = UnitName::parse("srv-data.mount").unwrap();
    let context = SpecifierContext::new();
    for (text, of_instance, of_plain) in [
        ("%n", r"a\x20b-c\x2dd@srv-x\x20y.service", "srv-data.mount"),
        ("%N", r"a\x20b-c\x2dd@srv-x\x20y", "srv-data"),
        ("%p", r"a\x20b-c\x2dd", "srv-data"),
        ("%P", "a b/c-d", "srv/data"),
        ("%i", r"srv-x\x20y", ""),
        ("%I", "srv/x y", ""),
        ("%j", r"c\x2dd", "data"),
        ("%J", "c-d", "data"),
        ("%f", "/srv/x y", "/srv/data"),
        ("100%%n", "100%n", "100%n"),
    ] {
        assert_eq!(context.expand(text, &template).as_deref(), Ok(of_instance), "{text}");
        assert_eq!(context.expand(text, &plain).as_deref(), Ok(of_plain), "{text}");
    }
}

#[test]
fn context_specifiers_expand_to_their_value() {
    let name = UnitName::parse("a.service").unwrap();
    for &specifier in Specifier::ALL {
        let text = format!("<%{}>", specifier.letter());
        let expanded = SpecifierContext::new().with(specifier, "it").expand(&text, &name);
        assert_eq!(expanded.as_deref(), Ok("<it>"), "{specifier}");
        let unknown = SpecifierContext::new().expand(&text, &name);
        let letter = specifier.letter();
        assert_eq!(unknown, Err(SpecifierError::UnknownValue { at: 1, letter, specifier }));
    }
    // The letters of the manual of systemd 252, without those of the name, and the newer D.
    let mut letters: Vec<_> =
        Specifier::ALL.iter().map(|specifier| specifier.letter()).chain(['Y']).collect();
    letters.sort_unstable();
    assert_eq!(letters.iter().collect::<String>(), "ABCDEGHLMSTUVWYabdghlmoqstuvwy");
}

#[test]
fn missing_values_are_derived_from_others() {
    let name = UnitName::parse("a.service").unwrap();
    let context = SpecifierContext::system_manager()
        .with(Specifier::HostName, "web1.example.com")
        .with(Specifier::Fragment, "/etc/systemd/system/a.service");
    let text = "%l %q %d %Y";
    let expected = "web1 web1 /run/credentials/a.service /etc/systemd/system";
    assert_eq!(context.expand(text, &name).as_deref(), Ok(expected));
    let context =
        context.with(Specifier::ShortHostName, "w").with(Specifier::CredentialsDirectory, "/c");
    assert_eq!(context.expand("%l %q %d", &name).as_deref(), Ok("w w /c"));
}

#[test]
fn invalid_specifiers_report_their_offset() {
    let name = UnitName::parse(r"a\x-.service").unwrap();
    let context = SpecifierContext::new();
    let unknown = SpecifierError::NotASpecifier { at: 2, letter: 'z' };
    assert_eq!(context.expand("a %z", &name), Err(unknown));
    let unknown = SpecifierError::NotASpecifier { at: 0, letter: '7' };
    assert_eq!(context.expand("%7", &name), Err(unknown));
    let source = EscapeError::Malformed { at: 1 };
    let error = SpecifierError::Unescape { at: 0, letter: 'P', source };
    assert_eq!(context.expand("%P", &name), Err(error));
}

#[test]
fn lone_percent_sign_stays_literal() {
    let name = UnitName::parse("a.service").unwrap();
    for (text, expected) in [
        ("ä%", "ä%"),
        ("%", "%"),
        ("50% of", "50% of"),
        ("%ä%-%%%", "%ä%-%%"),
        ("%%%n", "%a.service"),
    ] {
        assert_eq!(SpecifierContext::new().expand(text, &name).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn paths_convert_to_unit_names_and_back() {
    for (path, part) in [
        ("/", "-"),
        ("", "-"),
        ("/srv", "srv"),
        ("srv/", "srv"),
        ("//a/./b//c/", "a-b-c"),
        ("/.hidden", r"\x2ehidden"),
        ("/a-b/ä", r"a\x2db-\xc3\xa4"),
    ] {
        assert_eq!(escape_path(path).as_deref(), Ok(part), "{path}");
    }
    assert_eq!(escape_path("/a/../b"), Err(EscapeError::NotNormal));
    for wrong in ["", "-a", "a-", "a--b", r"\x2e\x2e", r"a-\x2e-b"] {
        assert_eq!(unescape_path(wrong), Err(EscapeError::NotNormal), "{wrong:?}");
    }
    let mount = UnitName::for_path("/srv/my data", UnitType::Mount).unwrap();
    assert_eq!(mount, r"srv-my\x20data.mount");
}

/// Returns the output of `systemd-escape` for each text. `None` if the program is not installed.
#[expect(clippy::disallowed_methods, reason = "the test compares with another program")]
fn systemd_escape(options: &[&str], texts: &[String]) -> Option<Vec<String>> {
    let mut printed = Vec::new();
    for text in texts {
        let mut command = Command::new("systemd-escape");
        let output = command.args(options).arg("--").arg(text).output().ok()?;
        let text = String::from_utf8(output.stdout).unwrap();
        printed.push(text.trim_end_matches('\n').to_owned());
    }
    Some(printed)
}

#[test]
fn systemd_escapes_the_same_paths() {
    let pieces = ["/", "a", "-", ".", "..", "/./", "ä", " ", "\\", "@"];
    let both = pieces.iter().flat_map(|a| pieces.iter().map(move |b| format!("/x{a}{b}")));
    let texts: Vec<String> = both.chain(["/".into(), "/./".into(), "/..".into()]).collect();
    let Some(printed) = systemd_escape(&["--path"], &texts) else {
        return report_skipped("systemd-escape");
    };
    for (text, printed) in texts.iter().zip(printed) {
        assert_eq!(escape_path(text).unwrap_or_default(), printed, "{text:?}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn escaped_path_reads_back_normalized(
        parts in prop::collection::vec("[a-c.\\-ä ]{1,3}", 0..4),
    ) {
        let is_plain = |part: &String| part != "." && part != "..";
        prop_assume!(parts.iter().all(is_plain));
        let path = format!("/{}", parts.join("/"));
        prop_assert_eq!(unescape_path(&escape_path(&path).unwrap()), Ok(path));
    }

    #[test]
    fn cunescape_inverts_cescape(text in any::<String>()) {
        prop_assert_eq!(cunescape(&cescape(&text)), Ok(text));
    }
}
