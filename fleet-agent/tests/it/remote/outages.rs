//! The other process goes away and comes back: nothing is known meanwhile, and nothing is lost.

use std::sync::Arc;

use fleet_agent::testing::FakeManager;
use fleet_agent::{ServiceError, ServiceManager};
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;

use super::served_manager::Served;
use crate::support::name;
use crate::wait::wait_until;

fn file() -> UnitFile {
    UnitFile::parse("[Service]\nExecStart=/bin/true\n").expect("it is well formed")
}

fn is_unavailable<T>(result: &Result<T, ServiceError>) -> bool {
    matches!(result, Err(ServiceError::Unavailable(_)))
}

// Holds: I-8
#[tokio::test]
async fn outage_is_not_absence() {
    let (mut served, machine) = (Served::new(), FakeManager::new());
    served.begin(Arc::clone(&machine));
    let manager = served.open().await;
    let (stays, goes) = (name("stays.service"), name("goes.service"));
    for unit in [&stays, &goes] {
        manager.load(unit, &file(), Epoch(1)).await.expect("it loads");
    }
    let mut changes = manager.changes();
    served.end().await;
    let received = tokio::time::timeout(crate::wait::DEADLINE, changes.next()).await;
    assert!(received.expect("in time").contains(&stays), "the missing state is reported");
    wait_until("it is unreachable", async || is_unavailable(&manager.list().await)).await;
    assert!(is_unavailable(&manager.get(&stays).await));
    assert!(is_unavailable(&manager.start(&stays, Generation(1)).await));

    machine.unload(&goes).await.expect("it unloads");
    served.begin(Arc::clone(&machine));
    let both = async {
        let mut received = changes.next().await;
        while !(received.contains(&stays) && received.contains(&goes)) {
            received.extend(changes.next().await);
        }
    };
    tokio::time::timeout(crate::wait::DEADLINE, both).await.expect("both are reported in time");
    let listed = manager.list().await.expect("it is reachable again");
    let listed: Vec<_> = listed.iter().map(|it| &it.unit).collect();
    assert_eq!(listed, [&stays]);
    manager.start(&stays, Generation(1)).await.expect("it accepts requests again");
}

#[tokio::test]
async fn interrupted_call_is_an_error() {
    let (mut served, machine) = (Served::new(), FakeManager::new());
    served.begin(Arc::clone(&machine));
    let manager = served.open().await;
    let unit = name("a.service");
    machine.hang_stop(&unit);
    manager.load(&unit, &file(), Epoch(1)).await.expect("it loads");
    manager.start(&unit, Generation(1)).await.expect("it starts");
    let stop = {
        let (manager, unit) = (Arc::clone(&manager), unit.clone());
        tokio::spawn(async move { manager.stop(&unit).await })
    };
    let stopping = async || {
        let found = machine.get(&unit).await.expect("the call succeeds").expect("it is known");
        found.state.active == fleet_core::ActiveState::Deactivating
    };
    wait_until("it stops", stopping).await;
    served.end().await;
    let stopped = stop.await.expect("no panic");
    assert!(is_unavailable(&stopped), "{stopped:?}");
    machine.release(&unit);
}

#[tokio::test]
async fn connect_error_names_the_socket() {
    let served = Served::new();
    let error = served.try_open().await.err().expect("nothing listens").to_string();
    let place = served.socket().display().to_string();
    assert!(error.contains(&place) && error.contains("cannot connect"), "{error}");
}
