//! Sockets that a server accepts connections on.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener};

use super::guard::Guard;
use super::handshake::Arrival;
use super::limits::{Door, Limits};
use super::listen::Listen;
use super::unix::{SocketFile, listen_unix};

/// A socket that listens. Dropping it closes it, and removes the file of a unix socket that
/// [`bind`](Self::bind) made.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    at: Listen,
    guard: Guard,
    /// Removes the file in the end, by being dropped.
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Somebody else listens there.
    #[error("{0} is in use: end the process that listens there, or choose another address")]
    InUse(Listen),
    /// The file of the unix socket is there, and is no socket.
    #[error("{} is there and is no socket: remove it, or choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The path of the unix socket is longer than the system allows.
    #[error("the path of {0} is too long: a socket's path has at most 107 bytes, choose another")]
    PathTooLong(Listen),
    /// Other hosts could reach it, and read all that is said.
    #[error(
        "{0} can be reached from other hosts, and is without TLS: write https:// and name a \
         certificate and its key, or use a loopback address such as tcp://127.0.0.1:4285 or a unix \
         socket"
    )]
    NotLoopback(Listen),
    /// It is for TLS, and there is no certificate.
    #[error("{0} is for TLS, which takes a certificate and its key: name both")]
    NoCertificate(Listen),
    /// Other hosts could reach it, and everybody on them would be let in.
    #[error(
        "{0} can be reached from other hosts, and anybody would be let in: name the authority of \
         the clients' certificates, or a file of tokens"
    )]
    OpenToAll(Listen),
    /// The system refuses.
    #[error("cannot listen on {at}")]
    Io {
        /// Where.
        at: Listen,
        /// What the system says.
        #[source]
        cause: io::Error,
    },
}

/// Owner and group may use a unix socket, others may not.
const MODE: u32 = 0o660;

impl Listener {
    /// Starts to listen. It has to be called inside a tokio runtime, as the others.
    ///
    /// The file of a unix socket that nobody listens on any more is removed. The new one is for its
    /// owner and group only (mode 0660).
    ///
    /// # Errors
    ///
    /// [`ListenError`] says what is in the way. A TCP address other than a loopback one is refused.
    pub async fn bind(listen: &Listen) -> Result<Self, ListenError> {
        Self::bind_guarded(listen, &Guard::default()).await
    }

    /// The same where a guard says who is let in at ports.
    ///
    /// # Errors
    ///
    /// [`ListenError`] says what is in the way. A TCP address other than a loopback one takes TLS,
    /// and a guard that knows tokens or certificates.
    pub async fn bind_guarded(listen: &Listen, guard: &Guard) -> Result<Self, ListenError> {
        check(listen, guard)?;
        match listen {
            Listen::Unix(path) => bind_unix(path).await,
            Listen::Tcp(address) => bind_tcp(*address, Listen::Tcp, guard).await,
            Listen::Tls(address) => bind_tcp(*address, Listen::Tls, guard).await,
        }
    }

    /// Listens on a unix socket that somebody else opened, for example systemd.
    ///
    /// # Errors
    ///
    /// [`ListenError::Io`] when the system refuses.
    pub fn from_std_unix(socket: std::os::unix::net::UnixListener) -> Result<Self, ListenError> {
        let path =
            socket.local_addr().ok().and_then(|address| address.as_pathname().map(Into::into));
        let at = Listen::Unix(path.unwrap_or_else(|| "(unnamed)".into()));
        let adopted = socket.set_nonblocking(true).and_then(|()| UnixListener::from_std(socket));
        let socket = adopted.map(Socket::Unix).map_err(|cause| io_error(&at, cause))?;
        Ok(Self { socket, at, guard: Guard::default(), _file: None })
    }

    /// Listens on a TCP socket that somebody else opened, for example systemd. One that other hosts
    /// can reach is spoken to by TLS.
    ///
    /// # Errors
    ///
    /// [`ListenError::NotLoopback`] or [`ListenError::OpenToAll`] when other hosts could reach it
    /// and the guard cannot keep them out, [`ListenError::Io`] when the system refuses.
    pub fn from_std_tcp(socket: std::net::TcpListener, guard: &Guard) -> Result<Self, ListenError> {
        let unspecified = Listen::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)));
        let address = socket.local_addr().map_err(|cause| io_error(&unspecified, cause))?;
        let has_tls = guard.orders().tls.is_some();
        let by_tls = has_tls && !is_loopback(address);
        let at = if by_tls { Listen::Tls(address) } else { Listen::Tcp(address) };
        check(&at, guard)?;
        let adopted = socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket));
        let socket = adopted.map(Socket::Tcp).map_err(|cause| io_error(&at, cause))?;
        Ok(Self { socket, at, guard: guard.clone(), _file: None })
    }

    /// Where it listens, with the port that the system chose.
    #[must_use]
    pub fn local_listen(&self) -> &Listen {
        &self.at
    }

    /// What is known of the way by which requests come here.
    pub(super) fn door(&self, limits: Limits) -> Door {
        Door {
            limits,
            guard: self.guard.clone(),
            is_port: matches!(self.socket, Socket::Tcp(_)),
            is_tls: matches!(self.at, Listen::Tls(_)),
            shown_to: None,
        }
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<Arrival> {
        let stream = match &self.socket {
            Socket::Unix(socket) => return Ok(Arrival::Plain(Box::new(socket.accept().await?.0))),
            Socket::Tcp(socket) => socket.accept().await?.0,
        };
        crate::duplex::prepare(&stream)?;
        let tls = self.guard.orders().tls.clone();
        match tls.filter(|_| matches!(self.at, Listen::Tls(_))) {
            Some(tls) => Ok(Arrival::Tls(stream, tls)),
            // A guard that has lost its certificate must not let anybody in without.
            None if matches!(self.at, Listen::Tls(_)) => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            None => Ok(Arrival::Plain(Box::new(stream))),
        }
    }
}

async fn bind_tcp(
    address: SocketAddr,
    by: impl Fn(SocketAddr) -> Listen,
    guard: &Guard,
) -> Result<Listener, ListenError> {
    let asked = by(address);
    let bound = TcpListener::bind(address).await.map_err(|cause| io_error(&asked, cause))?;
    let at = bound.local_addr().map(by).map_err(|cause| io_error(&asked, cause))?;
    Ok(Listener { socket: Socket::Tcp(bound), at, guard: guard.clone(), _file: None })
}

/// Whether others than those who are meant to could come in there, or listen.
fn check(listen: &Listen, guard: &Guard) -> Result<(), ListenError> {
    let orders = guard.orders();
    match listen {
        Listen::Tcp(address) if !is_loopback(*address) => {
            Err(ListenError::NotLoopback(listen.clone()))
        }
        Listen::Tls(_) if orders.tls.is_none() => Err(ListenError::NoCertificate(listen.clone())),
        Listen::Tls(address) if !is_loopback(*address) && !orders.knows_anybody() => {
            Err(ListenError::OpenToAll(listen.clone()))
        }
        _ => Ok(()),
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

async fn bind_unix(path: &Path) -> Result<Listener, ListenError> {
    let at = Listen::Unix(path.to_owned());
    let (socket, file) = listen_unix(path, MODE).await?;
    Ok(Listener { socket: Socket::Unix(socket), at, guard: Guard::default(), _file: Some(file) })
}

pub(super) fn io_error(at: &Listen, cause: io::Error) -> ListenError {
    if cause.kind() == io::ErrorKind::AddrInUse {
        return ListenError::InUse(at.clone());
    }
    ListenError::Io { at: at.clone(), cause }
}
