//! Bytes that go both ways, over whichever kind of socket.

use std::io;
use std::path::Path;

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

/// Connects to a TCP port.
pub(crate) async fn tcp(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
