//! What goes over the socket: frames of JSON, each behind its length.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{Encoder as _, FramedRead, LengthDelimitedCodec};

/// The version of these frames. Another one is not understood.
pub(super) const VERSION: u32 = 1;

/// How many bytes a frame may have: those of the largest unit file, however it is written.
const LARGEST_FRAME: usize = 16 * 1024 * 1024;

/// How many it may have before the other side has said who it is.
const LARGEST_HELLO: usize = 4096;

/// How many bytes are written at once, where so many wait.
const BATCH: usize = 64 * 1024;

/// How many items of an answer may be under way before their reader has asked for more.
pub(super) const WINDOW: u32 = 16;

/// How many asks of one connection may be open.
pub(super) const MOST_OPEN: usize = 4096;

/// A frame. Each answer belongs to an ask by its number, which the asking side chooses.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Frame {
    /// The first frame of each side.
    Hello(Hello),
    /// The last one of a server that takes no part: why.
    Bye(String),
    /// Asks for something.
    Ask { id: u64, what: Value },
    /// The reader of an answer has room for so many items more.
    More { id: u64, items: u32 },
    /// Nobody reads the answer any more.
    Cancel { id: u64 },
    /// A part of an answer.
    Item { id: u64, what: Value },
    /// The end of an answer.
    End { id: u64, how: How },
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) version: u32,
    /// The program and its version, for people.
    pub(super) program: String,
}

/// How an answer ends.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum How {
    /// It is whole.
    Done,
    /// It is an error, in the words of who answers.
    Failed(Value),
    /// Nobody has looked at it, for this reason.
    Refused(String),
}

/// What a server writes for [`Frame::Item`]: that as a value would take many times the room.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Answer<'a, T> {
    Item { id: u64, what: &'a T },
}

/// A part of an answer as it is sent.
pub(super) fn encode_item<T: Serialize>(id: u64, what: &T) -> io::Result<Bytes> {
    encode(&Answer::Item { id, what })
}

fn encode(frame: &impl Serialize) -> io::Result<Bytes> {
    let bytes = serde_json::to_vec(frame)?;
    if bytes.len() > LARGEST_FRAME {
        let text = format!("it is larger than {} MiB", LARGEST_FRAME >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes.into())
}

impl Frame {
    /// As it is sent.
    pub(super) fn encode(&self) -> io::Result<Bytes> {
        encode(self)
    }

    /// As it is sent with its length, to be written by hand.
    pub(super) fn encode_whole(&self) -> io::Result<Bytes> {
        let mut buffer = BytesMut::new();
        codec(LARGEST_FRAME).encode(self.encode()?, &mut buffer)?;
        Ok(buffer.freeze())
    }
}

/// The reading end of a connection.
pub(super) struct Frames {
    framed: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
}

impl Frames {
    /// One of which nothing is known yet.
    pub(super) fn new(half: OwnedReadHalf) -> Self {
        Self { framed: FramedRead::new(half, codec(LARGEST_HELLO)) }
    }

    /// Takes frames of full size from now on.
    pub(super) fn trust(&mut self) {
        self.framed.decoder_mut().set_max_frame_length(LARGEST_FRAME);
    }

    /// The next frame and its size in bytes; nothing at the end of the connection.
    ///
    /// # Errors
    ///
    /// The connection breaks off, or what comes is no frame.
    pub(super) async fn next(&mut self) -> io::Result<Option<(Frame, usize)>> {
        match self.framed.next().await {
            None => Ok(None),
            Some(Err(error)) => Err(error),
            Some(Ok(bytes)) => Ok(Some((serde_json::from_slice(&bytes)?, bytes.len()))),
        }
    }
}

/// The writing end of a connection.
pub(super) struct Sink {
    half: OwnedWriteHalf,
    codec: LengthDelimitedCodec,
    buffer: BytesMut,
}

impl Sink {
    pub(super) fn new(half: OwnedWriteHalf) -> Self {
        Self { half, codec: codec(LARGEST_FRAME), buffer: BytesMut::new() }
    }

    /// Puts an encoded frame behind those that wait; whether more should come before a flush.
    pub(super) fn feed(&mut self, frame: Bytes) -> io::Result<bool> {
        self.codec.encode(frame, &mut self.buffer)?;
        Ok(self.buffer.len() < BATCH)
    }

    /// Writes what waits, and keeps no room for as much again: connections last, and most of what
    /// is written is small.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.half.write_all_buf(&mut self.buffer).await?;
        self.buffer = BytesMut::new();
        Ok(())
    }
}

fn codec(largest: usize) -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(largest).new_codec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_written_as_it_is_read() {
        let what = serde_json::json!({"lines": ["a", "b"], "more": null});
        let bytes = encode_item(7, &what).expect("it is small");
        assert_eq!(bytes, Frame::Item { id: 7, what }.encode().expect("it is small"));
    }
}
