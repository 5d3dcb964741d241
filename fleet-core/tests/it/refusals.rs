//! Errors in `[X-Fleet]` sections, with their messages.

use fleet_core::Strictness;
use fleet_core::requirements::{FleetOption, RequirementErrorKind};
use fleet_unitfile::Span;

use crate::requirements::parse;
use crate::wrap::wrap;

/// Returns all errors of a section of `foo@1.service`; the section begins on line 2 of the file.
pub(crate) fn errors(lines: &str) -> String {
    match parse("foo@1.service", lines, Strictness::Refuse) {
        Ok(parsed) => panic!("accepted: {lines}\n{parsed:?}"),
        Err(errors) => wrap(&errors.to_string()),
    }
}

#[test]
fn unknown_options() {
    let lines = "machineid=a\nMachineMeta=a=b\nX-Global=true\nAfter=a.service\nMachineBootID=a";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 1: [X-Fleet] has no option "machineid": write MachineID, spelled exactly so
    line 3, column 1: [X-Fleet] has no option "MachineMeta": write MachineMetadata, spelled
        exactly so
    line 4, column 1: [X-Fleet] has no option "X-Global": write Global, spelled exactly so
    line 5, column 1: [X-Fleet] has no option "After": the options are MachineID, MachineOf,
        MachineMetadata, MachineMetadataExpr, Conflicts, Global, Replaces, MaxPerMachine,
        ReserveCPU, ReserveMemory, ReserveDisk, Prefer, Spread, Reschedule, OnPartition,
        MoveAfterFailures, StartAfter, HealthCheck, HealthInterval, HealthTimeout,
        HealthThreshold, RunOnce, Retries, Deadline, KeepFor, CountLost, Schedule,
        ConcurrencyPolicy, CatchUp
    line 6, column 1: [X-Fleet] has no option "MachineBootID": write MachineID, spelled
        exactly so
    "#);
}

#[test]
fn malformed_metadata() {
    let lines = "MachineMetadata=a=b=c\nMachineMetadata=a=\nMachineMetadata==b\n\
                 MachineMetadata=a\nMachineMetadata=a=b c=d\nMachineMetadata=\"a=b\" \"c=d\n\
                 MachineMetadata=a = b\nMachineMetadata=\"a=b\" \"c\"\n\
                 MachineMetadata=\"a=b\"\t\"c=d\"";
    insta::assert_snapshot!(errors(lines), @r#"
line 2, column 17: MachineMetadata=a=b=c is not one condition: it has more than one "=":
    write MachineMetadata=key=value, one "=" in each condition
line 3, column 17: MachineMetadata=a= is not one condition: nothing stands after the "=":
    write MachineMetadata=key=value, one "=" in each condition
line 4, column 17: MachineMetadata==b is not one condition: nothing stands before the "=":
    write MachineMetadata=key=value, one "=" in each condition
line 5, column 17: MachineMetadata=a is not one condition: it has no "=": write
    MachineMetadata=key=value, one "=" in each condition
line 6, column 17: MachineMetadata=a=b c=d is not one condition: it has more than one "=":
    write MachineMetadata="a=b" "c=d"
line 7, column 17: MachineMetadata="a=b" "c=d is not one condition: it has more than one
    "=": write MachineMetadata="a=b" "c=d"
line 8, column 17: MachineMetadata=a = b is not one condition: a blank stands in the key
    or beside the "=": write MachineMetadata=a=b
line 9, column 24: MachineMetadata=c is not one condition: it has no "=": write
    MachineMetadata=key=value, one "=" in each condition
line 10, column 1: MachineMetadata=a=b	c=d is not one condition: it has more than one "=":
    write MachineMetadata="a=b" "c=d"
"#);
}

#[test]
fn bad_patterns() {
    insta::assert_snapshot!(errors("Conflicts=web[ a,b\nReplaces={a,b}\nX-Conflicts=\"a"), @r#"
    line 2, column 1: Conflicts cannot be used together with Replaces (line 3): remove one of
        them
    line 2, column 11: Conflicts: "web[" is not a pattern: character 4 is a "[" that is never
        closed: write unit names, with * for any text, ? for one character, [a-z] for a class
    line 2, column 16: Conflicts: "a,b" is not a pattern: character 2 is not allowed in unit
        names: write unit names, with * for any text, ? for one character, [a-z] for a class
    line 3, column 10: Replaces: "{a,b}" is not a pattern: character 1 is not allowed in unit
        names: write unit names, with * for any text, ? for one character, [a-z] for a class
    line 4, column 13: Conflicts: "\"a" is not a pattern: character 1 is not allowed in unit
        names: write unit names, with * for any text, ? for one character, [a-z] for a class
    "#);
}

#[test]
fn bad_unit_names() {
    let lines = "MachineOf=foo\nMachineOf=a.service,b.service\nMachineOf=foo@1.service\n\
                 MachineOf=db@.service\nMachineOf=*.service\n\
                 MachineOf=a.service \\\nConflicts=b*";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 11: MachineOf=foo is not a unit's name: unit name "foo" has no type: add a
        suffix such as ".service"
    line 3, column 11: MachineOf=a.service,b.service is not a unit's name: unit name
        "a.service,b.service" has the character ',': use ASCII letters, digits and ":-_.\@",
        and write any other as an escape such as "\x20"
    line 4, column 11: MachineOf=foo@1.service names the unit itself: remove it: a unit is
        always on its own machine
    line 5, column 11: MachineOf=db@.service names a template, which never runs itself: name
        one of its instances, as in MachineOf=web@1.service
    line 8, column 1: MachineOf: "Conflicts=b*" is not a pattern: character 10 is not allowed
        in unit names: write unit names, with * for any text, ? for one character, [a-z] for a
        class
    "#);
}

#[test]
fn bad_names_in_start_after() {
    let lines = "StartAfter=foo\nStartAfter=a.service foo@1.service\n\
                 StartAfter=db@.service\nStartAfter=*.service";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 12: StartAfter=foo is not a unit's name: unit name "foo" has no type: add a
        suffix such as ".service"
    line 3, column 22: StartAfter=foo@1.service names the unit itself: remove it: a unit
        cannot wait for itself
    line 4, column 12: StartAfter=db@.service names a template, which never runs itself: name
        one of its instances, as in StartAfter=web@1.service
    line 5, column 12: StartAfter=*.service is not a unit's name: unit name "*.service" has
        the character '*': use ASCII letters, digits and ":-_.\@", and write any other as an
        escape such as "\x20"
    "#);
}

#[test]
fn bad_machine_ids() {
    let lines = "MachineID=148a18ff\nMachineID=148a18ff...\nMachineID=a b\n\
                 MachineID=one\nX-ConditionMachineID=two";
    insta::assert_snapshot!(errors(lines), @r#"
line 2, column 11: MachineID=148a18ff is only the beginning of a machine ID: write the
    entire ID, as "fleetctl list-machines --full" prints it
line 3, column 11: MachineID=148a18ff... is only the beginning of a machine ID: write the
    entire ID, as "fleetctl list-machines --full" prints it
line 4, column 11: MachineID=a b is not a machine ID: write the content of the machine's
    /etc/machine-id
line 6, column 22: MachineID=two and MachineID=one (line 5) cannot both be the machine:
    keep one of them
"#);
}

#[test]
fn bad_truth_values_and_specifiers() {
    let lines = "Global=12\nGlobal='true'\nConflicts=%H*\nMachineMetadata=load=50%\nMachineOf=%j";
    insta::assert_snapshot!(errors(lines), @r#"
line 2, column 8: Global=12 is neither yes nor no: write true or false
line 3, column 8: Global='true' is neither yes nor no: write true or false
line 4, column 11: Conflicts=%H* cannot be expanded: unknown specifier "%H": use %n, %N,
    %p or %i, and %% for a percent sign
line 5, column 17: MachineMetadata=load=50% cannot be expanded: incomplete specifier "%"
    at the end: write %% for a percent sign
line 6, column 11: MachineOf=%j cannot be expanded: unknown specifier "%j": use %n, %N, %p
    or %i, and %% for a percent sign
"#);
}

#[test]
fn empty_instance_leaves_an_incomplete_condition() {
    let error = parse("foo.service", "MachineMetadata=role=%i", Strictness::Refuse).unwrap_err();
    insta::assert_snapshot!(wrap(&error.to_string()), @r#"
line 2, column 17: MachineMetadata=role= is not one condition: nothing stands after the
    "=": write MachineMetadata=key=value, one "=" in each condition
"#);
}

#[test]
fn exclusive_options_are_refused() {
    let id = "MachineID=a";
    let of = "MachineOf=b.service";
    let global = "Global=true";
    let replaces = "Replaces=c*";
    let conflicts = "Conflicts=d*";
    let pairs = [
        (id, of),
        (global, id),
        (id, replaces),
        (global, of),
        (global, replaces),
        (replaces, conflicts),
    ];
    let texts = pairs.map(|(one, other)| errors(&format!("{one}\n{other}")));
    insta::assert_snapshot!(texts.concat(), @r"
    line 2, column 1: MachineID cannot be used together with MachineOf (line 3): remove one of
        them
    line 2, column 8: Global cannot be used together with MachineID (line 3): remove one of
        them: with Global, only MachineMetadata, MachineMetadataExpr, Conflicts, OnPartition,
        StartAfter and health checks apply
    line 2, column 1: MachineID cannot be used together with Replaces (line 3): remove one of
        them
    line 2, column 8: Global cannot be used together with MachineOf (line 3): remove one of
        them: with Global, only MachineMetadata, MachineMetadataExpr, Conflicts, OnPartition,
        StartAfter and health checks apply
    line 2, column 8: Global cannot be used together with Replaces (line 3): remove one of
        them: with Global, only MachineMetadata, MachineMetadataExpr, Conflicts, OnPartition,
        StartAfter and health checks apply
    line 2, column 1: Replaces cannot be used together with Conflicts (line 3): remove one of
        them
    ");
    for (one, other) in pairs {
        // Order, strictness and deprecated names make no difference.
        for lines in [format!("{other}\n{one}"), format!("X-Condition{id}\n{of}")] {
            assert!(parse("a.service", &lines, Strictness::Warn).is_err(), "{lines}");
        }
    }
}

#[test]
fn peer_that_the_unit_excludes_is_refused() {
    let lines = "Conflicts=x*\nMachineOf=a.service db.service\nConflicts=d*";
    insta::assert_snapshot!(errors(lines), @"
    line 3, column 21: MachineOf=db.service cannot be satisfied: Conflicts=d* (line 4)
        excludes that unit: take the unit out of MachineOf, or narrow the pattern of Conflicts
    ");
    insta::assert_snapshot!(errors("MachineOf=a.service\nReplaces=b* a*"), @"
    line 2, column 11: MachineOf=a.service cannot be satisfied: Replaces=a* (line 3) excludes
        that unit: take the unit out of MachineOf, or narrow the pattern of Replaces
    ");
}

#[test]
fn all_errors_are_reported_in_source_order() {
    let lines = "Global=true\nMachineID=148a18ff\nConflict=a\nMachineOf=b.service\nConflicts=[";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 8: Global cannot be used together with MachineID (line 3): remove one of
        them: with Global, only MachineMetadata, MachineMetadataExpr, Conflicts, OnPartition,
        StartAfter and health checks apply
    line 2, column 8: Global cannot be used together with MachineOf (line 5): remove one of
        them: with Global, only MachineMetadata, MachineMetadataExpr, Conflicts, OnPartition,
        StartAfter and health checks apply
    line 3, column 1: MachineID cannot be used together with MachineOf (line 5): remove one of
        them
    line 3, column 11: MachineID=148a18ff is only the beginning of a machine ID: write the
        entire ID, as "fleetctl list-machines --full" prints it
    line 4, column 1: [X-Fleet] has no option "Conflict": write Conflicts, spelled exactly so
    line 6, column 11: Conflicts: "[" is not a pattern: character 1 is a "[" that is never
        closed: write unit names, with * for any text, ? for one character, [a-z] for a class
    "#);
}

#[test]
fn error_has_an_exact_span() {
    let text = "[X-Fleet]\nConflicts=a* b[ c*\n";
    let errors = parse("a.service", "Conflicts=a* b[ c*", Strictness::Refuse).unwrap_err();
    let error = errors.first();
    let Span { start, end } = error.span;
    assert_eq!(&text[start..end], "b[");
    assert_eq!((error.location.line, error.location.column), (2, 14));
    let RequirementErrorKind::Pattern { option: FleetOption::Conflicts, cause } = error.kind()
    else {
        panic!("{error:?}");
    };
    assert_eq!((cause.pattern.as_str(), cause.column), ("b[", 2));
}

#[test]
fn value_span_follows_an_earlier_similar_value() {
    let errors = parse("a.service", "Conflicts=xb[ b[ b[", Strictness::Refuse).unwrap_err();
    let columns: Vec<usize> = errors.iter().map(|error| error.location.column).collect();
    assert_eq!(columns, [11, 15, 18]);
}

#[test]
fn conflicting_machine_ids_are_refused_in_any_order() {
    for (one, other) in [("a", "b"), ("b", "a")] {
        let lines = format!("MachineID={one}\nMachineID={other}");
        assert!(parse("a.service", &lines, Strictness::Warn).is_err(), "{lines}");
    }
}

#[test]
fn number_of_values_is_bounded() {
    let values = |count| vec!["a.service"; count].join(" ");
    assert!(parse("b.service", &format!("MachineOf={}", values(256)), Strictness::Refuse).is_ok());
    let after = format!("MachineOf={0}\nMachineOf=\nMachineOf={0}", values(200));
    assert!(parse("b.service", &after, Strictness::Refuse).is_ok());
    let split = format!("MachineOf={}\nX-ConditionMachineOf={}", values(200), values(57));
    let error = parse("b.service", &split, Strictness::Refuse).unwrap_err();
    insta::assert_snapshot!(wrap(&error.to_string()), @"
line 3, column 1: MachineOf is given more than 256 values: use patterns, or leave some out
");
}

#[test]
fn number_of_reports_is_bounded() {
    let lines = "Nonsense=1\n".repeat(1000);
    let errors = parse("b.service", &lines, Strictness::Refuse).unwrap_err();
    assert_eq!(errors.iter().len(), 100);
    let warnings = parse("b.service", &lines, Strictness::Warn).unwrap().warnings;
    assert_eq!(warnings.len(), 100);
}
