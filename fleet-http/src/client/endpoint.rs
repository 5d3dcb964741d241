//! Where a server is, as people write it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hyper::Uri;

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
    Tcp { host: String, port: u16, base: String },
}

/// Why a text does not say where a server is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// It does not say how to connect.
    #[error("URL scheme undefined in {0:?}: write unix:///path/to/socket or http://host:port")]
    NoScheme(String),
    /// It says to connect in a way that is not known.
    #[error("unknown URL scheme {0:?}: write unix:///path/to/socket or http://host:port")]
    UnknownScheme(String),
    /// It asks for TLS.
    #[error(
        "{0:?} asks for TLS, which this build does not support: use a unix socket, \
         or http:// to a loopback address, for example through an SSH tunnel"
    )]
    Tls(String),
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
    #[error("{0:?} is no endpoint: write unix:///path/to/socket or http://host:port")]
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

    /// Connects.
    pub(super) async fn connect(&self) -> std::io::Result<crate::duplex::BoxedDuplex> {
        match &self.0 {
            Kind::Unix(path) => crate::duplex::unix(path).await,
            Kind::Tcp { host, port, .. } => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                crate::duplex::tcp((host, *port)).await
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
            "http" | "tcp" => tcp(text, rest),
            "https" => Err(EndpointError::Tls(text.to_owned())),
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

fn tcp(text: &str, rest: &str) -> Result<Endpoint, EndpointError> {
    const HTTP_PORT: u16 = 80;
    let malformed = || EndpointError::Malformed(text.to_owned());
    let uri: Uri = format!("http://{rest}").parse().map_err(|_| malformed())?;
    let authority = uri.authority().ok_or_else(malformed)?;
    // A port that is no number would otherwise be read as none.
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => HTTP_PORT,
        _ => authority.port_u16().ok_or_else(malformed)?,
    };
    if authority.host().is_empty() || uri.query().is_some() {
        return Err(malformed());
    }
    let base = uri.path().trim_end_matches('/').to_owned();
    Ok(Endpoint(Kind::Tcp { host: authority.host().to_owned(), port, base }))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Unix(path) => write!(f, "unix://{}", path.display()),
            Kind::Tcp { host, port, base } => write!(f, "http://{host}:{port}{base}"),
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
            ("HTTP://localhost:1/behind/proxy/", "http://localhost:1/behind/proxy"),
        ];
        for (text, expected) in cases {
            let endpoint: Endpoint = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(endpoint.to_string(), expected);
        }
    }

    #[test]
    fn what_leads_nowhere_is_refused_with_a_remedy() {
        let cases = [
            ("127.0.0.1:4285", "URL scheme undefined"),
            ("", "URL scheme undefined"),
            ("://x", "URL scheme undefined"),
            ("ftp://x", "unknown URL scheme \"ftp\""),
            ("https://x", "\"https://x\" asks for TLS"),
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
