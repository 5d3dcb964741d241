//! etcd is away for two minutes.

use std::time::Duration;

use crate::cluster::{Cluster, MACHINES, SLEEP, STORE};
use crate::look::wait_while;

/// How long it is away: for several leases.
const OUTAGE: Duration = Duration::from_secs(120);

fn no_unit_ends_while_etcd_is_away(leave: &str, come_back: &str) {
    let cluster = Cluster::boot("15s");
    cluster.write("steady@.service", SLEEP);
    let names: Vec<_> = (0..9).map(|number| format!("steady@{number}.service")).collect();
    let start: Vec<_> = ["start"].into_iter().chain(names.iter().map(|name| &**name)).collect();
    cluster.succeed(&start);
    cluster.start("steady-global.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    let before = cluster.runs("steady*");
    assert_eq!(before.len(), 9 + 3);
    cluster.kit.exec(STORE, leave);
    wait_while("all units run as they did", OUTAGE, || cluster.runs("steady*") == before);
    cluster.write("late.service", SLEEP);
    cluster.refused(1, &["submit", "late.service"]);
    cluster.kit.exec(STORE, come_back);
    cluster.wait_present(&MACHINES);

    // Orders are carried out again, on each machine, and nobody was moved meanwhile. An etcd that
    // has hung may end the leases of all machines first, so that each has to join again.
    cluster.write("after-global.service", &format!("{SLEEP}[X-Fleet]\nGlobal=true\n"));
    cluster.succeed(&["start", "--no-block", "after-global.service", "late.service"]);
    cluster.wait_exactly("after-global.service", &MACHINES);
    cluster.wait_one("late.service");
    assert_eq!(cluster.runs("steady*"), before, "no unit was disturbed");
    cluster.succeed(&["destroy", "steady@0.service"]);
    cluster.wait_exactly("steady@0.service", &[]);
}

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn no_unit_ends_while_etcd_is_stopped() {
    no_unit_ends_while_etcd_is_away("systemctl stop etcd", "systemctl start etcd");
}

#[test]
#[ignore = "boots machines: run by scripts/test"]
fn no_unit_ends_while_etcd_hangs() {
    let tell = |signal| format!("systemctl kill --signal={signal} etcd");
    no_unit_ends_while_etcd_is_away(&tell("STOP"), &tell("CONT"));
}
