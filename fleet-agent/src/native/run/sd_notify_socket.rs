//! The socket for `sd_notify` messages of a run.
//!
//! The socket is a file, if the daemon has a runtime directory and the path fits. Otherwise its
//! address is abstract, which neither long paths nor the permissions of directories affect. But an
//! abstract address exists in one network namespace only, so a unit in another one cannot reach it.
//!
//! Any process of the machine may send to the socket. Therefore the kernel attaches the sender's
//! credentials to each message.
//!
//! After a restart of the daemon, the next daemon listens at the same address. Messages that are
//! sent while no daemon listens are lost.

use std::ffi::OsStr;
use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::task::{Context, Poll, ready};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, recvmsg, socket_with, sockopt,
};
use tokio::io::unix::AsyncFd;

use super::machine::process_events::NotifyMessage;
use crate::async_fd::{poll_next, register_readable};

/// Maximum message length, as in systemd. Longer messages are ignored.
const MAX_MESSAGE: usize = 4096;

/// Environment variable with the address of the socket.
pub(crate) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Maximum length of a socket path. Its terminating zero byte takes the last of 108 bytes.
const MAX_PATH: usize = 107;

/// Mode of a socket file: processes of any user may send to it.
const SOCKET_MODE: u32 = 0o777;

/// Socket of one run. Its file, if it has one, is removed on drop.
#[derive(Debug)]
pub(crate) struct NotifySocket {
    descriptor: AsyncFd<OwnedFd>,
}

/// A message with its sender.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    pub(crate) sender: u32,
    pub(crate) notice: NotifyMessage,
    /// Descriptors that the sender passed. They stay open until the message is handled: a sender
    /// may wait for that, to know that all earlier messages were received.
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Returns the value of [`NOTIFY_SOCKET`] for a run: a path in `directory` if it fits, and an
/// abstract address otherwise.
pub(crate) fn address(directory: Option<&Path>, invocation: &str) -> String {
    let path = directory.map(|directory| directory.join(invocation));
    let path = path.as_ref().and_then(|path| path.to_str()).filter(|path| path.len() <= MAX_PATH);
    path.map_or_else(|| format!("@fleet/notify/{invocation}"), ToOwned::to_owned)
}

impl NotifySocket {
    /// Opens a socket at an address that [`address`] has returned. Replaces a file there, which an
    /// earlier daemon has left.
    pub(crate) fn open(address: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let descriptor = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        sockopt::set_socket_passcred(&descriptor, true)?;
        if let Some(name) = address.strip_prefix('@') {
            bind(&descriptor, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        } else {
            match std::fs::remove_file(address) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => bind(&descriptor, &SocketAddrUnix::new(address)?)?,
            }
            // The umask may have removed the access of other users.
            std::fs::set_permissions(address, std::fs::Permissions::from_mode(SOCKET_MODE))?;
        }
        Ok(Self { descriptor: register_readable(descriptor)? })
    }

    /// Polls for the next message.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReceivedMessage>> {
        loop {
            if let Some(message) = ready!(poll_next(&self.descriptor, receive, cx))? {
                return Poll::Ready(Ok(message));
            }
        }
    }

    /// Receives a pending message without waiting. Returns `Ok(None)` for a message that is to be
    /// ignored, and [`io::ErrorKind::WouldBlock`] if no message is pending.
    pub(crate) fn try_receive(&self) -> io::Result<Option<ReceivedMessage>> {
        receive(self.descriptor.get_ref())
    }
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        let address = getsockname(self.descriptor.get_ref()).map(SocketAddrUnix::try_from);
        if let Ok(Ok(address)) = address
            && let Some(path) = address.path_bytes()
        {
            // The next daemon replaces a file that stays.
            drop(std::fs::remove_file(OsStr::from_bytes(path)));
        }
    }
}

/// Receives one message. Returns `None` if the message is too long or has no known sender.
fn receive(descriptor: &OwnedFd) -> io::Result<Option<ReceivedMessage>> {
    let mut text = [0; MAX_MESSAGE];
    // As much space as systemd allows a message. Descriptors that do not fit would stay open.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(253))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(descriptor, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    let (mut sender, mut descriptors) = (None, Vec::new());
    for part in control.drain() {
        match part {
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                sender = u32::try_from(credentials.pid.as_raw_nonzero().get()).ok();
            }
            RecvAncillaryMessage::ScmRights(passed) => descriptors.extend(passed),
            _ => {}
        }
    }
    let is_cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let notice = NotifyMessage::parse(&text[..message.bytes]);
    let message = |sender| ReceivedMessage { sender, notice, descriptors };
    Ok(sender.filter(|_| !is_cut).map(message))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::ErrorKind;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::path::PathBuf;

    use super::*;

    fn send(address: &str, message: &[u8]) {
        let address = match address.strip_prefix('@') {
            Some(name) => SocketAddr::from_abstract_name(name),
            None => SocketAddr::from_pathname(address),
        };
        let address = address.expect("the name is short");
        let socket = UnixDatagram::unbound().expect("a socket can be made");
        socket.send_to_addr(message, &address).expect("the socket is bound");
    }

    #[tokio::test]
    async fn message_has_its_sender_and_long_ones_are_ignored() {
        let invocation = address(None, &format!("test-{}", std::process::id()));
        let socket = NotifySocket::open(&invocation).expect("it can be opened");
        let is_silent =
            || socket.try_receive().is_err_and(|why| why.kind() == ErrorKind::WouldBlock);
        assert!(is_silent());
        let mut long = b"READY=1\nSTATUS=".to_vec();
        long.resize(MAX_MESSAGE + 1, b'x');
        send(&invocation, &long);
        send(&invocation, b"STOPPING=1");
        let message = poll_fn(|cx| socket.poll_next(cx)).await.expect("something was said");
        let notice = NotifyMessage { is_stopping: true, ..NotifyMessage::default() };
        assert_eq!((message.sender, message.notice), (std::process::id(), notice));
        assert!(is_silent());
        send(&invocation, b"READY=1");
        assert!(
            socket
                .try_receive()
                .expect("it can be asked")
                .expect("a message was sent")
                .notice
                .is_ready
        );
    }

    /// Each call receives one message, even an ignored one. So the limit on messages per pass also
    /// holds for ignored messages, which any process may send.
    #[tokio::test]
    async fn ignored_messages_are_received_one_by_one() {
        let invocation = address(None, &format!("long-{}", std::process::id()));
        let socket = NotifySocket::open(&invocation).expect("it can be opened");
        (0..3).for_each(|_| send(&invocation, &[b'x'; MAX_MESSAGE + 1]));
        send(&invocation, b"READY=1");
        for _ in 0..3 {
            assert!(socket.try_receive().expect("a message was sent").is_none());
        }
        assert!(socket.try_receive().expect("a message was sent").is_some());
    }

    #[tokio::test]
    async fn abstract_address_has_one_socket() {
        let address = address(None, &format!("twice-{}", std::process::id()));
        let first = NotifySocket::open(&address).expect("it can be opened");
        assert!(NotifySocket::open(&address).is_err());
        drop(first);
        NotifySocket::open(&address).expect("it is free again");
    }

    #[tokio::test]
    async fn socket_file_replaces_a_stale_one_and_is_removed() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let address = address(Some(directory.path()), "a");
        assert_eq!(Path::new(&address), directory.path().join("a"));
        let stale = UnixDatagram::bind(&address).expect("it can be bound");
        drop(stale);
        let socket = NotifySocket::open(&address).expect("it can be opened");
        let mode = std::fs::metadata(&address).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, SOCKET_MODE, "other users may send");
        send(&address, b"READY=1");
        assert!(socket.try_receive().expect("a message was sent").is_some());
        drop(socket);
        assert!(!Path::new(&address).exists(), "the file was not removed");
    }

    #[test]
    fn socket_with_a_long_path_is_abstract() {
        let directory = |length| PathBuf::from("/".to_owned() + &"d".repeat(length - 1));
        let of = |length| address(Some(&directory(length)), "ab");
        assert_eq!(of(MAX_PATH - 3).len(), MAX_PATH);
        assert_eq!(of(MAX_PATH - 2), "@fleet/notify/ab");
    }
}
