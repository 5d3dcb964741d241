//! Connector from the HTTP library's connection pool to the endpoint.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::Endpoint;
use crate::ClientTls;
use crate::duplex::BoxedStream;

/// Timeout for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the endpoint, and ignores the host in the request's URL.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    endpoint: Endpoint,
    /// TLS configuration. If none was given, the default is loaded on first use.
    tls: Arc<OnceLock<ClientTls>>,
}

impl Connector {
    pub(super) fn new(endpoint: Endpoint, tls: Option<ClientTls>) -> Self {
        let tls = tls.map_or_else(OnceLock::new, OnceLock::from);
        Self { endpoint, tls: Arc::new(tls) }
    }

    fn tls(&self) -> io::Result<ClientTls> {
        if let Some(tls) = self.tls.get() {
            return Ok(tls.clone());
        }
        let tls = ClientTls::new(None, None).map_err(io::Error::other)?;
        Ok(self.tls.get_or_init(|| tls).clone())
    }
}

impl tower::Service<Uri> for Connector {
    type Response = PoolStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<PoolStream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            let connected = connector.endpoint.connect(|| connector.tls());
            let stream = timeout(CONNECT_TIMEOUT, connected).await.map_err(io::Error::from)??;
            Ok(PoolStream(TokioIo::new(stream)))
        })
    }
}

/// A connection with the traits required by the pool.
pub(super) struct PoolStream(TokioIo<BoxedStream>);

impl Connection for PoolStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for PoolStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for PoolStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
