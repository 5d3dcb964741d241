//! A way to a server that can be cut, as if the server had been started anew.

use std::path::{Path, PathBuf};

use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// A socket that leads to another one until it is cut.
pub(crate) struct Relay {
    at: PathBuf,
    to: PathBuf,
    tasks: JoinSet<()>,
}

impl Relay {
    /// Between `at`, which is made, and the socket that an endpoint names.
    pub(crate) fn open(at: &Path, endpoint: &str) -> Self {
        let to = endpoint.strip_prefix("unix://").unwrap().into();
        let mut relay = Self { at: at.to_owned(), to, tasks: JoinSet::new() };
        relay.listen();
        relay
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("unix://{}", self.at.display())
    }

    /// Ends all connections, and takes new ones.
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
                    // How a connection ends is for its two ends to see.
                    drop(copy_bidirectional(&mut near, &mut far).await);
                });
            }
        });
    }
}
