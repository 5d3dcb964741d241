//! Command lines: parsing, refusals and writing, as in systemd.

use fleet_unitfile::command::{CommandError, Privileges};
use fleet_unitfile::specifier::Specifier;
use fleet_unitfile::values::{WordError, quote_word, split_words};
use fleet_unitfile::{CommandLine, SpecifierContext, UnitName};
use proptest::prelude::*;

use crate::properties::config;

/// Returns the commands of a value as they are written, or the error.
fn read(value: &str) -> String {
    match CommandLine::parse(value) {
        Ok(commands) => {
            let lines: Vec<_> = commands.iter().map(ToString::to_string).collect();
            lines.join(" | ")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn command_values_parse_as_in_systemd() {
    for (value, expected) in [
        ("", ""),
        ("  ", ""),
        ("/bin/a", "/bin/a"),
        ("/bin/a  b\t'c d'", "/bin/a b \"c d\""),
        ("a ; b c ; ; d", "a | b c | d"),
        ("; a", "a"),
        ("a ;", "a"),
        ("a b;c", "a b;c"),
        (r"a \; b", "a \";\" b"),
        (r"a \;; b", r#"a "\\;;" b"#),
        (r#"a ";" b"#, "a \";\" b"),
        (r"a \x3b b", "a \";\" b"),
        ("-@/bin/a zero", "-@/bin/a zero"),
        ("+-:/bin/a", "-:+/bin/a"),
        ("!!/bin/a", "!!/bin/a"),
        // The second dash is part of the name.
        ("-- a", "-- a"),
        (r#""-/bin/a b""#, r#""-/bin/a b""#),
        (r"/bin/sed s/\./,/", r#"/bin/sed "s/\\./,/""#),
        ("%h/bin/a", "%h/bin/a"),
        ("#\nT\0", "# \"T\0\""),
        ("@/bin/a \"\"", "@/bin/a \"\""),
        ("; ; a", "a"),
        ("...", "..."),
        ("/bin/..", "/bin/.."),
    ] {
        assert_eq!(read(value), expected, "{value:?}");
    }
}

#[test]
fn prefixes_set_privileges_and_flags() {
    let one = |value: &str| CommandLine::parse(value).unwrap().remove(0);
    assert_eq!(one("a").privileges(), Privileges::Unit);
    assert_eq!(one("+a").privileges(), Privileges::Full);
    assert_eq!(one("!a").privileges(), Privileges::KeepUser);
    assert_eq!(one("!!a").privileges(), Privileges::KeepUserWithoutAmbient);
    assert!(one("-a").ignores_failure() && !one("a").ignores_failure());
    assert!(one("a").expands_variables() && !one(":a").expands_variables());
    assert!(one("@a b").sets_argv0());
    assert_eq!(one("@a b c").argv().collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(one("a b c").argv().collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn invalid_commands_are_refused_with_their_offset() {
    for (value, expected) in [
        ("-", CommandError::NoPath { at: 0 }),
        ("a ; - b", CommandError::NoPath { at: 4 }),
        ("\"\"", CommandError::NoPath { at: 0 }),
        ("bin/a", CommandError::RelativePath { at: 0 }),
        ("..", CommandError::RelativePath { at: 0 }),
        ("/bin/", CommandError::Directory { at: 0 }),
        ("'/bin/\"a'", CommandError::PathCharacter { at: 0 }),
        ("@/bin/a", CommandError::NoName { at: 0 }),
        ("a ; @/bin/a ; b c", CommandError::NoName { at: 4 }),
        ("a 'b", CommandError::Word(WordError::OpenQuote { at: 2 })),
    ] {
        assert_eq!(CommandLine::parse(value), Err(expected), "{value:?}");
    }
}

#[test]
fn program_path_is_simplified_and_argv0_is_literal() {
    for (value, path, first) in [
        ("/bin//a/./b/.", "/bin/a/b", "/bin//a/./b/."),
        ("/../a", "/../a", "/../a"),
        ("a", "a", "a"),
        ("@//a b", "/a", "b"),
    ] {
        let command = CommandLine::parse(value).unwrap().remove(0);
        assert_eq!((command.path(), command.argv().next()), (path, Some(first)), "{value}");
    }
    let command = CommandLine::parse("/%i//a").unwrap().remove(0);
    let expanded =
        command.expand(&SpecifierContext::new(), &UnitName::parse("a@.service").unwrap()).unwrap();
    assert_eq!((expanded.path(), expanded.argv().next()), ("/a", Some("///a")));
}

/// Returns the expansion of `/x` and the words after it.
fn with_variables(words: &str) -> Vec<String> {
    let command = CommandLine::parse(&format!("/x {words}")).unwrap().remove(0);
    command.argv_with(|name| match name {
        "ONE" => Some("one"),
        "TWO" => Some("two two"),
        "QUOTED" => Some("'two two' \"too\"\ttoo 'open end"),
        "ESCAPED" => Some(r"a\ b \n \"),
        "PAIRS" => Some("'' a''b \"'\""),
        "NONE" => Some(""),
        "BLANK" => Some("  \n "),
        "DOLLAR" => Some("$ONE ${ONE}"),
        "" => panic!("an empty name is never looked up"),
        _ => None,
    })
}

#[test]
fn variables_become_words_or_parts_of_words() {
    for (words, expected) in [
        ("$ONE $TWO ${TWO}", &["one", "two", "two", "two two"][..]),
        ("$QUOTED", &["two two", "too", "too", "open end"]),
        ("${QUOTED}", &["'two two' \"too\"\ttoo 'open end"]),
        ("$ESCAPED", &["a b", "n", ""]),
        ("$PAIRS", &["", "ab", "'"]),
        ("$NONE $BLANK $UNKNOWN", &[]),
        ("${NONE} ${UNKNOWN} ${}", &["", "", ""]),
        ("a${ONE}b${TWO}c", &["aonebtwo twoc"]),
        ("$ONE/a $ONE-b", &[]),
        ("a$ONE b$", &["a$ONE", "b$"]),
        ("$$ONE $${ONE} $$$$ a$$b $$$", &["$ONE", "${ONE}", "$$", "a$b", "$$"]),
        ("$", &[]),
        ("${ONE ${ONE:-x} ${ONE:$$}", &["${ONE", "${ONE:-x}", "${ONE:$}"]),
        ("'${TWO}' '$ONE' '$TWO x'", &["two two", "one"]),
        ("$DOLLAR ${DOLLAR}", &["$ONE", "${ONE}", "$ONE ${ONE}"]),
        ("\u{e4}${ONE}\u{e4}", &["\u{e4}one\u{e4}"]),
    ] {
        assert_eq!(with_variables(words)[1..], *expected, "{words}");
    }
}

#[test]
fn program_is_not_expanded_and_colon_disables_variables() {
    let argv = |value: &str| {
        let command = CommandLine::parse(value).unwrap().remove(0);
        let argv = command.argv_with(|name| (name == "A").then_some("b c"));
        (command.path().to_owned(), argv.join("|"))
    };
    for (value, path, expected) in [
        ("/${A}/x $A", "/${A}/x", "/b c/x|b|c"),
        ("$A", "$A", "b|c"),
        ("@/x $A ${A}", "/x", "b|c|b c"),
        (":/${A}/x $A ${A} $$", "/${A}/x", "/${A}/x|$A|${A}|$$"),
    ] {
        assert_eq!(argv(value), (path.to_owned(), expected.to_owned()), "{value}");
    }
}

#[test]
fn command_words_have_spans() {
    let value = r#" -"/bin/a" 'b c'  \; d ; e"#;
    let commands = CommandLine::parse(value).unwrap();
    let text = |span: fleet_unitfile::Span| &value[span.start..span.end];
    assert_eq!(text(commands[0].span()), r#"-"/bin/a" 'b c'  \; d"#);
    assert_eq!(text(commands[0].path_span()), r#"-"/bin/a""#);
    let arguments: Vec<_> = commands[0].argument_spans().map(text).collect();
    assert_eq!(arguments, ["'b c'", r"\;", "d"]);
    assert_eq!(text(commands[1].span()), "e");
}

#[test]
fn specifiers_are_replaced_word_by_word() {
    let name = UnitName::parse("web@a b.service".replace(' ', r"\x20").as_str()).unwrap();
    let context = SpecifierContext::new()
        .with(Specifier::HostName, "two words")
        .with(Specifier::HomeDirectory, "/home/a");
    let command = CommandLine::parse("%h/run --as %I --on %H").unwrap().remove(0);
    let expanded = command.expand(&context, &name).unwrap();
    let argv: Vec<_> = expanded.argv().collect();
    assert_eq!(argv, ["/home/a/run", "--as", "a b", "--on", "two words"]);
    let command = CommandLine::parse("a %b").unwrap().remove(0);
    let error = command.expand(&context, &name).unwrap_err();
    assert!(matches!(error, CommandError::Specifier { at: 2, .. }), "{error:?}");
    let command = CommandLine::parse("%i/b").unwrap().remove(0);
    let error = command.expand(&context, &name).unwrap_err();
    assert_eq!(error, CommandError::PathCharacter { at: 0 });
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn quoted_word_reads_back(word in any::<String>()) {
        prop_assert_eq!(split_words(&quote_word(&word)), Ok(vec![word]));
    }

    #[test]
    fn written_command_reads_back(
        value in "([-@:+!]{0,3}/?[a%\"' \\\\;x3b\t]{0,6} ?){0,4}"
    ) {
        if let Ok(commands) = CommandLine::parse(&value) {
            let written: Vec<_> = commands.iter().map(ToString::to_string).collect();
            prop_assert_eq!(CommandLine::parse(&written.join(" ; ")), Ok(commands));
        }
    }
}
