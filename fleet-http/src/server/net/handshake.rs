//! TLS handshake of accepted connections.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::ServerTls;
use crate::duplex::BoxedStream;
use crate::wire::{ErrorBody, ErrorEntity};

/// An accepted connection.
pub(crate) enum AcceptedStream {
    /// A connection without TLS.
    Plain(BoxedStream),
    /// A connection that begins with a TLS handshake.
    Tls(TcpStream, ServerTls),
}

/// A connection that is ready for requests.
pub(crate) struct Handshake {
    pub(crate) stream: BoxedStream,
    /// TLS configuration that verified the client's certificate, if it presented one. `None` makes
    /// the authentication policy refuse requests that need a certificate.
    pub(crate) verified_by: Option<ServerTls>,
}

/// First byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// Number of bytes read from a plaintext request before the error response.
const PLAINTEXT_READ_SIZE: usize = 8192;

/// Completes the handshake. Returns `None` if it fails or takes longer than `limit`.
pub(crate) async fn open(accepted: AcceptedStream, limit: Duration) -> Option<Handshake> {
    let (stream, tls) = match accepted {
        AcceptedStream::Plain(stream) => return Some(Handshake { stream, verified_by: None }),
        AcceptedStream::Tls(stream, tls) => (stream, tls),
    };
    match timeout(limit, shake_hands(stream, tls)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            None
        }
        Err(_) => {
            tracing::debug!("TLS handshake timed out");
            None
        }
    }
}

async fn shake_hands(stream: TcpStream, tls: ServerTls) -> std::io::Result<Option<Handshake>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] != TLS_HANDSHAKE {
        return refuse_plaintext(stream).await.map(|()| None);
    }
    let stream = TlsAcceptor::from(tls.config()).accept(stream).await?;
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    Ok(Some(Handshake { stream: Box::new(stream), verified_by: has_certificate.then_some(tls) }))
}

/// Responds to plaintext HTTP on a TLS port with an error.
async fn refuse_plaintext(mut stream: TcpStream) -> std::io::Result<()> {
    // Closing the socket with unread input would reset the connection before the client reads the
    // response.
    let _request = stream.read(&mut [0; PLAINTEXT_READ_SIZE]).await?;
    let message = "this port requires TLS: use https:// instead of http://".to_owned();
    let error = ErrorEntity { code: 400, message, ..ErrorEntity::default() };
    let body = serde_json::to_string(&ErrorBody { error, unit: None })?;
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}
