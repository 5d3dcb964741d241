//! Frames of JSON, each with a length prefix.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{Encoder as _, FramedRead, LengthDelimitedCodec};

/// Version of the frames. Other versions are refused.
pub(crate) const VERSION: u32 = 1;

/// Maximum size of a frame in bytes. It is sufficient for the largest unit file in any encoding.
const MAX_FRAME: usize = 16 * 1024 * 1024;

/// Limit on the size of a frame before the handshake.
const MAX_HELLO: usize = 4096;

/// Number of buffered bytes above which frames are written.
const BATCH: usize = 64 * 1024;

/// Number of response items in flight before the reader has granted more.
pub(crate) const WINDOW: u32 = 16;

/// Limit on pending requests of one connection.
pub(crate) const MAX_PENDING: usize = 4096;

/// One message on a connection. Each part of a response has the id of its request, which the client
/// chooses.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Frame {
    /// First frame of each side.
    Hello(Hello),
    /// Last frame of a server that refuses the connection, with the reason.
    Bye(String),
    /// A request.
    Request { id: u64, body: Value },
    /// Grants room for this many more items of a response.
    Grant { id: u64, items: u32 },
    /// Cancels a request.
    Cancel { id: u64 },
    /// Part of a response.
    Item { id: u64, body: Value },
    /// End of a response.
    End { id: u64, status: EndStatus },
}

/// Identifies a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// Program and version, for people.
    pub(crate) program: String,
}

/// Status at the end of a response.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EndStatus {
    /// It is complete.
    Done,
    /// The request failed, with an error defined by the handler.
    Failed(Value),
    /// The request was not handled, for this reason.
    Refused(String),
}

/// Form of [`Frame::Item`] that borrows its body, because an owned JSON value would take many times
/// the memory.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Response<'a, T> {
    Item { id: u64, body: &'a T },
}

/// Encodes an item of a response.
pub(crate) fn encode_item<T: Serialize>(id: u64, body: &T) -> io::Result<Bytes> {
    encode(&Response::Item { id, body })
}

fn encode(frame: &impl Serialize) -> io::Result<Bytes> {
    let bytes = serde_json::to_vec(frame)?;
    if bytes.len() > MAX_FRAME {
        let text = format!("larger than {} MiB", MAX_FRAME >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes.into())
}

impl Frame {
    /// Encodes the frame without its length prefix.
    pub(crate) fn encode(&self) -> io::Result<Bytes> {
        encode(self)
    }

    /// Encodes the frame with its length prefix.
    pub(crate) fn encode_with_length(&self) -> io::Result<Bytes> {
        let mut buffer = BytesMut::new();
        codec(MAX_FRAME).encode(self.encode()?, &mut buffer)?;
        Ok(buffer.freeze())
    }
}

/// Reading half of a connection.
pub(crate) struct FrameReader {
    framed: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
}

impl FrameReader {
    /// Creates a reader that only accepts frames up to the handshake's limit.
    pub(crate) fn new(half: OwnedReadHalf) -> Self {
        Self { framed: FramedRead::new(half, codec(MAX_HELLO)) }
    }

    /// Accepts frames of full size from now on.
    pub(crate) fn accept_full_frames(&mut self) {
        self.framed.decoder_mut().set_max_frame_length(MAX_FRAME);
    }

    /// Reads the next frame, and its size in bytes; `None` at the end of the connection.
    ///
    /// # Errors
    ///
    /// The connection fails, or the bytes are no valid frame.
    pub(crate) async fn next(&mut self) -> io::Result<Option<(Frame, usize)>> {
        match self.framed.next().await {
            None => Ok(None),
            Some(Err(error)) => Err(error),
            Some(Ok(bytes)) => Ok(Some((serde_json::from_slice(&bytes)?, bytes.len()))),
        }
    }
}

/// Writing half of a connection.
pub(crate) struct FrameWriter {
    half: OwnedWriteHalf,
    codec: LengthDelimitedCodec,
    buffer: BytesMut,
}

impl FrameWriter {
    pub(crate) fn new(half: OwnedWriteHalf) -> Self {
        Self { half, codec: codec(MAX_FRAME), buffer: BytesMut::new() }
    }

    /// Buffers an encoded frame. Returns whether more may be buffered before a flush.
    pub(crate) fn feed(&mut self, frame: Bytes) -> io::Result<bool> {
        self.codec.encode(frame, &mut self.buffer)?;
        Ok(self.buffer.len() < BATCH)
    }

    /// Writes the buffered frames. Releases the memory of the buffer afterwards, because
    /// connections are long-lived and most frames are small.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
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
    fn borrowed_item_encodes_like_owned() {
        let body = serde_json::json!({"lines": ["a", "b"], "more": null});
        let bytes = encode_item(7, &body).expect("it is small");
        assert_eq!(bytes, Frame::Item { id: 7, body }.encode().expect("it is small"));
    }
}
