//! The socket to which the processes of one run say how they are, as `sd_notify` does.
//!
//! Its address is in no directory, so that neither the length of a path nor the rights of a
//! directory keep a unit of another user from it. Everybody on the machine may send to it, which
//! is why the kernel tells who did. The next daemon listens at the same address; what is sent
//! while there is none is lost.

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

/// The longest message that is read, as with systemd. A longer one does not count.
const MAX_MESSAGE: usize = 4096;

/// The variable by which a process knows where to send what it has to say.
pub(crate) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// The socket of one run.
#[derive(Debug)]
pub(crate) struct NotifySocket {
    descriptor: AsyncFd<OwnedFd>,
}

/// Something that was said, and by whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReceivedMessage {
    pub(crate) sender: u32,
    pub(crate) notice: NotifyMessage,
}

/// What its processes find in [`NOTIFY_SOCKET`].
pub(crate) fn address(invocation: &str) -> String {
    format!("@fleet/notify/{invocation}")
}

impl NotifySocket {
    /// Listens for the processes of that run.
    pub(crate) fn open(invocation: &str) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let descriptor = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        sockopt::set_socket_passcred(&descriptor, true)?;
        let name = address(invocation);
        bind(&descriptor, &SocketAddrUnix::new_abstract_name(&name.as_bytes()[1..])?)?;
        Ok(Self { descriptor: register_readable(descriptor)? })
    }

    /// The next message, once there is one.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<io::Result<ReceivedMessage>> {
        loop {
            if let Some(message) = ready!(poll_next(&self.descriptor, receive, cx))? {
                return Poll::Ready(Ok(message));
            }
        }
    }

    /// A message that is there already; `None` for one that does not count. What tells that there
    /// is no other is [`io::ErrorKind::WouldBlock`].
    pub(crate) fn try_receive(&self) -> io::Result<Option<ReceivedMessage>> {
        receive(self.descriptor.get_ref())
    }
}

/// Takes one message; `None` for one that does not count: it is too long, or nobody knows whose.
fn receive(descriptor: &OwnedFd) -> io::Result<Option<ReceivedMessage>> {
    let mut text = [0; MAX_MESSAGE];
    // Room for what systemd lets a message carry, too: descriptors that are cut off would be lost
    // open.
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
            // Closed at once. That is what the sender of a barrier waits for: all that it said
            // before was received. No descriptor is kept for anybody.
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
        socket.send_to_addr(message, &address).expect("somebody listens");
    }

    #[tokio::test]
    async fn the_kernel_tells_who_says_it_and_what_is_too_long_does_not_count() {
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
            socket.try_receive().expect("it can be asked").expect("it was said").notice.is_ready
        );
    }

    /// Whoever takes what is there takes so many at a time, and anybody may send these.
    #[tokio::test]
    async fn what_does_not_count_is_taken_one_by_one() {
        let invocation = format!("long-{}", std::process::id());
        let socket = NotifySocket::open(&invocation).expect("it can be opened");
        (0..3).for_each(|_| send(&invocation, &[b'x'; MAX_MESSAGE + 1]));
        send(&invocation, b"READY=1");
        for _ in 0..3 {
            assert_eq!(socket.try_receive().expect("it was said"), None);
        }
        assert!(socket.try_receive().expect("it was said").is_some());
    }

    #[tokio::test]
    async fn an_address_has_one_listener() {
        let invocation = format!("twice-{}", std::process::id());
        let first = NotifySocket::open(&invocation).expect("it can be opened");
        assert!(NotifySocket::open(&invocation).is_err());
        drop(first);
        NotifySocket::open(&invocation).expect("it is free again");
    }
}
