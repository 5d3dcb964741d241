//! Units that fail on their machines, and machines that are lost with them.

use std::time::Duration;

use crate::cluster::{Cluster, SLEEP};
use crate::look::{wait_for, wait_while};

/// Longer than anybody waits for a machine.
const TWO_LEASES: Duration = Duration::from_secs(10);

/// Fails a moment after it was started, and notes each time that it was.
const FAILING: &str = "[Service]\nType=oneshot\n\
    ExecStart=/bin/sh -c 'echo %H >>/srv/share/seen/%p; exit 7'\n";

/// Runs for a while, so that its start is no failure, and then ends as one that failed.
const CRASHING: &str = "[Service]\n\
    ExecStart=/bin/sh -c 'until [ -e /srv/share/seen/gate ]; do sleep 0.1; done; exit 9'\n";

fn wait_failed(cluster: &Cluster, unit: &str, exit: &str) -> String {
    wait_for(&format!("{unit} is shown as failed"), || {
        let rows = cluster.rows(unit);
        let [row] = &rows[..] else { return None };
        let has_failed = row["active"] == "failed" && row["result"] == "exit-code";
        (has_failed && row["exit"].as_str()?.contains(exit))
            .then(|| cluster.name_of(row["machine"].as_str()?).map(str::to_owned))?
    })
}

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn a_unit_that_fails_is_shown_and_moves_only_as_its_policy_says() {
    let cluster = Cluster::boot("5s");
    let on_m2 = |text: &str, more: &str| format!("{text}[X-Fleet]\nPrefer=100: name = m2\n{more}");
    cluster.write("fails.service", &on_m2(FAILING, ""));
    let said = cluster.refused(1, &["start", "fails.service"]);
    assert!(said.contains("status 7"), "{said}");
    assert_eq!(wait_failed(&cluster, "fails.service", "7"), "m2");
    cluster.start("crashes.service", &on_m2(CRASHING, ""));
    cluster.start("bound.service", &on_m2(CRASHING, "Reschedule=never\n"));
    cluster.start("steady.service", &on_m2(SLEEP, ""));
    std::fs::write(cluster.kit.share("seen/gate"), "").unwrap();
    for unit in ["crashes.service", "bound.service"] {
        assert_eq!(wait_failed(&cluster, unit, "9"), "m2");
        cluster.refused(3, &["status", unit]);
    }
    wait_while("who has failed stays where it was, and is not tried again", TWO_LEASES, || {
        cluster.seen("fails") == "m2\n" && wait_failed(&cluster, "crashes.service", "9") == "m2"
    });

    // Its machine is lost: who may move is tried elsewhere, and fails there as it did before.
    cluster.kit.run(&["crash", "m2"]);
    cluster.wait_present(&["m1", "m3"]);
    let elsewhere = wait_for("it fails elsewhere", || {
        let machine = wait_failed(&cluster, "fails.service", "7");
        (machine != "m2").then_some(machine)
    });
    assert_eq!(cluster.seen("fails"), format!("m2\n{elsewhere}\n"));
    assert_ne!(wait_failed(&cluster, "crashes.service", "9"), "m2");
    assert_ne!(cluster.wait_one("steady.service"), "m2");
    let rows = cluster.rows("bound.service");
    let [row] = &rows[..] else { panic!("it has one row: {rows:?}") };
    assert_eq!(cluster.name_of(row["machine"].as_str().unwrap()), Some("m2"));
    assert!(row["active"] == "unknown" && row["unknownFor"].is_u64(), "{row}");
    assert!(row["reason"].as_str().unwrap().contains("Reschedule=never"), "{row}");
    let shown = cluster.refused(3, &["status", "bound.service"]);
    assert!(shown.contains("unknown (for "), "{shown}");

    // It is back, and what made the unit fail is over.
    std::fs::remove_file(cluster.kit.share("seen/gate")).unwrap();
    cluster.kit.run(&["boot", "m2"]);
    cluster.wait_exactly("bound.service", &["m2"]);
    assert_ne!(wait_failed(&cluster, "crashes.service", "9"), "m2", "who has moved stays");
}
