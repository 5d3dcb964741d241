//! Checks that the peer of a connection runs as root or as the user of this process. Root may
//! connect to a peer of any user.

use std::io;

use tokio::net::UnixStream;

/// Returns the reason why the peer is not trusted; `None` if it is trusted. The kernel reports the
/// user of the peer. With `any_user`, root trusts every peer. That is for connections that only
/// read, because the responses of another user cannot harm root.
pub(crate) fn untrusted_peer(stream: &UnixStream, any_user: bool) -> io::Result<Option<String>> {
    let own = rustix::process::geteuid().as_raw();
    let theirs = stream.peer_cred()?.uid();
    Ok((!is_trusted(own, theirs, any_user)).then(|| {
        format!("the peer runs as user {theirs}, but only root and user {own} are trusted")
    }))
}

fn is_trusted(own: u32, theirs: u32, any_user: bool) -> bool {
    theirs == 0 || theirs == own || (any_user && own == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_same_user_are_trusted() {
        let rows = [(0, 0, true), (1000, 0, true), (1000, 1000, true)];
        let others = [(0, 1000, false), (1000, 1001, false)];
        for (own, theirs, expected) in rows.into_iter().chain(others) {
            assert_eq!(is_trusted(own, theirs, false), expected, "{theirs} with {own}");
        }
        assert!(is_trusted(0, 1000, true), "root may read from any user");
        assert!(!is_trusted(1000, 1001, true));
    }

    #[tokio::test]
    async fn own_process_is_trusted() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(untrusted_peer(&one, false).unwrap(), None);
    }
}
