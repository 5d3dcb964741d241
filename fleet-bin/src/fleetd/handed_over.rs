//! Sockets that systemd opened and hands over.

use std::os::fd::AsFd;

use fleet_http::{Guard, Listener};
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;

use super::error::{Context as _, StartError};
use super::run::cannot_serve;

/// The number of the first one.
const FIRST: usize = 3;

/// Listens on all of them.
///
/// # Errors
///
/// That one is not of a kind on which an API can be served, or may not be served to everybody who
/// could reach it.
pub(super) fn adopted(guard: &Guard) -> Result<Vec<Listener>, StartError> {
    let mut handed_over = ListenFd::from_env();
    (0..handed_over.len()).map(|index| adopt(&mut handed_over, index, guard)).collect()
}

fn adopt(handed_over: &mut ListenFd, index: usize, guard: &Guard) -> Result<Listener, StartError> {
    let what = || "cannot adopt the sockets that were handed over".to_owned();
    // A socket is of one kind or the other; taking it as the wrong one leaves it in place.
    if let Ok(Some(unix)) = handed_over.take_unix_listener(index) {
        check_listens(&unix, index)?;
        return Listener::from_std_unix(unix).context(what);
    }
    match handed_over.take_tcp_listener(index) {
        Ok(Some(tcp)) => {
            check_listens(&tcp, index)?;
            Listener::from_std_tcp(tcp, guard).map_err(cannot_serve)
        }
        _ => Err(unfit(index, "is no stream socket")),
    }
}

/// A connection, or a socket that was only bound, would be waited on for ever.
fn check_listens(socket: impl AsFd, index: usize) -> Result<(), StartError> {
    match socket_acceptconn(socket) {
        Ok(true) => Ok(()),
        _ => Err(unfit(index, "does not listen")),
    }
}

fn unfit(index: usize, why: &str) -> StartError {
    let number = index + FIRST;
    StartError::usage(format!(
        "cannot adopt the sockets that were handed over: number {number} {why}: write \
         ListenStream= in its .socket unit, and not Accept=yes"
    ))
}
