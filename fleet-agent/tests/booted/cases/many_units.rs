//! Many units that depend on each other without delaying others.

use std::sync::Arc;

use fleet_agent::ServiceManager as _;
use fleet_core::{ActiveState, Generation};
use futures_util::future::join_all;

use crate::bench::{Bench, SLEEP, name, shell, show};

pub(crate) async fn slow_stop_delays_no_other_unit() {
    let bench = Bench::new().await;
    let slow = format!("{SLEEP}ExecStop=/bin/sh -c 'until [ -e /run/gate ]; do sleep 0.1; done'\n");
    bench.run("slow.service", &slow).await;
    let manager = Arc::clone(&bench.manager);
    let unload = tokio::spawn(async move { manager.unload(&name("slow.service")).await });
    bench.wait_for("slow.service", |it| it.active == ActiveState::Deactivating).await;
    let names: Vec<String> = (0..100).map(|number| format!("quick{number}.service")).collect();
    join_all(names.iter().map(async |unit| bench.run(unit, SLEEP).await)).await;
    for unit in &names {
        assert_eq!(bench.state(unit).await.active, ActiveState::Active, "{unit}");
    }
    assert!(!unload.is_finished(), "the slow one still stops");
    shell("touch /run/gate");
    unload.await.expect("no panic").expect("it is unloaded in the end");
    join_all(names.iter().map(async |unit| bench.unload(unit).await)).await;
    assert_eq!(bench.manager.list().await.expect("the call succeeds"), []);
}

pub(crate) async fn dependent_unit_starts_with_main_unit() {
    let bench = Bench::new().await;
    let side = format!("[Unit]\nPartOf=main.service\n{SLEEP}[Install]\nWantedBy=main.service\n");
    bench.load(&[("main.service", SLEEP), ("side.service", &side)]).await;
    bench.start("main.service").await.expect("it starts");
    bench.wait_for("side.service", |it| it.active == ActiveState::Active).await;
    bench.manager.stop(&name("main.service")).await.expect("it stops");
    bench.wait_for("side.service", |it| it.active == ActiveState::Inactive).await;
    // A unit loaded while its main unit is active starts with the main unit's next start.
    bench.unload("side.service").await;
    bench.start("main.service").await.expect("it starts");
    bench.load(&[("side.service", &side)]).await;
    bench.manager.restart(&name("main.service"), Generation(2)).await.expect("it restarts");
    bench.wait_for("side.service", |it| it.active == ActiveState::Active).await;
    bench.unload("side.service").await;
    bench.manager.reload().await.expect("the files are read");
    bench.manager.restart(&name("main.service"), Generation(3)).await.expect("without it");
    assert_eq!(show("side.service", "LoadState"), "not-found", "its main unit forgot it");
    bench.unload("main.service").await;
}

/// Returns how often systemd has reloaded since the boot.
fn reloads() -> usize {
    // systemd runs all its generators on each reload.
    shell("wc -l </run/reloads").parse().expect("it is a number")
}

// Holds: I-14
pub(crate) async fn reloads_happen_only_if_needed() {
    shell(
        "printf '#!/bin/sh\\necho >>/run/reloads\\n' >/etc/systemd/system-generators/count; \
         chmod +x /etc/systemd/system-generators/count; : >/run/reloads",
    );
    let bench = Bench::new().await;
    let wanted = format!("{SLEEP}[Install]\nWantedBy=multi-user.target\n");
    bench.load(&[("a.service", SLEEP), ("b.service", SLEEP), ("wanted.service", &wanted)]).await;
    for unit in ["a.service", "b.service", "wanted.service"] {
        bench.start(unit).await.expect("it starts");
    }
    bench.unload("b.service").await;
    bench.run("b.service", &format!("{SLEEP}Environment=A=B\n")).await;
    assert_eq!(reloads(), 0, "units that systemd does not have in memory need none");
    let side = format!("{SLEEP}[Install]\nWantedBy=a.service\n");
    let batch = [("side.service", &*side), ("c.service", SLEEP), ("d.service", SLEEP)];
    bench.load(&batch).await;
    assert_eq!(reloads(), 1, "a depending unit is in memory, and one reload covers the batch");
    bench.manager.reload().await.expect("the call succeeds");
    assert_eq!(reloads(), 1, "nothing is left to be read");
    shell("touch -d '+1 hour' /run/fleet/units/a.service");
    drop(bench.manager);
    let bench = Bench::new().await;
    bench.manager.reload().await.expect("the call succeeds");
    assert_eq!(reloads(), 2, "changes without a manager are read");
    for unit in ["a.service", "b.service", "c.service", "d.service", "side.service"] {
        bench.unload(unit).await;
    }
    bench.unload("wanted.service").await;
}
