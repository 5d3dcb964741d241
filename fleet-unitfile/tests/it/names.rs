//! Unit names: validity, parts, and error messages.

use fleet_unitfile::escape::{EscapeError, escape, unescape};
use fleet_unitfile::{NameErrorKind, UnitName, UnitType};

use crate::folded;

fn name(text: &str) -> UnitName {
    UnitName::parse(text).unwrap()
}

#[test]
fn name_is_split_into_its_parts() {
    for (text, stem, prefix, instance, template) in [
        ("foo.service", "foo", "foo", None, None),
        ("foo@.service", "foo@", "foo", Some(""), None),
        ("foo@bar.service", "foo@bar", "foo", Some("bar"), Some("foo@.service")),
        ("foo@bar@baz.service", "foo@bar@baz", "foo", Some("bar@baz"), Some("foo@.service")),
        ("foo@@.service", "foo@@", "foo", Some("@"), Some("foo@.service")),
        ("foo.1@2.service", "foo.1@2", "foo.1", Some("2"), Some("foo.1@.service")),
        ("foo@a.b.service", "foo@a.b", "foo", Some("a.b"), Some("foo@.service")),
        ("a.service.timer", "a.service", "a.service", None, None),
        ("..service", ".", ".", None, None),
        ("a:b_c-d.e\\x2f.path", "a:b_c-d.e\\x2f", "a:b_c-d.e\\x2f", None, None),
    ] {
        let name = name(text);
        assert_eq!((name.as_str(), name.stem(), name.prefix()), (text, stem, prefix));
        assert_eq!(name.instance(), instance, "{text}");
        assert_eq!(name.template().as_ref().map(UnitName::as_str), template, "{text}");
        assert_eq!(name.is_template(), instance == Some(""), "{text}");
        assert_eq!(name.is_instance(), template.is_some(), "{text}");
        assert!(name.template().is_none_or(|template| template.is_template()));
    }
}

#[test]
fn all_types_make_names_and_some_make_templates() {
    for unit_type in UnitType::ALL {
        assert_eq!(name(&format!("a.{unit_type}")).unit_type(), unit_type);
        let template = UnitName::parse(&format!("a@.{unit_type}"));
        assert_eq!(template.is_ok(), unit_type.may_be_template(), "{unit_type}");
        let instance = UnitName::parse(&format!("a@b.{unit_type}"));
        assert_eq!(instance.is_ok(), unit_type.may_be_template(), "{unit_type}");
    }
}

#[test]
fn first_broken_rule_is_reported() {
    use NameErrorKind::{Character, EmptyPrefix, NoType, TooLong, UnknownType, UnsupportedQuadlet};
    for (text, kind) in [
        ("", NameErrorKind::Empty),
        ("foo", NoType),
        ("foo.", NoType),
        ("foo@bar", NoType),
        ("foo.Service", UnknownType),
        ("foo.service ", UnknownType),
        ("foo.conf", UnknownType),
        ("foo.volume", UnsupportedQuadlet),
        ("foo@1.pod", UnsupportedQuadlet),
        (".service", EmptyPrefix),
        ("@.service", EmptyPrefix),
        ("@x.service", EmptyPrefix),
        ("a/b.service", Character { found: '/' }),
        ("a b.service", Character { found: ' ' }),
        ("a+b.service", Character { found: '+' }),
        ("ä.service", Character { found: 'ä' }),
        ("a@%i.service", Character { found: '%' }),
        ("a\n.service", Character { found: '\n' }),
        ("a@b.mount", NameErrorKind::TypeWithoutTemplates { unit_type: UnitType::Mount }),
        (&"ä".repeat(128), TooLong { bytes: 256 }),
    ] {
        assert_eq!(UnitName::parse(text).unwrap_err().kind(), kind, "{text:?}");
    }
}

#[test]
fn name_is_limited_to_255_bytes() {
    let of_length = |len: usize| format!("{}.service", "a".repeat(len - 8));
    assert_eq!(name(&of_length(255)).stem().len(), 247);
    assert!(UnitName::parse(&of_length(256)).is_err());
    let late = format!("{}@b.service", "a".repeat(245));
    assert_eq!((name(&late).prefix().len(), name(&late).instance()), (245, Some("b")));
    let error = UnitName::parse(&"ä".repeat(1000)).unwrap_err();
    assert_eq!(error.name(), "ä".repeat(127));
}

#[test]
fn name_errors_state_a_remedy() {
    let long = format!("{}.service", "a".repeat(300));
    let texts = ["", "foo", "foo.conf", "a.pod", "@x.service", "a b.service", "a@b.mount", &long];
    let messages = texts.map(|text| UnitName::parse(text).unwrap_err().to_string());
    insta::assert_snapshot!(folded(&messages.join("\n").replace(&"a".repeat(255), "aa…")), @r##"
    unit name "" is empty: write a name such as "web.service"
    unit name "foo" has no type: add a suffix such as ".service"
    unit name "foo.conf" does not end in a unit type: write one of automount, busname,
        container, device, mount, path, scope, service, slice, snapshot, socket, swap,
        target, timer
    unit name "a.pod" is not supported: of the files of podman's Quadlet, only .container
        files are units
    unit name "@x.service" starts with its "@" or type: put a name in front, as in
        "web@.service"
    unit name "a b.service" has the character ' ': use ASCII letters, digits and ":-_.\@",
        and write any other as an escape such as "\x20"
    unit name "a@b.mount" has an "@", but a mount cannot be a template or an instance:
        remove the "@"
    unit name "aa…" is 308 bytes long: use at most 255
    "##);
    let template = name("web@.service");
    let instances = [
        template.instantiate(""),
        template.instantiate("a b"),
        name("web@1.service").instantiate("2"),
        name("web.service").instantiate("2"),
    ];
    let messages = instances.map(|instance| instance.unwrap_err().to_string());
    insta::assert_snapshot!(folded(&messages.join("\n")), @r##"
    unit name "web@.service" needs the name of an instance after its "@"
    unit name "web@a b.service" has the character ' ': use ASCII letters, digits and
        ":-_.\@", and write any other as an escape such as "\x20"
    unit name "web@1.service" is not a template, so has no instances: use a name such as
        "web@.service"
    unit name "web.service" is not a template, so has no instances: use a name such as
        "web@.service"
    "##);
}

#[test]
fn instance_and_template_convert_to_each_other() {
    let template = name("web@.socket");
    let instance = template.instantiate("a@b").unwrap();
    assert_eq!(instance, "web@a@b.socket");
    assert_eq!(instance.template(), Some(template.clone()));
    assert!(template.instantiate(&"x".repeat(250)).is_err());
}

#[test]
fn names_compare_by_text() {
    let mut names = ["b.service", "a.timer", "a.service", "a@.service"].map(name);
    names.sort();
    assert_eq!(names, ["a.service", "a.timer", "a@.service", "b.service"]);
    let set = std::collections::BTreeSet::from(names);
    assert!(set.contains("a.timer"), "a name is found by its text");
    assert_eq!(format!("{:>11}|{:?}", name("a.timer"), name("a.timer")), "    a.timer|\"a.timer\"");
}

#[test]
fn escapes_follow_systemd_escape() {
    for (text, escaped) in [
        ("", ""),
        ("a/b", "a-b"),
        ("a-b", r"a\x2db"),
        (r"a\b", r"a\x5cb"),
        (".a.b", r"\x2ea.b"),
        ("/", "-"),
        ("a:b_c", "a:b_c"),
        ("a b@c%", r"a\x20b\x40c\x25"),
        ("ä", r"\xc3\xa4"),
        ("\0", r"\x00"),
    ] {
        assert_eq!(escape(text), escaped, "{text:?}");
        assert_eq!(unescape(escaped).as_deref(), Ok(text), "{escaped:?}");
    }
    assert_eq!(unescape(r"\X41"), Err(EscapeError::Malformed { at: 0 }));
    assert_eq!(unescape(r"ab\x4"), Err(EscapeError::Malformed { at: 2 }));
    assert_eq!(unescape(r"\x+1"), Err(EscapeError::Malformed { at: 0 }));
    assert_eq!(unescape(r"\x4A\x4b").as_deref(), Ok("JK"));
    assert_eq!(unescape(r"\xff"), Err(EscapeError::NotUtf8));
}

#[test]
fn relative_path_without_a_name_is_not_escaped() {
    for path in [".", "./", "./.", "././"] {
        assert!(fleet_unitfile::escape::escape_path(path).is_err(), "{path}");
    }
    for path in ["", "/", "//", "/.", "/./"] {
        assert_eq!(fleet_unitfile::escape::escape_path(path).as_deref(), Ok("-"), "{path}");
    }
}

#[test]
fn command_is_split_before_its_specifiers_are_expanded() {
    let name = UnitName::parse(r"worker@a\x2db.service").unwrap();
    let commands = fleet_unitfile::CommandLine::parse(r#"/bin/worker --name "%p %i""#).unwrap();
    let context = fleet_unitfile::SpecifierContext::system_manager();
    let command = commands[0].expand(&context, &name).unwrap();
    assert!(command.argv().eq(["/bin/worker", "--name", r"worker a\x2db"]));
}
