//! An etcd outage of two minutes.

use std::time::Duration;

use crate::cluster::{Cluster, MACHINES, SLEEP, STORE};
use crate::observe::wait_while;

/// Duration of the outage, which is longer than several leases.
const OUTAGE: Duration = Duration::from_secs(120);

/// Checks that no unit is disturbed while etcd is unavailable.
fn check_etcd_outage(stop: &str, resume: &str) {
    let cluster = Cluster::boot("15s");
    cluster.write("steady@.service", SLEEP);
    let names: Vec<_> = (0..9).map(|number| format!("steady@{number}.service")).collect();
    let start: Vec<_> = ["start"].into_iter().chain(names.iter().map(|name| &**name)).collect();
    cluster.succeed(&start);
    cluster.start("steady-global.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    let before = cluster.runs("steady*");
    assert_eq!(before.len(), 9 + 3);
    cluster.kit.exec(STORE, stop);
    wait_while("no unit is disturbed", OUTAGE, || cluster.runs("steady*") == before);
    cluster.write("late.service", SLEEP);
    cluster.refused(1, &["submit", "late.service"]);
    cluster.kit.exec(STORE, resume);
    cluster.wait_present(&MACHINES);

    // Requests work again on each machine, and no unit has moved. An etcd that has hung may first
    // end the leases of all machines, which then join again.
    cluster.write("after-global.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    cluster.succeed(&["start", "--no-block", "after-global.service", "late.service"]);
    cluster.wait_exactly("after-global.service", &MACHINES);
    cluster.wait_single_machine("late.service");
    assert_eq!(cluster.runs("steady*"), before, "a unit was disturbed");
    cluster.succeed(&["destroy", "steady@0.service"]);
    cluster.wait_exactly("steady@0.service", &[]);
}

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn units_survive_a_stopped_etcd() {
    check_etcd_outage("systemctl stop etcd", "systemctl start etcd");
}

#[test]
#[ignore = "boots machines: run by scripts/test --full"]
fn units_survive_a_hung_etcd() {
    let send = |signal| format!("systemctl kill --signal={signal} etcd");
    check_etcd_outage(&send("STOP"), &send("CONT"));
}
