//! Addresses of sockets.

use std::fmt;
use std::net::SocketAddr;

use super::super::value::absolute;

/// One socket or FIFO of a `.socket` unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketListener {
    /// The kind.
    pub kind: ListenerKind,
    /// The address. A FIFO has a path.
    pub address: SocketAddress,
}

/// Kinds of listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenerKind {
    /// Connections of byte streams (`ListenStream=`).
    Stream,
    /// Datagrams (`ListenDatagram=`).
    Datagram,
    /// Connections of messages (`ListenSequentialPacket=`).
    SequentialPacket,
    /// A FIFO (`ListenFIFO=`).
    Fifo,
}

/// Address of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketAddress {
    /// A path in the file system.
    Path(String),
    /// An abstract name, without the `@`.
    Abstract(String),
    /// An IP address and a port.
    Ip(SocketAddr),
    /// A port on all addresses: of IPv6, or of IPv4 on a machine without IPv6.
    Port(u16),
}

/// Maximum length of the path of a socket. A zero byte follows in the 108 bytes of the address.
const MAX_PATH: usize = 107;

impl SocketListener {
    /// Reads the value of a `Listen…=` option.
    pub(super) fn parse(kind: ListenerKind, text: &str) -> Result<Self, String> {
        let address = match kind {
            ListenerKind::Fifo => SocketAddress::Path(absolute(text)?),
            _ => SocketAddress::parse(text)?,
        };
        let is_local = matches!(address, SocketAddress::Path(_) | SocketAddress::Abstract(_));
        if kind == ListenerKind::SequentialPacket && !is_local {
            return Err(format!(
                "is {text:?}, but IP has no such sockets: write a path or an abstract name such \
                 as @name"
            ));
        }
        Ok(Self { kind, address })
    }

    /// Returns the path in the file system, if the listener has one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match &self.address {
            SocketAddress::Path(path) => Some(path),
            _ => None,
        }
    }
}

impl SocketAddress {
    fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            let path = absolute(text)?;
            return match path.len() {
                0..=MAX_PATH => Ok(Self::Path(path)),
                long => Err(format!("has a path of {long} bytes: write at most {MAX_PATH}")),
            };
        }
        if let Some(name) = text.strip_prefix('@') {
            return match name.len() {
                1..=MAX_PATH if !name.contains('\0') => Ok(Self::Abstract(name.to_owned())),
                long => Err(format!("has a name of {long} bytes: write 1 to {MAX_PATH}")),
            };
        }
        if text.starts_with("vsock:") {
            let problem = "is a VSOCK address, which is not supported: write another address";
            return Err(problem.to_owned());
        }
        let port = |port: &u16| *port != 0;
        if let Some(port) = text.parse().ok().filter(port) {
            return Ok(Self::Port(port));
        }
        let address = text.parse::<SocketAddr>().ok().filter(|it| port(&it.port()));
        address.map(Self::Ip).ok_or_else(|| {
            format!(
                "is {text:?}: write a path, an abstract name such as @name, a port from 1 to \
                 65535, or an address such as 127.0.0.1:80 or [::1]:80"
            )
        })
    }
}

impl fmt::Display for SocketListener {
    /// Formats the listener as systemd does: `127.0.0.1:80 (Stream)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ListenerKind::Stream => "Stream",
            ListenerKind::Datagram => "Datagram",
            ListenerKind::SequentialPacket => "SequentialPacket",
            ListenerKind::Fifo => "FIFO",
        };
        write!(f, "{} ({kind})", self.address)
    }
}

impl fmt::Display for SocketAddress {
    /// Formats the address as an option has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Abstract(name) => write!(f, "@{name}"),
            Self::Ip(address) => address.fmt(f),
            Self::Port(port) => port.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_systemd_reads_them() {
        let rows = [
            ("/run/a.sock", Ok("Path(\"/run/a.sock\")")),
            ("@a", Ok("Abstract(\"a\")")),
            ("80", Ok("Port(80)")),
            ("127.0.0.1:80", Ok("Ip(127.0.0.1:80)")),
            ("[::1]:80", Ok("Ip([::1]:80)")),
            ("0", Err("is \"0\"")),
            ("65536", Err("is \"65536\"")),
            ("127.0.0.1:0", Err("is \"127.0.0.1:0\"")),
            ("::1:80", Err("is \"::1:80\"")),
            ("localhost:80", Err("is \"localhost:80\"")),
            ("", Err("is \"\"")),
            ("@", Err("has a name of 0 bytes")),
            ("/a/../b", Err("has a part")),
            ("vsock:2:80", Err("is a VSOCK address")),
        ];
        for (text, expected) in rows {
            match (SocketAddress::parse(text), expected) {
                (Ok(address), Ok(expected)) => assert_eq!(format!("{address:?}"), expected),
                (Err(problem), Err(start)) => assert!(problem.starts_with(start), "{problem}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
        let long = |length: usize| SocketAddress::parse(&format!("/{}", "a".repeat(length)));
        assert!(long(106).is_ok() && long(107).is_err());
    }

    #[test]
    fn sequential_packets_need_a_local_address() {
        let parse = |text| SocketListener::parse(ListenerKind::SequentialPacket, text);
        assert!(parse("@a").is_ok() && parse("/a").is_ok());
        assert!(parse("80").is_err() && parse("[::1]:80").is_err());
    }
}
