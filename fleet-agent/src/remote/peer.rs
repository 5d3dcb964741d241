//! Who may be at the other end of the socket: root, or the user that this process runs as. Root
//! may ask anybody.

use std::io;

use tokio::net::UnixStream;

/// What is wrong with the process at the other end, as the kernel knows it; nothing if all is well.
pub(super) fn stranger(stream: &UnixStream) -> io::Result<Option<String>> {
    let own = rustix::process::geteuid().as_raw();
    let theirs = stream.peer_cred()?.uid();
    Ok((!is_welcome(own, theirs)).then(|| {
        format!("user {theirs} is at the other end, and only root and user {own} may be there")
    }))
}

/// The same of one that is only asked. Root has nothing to fear of what another user's says.
pub(super) fn stranger_to_ask(stream: &UnixStream) -> io::Result<Option<String>> {
    if may_ask_anybody(rustix::process::geteuid().as_raw()) { Ok(None) } else { stranger(stream) }
}

fn may_ask_anybody(own: u32) -> bool {
    own == 0
}

fn is_welcome(own: u32, theirs: u32) -> bool {
    theirs == 0 || theirs == own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_same_user_are_welcome() {
        let rows = [(0, 0, true), (1000, 0, true), (1000, 1000, true)];
        let others = [(0, 1000, false), (1000, 1001, false)];
        for (own, theirs, expected) in rows.into_iter().chain(others) {
            assert_eq!(is_welcome(own, theirs), expected, "{theirs} with {own}");
        }
        assert_eq!([0, 1000].map(may_ask_anybody), [true, false]);
    }

    #[tokio::test]
    async fn this_process_is_no_stranger_to_itself() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(stranger(&one).unwrap(), None);
    }
}
