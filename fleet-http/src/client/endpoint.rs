//! Where a server is, as people write it.

use std::path::PathBuf;
use std::str::FromStr;
use std::{fmt, io};

use hyper::Uri;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::ClientTls;
use crate::duplex::BoxedDuplex;

/// Where a server is found.
///
/// ```
/// use fleet_http::Endpoint;
///
/// let endpoint: Endpoint = "http://127.0.0.1:4285".parse()?;
/// assert_eq!(endpoint.to_string(), "http://127.0.0.1:4285");
/// let error = "unix://var/run/fleet.sock".parse::<Endpoint>().unwrap_err();
/// let beginning = "unable to connect to host \"var\" with scheme \"unix\"";
/// assert!(error.to_string().starts_with(beginning));
/// # Ok::<(), fleet_http::EndpointError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint(Kind);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Kind {
    Unix(PathBuf),
    Tcp { is_tls: bool, host: String, port: u16, base: String },
}

/// Why a text does not say where a server is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It does not say how to connect.
    #[error("URL scheme undefined in {0:?}: write unix:///path/to/socket or https://host:port")]
    NoScheme(String),
    /// It says to connect in a way that is not known.
    #[error("unknown URL scheme {0:?}: write unix:///path/to/socket or https://host:port")]
    UnknownScheme(String),
    /// A slash is missing before the path of a unix socket.
    #[error(
        "unable to connect to host {host:?} with scheme \"unix\": \
         write three slashes, as in unix:///{host}{rest}"
    )]
    UnixHost {
        /// What stands where a host would.
        host: String,
        /// What comes after it.
        rest: String,
    },
    /// It is no URL.
    #[error("{0:?} is no endpoint: write unix:///path/to/socket or https://host:port")]
    Malformed(String),
}

impl Endpoint {
    /// The part of each path before `/fleet/v1` and `/healthz`.
    pub(super) fn base(&self) -> &str {
        match &self.0 {
            Kind::Unix(_) => "",
            Kind::Tcp { base, .. } => base,
        }
    }

    /// The `Host` of requests.
    pub(super) fn authority(&self) -> String {
        match &self.0 {
            Kind::Unix(_) => "localhost".to_owned(),
            Kind::Tcp { host, port, .. } => format!("{host}:{port}"),
        }
    }

    /// Whether it is spoken to by TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self.0, Kind::Tcp { is_tls: true, .. })
    }

    /// Whether what is sent there can be read by nobody on the way: it goes by TLS, or stays on
    /// this host.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.is_tls() || self.is_local()
    }

    /// Whether it is reached from its own host alone.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let Kind::Tcp { host, .. } = &self.0 else { return true };
        let address = bare(host).parse::<std::net::IpAddr>();
        address.map_or(host.eq_ignore_ascii_case("localhost"), |ip| ip.to_canonical().is_loopback())
    }

    /// Connects; `tls` says how, if it is by TLS.
    pub(super) async fn connect(
        &self,
        tls: impl Fn() -> io::Result<ClientTls>,
    ) -> io::Result<BoxedDuplex> {
        match &self.0 {
            Kind::Unix(path) => crate::duplex::unix(path).await,
            Kind::Tcp { is_tls: false, host, port, .. } => {
                Ok(Box::new(crate::duplex::tcp((bare(host), *port)).await?))
            }
            Kind::Tcp { host, port, .. } => {
                let config = tls()?.config();
                let name = ServerName::try_from(bare(host).to_owned()).map_err(io::Error::other)?;
                let stream = crate::duplex::tcp((bare(host), *port)).await?;
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
        return Ok(Endpoint(Kind::Unix(path.into())));
    }
    if path.trim_start_matches('/').is_empty() {
        return Err(EndpointError::Malformed(format!("unix://{path}")));
    }
    let at = path.find('/').unwrap_or(path.len());
    let (host, rest) = path.split_at(at);
    Err(EndpointError::UnixHost { host: host.to_owned(), rest: rest.to_owned() })
}

/// The host as the system wants it: an address of IPv6 without its brackets.
fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

fn tcp(text: &str, rest: &str, is_tls: bool) -> Result<Endpoint, EndpointError> {
    let usual = if is_tls { 443 } else { 80 };
    let malformed = || EndpointError::Malformed(text.to_owned());
    let uri: Uri = format!("http://{rest}").parse().map_err(|_| malformed())?;
    let authority = uri.authority().ok_or_else(malformed)?;
    // A port that is no number would otherwise be read as none.
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => usual,
        _ => authority.port_u16().ok_or_else(malformed)?,
    };
    if authority.host().is_empty() || uri.query().is_some() {
        return Err(malformed());
    }
    let base = uri.path().trim_end_matches('/').to_owned();
    Ok(Endpoint(Kind::Tcp { is_tls, host: authority.host().to_owned(), port, base }))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Unix(path) => write!(f, "unix://{}", path.display()),
            Kind::Tcp { is_tls, host, port, base } => {
                let scheme = if *is_tls { "https" } else { "http" };
                write!(f, "{scheme}://{host}:{port}{base}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
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
    fn what_can_be_read_on_the_way_is_known() {
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
    fn what_leads_nowhere_is_refused_with_a_remedy() {
        let cases = [
            ("127.0.0.1:4285", "URL scheme undefined"),
            ("", "URL scheme undefined"),
            ("://x", "URL scheme undefined"),
            ("ftp://x", "unknown URL scheme \"ftp\""),
            ("unix://var/run/x", "unable to connect to host \"var\" with scheme \"unix\""),
            ("unix://", "\"unix://\" is no endpoint"),
            ("unix:///", "\"unix:///\" is no endpoint"),
            ("http://", "\"http://\" is no endpoint"),
            ("http://:80", "\"http://:80\" is no endpoint"),
            ("http://a:b", "\"http://a:b\" is no endpoint"),
            ("http://a:70000", "\"http://a:70000\" is no endpoint"),
            ("http://a?x=y", "\"http://a?x=y\" is no endpoint"),
        ];
        for (text, beginning) in cases {
            let error = text.parse::<Endpoint>().expect_err(text).to_string();
            assert!(error.starts_with(beginning), "{text}: {error}");
        }
    }
}
