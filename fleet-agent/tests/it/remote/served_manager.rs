//! A service manager served on a socket, and its clients.

use std::path::PathBuf;
use std::sync::Arc;

use fleet_agent::journal::JournalReader;
use fleet_agent::remote::{Connection, RemoteConfig, RemoteManager, ServiceManagerHandler, serve};
use fleet_agent::{ServiceError, ServiceManager, SystemClock};
use serde_json::Value;
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
        let handler = Arc::new(ServiceManagerHandler::new(manager));
        self.server = Some(tokio::spawn(serve(listener, handler, "test", clock)));
    }

    /// Ends the server and all its connections.
    pub(super) async fn end(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            drop(server.await);
        }
    }

    pub(super) async fn try_open(&self) -> Result<Arc<RemoteManager>, ServiceError> {
        let mut config = RemoteConfig::new(self.socket(), "test");
        config.directory = Some(self.directory.path().join("daemon"));
        RemoteManager::open(config).await
    }

    pub(super) async fn connect(&self) -> Connection {
        let clock = Arc::new(SystemClock::start());
        Connection::connect(&self.socket(), "test", clock).await.expect("it listens")
    }

    pub(super) async fn open(&self) -> Arc<RemoteManager> {
        self.try_open().await.expect("it is served")
    }
}

/// Encodes a frame with its length.
pub(super) fn framed(frame: &Value) -> Vec<u8> {
    let text = frame.to_string();
    let length = u32::try_from(text.len()).expect("it is short").to_be_bytes();
    [&length, text.as_bytes()].concat()
}
