//! Bytes that go both ways, over whichever kind of socket.

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, ToSocketAddrs, UnixStream};

/// A connection, whatever it is made of.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, with its kind forgotten.
pub(crate) type BoxedDuplex = Box<dyn Duplex>;

/// Connects to a unix socket.
pub(crate) async fn unix(path: &Path) -> io::Result<BoxedDuplex> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

/// After how long of silence the other end is asked whether it is there, how long it has to answer,
/// and how often it is asked: one that has gone without a word is noticed within two minutes.
const QUIET: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(15);
const TRIES: u32 = 4;

/// Sends at once what is to be sent, and notices when the other end has gone without a word.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, QUIET)?;
    sockopt::set_tcp_keepintvl(stream, ANSWER)?;
    sockopt::set_tcp_keepcnt(stream, TRIES)?;
    Ok(())
}

/// Connects to a TCP port.
pub(crate) async fn tcp(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    prepare(&stream)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_has_gone_without_a_word_is_noticed() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = tcp(listener.local_addr().unwrap()).await.unwrap();
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), QUIET);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), ANSWER);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), TRIES);
        assert!(stream.nodelay().unwrap());
    }
}
