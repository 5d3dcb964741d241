//! Addresses to listen on, and unix sockets with their files.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs, io};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use super::listener::{ListenError, io_error};

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
