//! Changes to fleet's units that are not made by fleet.

use fleet_agent::{Drift, ServiceManager as _};
use fleet_core::{ActiveState, Generation};

use crate::bench::{Bench, SLEEP, name, shell, wait_until};

/// Waits until the manager reports this drift of the unit.
async fn wait_for_drift(bench: &Bench, unit: &str, drift: Option<Drift>) {
    wait_until(&format!("{unit} shows {drift:?}"), async || {
        bench.manager.drift(&name(unit)).await.expect("the call succeeds") == drift
    })
    .await;
}

pub(crate) async fn external_stop_is_reported() {
    let bench = Bench::new().await;
    let once = "[Service]\nExecStart=/bin/sh -c 'until [ -e /run/gate ]; do sleep 0.1; done'\n";
    bench.run("kept.service", SLEEP).await;
    bench.run("once.service", once).await;
    shell("systemctl restart kept.service");
    wait_for_drift(&bench, "kept.service", None).await;
    shell("systemctl stop kept.service");
    wait_for_drift(&bench, "kept.service", Some(Drift::Stopped)).await;
    shell("systemctl start kept.service");
    wait_for_drift(&bench, "kept.service", None).await;
    shell("systemctl stop kept.service");
    wait_for_drift(&bench, "kept.service", Some(Drift::Stopped)).await;
    bench.manager.restart(&name("kept.service"), Generation(2)).await.expect("it starts");
    wait_for_drift(&bench, "kept.service", None).await;
    bench.manager.stop(&name("kept.service")).await.expect("it stops");
    wait_for_drift(&bench, "kept.service", None).await;
    shell("touch /run/gate");
    bench.wait_for("once.service", |it| it.active == ActiveState::Inactive).await;
    wait_for_drift(&bench, "once.service", None).await; // it ended by itself
    for unit in ["kept.service", "once.service"] {
        bench.unload(unit).await;
    }
}
