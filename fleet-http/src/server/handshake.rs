//! From an accepted socket to a connection that requests can come by.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::ServerTls;
use crate::duplex::BoxedDuplex;
use crate::wire::{ErrorBody, ErrorEntity};

/// A connection that was accepted.
pub(super) enum Arrival {
    /// One that requests come by as they are.
    Plain(BoxedDuplex),
    /// One that begins with a handshake.
    Tls(TcpStream, ServerTls),
}

/// A connection that requests can come by.
pub(super) struct Opened {
    pub(super) stream: BoxedDuplex,
    /// By what the client's certificate is known, if it has shown one.
    pub(super) shown_to: Option<ServerTls>,
}

/// What every handshake of TLS begins with.
const HANDSHAKE: u8 = 0x16;

/// How much of a request that came without TLS is read before it is answered.
const ENOUGH: usize = 8192;

/// Makes a connection usable, unless that takes longer than `limit` or cannot be.
pub(super) async fn open(arrival: Arrival, limit: Duration) -> Option<Opened> {
    let (stream, tls) = match arrival {
        Arrival::Plain(stream) => return Some(Opened { stream, shown_to: None }),
        Arrival::Tls(stream, tls) => (stream, tls),
    };
    match timeout(limit, shake_hands(stream, tls)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("a handshake took too long");
            None
        }
    }
}

async fn shake_hands(stream: TcpStream, tls: ServerTls) -> std::io::Result<Option<Opened>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] != HANDSHAKE {
        return refuse(stream).await.map(|()| None);
    }
    let stream = TlsAcceptor::from(tls.config()).accept(stream).await?;
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    Ok(Some(Opened { stream: Box::new(stream), shown_to: has_certificate.then_some(tls) }))
}

/// Tells who speaks without TLS to speak with it.
async fn refuse(mut stream: TcpStream) -> std::io::Result<()> {
    // What is not read would have the system cut the answer off.
    let _request = stream.read(&mut [0; ENOUGH]).await?;
    let message = "this port is for TLS: write https:// instead of http://".to_owned();
    let error = ErrorEntity { code: 400, message, ..ErrorEntity::default() };
    let body = serde_json::to_string(&ErrorBody { error, unit: None })?;
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
