//! A unix socket of one's own, and its file.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use super::listen::Listen;
use super::listener::{ListenError, io_error};

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// How many bytes of a path an address of Linux has room for, besides the zero at its end.
const LONGEST_PATH: usize = 107;

/// Listens on a unix socket, in the place of one that nobody listens on any more. Those may connect
/// who may write to its file, which gets that mode, and is removed when the [`SocketFile`] is
/// dropped. It has to be called inside a tokio runtime.
///
/// # Errors
///
/// [`ListenError`] says what is in the way. A file that is no socket is left as it is.
pub async fn listen_unix(
    path: &Path,
    mode: u32,
) -> Result<(UnixListener, SocketFile), ListenError> {
    let at = Listen::Unix(path.to_owned());
    if path.as_os_str().len() > LONGEST_PATH {
        return Err(ListenError::PathTooLong(at));
    }
    remove_stale(path, &at).await?;
    let (socket, file) = open(path, mode).map_err(|cause| io_error(&at, cause))?;
    // Before it listened, somebody else who starts now may have taken it for one that was left.
    if file.is_there() { Ok((socket, file)) } else { Err(ListenError::InUse(at)) }
}

/// Permissions are set before anyone can connect: a socket that does not listen refuses all.
fn open(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile { path: path.to_owned(), inode: inode(path) };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    Ok((socket.listen(BACKLOG)?, file))
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
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(|cause| io_error(at, cause))
            }
            // Whoever removed it meanwhile has made room.
            io::ErrorKind::NotFound => Ok(()),
            // Its server went away between hearing of us and answering: the next to look finds it
            // gone.
            io::ErrorKind::ConnectionReset => Err(ListenError::InUse(at.clone())),
            _ => Err(io_error(at, error)),
        },
    }
}

/// The file of a socket, which is removed when this is dropped. It is known again by its inode, so
/// that never another's is removed.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl SocketFile {
    /// Where it is.
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
            // It may be gone already; then there is nothing to do.
            let _gone = fs::remove_file(&self.path);
        }
    }
}
