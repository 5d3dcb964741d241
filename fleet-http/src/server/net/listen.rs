//! Addresses to listen on, listening sockets, and unix sockets with their files.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs, io};

use tokio::net::{TcpListener, UnixListener, UnixSocket, UnixStream};

use super::connection::AcceptedStream;
use super::limits::{ConnectionOrigin, ServerLimits};
use crate::server::auth::{AuthPolicy, ReadShare};

/// An address to listen on.
///
/// ```
/// use fleet_http::ListenAddress;
///
/// let listen: ListenAddress = "unix:///run/fleet.sock".parse()?;
/// assert_eq!(listen, ListenAddress::Unix("/run/fleet.sock".into()));
/// let listen: ListenAddress = "tcp://localhost:4285".parse()?;
/// assert_eq!(listen.to_string(), "tcp://127.0.0.1:4285");
/// # Ok::<(), fleet_http::server::ListenParseError>(())
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

/// Maximum number of pending connections.
const BACKLOG: u32 = 1024;

/// Maximum length of a socket path on Linux, in bytes, without the terminating zero.
const MAX_PATH_LEN: usize = 107;

/// Listens on a unix socket. First removes the socket file of a server that no longer runs. The new
/// file gets the given mode; clients need write permission for the file to connect. Dropping the
/// [`SocketFile`] removes the file.
///
/// Must be called within a tokio runtime.
///
/// # Errors
///
/// Returns [`ListenError`] if the path cannot be used. If the path is a file that is not a socket,
/// the file is left untouched.
pub async fn listen_unix(
    path: &Path,
    mode: u32,
) -> Result<(UnixListener, SocketFile), ListenError> {
    let at = ListenAddress::Unix(path.to_owned());
    if path.as_os_str().len() > MAX_PATH_LEN {
        return Err(ListenError::PathTooLong(at));
    }
    remove_stale(path, &at).await?;
    let (socket, file) = open(path, mode).map_err(|cause| io_error(&at, cause))?;
    // Before it listened, another starting process may have taken the socket for a stale one and
    // removed it.
    if file.is_there() { Ok((socket, file)) } else { Err(ListenError::InUse(at)) }
}

/// Binds the socket, sets the mode of its file, and then begins to listen. A socket refuses
/// connections until it listens, so no client can connect before the mode is set.
fn open(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile { path: path.to_owned(), inode: inode(path) };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok((socket.listen(BACKLOG)?, file))
}

/// Removes the socket file of a server that no longer runs. Only a refused connection proves this;
/// in any other case the file is kept.
async fn remove_stale(path: &Path, at: &ListenAddress) -> Result<(), ListenError> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(ListenError::InUse(at.clone())),
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(|cause| io_error(at, cause))
            }
            // Another process has removed it in the meantime.
            io::ErrorKind::NotFound => Ok(()),
            // Its server ended between accepting and responding; the next attempt finds the file
            // gone.
            io::ErrorKind::ConnectionReset => Err(ListenError::InUse(at.clone())),
            _ => Err(io_error(at, error)),
        },
    }
}

/// A socket file, removed on drop. The file is removed only if it still has the same inode, because
/// another socket may have replaced it at the same path.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl SocketFile {
    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn is_there(&self) -> bool {
        self.inode.is_some() && inode(&self.path) == self.inode
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_there() {
            // The file may already be gone.
            let _gone = fs::remove_file(&self.path);
        }
    }
}

/// A listening socket. Dropping it closes the socket. If [`bind`](Self::bind) created a unix
/// socket, dropping also removes the socket file.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    at: ListenAddress,
    auth: AuthPolicy,
    /// Removes the socket file when dropped.
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Error of listening on an address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address is in use.
    #[error("{0} is in use: stop the process that listens there, or choose another address")]
    InUse(ListenAddress),
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The path of the unix socket is longer than the system allows.
    #[error("the path of {0} is too long: choose one of at most 107 bytes")]
    PathTooLong(ListenAddress),
    /// Other hosts can reach the address, but it does not use TLS.
    #[error(
        "{0} can be reached from other hosts, but does not use TLS: use https:// with a \
         certificate and its key, a loopback address such as tcp://127.0.0.1:4285, or a unix socket"
    )]
    NotLoopback(ListenAddress),
    /// The address uses TLS, but no certificate is configured.
    #[error("{0} requires a TLS certificate and its key: configure both")]
    NoCertificate(ListenAddress),
    /// Other hosts can reach the address, but no client authentication is configured.
    #[error(
        "{0} can be reached from other hosts, but does not require authentication: configure the \
         CA of client certificates or a token file"
    )]
    OpenToAll(ListenAddress),
    /// A system call failed.
    #[error("cannot listen on {at}")]
    Io {
        /// The address.
        at: ListenAddress,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

/// Permissions of a unix socket: only owner and group may connect.
const MODE: u32 = 0o660;

impl Listener {
    /// Listens on an address. Must be called within a tokio runtime, like the other constructors.
    ///
    /// For a unix socket, first removes the socket file of a server that no longer runs. The new
    /// file has mode 0660, so only its owner and group can connect.
    ///
    /// # Errors
    ///
    /// Returns [`ListenError`] if the address cannot be used. A TCP address must be a loopback
    /// address, because this method configures no authentication.
    pub async fn bind(listen: &ListenAddress) -> Result<Self, ListenError> {
        Self::bind_with_auth(listen, &AuthPolicy::default()).await
    }

    /// Listens on an address, and requires authentication at TCP ports.
    ///
    /// # Errors
    ///
    /// Returns [`ListenError`] if the address cannot be used. A TCP address other than loopback
    /// requires TLS and a policy with tokens or client certificates.
    pub async fn bind_with_auth(
        listen: &ListenAddress,
        auth: &AuthPolicy,
    ) -> Result<Self, ListenError> {
        check(listen, auth)?;
        match listen {
            ListenAddress::Unix(path) => bind_unix(path).await,
            ListenAddress::Tcp(address) => bind_tcp(*address, ListenAddress::Tcp, auth).await,
            ListenAddress::Tls(address) => bind_tcp(*address, ListenAddress::Tls, auth).await,
        }
    }

    /// Takes over a listening unix socket, for example one that systemd has opened.
    ///
    /// # Errors
    ///
    /// Returns [`ListenError::Io`] if a system call fails.
    pub fn from_std_unix(socket: std::os::unix::net::UnixListener) -> Result<Self, ListenError> {
        let path =
            socket.local_addr().ok().and_then(|address| address.as_pathname().map(Into::into));
        let at = ListenAddress::Unix(path.unwrap_or_else(|| "(unnamed)".into()));
        let adopted = socket.set_nonblocking(true).and_then(|()| UnixListener::from_std(socket));
        let socket = adopted.map(Socket::Unix).map_err(|cause| io_error(&at, cause))?;
        Ok(Self { socket, at, auth: AuthPolicy::default(), _file: None })
    }

    /// Takes over a listening TCP socket, for example one that systemd has opened. The listener
    /// uses TLS if the policy has a certificate and other hosts can reach the socket.
    ///
    /// # Errors
    ///
    /// Returns [`ListenError::NotLoopback`] or [`ListenError::OpenToAll`] if other hosts can reach
    /// the socket and the policy does not protect it. Returns [`ListenError::Io`] if a system call
    /// fails.
    pub fn from_std_tcp(
        socket: std::net::TcpListener,
        auth: &AuthPolicy,
    ) -> Result<Self, ListenError> {
        let unspecified = ListenAddress::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)));
        let address = socket.local_addr().map_err(|cause| io_error(&unspecified, cause))?;
        let has_tls = auth.config().tls.is_some();
        let by_tls = has_tls && !is_loopback(address);
        let at = if by_tls { ListenAddress::Tls(address) } else { ListenAddress::Tcp(address) };
        check(&at, auth)?;
        let adopted = socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket));
        let socket = adopted.map(Socket::Tcp).map_err(|cause| io_error(&at, cause))?;
        Ok(Self { socket, at, auth: auth.clone(), _file: None })
    }

    /// Returns the address, with the port that the system selected.
    #[must_use]
    pub fn local_address(&self) -> &ListenAddress {
        &self.at
    }

    /// Returns the properties of connections to this listener.
    pub(crate) fn origin(&self, limits: ServerLimits) -> ConnectionOrigin {
        ConnectionOrigin {
            limits,
            auth: self.auth.clone(),
            is_port: matches!(self.socket, Socket::Tcp(_)),
            is_tls: matches!(self.at, ListenAddress::Tls(_)),
            verified_by: None,
            read_share: ReadShare::new(limits.connections),
        }
    }

    /// Accepts the next connection.
    pub(crate) async fn accept(&self) -> io::Result<AcceptedStream> {
        let stream = match &self.socket {
            Socket::Unix(socket) => {
                return Ok(AcceptedStream::Plain(Box::new(socket.accept().await?.0)));
            }
            Socket::Tcp(socket) => socket.accept().await?.0,
        };
        crate::duplex::prepare(&stream)?;
        let tls = self.auth.config().tls.clone();
        match tls.filter(|_| matches!(self.at, ListenAddress::Tls(_))) {
            Some(tls) => Ok(AcceptedStream::Tls(stream, tls)),
            // Without a certificate, a TLS port accepts no connections.
            None if matches!(self.at, ListenAddress::Tls(_)) => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            None => Ok(AcceptedStream::Plain(Box::new(stream))),
        }
    }
}

async fn bind_tcp(
    address: SocketAddr,
    by: impl Fn(SocketAddr) -> ListenAddress,
    auth: &AuthPolicy,
) -> Result<Listener, ListenError> {
    let requested = by(address);
    let bound = TcpListener::bind(address).await.map_err(|cause| io_error(&requested, cause))?;
    let at = bound.local_addr().map(by).map_err(|cause| io_error(&requested, cause))?;
    Ok(Listener { socket: Socket::Tcp(bound), at, auth: auth.clone(), _file: None })
}

/// Checks that other hosts cannot connect without TLS and authentication.
fn check(listen: &ListenAddress, auth: &AuthPolicy) -> Result<(), ListenError> {
    let config = auth.config();
    match listen {
        ListenAddress::Tcp(address) if !is_loopback(*address) => {
            Err(ListenError::NotLoopback(listen.clone()))
        }
        ListenAddress::Tls(_) if config.tls.is_none() => {
            Err(ListenError::NoCertificate(listen.clone()))
        }
        ListenAddress::Tls(address) if !is_loopback(*address) && !config.has_credentials() => {
            Err(ListenError::OpenToAll(listen.clone()))
        }
        _ => Ok(()),
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

async fn bind_unix(path: &Path) -> Result<Listener, ListenError> {
    let at = ListenAddress::Unix(path.to_owned());
    let (socket, file) = listen_unix(path, MODE).await?;
    Ok(Listener {
        socket: Socket::Unix(socket),
        at,
        auth: AuthPolicy::default(),
        _file: Some(file),
    })
}

pub(crate) fn io_error(at: &ListenAddress, cause: io::Error) -> ListenError {
    if cause.kind() == io::ErrorKind::AddrInUse {
        return ListenError::InUse(at.clone());
    }
    ListenError::Io { at: at.clone(), cause }
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
