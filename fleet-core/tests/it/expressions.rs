//! The expression language over metadata.

use fleet_core::{Expression, Metadata};

use crate::wrap::wrap;

fn metadata(pairs: &[(&str, &str)]) -> Metadata {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn expression(text: &str) -> Expression {
    match text.parse() {
        Ok(expression) => expression,
        Err(error) => panic!("{text}: {error}"),
    }
}

#[test]
fn expressions_evaluate_on_metadata() {
    let machine = metadata(&[("disk", "ssd"), ("cores", "16"), ("ram", "1.50"), ("place", "a b")]);
    let table = [
        ("disk = ssd", true),
        ("disk = SSD", false),
        ("gpu = yes", false),
        ("disk != ssd", false),
        ("disk != hdd", true),
        ("gpu != yes", true),
        ("not gpu = yes", true),
        ("disk in (hdd, ssd)", true),
        ("disk in (hdd)", false),
        ("gpu in (a, b)", false),
        ("exists disk", true),
        ("exists gpu", false),
        ("cores < 16", false),
        ("cores <= 16.0", true),
        ("cores > 15.99", true),
        ("cores >= 17", false),
        ("cores > -1", true),
        ("cores = 16.0", false),
        ("ram < 1.6", true),
        ("ram >= 1.5", true),
        ("disk < 1", false),
        ("disk >= 1", false),
        ("gpu < 1", false),
        ("not gpu < 1", true),
        ("place = \"a b\"", true),
        ("disk = ssd and gpu = yes", false),
        ("disk = ssd or gpu = yes", true),
        ("gpu = yes and gpu = yes or disk = ssd", true),
        ("gpu = yes and (gpu = yes or disk = ssd)", false),
        ("not (disk = hdd or cores > 16) and exists ram", true),
    ];
    for (text, expected) in table {
        assert_eq!(expression(text).eval(&machine), expected, "{text}");
        assert_eq!(expression(text).first_false(&machine).is_none(), expected, "{text}");
    }
}

#[test]
fn expressions_display_as_canonical_text() {
    let table = [
        ("a=b", "a = b"),
        ("  a\t=  b ", "a = b"),
        ("\"a\"=\"b\"", "a = b"),
        ("a in(b)", "a = b"),
        ("a in(b,c)", "a in (b, c)"),
        ("a<=007", "a <= 007"),
        ("a!=b", "a != b"),
        ("((a = b))", "a = b"),
        ("(a = b and c = d) and e = f", "a = b and c = d and e = f"),
        ("(a = b or c = d) and e = f", "(a = b or c = d) and e = f"),
        ("a = b or (c = d and e = f)", "a = b or c = d and e = f"),
        ("not (a = b)", "not a = b"),
        ("not (a = b and not not c = d)", "not (a = b and not not c = d)"),
        ("exists \"and\"", "exists \"and\""),
        ("a = \"in\"", "a = \"in\""),
        (r#"a = "say \"b\\c\"""#, r#"a = "say \"b\\c\"""#),
        (r"path = c:\d", r"path = c:\d"),
        ("a = é/ü.-_@%+~#;", "a = é/ü.-_@%+~#;"),
    ];
    for (text, expected) in table {
        assert_eq!(expression(text).to_string(), expected, "{text}");
        assert_eq!(expression(expected), expression(text), "{text}");
    }
}

/// Invalid expressions.
const BAD: [&str; 34] = [
    "",
    "disk",
    "disk ssd",
    "disk =",
    "= ssd",
    "disk in ssd",
    "disk in ()",
    "disk in (a b)",
    "disk in (a, b",
    "(a = b",
    "a = b)",
    "a = b c = d",
    "a = b AND c = d",
    "NOT a = b",
    "a = b and",
    "a = b or or c = d",
    "not",
    "exists",
    "exists (a)",
    "a = and",
    "a == b",
    "a = b && c = d",
    "!a",
    "a =~ b",
    "a = 'b'",
    "a < b",
    "a < 1e3",
    "a < \"1 2\"",
    "a = \"b",
    "a = \"b\\",
    "a = \"b\\n\"",
    "a = \"\"",
    "a = b\u{7}",
    "a\u{a0}= b",
];

#[test]
fn invalid_expressions_report_error_and_remedy() {
    let report = BAD.map(|text| match text.parse::<Expression>() {
        Ok(expression) => panic!("accepted: {expression}"),
        Err(error) => {
            let (start, end) = (error.span.start, error.span.end);
            assert!(text.is_char_boundary(start) && text.is_char_boundary(end), "{text}");
            format!("{text:?} at {start}..{end}: {error}: {}", error.help())
        }
    });
    insta::assert_snapshot!(wrap(&report.join("\n")), @r#"
    "" at 0..0: expected a condition at the end: write a condition such as disk = ssd
    "disk" at 4..4: expected an operator such as "=" at the end: write key = value, key !=
        value, key in (a, b), key < 5, or exists key
    "disk ssd" at 5..8: expected an operator such as "=", found "ssd": write key = value, key
        != value, key in (a, b), key < 5, or exists key
    "disk =" at 6..6: expected a value at the end: write a value, as in disk = ssd
    "= ssd" at 0..1: expected a condition, found "=": write a condition such as disk = ssd
    "disk in ssd" at 8..11: expected a list in parentheses, found "ssd": write a list, as in
        disk in (ssd, nvme)
    "disk in ()" at 9..10: expected a value, found ")": write a value, as in disk = ssd
    "disk in (a b)" at 11..12: expected "," or ")", found "b": write commas between the
        values, as in disk in (ssd, nvme)
    "disk in (a, b" at 13..13: expected "," or ")" at the end: write commas between the
        values, as in disk in (ssd, nvme)
    "(a = b" at 6..6: expected ")" at the end: close the parenthesis, or continue with and or
        or
    "a = b)" at 5..6: expected "and" or "or", found ")": remove it, or open a parenthesis
        before it
    "a = b c = d" at 6..7: expected "and" or "or", found "c": join conditions by and or or,
        and quote a value that holds blanks
    "a = b AND c = d" at 6..9: expected "and" or "or", found "AND": write and, in lower case
    "NOT a = b" at 0..3: expected a condition, found "NOT": write not, in lower case
    "a = b and" at 9..9: expected a condition at the end: write a condition such as disk = ssd
    "a = b or or c = d" at 9..11: expected a condition, found "or": write a condition such as
        disk = ssd
    "not" at 3..3: expected a condition at the end: write a condition such as disk = ssd
    "exists" at 6..6: expected a key at the end: write a key, as in exists disk
    "exists (a)" at 7..8: expected a key, found "(": write a key, as in exists disk
    "a = and" at 4..7: "and" is a keyword here: write "and" in quotation marks
    "a == b" at 2..4: "==" is not valid here: write =
    "a = b && c = d" at 6..8: "&&" is not valid here: write and
    "!a" at 0..1: "!" is not valid here: write not
    "a =~ b" at 2..4: "=~" is not valid here: write in (a, b)
    "a = 'b'" at 4..5: "'" is not valid here: write "
    "a < b" at 4..5: "b" is not a decimal number: write a decimal number such as 16 or 1.5, or
        compare by = or !=
    "a < 1e3" at 4..7: "1e3" is not a decimal number: write a decimal number such as 16 or
        1.5, or compare by = or !=
    "a < \"1 2\"" at 4..9: "1 2" is not a decimal number: write a decimal number such as 16 or
        1.5, or compare by = or !=
    "a = \"b" at 4..6: a quotation mark is never closed: write another " at its end
    "a = \"b\\" at 4..7: a quotation mark is never closed: write another " at its end
    "a = \"b\\n\"" at 6..8: invalid escape in quotation marks: write \" for a quotation mark,
        \\ for a backslash
    "a = \"\"" at 4..6: a key or a value is empty: leave it out, or write exists key to ask
        for any value
    "a = b\u{7}" at 5..6: it holds a control character or an unusual blank: remove it
    "a\u{a0}= b" at 1..3: it holds a control character or an unusual blank: remove it
    "#);
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| format!("{}a = b{}", "(".repeat(depth), ")".repeat(depth));
    assert!(nested(64).parse::<Expression>().is_ok());
    assert!(nested(65).parse::<Expression>().is_err());
    let negated = |depth: usize| format!("{}a = b", "not ".repeat(depth));
    assert_eq!(expression(&negated(64)).to_string(), negated(64));
    let refusal = |text: String| text.parse::<Expression>().unwrap_err().to_string();
    assert_eq!(refusal(negated(65)), "it is nested more than 64 deep");
    let long = |length: usize| format!("a = {}", "b".repeat(length - 4));
    assert!(long(4096).parse::<Expression>().is_ok());
    assert_eq!(refusal(long(4097)), "it is longer than 4096 bytes");
    // The canonical text is longer than the source, and has to parse again when it is loaded.
    let dense = vec!["a=b"; 512].join(" or ");
    assert!(dense.len() < 4096 && dense.parse::<Expression>().is_err());
}

#[test]
fn first_false_part_reports_the_machines_values() {
    let machine = metadata(&[("disk", "hdd"), ("cores", "4")]);
    let table = [
        ("disk = ssd and cores > 8", "disk = ssd", "disk=hdd"),
        ("exists disk and (cores > 8 or exists gpu)", "cores > 8 or exists gpu", "cores=4, no gpu"),
        ("not (disk = hdd and cores < 8)", "not (disk = hdd and cores < 8)", "disk=hdd, cores=4"),
        ("disk != hdd", "disk != hdd", "disk=hdd"),
    ];
    for (text, part, found) in table {
        let false_part = expression(text).first_false(&machine).unwrap();
        assert_eq!((false_part.part.as_str(), false_part.found.as_str()), (part, found), "{text}");
    }
    assert_eq!(expression("b = 1 and a = 2 or b = 3").keys(), ["b", "a"]);
}
