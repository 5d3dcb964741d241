//! A relay for connections that a test can break.

use std::path::Path;

use fleet_http::ListenAddress;
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

/// Forwards connections from one socket to another until it is aborted.
pub(crate) fn relay(at: &Path, to: &ListenAddress) -> JoinHandle<()> {
    let ListenAddress::Unix(to) = to.clone() else { panic!("{to} is not a unix socket") };
    let listener = UnixListener::bind(at).unwrap();
    tokio::spawn(async move {
        let mut passing = JoinSet::new();
        loop {
            let (mut here, _) = listener.accept().await.unwrap();
            let mut there = UnixStream::connect(&to).await.unwrap();
            passing.spawn(async move { copy_bidirectional(&mut here, &mut there).await });
        }
    })
}
