//! Tests of the canonical text, of its hash, and of writing a unit file from options.

use fleet_unitfile::{OptionErrorKind, UnitFile, UnitOption};

use crate::folded;
use crate::properties::triples;

fn canonical(source: &str) -> String {
    UnitFile::parse(source).unwrap().canonical()
}

fn hash(source: &str) -> String {
    UnitFile::parse(source).unwrap().hash().to_string()
}

#[test]
fn hashes_are_those_of_fleet_v1() {
    for (source, expected) in [
        ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("[Service]\nExecStart=/bin/sleep 100\n", "1c6fb6f3684bafb0c173d8b8b957ceff031180c1"),
        (
            "[Service]\nExecStart=/usr/bin/sleep infinity\n",
            "40ea6646945809f4b420a50475ee68503088f127",
        ),
    ] {
        assert_eq!(hash(source), expected, "{source:?}");
    }
}

#[test]
fn insignificant_text_does_not_change_the_hash() {
    let plain = hash("[A]\nK=v\nL=w\n\n[B]\nM=x\n");
    for source in [
        "\u{feff}[A]\nK=v\nL=w\n[B]\nM=x",
        "# c\n[A]\n\n  K = v  \n;d\nL=\tw\n[B]\nM=x\n[C]\n",
        "[A]\r\nK=v\r\nL=w\r\n[B]\r\nM=x\r\n",
        "[A]\nK=v\n[B]\nM=x\n[A]\nL=w\n",
        "[B]\n[A]\nK=v\nL=w\n[B]\nM=x\n",
    ] {
        assert_eq!(hash(source), plain, "{source:?}");
    }
    for source in ["[A]\nL=w\nK=v\n[B]\nM=x\n", "[B]\nM=x\n[A]\nK=v\nL=w\n", "[A]\nK=v\n"] {
        assert_ne!(hash(source), plain, "{source:?}");
    }
}

#[test]
fn canonical_text_keeps_values_verbatim() {
    for (source, expected) in [
        ("[A]\n[B]\nK=1", "[B]\nK=1\n"),
        ("[A]\n K = a \\\n   b  \nL=", "[A]\nK=a \\\n   b\nL=\n"),
        ("[A]\r\nK=a \\\r\n\tb\r\n", "[A]\nK=a \\\n\tb\n"),
        ("[A]\nK=a \\\n# c\n ;d \\\n  b\n", "[A]\nK=a \\\n  b\n"),
        ("[A]\nK=\\\n  b\n", "[A]\nK=\\\n  b\n"),
        ("[A]\nK\\\n = \\\nb\n", "[A]\nK=\\\nb\n"),
        ("[A]\nNa\\\nme=a\\\nb\n", "[A]\nNa me=a\\\nb\n"),
        // An empty line, a blank one or the end of the file after the backslash: the line end
        // stays, so that the backslash cannot swallow the next option.
        ("[A]\nK=a \\\n\nL=b\n", "[A]\nK=a \\\n\nL=b\n"),
        ("[A]\nK=a \\\n \t\nL=b\n", "[A]\nK=a \\\n\nL=b\n"),
        ("[A]\nK=a \\\n", "[A]\nK=a \\\n\n"),
        ("[A]\nK=a \\", "[A]\nK=a \\\n\n"),
        ("[A]\nK=a \\\n#c", "[A]\nK=a \\\n\n"),
        ("[A]\nK=\\\n\n[B]\nL=b\n", "[A]\nK=\\\n\n\n[B]\nL=b\n"),
        // A blank keeps a backslash from continuing the line, so one blank stays.
        ("[A]\nK=b \\  \nL=c\n", "[A]\nK=b \\ \nL=c\n"),
        ("[A]\nK=a\\\nb \\\t \nL=c\n", "[A]\nK=a\\\nb \\\t\nL=c\n"),
        ("[A]\nK=b \\\\  \nL=c\n", "[A]\nK=b \\\\\nL=c\n"),
    ] {
        assert_eq!(canonical(source), expected, "{source:?}");
        assert_eq!(canonical(expected), expected, "{source:?}");
        let values = |source| {
            let unit = UnitFile::parse(source).unwrap();
            unit.options().map(|option| option.value().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(values(source), values(expected), "{source:?}");
    }
}

#[test]
fn options_make_a_unit_file() {
    let unit = UnitFile::from_options([
        UnitOption::new("Unit", "Description", " a  web server\t"),
        UnitOption::new("Service", "ExecStart", "/bin/web \\\n  --port 80"),
        UnitOption::new("Unit", "After", ""),
        UnitOption::new("Service", "Environment", "A=1 \\\r\n# one more \\\r\n  B=2"),
    ])
    .unwrap();
    insta::assert_snapshot!(unit.source_str().unwrap(), @r##"
    [Unit]
    Description=a  web server
    After=

    [Service]
    ExecStart=/bin/web \
      --port 80
    Environment=A=1 \
      B=2
    "##);
    assert_eq!(unit.source(), unit.canonical().as_bytes());
    assert_eq!(unit.get("Service", "Environment"), Some("A=1    B=2"));
    let span = unit.options().get(1).unwrap().span();
    assert_eq!(&unit.source()[span.start..span.end], b"After=");
    assert_eq!(UnitFile::from_options([]).unwrap().source(), b"");
}

#[test]
fn option_that_would_not_read_back_is_refused() {
    use OptionErrorKind::{LineEnd, Name, Noncharacter, OpenBackslash, Section, TooLong};
    let long = "v".repeat(1024 * 1024 - 2);
    for (section, name, value, kind) in [
        ("", "K", "v", Section),
        ("A]", "K", "v", Section),
        ("A\nB", "K", "v", Section),
        ("A\0", "K", "v", Section),
        ("A\"", "K", "v", Section),
        ("A\u{fffe}", "K", "v", Section),
        ("A", "", "v", Name),
        ("A", " K", "v", Name),
        ("A", "K\t", "v", Name),
        ("A", " ", "v", Name),
        ("A", "=", "v", Name),
        ("A", "K=L", "v", Name),
        ("A", "K\nL", "v", Name),
        ("A", "K\r", "v", Name),
        ("A", "#K", "v", Name),
        ("A", ";", "v", Name),
        ("A", "[K]", "v", Name),
        ("A", "K\u{ffff}", "v", Noncharacter),
        ("A", "K", "\u{fdef}", Noncharacter),
        ("A", "K", "v\nL=w", LineEnd),
        ("A", "K", "v\n[B]", LineEnd),
        ("A", "K", "v\\\\\nL=w", LineEnd),
        ("A", "K", "v\rL=w", LineEnd),
        ("A", "K", "v\0L=w", LineEnd),
        ("A", "K", "v\n", LineEnd),
        ("A", "K", "\n", LineEnd),
        ("A", "K", "v\\\n\nL=w", LineEnd),
        ("A", "K", "v\\\n# c\nL=w\nM=x", LineEnd),
        ("A", "K", "v\\", OpenBackslash),
        ("A", "K", "v\\\nw\\", OpenBackslash),
        ("A", "K", "v\\\n# c \\", OpenBackslash),
        ("A", "K", &long, TooLong),
    ] {
        let option = UnitOption::new(section, name, value);
        let error = UnitFile::from_options([option]).unwrap_err();
        assert_eq!(error.kind(), kind, "{section:?} {name:?} {value:.40?}");
        assert_eq!((error.section(), error.name()), (section, name));
    }
}

#[test]
fn line_that_begins_with_a_byte_order_mark_is_not_written() {
    for (name, value) in
        [("\u{feff}", "v"), ("\u{feff}K", "v"), ("\u{feff}[A]", "v"), ("K", "a \\\n\u{feff}b")]
    {
        let error = UnitFile::from_options([UnitOption::new("A", name, value)]).unwrap_err();
        assert_eq!(error.kind(), OptionErrorKind::ByteOrderMark, "{name:?} {value:?}");
    }
}

#[test]
fn canonical_text_keeps_byte_order_marks_that_are_text() {
    for (source, expected) in [
        ("\u{feff}[A]\nK=v\n", "[A]\nK=v\n"),
        ("[A]\nK=a \\\n\u{feff}b\n", "[A]\nK=a \\\nb\n"),
        ("[A]\nK=a \\\n\u{feff}#b\n", "[A]\nK=a  #b\n"),
        ("[A]\n \u{feff}K=v\n", "\u{feff}[A]\n\u{feff}K=v\n"),
        ("[A]\n\u{feff}K=v\n\u{feff}L=w\n", "\u{feff}[A]\nK=v\n\u{feff}L=w\n"),
    ] {
        let unit = UnitFile::parse(source).unwrap();
        assert_eq!(unit.canonical(), expected, "{source:?}");
        let again = UnitFile::parse(expected).unwrap();
        let values = |unit: &UnitFile| triples(unit).into_iter().map(|it| it.2).collect::<Vec<_>>();
        assert_eq!(values(&again), values(&unit), "{source:?}");
    }
}

#[test]
fn unusual_option_is_accepted() {
    for (section, name, value, reading) in [
        ("A", "K", &"v".repeat(1024 * 1024 - 3)[..], None),
        ("A", "K\\", "v", None),
        ("A b", "K [l] #m", "[B]", None),
        ("A", "K", "#v", None),
        ("A", "K", "v\\\\", None),
        ("A", "K", "v \\ ", Some("v \\")),
        ("A", "K", "v \\\n", Some("v")),
        ("A", "K", "v\\\n# c", Some("v")),
        ("\u{feff}A", "K\u{feff}", "\u{feff}v", None),
    ] {
        let unit = UnitFile::from_options([UnitOption::new(section, name, value)]).unwrap();
        let [option] = unit.options().collect::<Vec<_>>()[..] else {
            panic!("one option of {value:.40?}")
        };
        assert_eq!((option.section(), option.name()), (section, name));
        assert_eq!(option.value(), reading.unwrap_or(value));
    }
}

#[test]
fn option_error_names_the_option_and_a_remedy() {
    let refuse = |section, name, value| {
        let option = UnitOption::new(section, name, value);
        UnitFile::from_options([option]).unwrap_err().to_string()
    };
    let messages = [
        refuse("Ser]vice", "ExecStart", "/bin/true"),
        refuse("Service", "#ExecStart", "/bin/true"),
        refuse("Service", "ExecStart", "/bin/true\n[Evil]"),
        refuse("Service", "ExecStart", "/bin/true \\"),
        refuse("Service", "ExecStart", "\u{fffe}"),
    ];
    insta::assert_snapshot!(folded(&messages.join("\n")), @r##"
    section "Ser]vice" cannot be written: use a name without control characters, quotes,
        backslashes and brackets
    option "#ExecStart" of section "Service" has a name that cannot be written: use one
        without "=", line ends and outer blanks that does not start with "#", ";" or "["
    option "ExecStart" of section "Service" has a line end in its value: end each line but
        the last with a backslash
    option "ExecStart" of section "Service" has a value that ends in a backslash: remove
        it, or write two of them
    option "ExecStart" of section "Service" has a character that Unicode reserves: remove
        it
    "##);
}
