//! Warnings about `[X-Fleet]` sections, and lenient parsing.

use fleet_core::requirements::{RequirementWarning, RequirementWarningKind};
use fleet_core::{Requirements, Strictness};
use fleet_unitfile::UnitFile;

use crate::requirements::parse;
use crate::wrap::wrap;

/// Returns all warnings of a section of the named unit.
pub(crate) fn warnings(name: &str, lines: &str, strictness: Strictness) -> String {
    let warnings = parse(name, lines, strictness).unwrap().warnings;
    let texts: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    wrap(&texts.join("\n"))
}

#[test]
fn deprecated_names_are_warned_about() {
    let lines = "X-ConditionMachineMetadata=a=b\nX-Conflicts=c*\nMachineMetadata=d=e";
    insta::assert_snapshot!(warnings("foo@1.service", lines, Strictness::Refuse), @"
line 2, column 1: X-ConditionMachineMetadata is the old name of MachineMetadata: write
    MachineMetadata
line 3, column 1: X-Conflicts is the old name of Conflicts: write Conflicts
");
    let lines = "X-ConditionMachineID=a\nX-ConditionMachineBootID=a";
    insta::assert_snapshot!(warnings("foo@1.service", lines, Strictness::Refuse), @"
line 2, column 1: X-ConditionMachineID is the old name of MachineID: write MachineID
line 3, column 1: X-ConditionMachineBootID is the old name of MachineID: write MachineID
");
}

#[test]
fn pattern_without_a_type_is_warned_about() {
    let lines = "Conflicts=monitor web*.service db.service";
    insta::assert_snapshot!(warnings("foo@1.service", lines, Strictness::Refuse), @"
    line 2, column 11: Conflicts=monitor matches no unit: patterns match whole names: write
        the whole name, as in monitor.service, or monitor*
    ");
}

#[test]
fn misnamed_sections_are_warned_about() {
    for (section, misnamed) in [
        ("x-fleet", true),
        ("X-FLEET", true),
        ("Fleet", true),
        ("XFleet", true),
        ("X_Fleet", true),
        ("X-Fleets", false),
        ("X-Fleet", false),
        ("Unit", false),
    ] {
        let file = UnitFile::parse(format!("[{section}]\nConflicts=a*\nConflicts=b*\n")).unwrap();
        let name = "a.service".parse().unwrap();
        let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
        let kinds: Vec<_> = parsed.warnings.iter().map(RequirementWarning::kind).collect();
        let expected = RequirementWarningKind::SectionName { name: section.to_owned() };
        let expected: &[_] = if misnamed { &[&expected] } else { &[] };
        assert_eq!(kinds, expected, "{section}");
    }
    let file = UnitFile::parse("[x-fleet]\nConflicts=a*\n").unwrap();
    let name = "a.service".parse().unwrap();
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
    assert_eq!(parsed.requirements, Requirements::default());
    insta::assert_snapshot!(wrap(&parsed.warnings[0].to_string()), @"
line 2, column 1: section [x-fleet] is not read by fleet: did you mean [X-Fleet]?
");
}

#[test]
fn warnings_are_in_source_order() {
    let text = "[Fleet]\nGlobal=true\n[X-Fleet]\nX-Conflicts=a*\n[fleet]\nGlobal=true\n";
    let file = UnitFile::parse(text).unwrap();
    let name = "a.service".parse().unwrap();
    let parsed = Requirements::parse(&name, &file, Strictness::Refuse).unwrap();
    let lines: Vec<usize> = parsed.warnings.iter().map(|w| w.location.line).collect();
    assert_eq!(lines, [2, 4, 6]);
}

#[test]
fn lenient_parsing_ignores_what_v1_ignored() {
    let lines = "Conflict=a*\nMachineMetadata=a=b=c\nMachineMetadata=d=e\nConflicts=[ f*";
    let parsed = parse("foo@1.service", lines, Strictness::Warn).unwrap();
    assert_eq!(parsed.requirements.metadata.len(), 1);
    assert_eq!(parsed.requirements.conflicts, ["f*".parse().unwrap()]);
    insta::assert_snapshot!(warnings("foo@1.service", lines, Strictness::Warn), @r#"
line 2, column 1: ignored: [X-Fleet] has no option "Conflict": write Conflicts, spelled
    exactly so
line 3, column 17: ignored: MachineMetadata=a=b=c is not one condition: it has more than
    one "=": write MachineMetadata=key=value, one "=" in each condition
line 5, column 11: ignored: Conflicts: "[" is not a pattern: character 1 is a "[" that is
    never closed: write unit names, with * for any text, ? for one character, [a-z] for a
    class
"#);
}

#[test]
fn lenient_parsing_refuses_unusable_values() {
    for lines in [
        "MachineID=148a18ff",
        "MachineOf=foo",
        "MachineOf=foo@1.service",
        "Conflicts=%H",
        "Global=maybe",
        "Global=true\nReplaces=a*",
        "MachineOf=a.service\nConflicts=a*",
    ] {
        assert!(parse("foo@1.service", lines, Strictness::Warn).is_err(), "{lines}");
    }
}
