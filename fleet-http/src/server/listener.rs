//! Sockets that a server accepts connections on.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener, UnixSocket, UnixStream};

use super::listen::Listen;
use crate::duplex::BoxedDuplex;

/// A socket that listens. Dropping it closes it, and removes the file of a unix socket that
/// [`bind`](Self::bind) made.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    at: Listen,
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
    /// Other hosts could reach it.
    #[error(
        "{0} can be reached from other hosts, and there is no authentication and no TLS yet: \
         use a loopback address such as tcp://127.0.0.1:4285, or a unix socket"
    )]
    NotLoopback(Listen),
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

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// How many bytes of a path an address of Linux has room for, besides the zero at its end.
const LONGEST_PATH: usize = 107;

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
        match listen {
            Listen::Unix(path) => bind_unix(path).await,
            Listen::Tcp(address) => bind_tcp(*address).await,
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
        Ok(Self { socket, at, _file: None })
    }

    /// Listens on a TCP socket that somebody else opened, for example systemd.
    ///
    /// # Errors
    ///
    /// [`ListenError::NotLoopback`] when other hosts could reach it, [`ListenError::Io`] when the
    /// system refuses.
    pub fn from_std_tcp(socket: std::net::TcpListener) -> Result<Self, ListenError> {
        let unspecified = Listen::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)));
        let address = socket.local_addr().map_err(|cause| io_error(&unspecified, cause))?;
        let at = Listen::Tcp(address);
        check_loopback(address)?;
        let adopted = socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket));
        let socket = adopted.map(Socket::Tcp).map_err(|cause| io_error(&at, cause))?;
        Ok(Self { socket, at, _file: None })
    }

    /// Where it listens, with the port that the system chose.
    #[must_use]
    pub fn local_listen(&self) -> &Listen {
        &self.at
    }

    /// Whether it is a port, and not the file of a socket.
    pub(super) fn is_port(&self) -> bool {
        matches!(self.socket, Socket::Tcp(_))
    }

    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<BoxedDuplex> {
        match &self.socket {
            Socket::Unix(socket) => Ok(Box::new(socket.accept().await?.0)),
            Socket::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }
}

async fn bind_tcp(address: SocketAddr) -> Result<Listener, ListenError> {
    check_loopback(address)?;
    let asked = Listen::Tcp(address);
    let bound = TcpListener::bind(address).await.map_err(|cause| io_error(&asked, cause))?;
    let at = bound.local_addr().map(Listen::Tcp).map_err(|cause| io_error(&asked, cause))?;
    Ok(Listener { socket: Socket::Tcp(bound), at, _file: None })
}

fn check_loopback(address: SocketAddr) -> Result<(), ListenError> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(ListenError::NotLoopback(Listen::Tcp(address)))
}

async fn bind_unix(path: &Path) -> Result<Listener, ListenError> {
    let at = Listen::Unix(path.to_owned());
    if path.as_os_str().len() > LONGEST_PATH {
        return Err(ListenError::PathTooLong(at));
    }
    remove_stale(path, &at).await?;
    let socket = listen_unix(path).map_err(|cause| io_error(&at, cause))?;
    let file = SocketFile::of(path);
    Ok(Listener { socket: Socket::Unix(socket), at, _file: file })
}

/// Permissions are set before anyone can connect: a socket that does not listen refuses all.
fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)
}

/// Removes a socket file that its server left behind. Only a refused connection proves that.
async fn remove_stale(path: &Path, at: &Listen) -> Result<(), ListenError> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(ListenError::NotASocket(path.to_owned()));
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(ListenError::InUse(at.clone())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|cause| io_error(at, cause))
        }
        // Its server went away between hearing of us and answering: the next to look finds it gone.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            Err(ListenError::InUse(at.clone()))
        }
        Err(cause) => Err(io_error(at, cause)),
    }
}

fn io_error(at: &Listen, cause: io::Error) -> ListenError {
    if cause.kind() == io::ErrorKind::AddrInUse {
        return ListenError::InUse(at.clone());
    }
    ListenError::Io { at: at.clone(), cause }
}

/// A socket's file, known again by its inode, so that never another server's is removed.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> Option<Self> {
        let inode = inode(path)?;
        Some(Self { path: path.to_owned(), inode })
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path) == Some(self.inode) {
            // It may be gone already; then there is nothing to do.
            let _gone = fs::remove_file(&self.path);
        }
    }
}
