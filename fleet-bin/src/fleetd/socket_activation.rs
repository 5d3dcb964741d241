//! Sockets passed by systemd.

use std::os::fd::AsFd;

use fleet_http::{AuthPolicy, Listener};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use super::error::{Context as _, StartError};
use super::run::cannot_serve;

/// Number of the first passed file descriptor.
const FIRST: usize = 3;

/// Adopts all sockets that systemd passed to the daemon. The list is empty if there are none.
///
/// # Errors
///
/// Some socket is not a listening stream socket, or other hosts could reach it without protection.
pub(super) fn adopt_all(policy: &AuthPolicy) -> Result<Vec<Listener>, StartError> {
    let mut sockets = ListenFd::from_env();
    (0..sockets.len()).map(|index| adopt(&mut sockets, index, policy)).collect()
}

fn adopt(
    sockets: &mut ListenFd,
    index: usize,
    policy: &AuthPolicy,
) -> Result<Listener, StartError> {
    let what = || "cannot adopt the sockets passed by systemd".to_owned();
    // Taking a socket as the wrong kind leaves it in place.
    if let Ok(Some(unix)) = sockets.take_unix_listener(index) {
        check_listens(&unix, index)?;
        return Listener::from_std_unix(unix).context(what);
    }
    match sockets.take_tcp_listener(index) {
        Ok(Some(tcp)) => {
            check_listens(&tcp, index)?;
            Listener::from_std_tcp(tcp, policy).map_err(cannot_serve)
        }
        _ => Err(unsuitable(index, "is not a stream socket")),
    }
}

/// Refuses connected or merely bound sockets, on which accepting would wait forever.
fn check_listens(socket: impl AsFd, index: usize) -> Result<(), StartError> {
    match socket_acceptconn(socket) {
        Ok(true) => Ok(()),
        _ => Err(unsuitable(index, "is not listening")),
    }
}

fn unsuitable(index: usize, why: &str) -> StartError {
    let number = index + FIRST;
    StartError::usage(format!(
        "cannot adopt the sockets passed by systemd: file descriptor {number} {why}: write \
         ListenStream= in its .socket unit, without Accept=yes"
    ))
}
