//! Conformance tests of the native service manager.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::testing::{Harness, conformance};
use fleet_agent::{NativeConfig, NativeManager, ServiceManager};
use tempfile::TempDir;

struct NativeHarness {
    directory: TempDir,
}

#[async_trait]
impl Harness for NativeHarness {
    async fn open(&self) -> Arc<dyn ServiceManager> {
        let config = NativeConfig::new(self.directory.path().join("native"));
        NativeManager::open(config).await.expect("it opens")
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
