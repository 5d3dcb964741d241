//! Waits for traffic on the sockets of all activators.
//!
//! One epoll instance polls all of them. So a wait costs the same for one socket as for all, and no
//! duplicate of a socket exists that would keep its address in use.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use fleet_unitfile::UnitName;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use tokio::io::unix::AsyncFd;

use crate::async_fd::{read_next, register_readable};

/// Maximum number of ready sockets that one wait returns.
const MAX_EVENTS: usize = 64;

/// Identifies the sockets of a unit that were added together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Token(u64);

/// All polled sockets.
#[derive(Debug, Default)]
pub(super) struct SocketPoller {
    /// Created for the first socket.
    epoll: Option<AsyncFd<OwnedFd>>,
    sockets: BTreeMap<Token, UnitName>,
    last: u64,
}

impl SocketPoller {
    /// Begins to poll the sockets of a unit.
    pub(super) fn add<'a>(
        &mut self,
        unit: &UnitName,
        sockets: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Token> {
        let epoll = match &self.epoll {
            Some(epoll) => epoll,
            None => self.epoll.insert(register_readable(epoll::create(CreateFlags::CLOEXEC)?)?),
        };
        self.last += 1;
        let token = Token(self.last);
        self.sockets.insert(token, unit.clone());
        for socket in sockets {
            epoll::add(epoll.get_ref(), socket, EventData::new_u64(token.0), EventFlags::IN)?;
        }
        Ok(token)
    }

    /// Stops polling these sockets.
    pub(super) fn remove<'a>(
        &mut self,
        token: Token,
        sockets: impl Iterator<Item = BorrowedFd<'a>>,
    ) {
        self.sockets.remove(&token);
        if let Some(epoll) = &self.epoll {
            // A socket that could not be added is not there.
            for socket in sockets {
                let _ = epoll::delete(epoll.get_ref(), socket);
            }
        }
    }

    /// Returns the unit whose sockets were added with this token, if they are still polled.
    pub(super) fn socket(&self, token: Token) -> Option<&UnitName> {
        self.sockets.get(&token)
    }

    /// Stops polling all sockets.
    pub(super) fn give_up(&mut self) {
        self.epoll = None;
        self.sockets.clear();
    }

    /// Waits for traffic. Cancel-safe.
    pub(super) async fn next(&self) -> io::Result<Vec<Token>> {
        match &self.epoll {
            Some(epoll) => read_next(epoll, ready).await,
            None => std::future::pending().await,
        }
    }
}

/// Returns the tokens of the sockets with traffic.
fn ready(epoll: &OwnedFd) -> io::Result<Vec<Token>> {
    let mut space = [MaybeUninit::<Event>::uninit(); MAX_EVENTS];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let (events, _) = epoll::wait(epoll, &mut space, Some(&at_once))?;
    let mut tokens: Vec<Token> = events.iter().map(|event| Token(event.data.u64())).collect();
    tokens.sort();
    tokens.dedup();
    if tokens.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(tokens) }
}
