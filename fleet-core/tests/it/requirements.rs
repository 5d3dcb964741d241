//! The meaning of `[X-Fleet]` sections: all options, all names, and the documented examples.

use std::collections::{BTreeMap, BTreeSet};

use fleet_core::requirements::{ParsedRequirements, RequirementErrors};
use fleet_core::{Requirements, Strictness};
use fleet_unitfile::UnitFile;

/// Parses a section given as its lines.
pub(crate) fn parse(
    name: &str,
    lines: &str,
    strictness: Strictness,
) -> Result<ParsedRequirements, RequirementErrors> {
    let file = UnitFile::parse(format!("[X-Fleet]\n{lines}\n")).unwrap();
    let name = name.parse().unwrap();
    let parsed = Requirements::parse(&name, &file, strictness);
    let valid = parsed.as_ref().map(|parsed| parsed.requirements.validate(&name));
    assert!(!matches!(valid, Ok(Err(_))), "the parser accepts {valid:?}: {lines}");
    parsed
}

pub(crate) fn read(name: &str, lines: &str) -> Requirements {
    match parse(name, lines, Strictness::Refuse) {
        Ok(parsed) => parsed.requirements,
        Err(errors) => panic!("{name}: {lines}\n{errors}"),
    }
}

/// Summarizes requirements on one line, for tables.
fn brief(requirements: &Requirements) -> String {
    let mut parts = Vec::new();
    if requirements.global {
        parts.push("global".to_owned());
    }
    if let Some(id) = &requirements.machine_id {
        parts.push(format!("id={id}"));
    }
    parts.extend(requirements.machine_of.iter().map(|u| format!("of={u}")));
    for (key, values) in &requirements.metadata {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        parts.push(format!("{key}={}", values.join("|")));
    }
    parts.extend(requirements.conflicts.iter().map(|p| format!("not={p}")));
    parts.extend(requirements.replaces.iter().map(|p| format!("for={p}")));
    parts.extend(requirements.start_after.iter().map(|u| format!("after={u}")));
    parts.join(", ")
}

fn check(table: &[(&str, &str)]) {
    for (lines, expected) in table {
        assert_eq!(brief(&read("foo.service", lines)), *expected, "{lines}");
    }
}

const ID: &str = "148a18ff6e95460fb2dc5b1a4b6b4d21";

#[test]
fn start_after_takes_unit_names() {
    check(&[
        ("StartAfter=a.service", "after=a.service"),
        (
            "StartAfter=a.service b.timer\nStartAfter=c.service",
            "after=a.service, after=b.timer, after=c.service",
        ),
        ("StartAfter=\"a.service\" \"b.service\"", "after=a.service, after=b.service"),
        ("StartAfter=a.service a.service", "after=a.service"),
        ("StartAfter=a.service\nStartAfter=", ""),
        ("StartAfter=a.service\nStartAfter=\nStartAfter=b.service", "after=b.service"),
        ("StartAfter=%p-db@1.service", "after=foo-db@1.service"),
        ("Global=true\nStartAfter=a.service", "global, after=a.service"),
        ("Conflicts=a*\nStartAfter=a.service", "not=a*, after=a.service"),
    ]);
    let read = |name, lines| brief(&read(name, lines));
    assert_eq!(read("web@1.service", "StartAfter=db@%i.service"), "after=db@1.service");
    assert_eq!(read("web@.service", "StartAfter=db@%i.service"), "");
}

#[test]
fn options_parse_under_all_names() {
    check(&[
        ("", ""),
        ("MachineID=node-7", "id=node-7"),
        ("X-ConditionMachineID=node-7", "id=node-7"),
        ("X-ConditionMachineBootID=node-7", "id=node-7"),
        ("MachineID=a\nX-ConditionMachineID=a", "id=a"),
        ("MachineOf=a.service", "of=a.service"),
        ("X-ConditionMachineOf=a.service", "of=a.service"),
        ("MachineOf=b.service\nX-ConditionMachineOf=a.service", "of=b.service, of=a.service"),
        ("MachineMetadata=region=eu", "region=eu"),
        ("X-ConditionMachineMetadata=region=eu", "region=eu"),
        ("Conflicts=a*", "not=a*"),
        ("X-Conflicts=a*", "not=a*"),
        ("Replaces=a*", "for=a*"),
        ("Global=true", "global"),
    ]);
    assert_eq!(brief(&read("a.service", &format!("MachineID={ID}"))), format!("id={ID}"));
}

#[test]
fn several_values_on_a_line() {
    check(&[
        ("MachineOf=a.service b.service", "of=a.service, of=b.service"),
        ("MachineOf=\"a.service\" \"b.service\"", "of=a.service, of=b.service"),
        ("MachineOf=a.service \\\n  b.service", "of=a.service, of=b.service"),
        ("MachineOf=a.service a.service", "of=a.service"),
        ("Conflicts=a* b*\tc*", "not=a*, not=b*, not=c*"),
        ("Conflicts=\"a* b*\"", "not=a*, not=b*"),
        ("Conflicts=a*\nConflicts=b*\nConflicts=a*", "not=a*, not=b*"),
        ("Replaces=a* b*", "for=a*, for=b*"),
        ("MachineMetadata=\"a=b\" \"c=d\"", "a=b, c=d"),
        ("MachineMetadata=\"a=b\"   \"c=d\"", "a=b, c=d"),
        ("MachineMetadata=\"a=b\" \\\n  \"c=d\"", "a=b, c=d"),
        ("MachineMetadata=\"a=b\" c=d \"e=f\"", "a=b, c=d, e=f"),
        ("MachineMetadata=\"place=new york\"", "place=new york"),
        ("MachineMetadata=place=new york", "place=new york"),
        ("MachineMetadata='a=b'", "'a=b'"),
        ("Global=\"true\" \"false\"", ""),
        ("Global=\"false\" \"true\"", "global"),
    ]);
}

#[test]
fn empty_assignment_resets_the_option() {
    check(&[
        ("Conflicts=", ""),
        ("Conflicts=a*\nConflicts=\nConflicts=b*", "not=b*"),
        ("X-Conflicts=a*\nConflicts=", ""),
        ("MachineOf=a.service\nMachineOf=", ""),
        ("MachineOf=a.service\nMachineOf=\"\"", ""),
        ("MachineID=a\nMachineID=\nMachineID=b", "id=b"),
        ("MachineMetadata=a=b\nMachineMetadata=\nMachineMetadata=c=d", "c=d"),
        ("Replaces=a*\nReplaces=", ""),
        ("Global=true\nGlobal=", ""),
        // An option that was reset excludes nothing.
        ("Global=true\nGlobal=\nMachineID=a", "id=a"),
        ("Replaces=a*\nReplaces=\nGlobal=true", "global"),
    ]);
}

#[test]
fn boolean_words() {
    for yes in ["true", "yes", "1", "on", "t", "y", "TRUE", "Yes", "oN"] {
        assert!(read("a.service", &format!("Global={yes}")).global, "{yes}");
    }
    for no in ["false", "no", "0", "off", "f", "n", "FALSE"] {
        assert!(!read("a.service", &format!("Global={no}")).global, "{no}");
    }
}

#[test]
fn compatible_options_are_accepted() {
    check(&[
        ("Global=true\nMachineMetadata=a=b\nConflicts=c*", "global, a=b, not=c*"),
        ("Global=false\nReplaces=a*", "for=a*"),
        ("Global=false\nMachineID=a", "id=a"),
        ("MachineID=a\nMachineMetadata=b=c", "id=a, b=c"),
        ("MachineID=a\nConflicts=c*", "id=a, not=c*"),
        ("MachineOf=a.service\nConflicts=b*", "of=a.service, not=b*"),
        ("MachineOf=a.service\nReplaces=b*", "of=a.service, for=b*"),
        ("MachineOf=a.service\nMachineMetadata=b=c", "of=a.service, b=c"),
        ("Replaces=a*\nMachineMetadata=b=c", "b=c, for=a*"),
        // A unit never excludes itself.
        ("Conflicts=foo*", "not=foo*"),
        ("Replaces=foo*", "for=foo*"),
    ]);
}

#[test]
fn specifiers_expand_to_parts_of_the_name() {
    let table = [
        ("foo.service", "MachineOf=%p.socket", "of=foo.socket"),
        ("bar.service", "MachineOf=%p.socket", "of=bar.socket"),
        ("foo@1.service", "MachineOf=%p@%i.socket", "of=foo@1.socket"),
        ("foo@1.service", "Conflicts=%p@*.service", "not=foo@*.service"),
        ("foo@1.service", "Replaces=x-%N.service", "for=x-foo@1.service"),
        ("foo@1.service", "Conflicts=[!x]%n", "not=[!x]foo@1.service"),
        ("foo@eu.service", "MachineMetadata=region=%i", "region=eu"),
        ("foo@eu.service", "MachineMetadata=%i=%p", "eu=foo"),
        ("foo@7.service", "MachineID=node-%i", "id=node-7"),
        ("foo@true.service", "Global=%i", "global"),
        ("foo.service", "MachineMetadata=load=50%%", "load=50%"),
        ("foo.service", "MachineMetadata=name=%%n", "name=%n"),
        // An escaped blank or "=" in a name adds no condition.
        ("a\\x20b.service", "MachineMetadata=name=%p", "name=a b"),
    ];
    for (name, line, expected) in table {
        assert_eq!(brief(&read(name, line)), expected, "{name}: {line}");
    }
}

#[test]
fn template_skips_instance_dependent_values() {
    let table = [
        ("MachineMetadata=role=%i", ""),
        ("MachineOf=%i", ""),
        ("MachineOf=db@%i.service", ""),
        ("Global=%i\nMachineID=a", "id=a"),
        ("Conflicts=x-%N.service", ""),
        ("MachineOf=%p.socket", "of=foo.socket"),
        ("Conflicts=%p@*.service", "not=foo@*.service"),
        ("MachineMetadata=name=%%i", "name=%i"),
    ];
    for (lines, expected) in table {
        assert_eq!(brief(&read("foo@.service", lines)), expected, "{lines}");
    }
}

#[test]
fn only_the_x_fleet_section_is_read() {
    let text = "[Unit]\nConflicts=a*\nGlobal=maybe\n[X-Fleet]\nConflicts=b*\n[Service]\n\
                MachineID=c\n[X-Fleet]\nConflicts=c*\n";
    let file = UnitFile::parse(text).unwrap();
    let parsed = Requirements::parse(&"a.service".parse().unwrap(), &file, Strictness::Refuse);
    assert_eq!(brief(&parsed.unwrap().requirements), "not=b*, not=c*");
}

/// Keys with their accepted values.
type Wanted = BTreeMap<String, BTreeSet<String>>;

fn wanted(pairs: &[(&str, &[&str])]) -> Wanted {
    let set = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    pairs.iter().map(|(key, values)| ((*key).to_owned(), set(values))).collect()
}

#[test]
fn examples_of_the_v1_documentation() {
    let (east, west) = ("us-east-1", "us-west-1");
    let table: [(&str, Wanted); 6] = [
        ("MachineMetadata=location=chicago", wanted(&[("location", &["chicago"])])),
        (
            "MachineMetadata=\"region=us-east-1\" \"diskType=SSD\"",
            wanted(&[("region", &[east]), ("diskType", &["SSD"])]),
        ),
        (
            "MachineMetadata=region=us-east-1\nMachineMetadata=region=us-west-1",
            wanted(&[("region", &[east, west])]),
        ),
        (
            "MachineMetadata=\"region=us-east-1\" \"diskType=SSD\"\n\
             MachineMetadata=region=us-west-1",
            wanted(&[("region", &[east, west]), ("diskType", &["SSD"])]),
        ),
        (
            "MachineMetadata=\"region=us-east-1\" \"job=foo\"\n\
             MachineMetadata=\"region=us-west-1\" \"job=bar\"",
            wanted(&[("region", &[east, west]), ("job", &["foo", "bar"])]),
        ),
        (
            "Global=true\nMachineMetadata=\"region=us-east-1\" \"diskType=SSD\"\n\
             MachineMetadata=region=us-west-1",
            wanted(&[("region", &[east, west]), ("diskType", &["SSD"])]),
        ),
    ];
    for (lines, expected) in table {
        let read = read("app.service", lines);
        assert_eq!(read.metadata, expected, "{lines}");
        assert_eq!(read.global, lines.starts_with("Global"), "{lines}");
    }
    let monitor = read("monitor.service", "MachineMetadata=location=chicago\nConflicts=monitor*");
    assert_eq!(brief(&monitor), "location=chicago, not=monitor*");
    let sidekick = read("my_discovery.service", "MachineOf=my.service");
    assert_eq!(brief(&sidekick), "of=my.service");
}
