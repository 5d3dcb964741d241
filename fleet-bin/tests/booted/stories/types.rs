//! Units of the types that few people use, those that a machine cannot run among them.

use crate::cluster::Cluster;
use crate::look::wait_for;

/// systemd runs these anywhere.
const RUN: [(&str, &str); 2] = [
    ("srv-mounted.mount", "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/srv/mounted\n"),
    ("own.slice", "[Slice]\nTasksMax=100\n"),
];

/// A systemd that takes its machine for a container knows no swaps, whatever its kernel has; and
/// nobody can start a device.
const CANNOT_RUN: [(&str, &str); 2] = [
    ("srv-none.swap", "[Swap]\nWhat=/srv/none\n"),
    ("dev-none.device", "[Unit]\nDescription=it never comes\n"),
];

// Holds: D-12
#[test]
#[ignore = "boots machines: run by scripts/test"]
fn units_of_rare_types_run_or_are_shown_as_what_a_machine_cannot_run() {
    let cluster = Cluster::boot("30s");
    for (unit, text) in RUN {
        cluster.start(unit, text);
        let machine = cluster.wait_one(unit);
        assert_eq!(cluster.show(machine, unit, "ActiveState"), "active", "{unit}");
    }
    for (unit, text) in CANNOT_RUN {
        cluster.write(unit, text);
        cluster.succeed(&["load", unit]);
        let rows = cluster.rows(unit);
        assert_eq!((rows.len(), &rows[0]["load"]), (1, &"loaded".into()), "{unit}: {rows:?}");
        let said = cluster.refused(1, &["start", unit]);
        assert!(said.contains("this machine cannot run units of its type"), "{said}");
        let status = cluster.refused(3, &["status", unit]);
        assert!(status.contains("this machine cannot run units of its type"), "{status}");
        wait_for(&format!("{unit} is shown as inactive"), || {
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
