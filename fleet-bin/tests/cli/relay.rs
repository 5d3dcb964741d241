//! A proxy for a server's socket that can drop its connections, as a server restart would.

use std::path::{Path, PathBuf};

use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// A socket that forwards to another one.
pub(crate) struct Relay {
    at: PathBuf,
    to: PathBuf,
    tasks: JoinSet<()>,
}

impl Relay {
    /// Creates the socket `at`, forwarding to the socket of the endpoint.
    pub(crate) fn open(at: &Path, endpoint: &str) -> Self {
        let to = endpoint.strip_prefix("unix://").unwrap().into();
        let mut relay = Self { at: at.to_owned(), to, tasks: JoinSet::new() };
        relay.listen();
        relay
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.at.display())
    }

    /// Closes all connections, and accepts new ones.
    pub(crate) async fn cut(&mut self) {
        self.tasks.shutdown().await;
        std::fs::remove_file(&self.at).unwrap();
        self.listen();
    }

    fn listen(&mut self) {
        let listener = UnixListener::bind(&self.at).unwrap();
        let to = self.to.clone();
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let to = to.clone();
                connections.spawn(async move {
                    let mut far = UnixStream::connect(to).await.unwrap();
                    // Both ends see for themselves that the connection has ended.
                    drop(copy_bidirectional(&mut near, &mut far).await);
                });
            }
        });
    }
}
