//! URL of a server, and the connector to it.

use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::ClientTls;
use crate::duplex::BoxedStream;

/// Address of a server.
///
/// ```
/// use fleet_http::Endpoint;
///
/// let endpoint: Endpoint = "http://127.0.0.1:4285".parse()?;
/// assert_eq!(endpoint.to_string(), "http://127.0.0.1:4285");
/// let error = "unix://var/run/fleet.sock".parse::<Endpoint>().unwrap_err();
/// let beginning = "unable to connect to host \"var\" with scheme \"unix\"";
/// assert!(error.to_string().starts_with(beginning));
/// # Ok::<(), fleet_http::client::EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint(Address);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Address {
    Unix(PathBuf),
    Tcp { is_tls: bool, host: String, port: u16, base: String },
}

/// Error of a text that is not a valid endpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// The URL has no scheme.
    #[error("URL scheme undefined in {0:?}: write unix:///path/to/socket or https://host:port")]
    NoScheme(String),
    /// The URL scheme is not supported.
    #[error("unknown URL scheme {0:?}: write unix:///path/to/socket or https://host:port")]
    UnknownScheme(String),
    /// A slash is missing before the path of a unix socket.
    #[error(
        "unable to connect to host {host:?} with scheme \"unix\": \
         write three slashes, as in unix:///{host}{rest}"
    )]
    UnixHost {
        /// Text in the position of the host.
        host: String,
        /// Text after the host.
        rest: String,
    },
    /// The text is not a URL.
    #[error("invalid endpoint {0:?}: write unix:///path/to/socket or https://host:port")]
    Malformed(String),
}

impl Endpoint {
    /// Returns the path prefix before `/fleet/v1` and `/healthz`.
    pub(super) fn base(&self) -> &str {
        match &self.0 {
            Address::Unix(_) => "",
            Address::Tcp { base, .. } => base,
        }
    }

    /// Returns the `Host` of requests.
    pub(super) fn authority(&self) -> String {
        match &self.0 {
            Address::Unix(_) => "localhost".to_owned(),
            Address::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }

    /// Whether connections use TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self.0, Address::Tcp { is_tls: true, .. })
    }

    /// Returns whether requests are protected from eavesdropping: connections use TLS, or they stay
    /// on this host.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.is_tls() || self.is_local()
    }

    /// Returns whether the endpoint is on this host: a unix socket, `localhost` or a loopback
    /// address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let Address::Tcp { host, .. } = &self.0 else { return true };
        let address = strip_brackets(host).parse::<std::net::IpAddr>();
        address.map_or(host.eq_ignore_ascii_case("localhost"), |ip| ip.to_canonical().is_loopback())
    }

    /// Returns the host name or address of a TCP endpoint, without brackets; `None` for a unix
    /// socket.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match &self.0 {
            Address::Unix(_) => None,
            Address::Tcp { host, .. } => Some(strip_brackets(host)),
        }
    }

    /// Connects. Calls `tls` for the TLS configuration if the endpoint uses TLS.
    pub(super) async fn connect(
        &self,
        tls: impl Fn() -> io::Result<ClientTls>,
    ) -> io::Result<BoxedStream> {
        match &self.0 {
            Address::Unix(path) => crate::duplex::unix(path).await,
            Address::Tcp { is_tls: false, host, port, .. } => {
                Ok(Box::new(crate::duplex::tcp((strip_brackets(host), *port)).await?))
            }
            Address::Tcp { host, port, .. } => {
                let config = tls()?.config();
                let name = ServerName::try_from(strip_brackets(host).to_owned())
                    .map_err(io::Error::other)?;
                let stream = crate::duplex::tcp((strip_brackets(host), *port)).await?;
                Ok(Box::new(TlsConnector::from(config).connect(name, stream).await?))
            }
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let no_scheme = || EndpointError::NoScheme(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(no_scheme)?;
        match scheme.to_ascii_lowercase().as_str() {
            "" => Err(no_scheme()),
            "unix" | "file" => unix(rest),
            "http" | "tcp" => tcp(text, rest, false),
            "https" => tcp(text, rest, true),
            _ => Err(EndpointError::UnknownScheme(scheme.to_owned())),
        }
    }
}

fn unix(path: &str) -> Result<Endpoint, EndpointError> {
    if path.len() > 1 && path.starts_with('/') {
        return Ok(Endpoint(Address::Unix(path.into())));
    }
    if path.trim_start_matches('/').is_empty() {
        return Err(EndpointError::Malformed(format!("unix://{path}")));
    }
    let at = path.find('/').unwrap_or(path.len());
    let (host, rest) = path.split_at(at);
    Err(EndpointError::UnixHost { host: host.to_owned(), rest: rest.to_owned() })
}

/// Removes the brackets of an IPv6 address (`[::1]` becomes `::1`), because the resolver expects
/// none.
fn strip_brackets(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn tcp(text: &str, rest: &str, is_tls: bool) -> Result<Endpoint, EndpointError> {
    let default_port = if is_tls { 443 } else { 80 };
    let malformed = || EndpointError::Malformed(text.to_owned());
    let uri: Uri = format!("http://{rest}").parse().map_err(|_| malformed())?;
    let authority = uri.authority().ok_or_else(malformed)?;
    // An invalid port would otherwise be treated as absent.
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => default_port,
        _ => authority.port_u16().ok_or_else(malformed)?,
    };
    if authority.host().is_empty() || uri.query().is_some() {
        return Err(malformed());
    }
    let base = uri.path().trim_end_matches('/').to_owned();
    Ok(Endpoint(Address::Tcp { is_tls, host: authority.host().to_owned(), port, base }))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp { is_tls, host, port, base } => {
                let scheme = if *is_tls { "https" } else { "http" };
                write!(f, "{scheme}://{host}:{port}{base}")
            }
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_round_trip() {
        let cases = [
            ("unix:///run/fleet.sock", "unix:///run/fleet.sock"),
            ("file:///run/fleet.sock", "unix:///run/fleet.sock"),
            ("http://127.0.0.1:4285", "http://127.0.0.1:4285"),
            ("http://example.com/", "http://example.com:80"),
            ("tcp://[::1]:4285", "http://[::1]:4285"),
            ("https://example.com/fleet", "https://example.com:443/fleet"),
            ("HTTP://localhost:1/behind/proxy/", "http://localhost:1/behind/proxy"),
        ];
        for (text, expected) in cases {
            let endpoint: Endpoint = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(endpoint.to_string(), expected);
        }
    }

    #[test]
    fn private_and_local_endpoints_are_detected() {
        let cases = [
            ("unix:///s", true, true),
            ("https://example.com", true, false),
            ("https://127.0.0.1", true, true),
            ("http://127.0.0.1:1", true, true),
            ("http://[::1]:1", true, true),
            ("http://localhost:1", true, true),
            ("http://10.0.0.1:1", false, false),
            ("http://localhost.example.com:1", false, false),
        ];
        for (text, is_private, is_local) in cases {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.is_private(), is_private, "{text}");
            assert_eq!(endpoint.is_local(), is_local, "{text}");
        }
    }

    #[test]
    fn invalid_endpoints_are_refused_with_advice() {
        let cases = [
            ("127.0.0.1:4285", "URL scheme undefined"),
            ("", "URL scheme undefined"),
            ("://x", "URL scheme undefined"),
            ("ftp://x", "unknown URL scheme \"ftp\""),
            ("unix://var/run/x", "unable to connect to host \"var\" with scheme \"unix\""),
            ("unix://", "invalid endpoint \"unix://\""),
            ("unix:///", "invalid endpoint \"unix:///\""),
            ("http://", "invalid endpoint \"http://\""),
            ("http://:80", "invalid endpoint \"http://:80\""),
            ("http://a:b", "invalid endpoint \"http://a:b\""),
            ("http://a:70000", "invalid endpoint \"http://a:70000\""),
            ("http://a?x=y", "invalid endpoint \"http://a?x=y\""),
        ];
        for (text, beginning) in cases {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.starts_with(beginning), "{text}: {error}");
        }
    }
}
