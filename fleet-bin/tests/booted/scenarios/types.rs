//! Rarely used unit types, including types that a machine cannot run.

use crate::cluster::Cluster;
use crate::observe::wait_for;

/// Units that systemd can run on any machine.
const RUN: [(&str, &str); 2] = [
    ("srv-mounted.mount", "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/srv/mounted\n"),
    ("own.slice", "[Slice]\nTasksMax=100\n"),
];

/// Units that cannot run. systemd does not support swap units in a container, and a device unit
/// cannot be started.
const CANNOT_RUN: [(&str, &str); 2] = [
    ("srv-none.swap", "[Swap]\nWhat=/srv/none\n"),
    ("dev-none.device", "[Unit]\nDescription=absent device\n"),
];

// Holds: D-12
#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn rare_unit_types_run_or_are_reported_as_unsupported() {
    let cluster = Cluster::boot("30s");
    for (unit, text) in RUN {
        cluster.start(unit, text);
        let machine = cluster.wait_single_machine(unit);
        assert_eq!(cluster.show(machine, unit, "ActiveState"), "active", "{unit}");
    }
    for (unit, text) in CANNOT_RUN {
        cluster.write(unit, text);
        cluster.succeed(&["load", unit]);
        let rows = cluster.rows(unit);
        assert_eq!((rows.len(), &rows[0]["load"]), (1, &"loaded".into()), "{unit}: {rows:?}");
        let printed = cluster.refused(1, &["start", unit]);
        assert!(printed.contains("this machine cannot run units of its type"), "{printed}");
        let status = cluster.refused(3, &["status", unit]);
        assert!(status.contains("this machine cannot run units of its type"), "{status}");
        wait_for(&format!("{unit} is listed as inactive"), || {
            let rows = cluster.rows(unit);
            rows.iter().any(|row| row["active"] == "inactive").then_some(())
        });
    }
    let units = RUN.iter().chain(&CANNOT_RUN).map(|(unit, _)| *unit);
    cluster.succeed(&["destroy"].into_iter().chain(units).collect::<Vec<_>>());
    for (unit, _) in RUN {
        cluster.wait_exactly(unit, &[]);
    }
}
