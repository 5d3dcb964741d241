//! The conformance suite of service managers, over each kind of connection.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use fleet_agent::testing::{Harness, conformance};
use fleet_agent::{ServiceManager, SystemdConfig, SystemdManager};
use tempfile::TempDir;

struct Conforming {
    config: SystemdConfig,
    directory: TempDir,
}

#[async_trait]
impl Harness for Conforming {
    async fn open(&self) -> Arc<dyn ServiceManager> {
        SystemdManager::open(self.config.clone()).await.expect("it opens")
    }

    fn directory(&self) -> &Path {
        self.directory.path()
    }
}

pub(crate) async fn the_system_bus_conforms() {
    conforms(SystemdConfig::system()).await;
}

async fn conforms(config: SystemdConfig) {
    let directory = tempfile::tempdir().expect("a directory can be made");
    conformance(&Conforming { config, directory }).await;
}
