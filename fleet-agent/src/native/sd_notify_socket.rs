//! The socket for `sd_notify` messages of a run.
//!
//! The socket has an abstract address. So neither the length of a path nor the permissions of
//! directories matter, and units of other users can use the socket too.
//!
//! Any process of the machine may send to the socket. Therefore the kernel attaches the sender's
//! credentials to each message.
//!
//! After a restart of the daemon, the next daemon listens at the same address. Messages that are
//! sent while no daemon listens are lost.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, socket_with, sockopt,
};
use tokio::io::unix::AsyncFd;

use super::sd_notify_message::NotifyMessage;
use crate::async_fd::{poll_next, register_readable};

/// Maximum message length, as in systemd. Longer messages are ignored.
const MAX_MESSAGE: usize = 4096;

/// Environment variable with the address of the socket.
pub(crate) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Socket of one run.
#[derive(Debug)]
pub(crate) struct NotifySocket {
    descriptor: AsyncFd<OwnedFd>,
}

/// A message with its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedMessage {
    pub(crate) sender: u32,
    pub(crate) notice: NotifyMessage,
}

/// Returns the value of [`NOTIFY_SOCKET`] for a run.
pub(crate) fn address(invocation: &str) -> String {
    format!("@fleet/notify/{invocation}")
}

impl NotifySocket {
    /// Opens the socket of a run.
    pub(crate) fn open(invocation: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let descriptor = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        sockopt::set_socket_passcred(&descriptor, true)?;
        let name = address(invocation);
        bind(&descriptor, &SocketAddrUnix::new_abstract_name(&name.as_bytes()[1..])?)?;
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

/// Receives one message. Returns `None` if the message is too long or has no known sender.
fn receive(descriptor: &OwnedFd) -> io::Result<Option<ReceivedMessage>> {
    let mut text = [0; MAX_MESSAGE];
    // As much space as systemd allows a message. Descriptors that do not fit would stay open.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1), ScmRights(253))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(descriptor, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    let mut sender = None;
    for part in control.drain() {
        match part {
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                sender = u32::try_from(credentials.pid.as_raw_nonzero().get()).ok();
            }
            // Closed at once, as a barrier expects: its sender then knows that all earlier messages
            // were received. Descriptors are not stored.
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.for_each(drop),
            _ => {}
        }
    }
    let is_cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    let message =
        |sender| ReceivedMessage { sender, notice: NotifyMessage::parse(&text[..message.bytes]) };
    Ok(sender.filter(|_| !is_cut).map(message))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::ErrorKind;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    fn send(invocation: &str, message: &[u8]) {
        let name = address(invocation);
        let address = SocketAddr::from_abstract_name(&name[1..]).expect("the name is short");
        let socket = UnixDatagram::unbound().expect("a socket can be made");
        socket.send_to_addr(message, &address).expect("the socket is bound");
    }

    #[tokio::test]
    async fn message_has_its_sender_and_long_ones_are_ignored() {
        let invocation = format!("test-{}", std::process::id());
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
        assert_eq!(message, ReceivedMessage { sender: std::process::id(), notice });
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
        let invocation = format!("long-{}", std::process::id());
        let socket = NotifySocket::open(&invocation).expect("it can be opened");
        (0..3).for_each(|_| send(&invocation, &[b'x'; MAX_MESSAGE + 1]));
        send(&invocation, b"READY=1");
        for _ in 0..3 {
            assert_eq!(socket.try_receive().expect("a message was sent"), None);
        }
        assert!(socket.try_receive().expect("a message was sent").is_some());
    }

    #[tokio::test]
    async fn address_has_one_socket() {
        let invocation = format!("twice-{}", std::process::id());
        let first = NotifySocket::open(&invocation).expect("it can be opened");
        assert!(NotifySocket::open(&invocation).is_err());
        drop(first);
        NotifySocket::open(&invocation).expect("it is free again");
    }
}
