//! A link between a store and a member that a test can disturb.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Treatment of data on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkMode {
    /// Data passes.
    Open,
    /// Data passes with a delay.
    Slow,
    /// All data is held until the link is open again; connections remain.
    HoldAll,
    /// Requests pass, but responses are held until the link is open again.
    HoldResponses,
    /// Connections are closed, and new ones as well.
    Cut,
}

/// Delay of a slow link, far below any timeout.
const LATE: Duration = Duration::from_millis(20);

/// A proxy port in front of a member.
pub(crate) struct Link {
    url: String,
    way: watch::Sender<LinkMode>,
    task: AbortHandle,
}

impl Link {
    /// Creates a link to the member at this URL.
    pub(crate) async fn to(url: &str) -> Self {
        let (scheme, target) = url.split_once("://").unwrap();
        let target: SocketAddr = target.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let (way, ways) = watch::channel(LinkMode::Open);
        let task = tokio::spawn(accept(listener, target, ways)).abort_handle();
        Self { url, way, task }
    }

    /// Returns the URL of the member over this link.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn set(&self, way: LinkMode) {
        self.way.send_replace(way);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, ways: watch::Receiver<LinkMode>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        if *ways.borrow() != LinkMode::Cut {
            drop(tokio::spawn(connect(client, target, ways.clone())));
        }
    }
}

async fn connect(client: TcpStream, target: SocketAddr, ways: watch::Receiver<LinkMode>) {
    let Ok(member) = TcpStream::connect(target).await else { return };
    let ((from_client, to_client), (from_member, to_member)) =
        (client.into_split(), member.into_split());
    let answers = |way| matches!(way, LinkMode::Open | LinkMode::Slow);
    let requests = |way| answers(way) || way == LinkMode::HoldResponses;
    tokio::select! {
        () = carry(from_client, to_member, ways.clone(), requests) => {}
        () = carry(from_member, to_client, ways, answers) => {}
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut ways: watch::Receiver<LinkMode>,
    passes: impl Fn(LinkMode) -> bool,
) {
    let mut bytes = vec![0; 1 << 16];
    let mut cuts = ways.clone();
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            _cut = cuts.wait_for(|way| *way == LinkMode::Cut) => return,
        };
        let Some(count) = read.ok().filter(|count| *count > 0) else { return };
        wait_if_slow(&ways).await;
        let may = ways.wait_for(|way| passes(*way) || *way == LinkMode::Cut).await.map(|way| *way);
        if !may.is_ok_and(&passes) || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

async fn wait_if_slow(ways: &watch::Receiver<LinkMode>) {
    let slow = *ways.borrow() == LinkMode::Slow;
    if slow {
        tokio::time::sleep(LATE).await;
    }
}
