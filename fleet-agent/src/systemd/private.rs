//! systemd's private socket, adapted to the requirements of the D-Bus library.
//!
//! On its private socket, systemd names `org.freedesktop.systemd1` as the sender of its messages.
//! The D-Bus specification requires a *unique* name instead (such as `:1.7`), so the library, zbus,
//! refuses such messages.
//!
//! Therefore each message is read completely, and its sender is replaced by a unique name of the
//! same length. The lines before the first message are passed on unchanged.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use async_trait::async_trait;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use zbus::connection::socket::{ReadHalf, Socket, Split, WriteHalf};

/// Length of the fixed part of a message, which contains the lengths of the body and of the header
/// fields.
const FIXED: usize = 16;
/// Limit of D-Bus on the size of a message.
const LONGEST_MESSAGE: usize = 128 * 1024 * 1024;
const SENDER: u8 = 7;

/// A connection to the private socket.
#[derive(Debug)]
pub(crate) struct PrivateSocket(pub(crate) UnixStream);

impl Socket for PrivateSocket {
    type ReadHalf = Reader;
    type WriteHalf = Writer;

    fn split(self) -> Split<Reader, Writer> {
        let (read, write) = self.0.into_split();
        Split::new(Reader { read, data: Vec::new(), returned: 0 }, Writer(write))
    }
}

/// Returns the data from systemd, one message at a time.
#[derive(Debug)]
pub(crate) struct Reader {
    read: OwnedReadHalf,
    /// A complete line or message, and how much of it was returned.
    data: Vec<u8>,
    returned: usize,
}

#[async_trait]
impl ReadHalf for Reader {
    async fn recvmsg(&mut self, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        if self.returned == self.data.len() {
            (self.data, self.returned) = (Vec::new(), 0);
            self.read_next().await?;
        }
        let rest = &self.data[self.returned..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.returned += length;
        Ok((length, Vec::new()))
    }
}

impl Reader {
    /// Reads the next line or message; leaves the buffer empty at the end.
    async fn read_next(&mut self) -> io::Result<()> {
        self.data.resize(1, 0);
        if self.read.read(&mut self.data).await? == 0 {
            self.data.clear();
            return Ok(());
        }
        // Each message begins with one of these bytes, and no line of the peer does.
        match self.data[0] {
            b'l' | b'B' => self.read_message().await,
            _ => self.read_line().await,
        }
    }

    async fn read_line(&mut self) -> io::Result<()> {
        while self.data.last() != Some(&b'\n') && self.data.len() < FIXED * 1024 {
            self.data.push(self.read.read_u8().await?);
        }
        Ok(())
    }

    async fn read_message(&mut self) -> io::Result<()> {
        self.data.resize(FIXED, 0);
        self.read.read_exact(&mut self.data[1..]).await?;
        let length = length_of(&self.data).filter(|length| *length <= LONGEST_MESSAGE);
        let length = length.ok_or_else(|| io::Error::other("a message of systemd is too long"))?;
        self.data.resize(length, 0);
        self.read.read_exact(&mut self.data[FIXED..]).await?;
        replace_sender(&mut self.data);
        Ok(())
    }
}

/// Writes to systemd.
#[derive(Debug)]
pub(crate) struct Writer(OwnedWriteHalf);

#[async_trait]
impl WriteHalf for Writer {
    async fn sendmsg(&mut self, buffer: &[u8], _: &[BorrowedFd<'_>]) -> io::Result<usize> {
        self.0.write(buffer).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

fn number(message: &[u8], at: usize) -> Option<usize> {
    let bytes: [u8; 4] = message.get(at..at + 4)?.try_into().ok()?;
    let is_little = message.first() == Some(&b'l');
    let number = if is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) };
    usize::try_from(number).ok()
}

/// Returns the total length of a message, by its fixed part.
fn length_of(message: &[u8]) -> Option<usize> {
    let fields = number(message, 12)?.checked_next_multiple_of(8)?;
    fields.checked_add(number(message, 4)?)?.checked_add(FIXED)
}

/// Replaces the sender by a unique name. A message that cannot be parsed stays unchanged, and the
/// library refuses it.
fn replace_sender(message: &mut [u8]) {
    if let Some((at, length)) = find_sender(message)
        && let Some(name) = message.get_mut(at..at + length)
        && name.first() != Some(&b':')
        && name.len() > 3
    {
        name.fill(b'0');
        name[..3].copy_from_slice(b":1.");
    }
}

/// Returns position and length of the sender's name in the header fields.
fn find_sender(message: &[u8]) -> Option<(usize, usize)> {
    let end = FIXED + number(message, 12)?;
    let mut at = FIXED;
    while at < end {
        at = at.next_multiple_of(8);
        let (code, kind) = (*message.get(at)?, *message.get(at + 2)?);
        // The code, then the signature: its length, one letter and its end.
        let value = at + 4;
        at = match kind {
            b's' | b'o' if code == SENDER => return Some((value + 4, number(message, value)?)),
            b's' | b'o' => value + 4 + number(message, value)? + 1,
            b'g' => value + 1 + usize::from(*message.get(value)?) + 1,
            b'u' => value + 4,
            _ => return None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message without a body, with these fields.
    fn message(fields: &[(u8, u8, &str)]) -> Vec<u8> {
        let mut bytes = vec![b'l', 4, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        for &(code, kind, text) in fields {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes.extend([code, 1, kind, 0]);
            let length = u8::try_from(text.len()).expect("it is short");
            match kind {
                b'g' => bytes.push(length),
                _ => bytes.extend([length, 0, 0, 0]),
            }
            bytes.extend(text.bytes().chain([0]));
        }
        let length = u8::try_from(bytes.len() - FIXED).expect("it is short");
        bytes[12] = length;
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    const PATH: (u8, u8, &str) = (1, b'o', "/org/freedesktop/systemd1");
    const SIGNATURE: (u8, u8, &str) = (8, b'g', "sa{sv}as");

    #[test]
    fn sender_is_replaced_by_unique_name() {
        let sent = (SENDER, b's', "org.freedesktop.systemd1");
        let unique = (SENDER, b's', ":1.000000000000000000000");
        let rows = [
            (vec![PATH, sent, SIGNATURE], vec![PATH, unique, SIGNATURE]),
            (vec![SIGNATURE, sent], vec![SIGNATURE, unique]),
            (vec![PATH, (SENDER, b's', ":1.7")], vec![PATH, (SENDER, b's', ":1.7")]),
            (vec![PATH, SIGNATURE], vec![PATH, SIGNATURE]),
        ];
        for (before, after) in rows {
            let mut bytes = message(&before);
            assert_eq!(length_of(&bytes), Some(bytes.len()));
            replace_sender(&mut bytes);
            assert_eq!(bytes, message(&after), "{before:?}");
        }
    }

    #[test]
    fn truncated_message_is_harmless() {
        let whole = message(&[PATH, (SENDER, b's', "org.freedesktop.systemd1")]);
        for length in 0..whole.len() {
            replace_sender(&mut whole[..length].to_vec());
        }
    }

    #[tokio::test]
    async fn lines_and_messages_pass_through() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets can be made");
        let first = message(&[(SENDER, b's', "org.freedesktop.systemd1"), PATH]);
        let all = [b"OK 0123\r\n", &*first, &*message(&[PATH])].concat();
        theirs.write_all(&all).await.expect("it can be written");
        drop(theirs);
        let (mut reader, _writer) = PrivateSocket(ours).split().take();
        let (mut read, mut piece) = (Vec::new(), [0; 7]);
        loop {
            let (length, _) = reader.recvmsg(&mut piece).await.expect("it can be read");
            if length == 0 {
                break;
            }
            read.extend_from_slice(&piece[..length]);
        }
        let renamed = message(&[(SENDER, b's', ":1.000000000000000000000"), PATH]);
        assert_eq!(read, [b"OK 0123\r\n", &*renamed, &*message(&[PATH])].concat());
    }
}
