//! The loopback interface of a new network namespace.

use std::io;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// Message type, flags and interface flags of the kernel's `rtnetlink.h` and `if.h`.
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const IFF_UP: u32 = 1;

/// The loopback interface is the first one of every network namespace.
const LOOPBACK: i32 = 1;

/// Sizes of the header and of the whole request, and position of the error number in the answer.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 16;
const ERROR: std::ops::Range<usize> = HEADER..HEADER + 4;

/// Brings the loopback interface up.
pub(super) fn bring_loopback_up() -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // The protocol of routes is the default.
        None,
    )?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (received, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let error = answer[..received].get(ERROR).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns the request: a `struct nlmsghdr` and a `struct ifinfomsg`.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REQUEST);
    bytes.extend(u32::try_from(REQUEST).unwrap_or_default().to_ne_bytes());
    bytes.extend(RTM_NEWLINK.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Sequence number and port.
    bytes.extend([0; 8]);
    // Address family, padding and device type.
    bytes.extend([0; 4]);
    bytes.extend(LOOPBACK.to_ne_bytes());
    bytes.extend(IFF_UP.to_ne_bytes());
    // The flags to change.
    bytes.extend(IFF_UP.to_ne_bytes());
    bytes
}
