//! Frames of JSON, each with a length prefix.

use std::io;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};

use super::protocol::RequestError;

/// Version of the protocol. Other versions are refused.
pub(crate) const VERSION: u32 = 2;

/// Maximum size of a frame in bytes. It is sufficient for the largest unit file in any encoding.
const MAX_FRAME: usize = 16 * 1024 * 1024;

/// Limit on the size of a frame before the handshake.
const MAX_HELLO: usize = 4096;

/// Number of buffered bytes above which frames are written.
const BATCH: usize = 64 * 1024;

/// Limit on pending calls of one connection.
pub(crate) const MAX_PENDING: usize = 4096;

/// One message on a connection. Each part of a response has the id of its request, which the client
/// chooses. When a frame is sent, its body is borrowed: an owned JSON value would take many times
/// the memory.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Frame<T = Value> {
    /// First frame of each side. It names the program and its version, for people.
    Hello { version: u32, program: String },
    /// Last frame of a server that refuses the connection, with the reason.
    Bye(String),
    /// A request.
    Request { id: u64, body: T },
    /// Cancels a request.
    Cancel { id: u64 },
    /// Sent to check whether the server works.
    Ping,
    /// The response to a ping.
    Pong,
    /// The result of a call, or a part of a stream.
    Item { id: u64, body: T },
    /// End of a response.
    End { id: u64, error: Option<RequestError> },
}

impl<T: Serialize> Frame<T> {
    /// Encodes the frame with its length.
    pub(crate) fn encode(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, self)?;
        match u32::try_from(bytes.len() - 4) {
            Ok(length) if length as usize <= MAX_FRAME => {
                bytes[..4].copy_from_slice(&length.to_be_bytes());
                Ok(bytes.into())
            }
            _ => {
                let text = format!("larger than {} MiB", MAX_FRAME >> 20);
                Err(io::Error::new(io::ErrorKind::FileTooLarge, text))
            }
        }
    }
}

/// Reading half of a connection.
#[derive(Debug)]
pub(crate) struct FrameReader(FramedRead<OwnedReadHalf, LengthDelimitedCodec>);

impl FrameReader {
    /// Creates a reader that only accepts frames up to the handshake's limit.
    pub(crate) fn new(half: OwnedReadHalf) -> Self {
        let codec = LengthDelimitedCodec::builder().max_frame_length(MAX_HELLO).new_codec();
        Self(FramedRead::new(half, codec))
    }

    /// Accepts frames of full size from now on.
    pub(crate) fn accept_full_frames(&mut self) {
        self.0.decoder_mut().set_max_frame_length(MAX_FRAME);
    }

    /// Reads the next frame, and its size in bytes; `None` at the end of the connection.
    ///
    /// # Errors
    ///
    /// The connection fails, or the bytes are no valid frame.
    pub(crate) async fn next(&mut self) -> io::Result<Option<(Frame, usize)>> {
        match self.0.next().await {
            None => Ok(None),
            Some(Err(error)) => Err(error),
            Some(Ok(bytes)) => Ok(Some((serde_json::from_slice(&bytes)?, bytes.len()))),
        }
    }
}

/// Writes frames as they arrive in a queue, several at once if they are small. Releases the memory
/// of the buffer after each write, because connections are long-lived.
pub(crate) async fn write_frames(
    mut half: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Bytes>,
) -> io::Result<()> {
    while let Some(frame) = queue.recv().await {
        let mut buffer = BytesMut::from(frame);
        while buffer.len() < BATCH
            && let Ok(frame) = queue.try_recv()
        {
            buffer.extend_from_slice(&frame);
        }
        half.write_all_buf(&mut buffer).await?;
    }
    Ok(())
}
