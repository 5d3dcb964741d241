//! Conformance tests of the native service manager.

use std::path::Path;

use async_trait::async_trait;
use fleet_agent::testing::{Harness, ManagerWithJournals, conformance};
use fleet_agent::{NativeConfig, NativeManager};
use tempfile::TempDir;

struct NativeHarness {
    directory: TempDir,
}

#[async_trait]
impl Harness for NativeHarness {
    async fn open(&self) -> ManagerWithJournals {
        let config = NativeConfig::new(self.directory.path().join("native"));
        ManagerWithJournals::new(NativeManager::open(config).await.expect("it opens"))
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }
}

// Holds: G-30
#[tokio::test]
async fn conforms() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    conformance(&NativeHarness { directory }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_on_several_threads() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    conformance(&NativeHarness { directory }).await;
}
