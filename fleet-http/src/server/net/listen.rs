//! Addresses to listen on.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on.
///
/// ```
/// use fleet_http::ListenAddress;
///
/// let listen: ListenAddress = "unix:///run/fleet.sock".parse()?;
/// assert_eq!(listen, ListenAddress::Unix("/run/fleet.sock".into()));
/// let listen: ListenAddress = "tcp://localhost:4285".parse()?;
/// assert_eq!(listen.to_string(), "tcp://127.0.0.1:4285");
/// # Ok::<(), fleet_http::ListenParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// A unix socket: `unix:///path`.
    Unix(PathBuf),
    /// A TCP port: `tcp://address:port` or `http://address:port`. Port 0 selects a free port.
    Tcp(SocketAddr),
    /// A TCP port with TLS: `https://address:port`.
    Tls(SocketAddr),
}

/// Error of a text that is not a valid listen address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot listen on {0:?}: write unix:///path/to/socket, tcp://address:port or \
     https://address:port, as in unix:///run/fleet.sock or tcp://127.0.0.1:4285"
)]
pub struct ListenParseError(String);

impl FromStr for ListenAddress {
    type Err = ListenParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ListenParseError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix://") {
            let named = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
            return named.then(|| Self::Unix(path.into())).ok_or_else(refused);
        }
        let (scheme, address) = text.split_once("://").ok_or_else(refused)?;
        let by = match scheme {
            "http" | "tcp" => Self::Tcp,
            "https" => Self::Tls,
            _ => return Err(refused()),
        };
        let address = address.trim_end_matches('/');
        let address = match address.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => address.to_owned(),
        };
        address.parse().map(by).map_err(|_| refused())
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
            Self::Tls(address) => write!(f, "https://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        let cases = [
            ("unix:///run/fleet.sock", Some("unix:///run/fleet.sock")),
            ("tcp://127.0.0.1:4285", Some("tcp://127.0.0.1:4285")),
            ("http://127.0.0.1:4285/", Some("tcp://127.0.0.1:4285")),
            ("tcp://[::1]:0", Some("tcp://[::1]:0")),
            ("tcp://localhost:80", Some("tcp://127.0.0.1:80")),
            ("unix://run/fleet.sock", None),
            ("unix:///", None),
            ("/run/fleet.sock", None),
            ("tcp://127.0.0.1", None),
            ("tcp://example.com:80", None),
            ("https://[::]:4285", Some("https://[::]:4285")),
            ("ftp://127.0.0.1:80", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let listen = text.parse::<ListenAddress>().ok().map(|listen| listen.to_string());
            assert_eq!(listen.as_deref(), expected, "{text}");
        }
    }
}
