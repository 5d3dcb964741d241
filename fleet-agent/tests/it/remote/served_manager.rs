//! A service manager served on a socket, and its clients.

use std::path::PathBuf;
use std::sync::Arc;

use fleet_agent::journal::JournalReader;
use fleet_agent::remote::{RemoteConfig, RemoteManager, ServiceManagerHandler, serve};
use fleet_agent::{ServiceError, ServiceManager, SystemClock};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

/// A socket with a service manager behind it, most of the time.
pub(super) struct Served {
    pub(super) directory: TempDir,
    server: Option<JoinHandle<()>>,
}

impl Served {
    pub(super) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory can be made"), server: None }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Starts serving a service manager.
    pub(super) fn begin<M: ServiceManager + JournalReader>(&mut self, manager: Arc<M>) {
        drop(std::fs::remove_file(self.socket()));
        let listener = UnixListener::bind(self.socket()).expect("it can listen");
        let clock = Arc::new(SystemClock::start());
        let handler = ServiceManagerHandler::new(manager);
        let server = async move { serve(listener, handler, "test", clock).await };
        self.server = Some(tokio::spawn(server));
    }

    /// Ends the server and all its connections.
    pub(super) async fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            drop(server.await);
        }
    }

    pub(super) async fn try_open(&self) -> Result<Arc<RemoteManager>, ServiceError> {
        let config = RemoteConfig {
            socket: self.socket(),
            directory: Some(self.directory.path().join("daemon")),
            program: "test".to_owned(),
            clock: Arc::new(SystemClock::start()),
        };
        RemoteManager::open(config).await
    }

    pub(super) async fn open(&self) -> Arc<RemoteManager> {
        self.try_open().await.expect("it is served")
    }
}
