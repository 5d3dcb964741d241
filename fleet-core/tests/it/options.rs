//! Options that fleet v1 did not have: their values, errors and warnings.

use fleet_core::Strictness;
use fleet_core::health::{HealthCheck, HealthTarget};
use fleet_core::requirements::{OnPartition, Reschedule};

use crate::refusals::errors;
use crate::requirements::{parse, read};
use crate::warnings::warnings;

/// Summarizes the requirements of an instance called `foo@1.service` on one line.
fn brief(lines: &str) -> String {
    let wants = read("foo@1.service", lines);
    let mut parts = Vec::new();
    if !wants.reserve.is_zero() {
        parts.push(wants.reserve.to_string());
    }
    parts.extend(wants.max_per_machine.map(|max| format!("max {max}")));
    parts.extend(wants.metadata_expr.iter().map(|it| format!("({it})")));
    parts.extend(wants.prefer.iter().map(|it| format!("prefer {it}")));
    parts.extend(wants.spread.iter().map(|it| format!("spread {it}")));
    parts.extend((wants.reschedule != Reschedule::Always).then(|| wants.reschedule.to_string()));
    parts.extend((wants.on_partition != OnPartition::Keep).then(|| wants.on_partition.to_string()));
    parts.extend(wants.move_after_failures.map(|limit| format!("move after {limit}")));
    parts.extend(wants.health_check.map(|check| {
        let HealthCheck { target, interval, timeout, threshold } = check;
        format!("{target} every {interval:?}, timeout {timeout:?}, threshold {threshold}")
    }));
    parts.join(", ")
}

fn check(table: &[(&str, &str)]) {
    for (lines, expected) in table {
        assert_eq!(brief(lines), *expected, "{lines}");
    }
}

#[test]
fn each_option_takes_its_values() {
    check(&[
        ("ReserveCPU=1.5", "cpu 1.5"),
        ("ReserveCPU=150%", "cpu 1.5"),
        ("ReserveCPU=150%%", "cpu 1.5"),
        ("ReserveMemory=512M", "memory 512M"),
        ("ReserveDisk=10G", "disk 10G"),
        ("ReserveDisk=1G 512M", "disk 1536M"),
        ("ReserveCPU=0", ""),
        ("ReserveCPU=2\nReserveMemory=1G\nReserveDisk=5T", "cpu 2, memory 1G, disk 5T"),
        ("MoveAfterFailures=3", "move after 3"),
        ("MoveAfterFailures=3\nMoveAfterFailures=", ""),
        ("MoveAfterFailures=100", "move after 100"),
        ("MoveAfterFailures=3\nMoveAfterFailures=0", ""),
        ("MaxPerMachine=1", "max 1"),
        ("MaxPerMachine=4294967295", "max 4294967295"),
        ("MachineMetadataExpr=disk=ssd", "(disk = ssd)"),
        (
            "MachineMetadataExpr=\"disk type\" = \"solid state\"",
            "(\"disk type\" = \"solid state\")",
        ),
        ("MachineMetadataExpr=disk = ssd and \\\n  cores > 4", "(disk = ssd and cores > 4)"),
        ("Prefer=disk = ssd", "prefer 1: disk = ssd"),
        ("Prefer=10: disk = ssd", "prefer 10: disk = ssd"),
        ("Prefer=-1000 :disk=hdd", "prefer -1000: disk = hdd"),
        ("Prefer=+7:disk = hdd", "prefer 7: disk = hdd"),
        ("Prefer=a:b = c", "prefer 1: a:b = c"),
        ("Prefer=\"10:a\" = c", "prefer 1: 10:a = c"),
        ("Spread=zone", "spread 1: zone"),
        ("Spread=5: zone", "spread 5: zone"),
        ("Spread=\"zone\" \"2: rack\"", "spread 1: zone, spread 2: rack"),
        ("Reschedule=never", "never"),
        ("Reschedule=always", ""),
        ("OnPartition=stop", "stop"),
        ("OnPartition=keep", ""),
        (
            "HealthCheck=http://127.0.0.1:80/up",
            "http://127.0.0.1:80/up every 10s, timeout 5s, threshold 3",
        ),
        (
            "HealthThreshold=1\nHealthTimeout=500ms\nHealthInterval=1min 30\n\
             HealthCheck=exec:a 'b'",
            "exec:a b every 90s, timeout 500ms, threshold 1",
        ),
    ]);
}

#[test]
fn repeated_options_add_up_or_override() {
    check(&[
        // For options with one value, the last one counts.
        ("ReserveCPU=1\nReserveCPU=2", "cpu 2"),
        ("MaxPerMachine=1\nMaxPerMachine=2", "max 2"),
        ("Reschedule=never\nReschedule=always", ""),
        ("OnPartition=keep\nOnPartition=stop", "stop"),
        ("Spread=1: zone\nSpread=rack\nSpread=7: zone", "spread 7: zone, spread 1: rack"),
        // Expressions and preferences add up.
        (
            "MachineMetadataExpr=a = b or c = d\nMachineMetadataExpr=e = f",
            "((a = b or c = d) and e = f)",
        ),
        ("Prefer=a = b\nPrefer=2: c = d\nPrefer=1: a=b", "prefer 1: a = b, prefer 2: c = d"),
        // An empty assignment resets the option.
        ("ReserveCPU=1\nReserveMemory=1G\nReserveCPU=", "memory 1G"),
        ("ReserveMemory=1\nReserveDisk=1\nReserveMemory=\nReserveDisk=", ""),
        ("MaxPerMachine=1\nMaxPerMachine=", ""),
        ("MachineMetadataExpr=a = b\nMachineMetadataExpr=\nMachineMetadataExpr=c = d", "(c = d)"),
        ("Prefer=a = b\nPrefer=", ""),
        ("Spread=zone\nSpread=\nSpread=rack", "spread 1: rack"),
        ("Reschedule=never\nReschedule=", ""),
        ("OnPartition=stop\nOnPartition=", ""),
        ("Global=true\nReserveCPU=1\nReserveCPU=", ""),
        ("HealthCheck=tcp://a:1\nHealthCheck=", ""),
        (
            "HealthCheck=tcp://a:1\nHealthCheck=tcp://a:1\nHealthInterval=1\nHealthInterval=3",
            "tcp://a:1 every 3s, timeout 5s, threshold 3",
        ),
        (
            "HealthCheck=tcp://a:1\nHealthInterval=1\nHealthTimeout=1\nHealthThreshold=1\n\
             HealthCheck=\nHealthInterval=\nHealthTimeout=\nHealthThreshold=\n\
             HealthCheck=tcp://a:2",
            "tcp://a:2 every 10s, timeout 5s, threshold 3",
        ),
    ]);
}

#[test]
fn specifiers_expand_in_every_option() {
    check(&[
        ("ReserveCPU=%i", "cpu 1"),
        ("ReserveCPU=%i%i%", "cpu 0.11"),
        ("ReserveMemory=%iG", "memory 1G"),
        ("ReserveDisk=%i", "disk 1"),
        ("MaxPerMachine=%i%i", "max 11"),
        ("MachineMetadataExpr=role = %p and rank >= %i", "(role = foo and rank >= 1)"),
        ("MachineMetadataExpr=load = \"50%%\"", "(load = 50%)"),
        ("Prefer=%i0: role = %p", "prefer 10: role = foo"),
        ("Spread=%i: %p", "spread 1: foo"),
        (
            "HealthCheck=http://%p:%i/a%%20b\nHealthInterval=%is\nHealthTimeout=%i\n\
             HealthThreshold=%i",
            "http://foo:1/a%20b every 1s, timeout 1s, threshold 1",
        ),
        ("HealthCheck=exec:%p '%i %%'", "exec:foo \"1 %\" every 10s, timeout 5s, threshold 3"),
    ]);
    for lines in ["Reschedule=%i", "OnPartition=%i"] {
        assert!(parse("foo@1.service", lines, Strictness::Refuse).is_err(), "{lines}");
    }
    assert_eq!(read("a@never.service", "Reschedule=%i").reschedule, Reschedule::Never);
    assert_eq!(read("a@stop.service", "OnPartition=%i").on_partition, OnPartition::Stop);
}

#[test]
fn unit_name_cannot_add_a_condition() {
    // The name contains escaped blanks, quotation marks and keywords.
    let wants = read("a\\x20or\\x20b\\x3d\\x22c\\x22.service", "MachineMetadataExpr=role = %p");
    let text = wants.metadata_expr.unwrap().to_string();
    assert_eq!(text, r#"role = "a or b=\"c\"""#);
}

#[test]
fn template_skips_instance_dependent_values() {
    let lines = "ReserveCPU=%i\nMachineMetadataExpr=rank = %i\nPrefer=%i: a = b\nSpread=%i\n\
                 MaxPerMachine=%i\nReserveDisk=1G\nHealthCheck=tcp://a:%i\nHealthInterval=%i";
    let wants = read("foo@.service", lines);
    assert_eq!(wants.reserve.to_string(), "disk 1G");
    assert!(wants.metadata_expr.is_none() && wants.prefer.is_empty() && wants.spread.is_empty());
    assert_eq!(wants.max_per_machine, None);
    assert_eq!(wants.health_check, None);
    assert_eq!(warnings("foo@.service", lines, Strictness::Refuse), "");
}

#[test]
fn bad_amounts() {
    let lines = "ReserveCPU=500m\nReserveCPU=lots\nReserveCPU=1.2345\nReserveCPU=10%H\n\
                 ReserveMemory=512MB\nReserveMemory=50%\nReserveDisk=infinity\nReserveDisk=-1";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 12: ReserveCPU: "500m" is not an amount of processor time: write 0.5
    line 3, column 12: ReserveCPU: "lots" is not an amount of processor time: write cores down
        to thousandths, as in 1.5, or 150%
    line 4, column 12: ReserveCPU: "1.2345" is not an amount of processor time: write cores
        down to thousandths, as in 1.5, or 150%
    line 5, column 12: ReserveCPU=10%H cannot be expanded: unknown specifier "%H": use %n, %N,
        %p or %i, and %% for a percent sign
    line 6, column 15: ReserveMemory: "512MB" is not an amount of memory: write 512M
    line 7, column 15: ReserveMemory: "50%" is not an amount of memory: write bytes, as in
        512M or 10G
    line 8, column 13: ReserveDisk: "infinity" is not an amount of disk: write bytes, as in
        512M or 10G
    line 9, column 13: ReserveDisk: "-1" is not an amount of disk: write bytes, as in 512M or
        10G
    "#);
}

#[test]
fn bad_numbers_weights_keys_and_choices() {
    let lines = "MaxPerMachine=0\nMaxPerMachine=-1\nMaxPerMachine=two\nMaxPerMachine=+2\n\
                 Prefer=0: a = b\nPrefer=1001: a = b\nSpread=-1: zone\nSpread=1001: zone\n\
                 Spread=zone=a\nSpread=5:\nSpread=zone rack\n\
                 Reschedule=maybe\nReschedule=Never\nOnPartition=restart";
    insta::assert_snapshot!(errors(lines), @"
    line 2, column 15: MaxPerMachine=0 is not a whole number of at least 1: write a number
        such as 1, or remove the option
    line 3, column 15: MaxPerMachine=-1 is not a whole number of at least 1: write a number
        such as 1, or remove the option
    line 4, column 15: MaxPerMachine=two is not a whole number of at least 1: write a number
        such as 1, or remove the option
    line 5, column 15: MaxPerMachine=+2 is not a whole number of at least 1: write a number
        such as 1, or remove the option
    line 6, column 8: Prefer: 0 is not a weight: write a number from -1000 to 1000 but 0, as
        in Prefer=10: disk = ssd, or quote the key
    line 7, column 8: Prefer: 1001 is not a weight: write a number from -1000 to 1000 but 0,
        as in Prefer=10: disk = ssd, or quote the key
    line 8, column 8: Spread: -1 is not a weight: write a number from 1 to 1000, as in
        Spread=5: zone
    line 9, column 8: Spread: 1001 is not a weight: write a number from 1 to 1000, as in
        Spread=5: zone
    line 10, column 8: Spread=zone=a is not a metadata key: write one key for each Spread, as
        in Spread=zone
    line 11, column 8: Spread= is not a metadata key: write one key for each Spread, as in
        Spread=zone
    line 12, column 8: Spread=zone rack is not a metadata key: write one key for each Spread,
        as in Spread=zone
    line 13, column 12: Reschedule=maybe is not a valid value: write always or never
    line 14, column 12: Reschedule=Never is not a valid value: write always or never
    line 15, column 13: OnPartition=restart is not a valid value: write keep or stop
    ");
}

#[test]
fn missing_colon_is_suggested() {
    let lines = "Prefer=10 disk = x\nPrefer=-5  exists disk\nSpread=5 zone\n\
                 Prefer=10 disk\nPrefer=10 = x\nSpread=zone 5";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 8: Prefer: no colon after the weight 10: write Prefer=10: disk = x
    line 3, column 8: Prefer: no colon after the weight -5: write Prefer=-5: exists disk
    line 4, column 8: Spread: no colon after the weight 5: write Spread=5: zone
    line 5, column 11: Prefer: expected an operator such as "=", found "disk": write key =
        value, key != value, key in (a, b), key < 5, or exists key
    line 7, column 8: Spread=zone 5 is not a metadata key: write one key for each Spread, as
        in Spread=zone
    "#);
}

#[test]
fn bad_expressions() {
    let lines = "MachineMetadataExpr=disk\nMachineMetadataExpr=disk = \n\
                 MachineMetadataExpr=a = b c\nMachineMetadataExpr=a == b && c\n\
                 Prefer=5: disk ~ ssd\nPrefer=5:\n\
                 MachineMetadataExpr=cores > many\nMachineMetadataExpr=a = %H\n\
                 MachineMetadataExpr=a = b AND \\\n  c = d";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 21: MachineMetadataExpr: expected an operator such as "=" at the end: write
        key = value, key != value, key in (a, b), key < 5, or exists key
    line 3, column 21: MachineMetadataExpr: expected a value at the end: write a value, as in
        disk = ssd
    line 4, column 27: MachineMetadataExpr: expected "and" or "or", found "c": join conditions
        by and or or, and quote a value that holds blanks
    line 5, column 23: MachineMetadataExpr: "==" is not valid here: write =
    line 6, column 16: Prefer: expected an operator such as "=", found "~": write key = value,
        key != value, key in (a, b), key < 5, or exists key
    line 7, column 10: Prefer: expected a condition at the end: write a condition such as disk
        = ssd
    line 8, column 29: MachineMetadataExpr: "many" is not a decimal number: write a decimal
        number such as 16 or 1.5, or compare by = or !=
    line 9, column 25: MachineMetadataExpr: a specifier cannot be expanded: unknown specifier
        "%H": use %n, %N, %p or %i, and %% for a percent sign
    line 10, column 1: MachineMetadataExpr: expected "and" or "or", found "AND": write and, in
        lower case
    "#);
}

#[test]
fn expression_error_has_an_exact_span() {
    for (line, wrong) in [
        ("MachineMetadataExpr=disk = ssd  && a = b", "&&"),
        ("Prefer=10: disk = ssd && a = b", "&&"),
        ("Prefer=disk = in", "in"),
        ("MachineMetadataExpr=(disk = ssd", "(disk = ssd"),
    ] {
        let text = format!("[X-Fleet]\n{line}\n");
        let errors = parse("a.service", line, Strictness::Refuse).unwrap_err();
        let span = errors.first().span;
        assert_eq!(&text[span.start..span.end], wrong, "{line}");
    }
}

#[test]
fn global_excludes_most_options() {
    let global = "Global=true\nMachineMetadataExpr=a = b\nOnPartition=stop\nConflicts=b*\n\
                  HealthCheck=tcp://a:1";
    assert!(parse("foo.service", global, Strictness::Refuse).is_ok());
    let lines = [
        "ReserveCPU=1",
        "ReserveMemory=1",
        "ReserveDisk=1",
        "MaxPerMachine=1",
        "Prefer=a = b",
        "Spread=zone",
        "Reschedule=never",
    ];
    for line in lines {
        let text = errors(&format!("Global=true\n{line}"));
        let option = line.split('=').next().unwrap();
        let expected = format!("Global cannot be used together with {option} (line 3)");
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn instance_options_warn_on_plain_units() {
    let lines = "MaxPerMachine=2\nSpread=zone";
    assert_eq!(warnings("foo@1.service", lines, Strictness::Refuse), "");
    assert_eq!(warnings("foo@.service", lines, Strictness::Refuse), "");
    insta::assert_snapshot!(warnings("foo.service", lines, Strictness::Refuse), @"
line 2, column 1: MaxPerMachine has no effect: it applies to instances of a template: name
    the unit as an instance, as in web@1.service, or remove the option
line 3, column 1: Spread has no effect: it applies to instances of a template: name the
    unit as an instance, as in web@1.service, or remove the option
");
    // An option that was reset has no effect either, and no warning.
    assert_eq!(warnings("foo.service", "Spread=zone\nSpread=", Strictness::Refuse), "");
}

#[test]
fn unit_name_cannot_split_a_health_command() {
    let name = "a\\x20b@c\\x2dd.service";
    let argv = ["probe", "a b", "c\\x2dd"].map(str::to_owned).into();
    let check = read(name, "HealthCheck=exec:probe %p %i").health_check;
    assert_eq!(check.map(|check| check.target), Some(HealthTarget::Exec { argv }));
}

#[test]
fn bad_health_checks() {
    let lines = "HealthCheck=https://a/\nHealthCheck=exec:a \"b\nHealthCheck=tcp://a:1\n\
                 HealthCheck=tcp://a:2\nHealthCheck=tcp://%j:1\nHealthCheck=exec:\\x25j\n\
                 HealthInterval=500ms\nHealthInterval=infinity\nHealthInterval=often\n\
                 HealthTimeout=0\nHealthTimeout=2h\nHealthThreshold=0\nHealthThreshold=+1";
    insta::assert_snapshot!(errors(lines), @r#"
    line 2, column 13: HealthCheck=https://a/: a check cannot use TLS: run a client instead,
        as in exec:curl -fsSo /dev/null https://HOST/
    line 3, column 13: HealthCheck=exec:a "b: its command has an unclosed quote or an invalid
        escape: close each quote, and double each backslash
    line 5, column 13: HealthCheck is already set to another check (line 4): keep one of them,
        or clear the first one by HealthCheck=
    line 6, column 13: HealthCheck=tcp://%j:1 cannot be expanded: unknown specifier "%j": use
        %n, %N, %p or %i, and %% for a percent sign
    line 7, column 13: HealthCheck=exec:\x25j: its command has an unclosed quote or an invalid
        escape: close each quote, and double each backslash
    line 8, column 16: HealthInterval=500ms: it is not from 1s to 1h: write a time span such
        as 10s or 1min 30s
    line 9, column 16: HealthInterval=infinity: it is not from 1s to 1h: write a time span
        such as 10s or 1min 30s
    line 10, column 16: HealthInterval=often: it is not a time span: write a time span such as
        10s or 1min 30s
    line 11, column 15: HealthTimeout=0: it is not from 1ms to 1h: write a time span such as
        5s or 500ms
    line 12, column 15: HealthTimeout=2h: it is not from 1ms to 1h: write a time span such as
        5s or 500ms
    line 13, column 17: HealthThreshold=0: it is not a whole number of at least 1: write a
        number such as 3
    line 14, column 17: HealthThreshold=+1: it is not a whole number of at least 1: write a
        number such as 3
    "#);
}

#[test]
fn health_options_without_a_check_are_warned_about() {
    let lines = "HealthInterval=5s\nHealthTimeout=1s\nHealthThreshold=1";
    insta::assert_snapshot!(warnings("foo.service", lines, Strictness::Refuse), @"
    line 2, column 1: HealthInterval has no effect without HealthCheck: write a HealthCheck,
        or remove the option
    line 3, column 1: HealthTimeout has no effect without HealthCheck: write a HealthCheck, or
        remove the option
    line 4, column 1: HealthThreshold has no effect without HealthCheck: write a HealthCheck,
        or remove the option
    ");
    let checked = format!("{lines}\nHealthCheck=tcp://a:1");
    assert_eq!(warnings("foo.service", &checked, Strictness::Refuse), "");
}

#[test]
fn machine_of_accepts_patterns() {
    let wants = read("foo@1.service", "MachineOf=db@*.service %p.socket [ab].path");
    assert_eq!(wants.machine_of, ["db@*.service", "foo.socket", "[ab].path"]);
    let named: Vec<bool> = wants.machine_of.iter().map(|peer| peer.name().is_some()).collect();
    assert_eq!(named, [false, true, false]);
    insta::assert_snapshot!(errors("MachineOf=db[ d*\nConflicts=d* x*"), @r#"
    line 2, column 11: MachineOf: "db[" is not a pattern: character 3 is a "[" that is never
        closed: write unit names, with * for any text, ? for one character, [a-z] for a class
    line 2, column 15: MachineOf=d* cannot be satisfied: Conflicts=d* (line 3) excludes that
        unit: take the unit out of MachineOf, or narrow the pattern of Conflicts
    "#);
}
