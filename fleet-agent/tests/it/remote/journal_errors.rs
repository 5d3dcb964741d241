//! A journal that ends early in the other process reports the reason in this one.

use std::io::ErrorKind;
use std::sync::Arc;

use fleet_agent::journal::JournalReader as _;
use fleet_agent::{NativeConfig, NativeManager, ServiceError, ServiceManager};
use fleet_core::journal::JournalQuery;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitFile;

use super::served_manager::Served;
use crate::support::name;

#[tokio::test]
async fn missing_log_error_reaches_the_client() {
    let mut served = Served::new();
    let (home, gate) = (served.directory.path().join("n"), served.directory.path().join("gate"));
    let native = NativeManager::open(NativeConfig::new(&home)).await.expect("it opens");
    served.begin(Arc::clone(&native));
    let (manager, unit) = (served.open().await, name("a.service"));
    let waits = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let script = format!("echo one; {waits}; echo two; exec sleep 100000");
    let file = UnitFile::parse(format!("[Service]\nExecStart=/bin/sh -c '{script}'\n"));
    manager.load(&unit, &file.expect("it is well formed"), Epoch(1)).await.expect("it loads");
    manager.start(&unit, Generation(1)).await.expect("it starts");
    let query = JournalQuery::default().with_follow(true);
    let mut journal = manager.journal(&unit, query).await.expect("it can be followed");
    assert_eq!(journal.next().await.as_deref(), Some("one"));

    std::fs::remove_file(home.join("units/a.service/log")).expect("it is there");
    std::fs::write(gate, "").expect("it can be created");
    assert_eq!(journal.next().await, None, "it cannot be read any more");
    let failure = journal.failure();
    let is_why = matches!(&failure, Some(ServiceError::Io { source, .. })
        if source.kind() == ErrorKind::NotFound);
    assert!(is_why, "{failure:?}");
    manager.unload(&unit).await.expect("it ends");
}
