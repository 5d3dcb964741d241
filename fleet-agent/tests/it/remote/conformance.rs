//! Managers that conform directly also conform over a socket.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::testing::{FakeManager, Harness, ManagerWithJournals, UnitKind, conformance};
use fleet_agent::{NativeConfig, NativeManager};
use fleet_unitfile::{UnitFile, UnitName};

use super::served_manager::Served;
use crate::fake::FakeHarness;

/// A machine whose service manager outlives the daemons.
struct RemoteHarness<H> {
    served: Served,
    inner: H,
}

#[async_trait]
impl<H: Harness> Harness for RemoteHarness<H> {
    async fn open(&self) -> ManagerWithJournals {
        ManagerWithJournals::new(self.served.open().await)
    }

    fn directory(&self) -> &Path {
        self.served.directory.path()
    }

    fn unit(&self, unit: &UnitName, kind: UnitKind) -> UnitFile {
        self.inner.unit(unit, kind)
    }

    fn release(&self, unit: &UnitName) {
        self.inner.release(unit);
    }
}

#[tokio::test]
async fn fake_conforms_over_socket() {
    let machine = FakeManager::new();
    let mut served = Served::new();
    served.begin(Arc::clone(&machine));
    conformance(&RemoteHarness { served, inner: FakeHarness { machine } }).await;
}

struct Native(std::path::PathBuf);

impl Native {
    async fn open_native(&self) -> Arc<NativeManager> {
        NativeManager::open(NativeConfig::new(self.0.join("native"))).await.expect("it opens")
    }
}

#[async_trait]
impl Harness for Native {
    async fn open(&self) -> ManagerWithJournals {
        ManagerWithJournals::new(self.open_native().await)
    }

    fn directory(&self) -> &Path {
        &self.0
    }
}

async fn the_native_one_conforms() {
    let mut served = Served::new();
    let inner = Native(served.directory.path().to_owned());
    served.begin(inner.open_native().await);
    conformance(&RemoteHarness { served, inner }).await;
}

#[tokio::test]
async fn native_manager_conforms_over_socket() {
    the_native_one_conforms().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_manager_conforms_on_several_threads() {
    the_native_one_conforms().await;
}
