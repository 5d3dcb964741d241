//! The way between a store and a member, which a test can disturb.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// What a link does with what is sent over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It passes.
    Open,
    /// It passes late.
    Slow,
    /// Nothing passes until the link is open again, and connections stay.
    Silent,
    /// Requests pass, and answers do not until the link is open again.
    Mute,
    /// Connections are closed, and so is each new one.
    Cut,
}

/// How late what is sent over a slow link passes; it is far below any time limit of a call.
const LATE: Duration = Duration::from_millis(20);

/// A port in front of a member's.
pub(crate) struct Link {
    url: String,
    way: watch::Sender<Way>,
    task: AbortHandle,
}

impl Link {
    /// A link to the member at this URL.
    pub(crate) async fn to(url: &str) -> Self {
        let (scheme, target) = url.split_once("://").unwrap();
        let target: SocketAddr = target.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let (way, ways) = watch::channel(Way::Open);
        let task = tokio::spawn(accept(listener, target, ways)).abort_handle();
        Self { url, way, task }
    }

    /// The URL by which the member is reached over this link.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, ways: watch::Receiver<Way>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        if *ways.borrow() != Way::Cut {
            drop(tokio::spawn(connect(client, target, ways.clone())));
        }
    }
}

async fn connect(client: TcpStream, target: SocketAddr, ways: watch::Receiver<Way>) {
    let Ok(member) = TcpStream::connect(target).await else { return };
    let ((from_client, to_client), (from_member, to_member)) =
        (client.into_split(), member.into_split());
    let answers = |way| matches!(way, Way::Open | Way::Slow);
    let requests = |way| answers(way) || way == Way::Mute;
    tokio::select! {
        () = carry(from_client, to_member, ways.clone(), requests) => {}
        () = carry(from_member, to_client, ways, answers) => {}
    }
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut ways: watch::Receiver<Way>,
    passes: impl Fn(Way) -> bool,
) {
    let mut bytes = vec![0; 1 << 16];
    let mut cuts = ways.clone();
    loop {
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            _cut = cuts.wait_for(|way| *way == Way::Cut) => return,
        };
        let Some(count) = read.ok().filter(|count| *count > 0) else { return };
        wait_if_slow(&ways).await;
        let may = ways.wait_for(|way| passes(*way) || *way == Way::Cut).await.map(|way| *way);
        if !may.is_ok_and(&passes) || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

async fn wait_if_slow(ways: &watch::Receiver<Way>) {
    let slow = *ways.borrow() == Way::Slow;
    if slow {
        tokio::time::sleep(LATE).await;
    }
}
