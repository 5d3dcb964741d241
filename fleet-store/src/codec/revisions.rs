//! Encoding of the revisions of a unit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, decode, encode, parse, wire};
use crate::registry::ContentId;

/// A revision of a unit as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredRevision {
    pub(crate) number: u64,
    /// Time of the write, in milliseconds since 1970.
    pub(crate) written_at: Option<u64>,
    pub(crate) content: ContentId,
    /// Bytes of the file. `None` for the current revision, whose bytes are stored as the unit's
    /// content, and for bytes that could not be read.
    pub(crate) source: Option<Vec<u8>>,
}

#[derive(Serialize, Deserialize)]
struct WireRevisions {
    v: u32,
    revisions: Vec<WireRevision>,
}

#[derive(Serialize, Deserialize)]
struct WireRevision {
    number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written_at: Option<u64>,
    content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// The source in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_base64: Option<String>,
}

wire!(WireRevisions);

pub(crate) fn encode_revisions(revisions: &[StoredRevision]) -> Vec<u8> {
    let revision = |it: &StoredRevision| {
        let source = it.source.clone().map(String::from_utf8);
        let (source, other) = match source {
            Some(Ok(text)) => (Some(text), None),
            Some(Err(error)) => (None, Some(STANDARD.encode(error.as_bytes()))),
            None => (None, None),
        };
        WireRevision {
            number: it.number,
            written_at: it.written_at,
            content: it.content.to_string(),
            source,
            source_base64: other,
        }
    };
    encode(&WireRevisions { v: FORMAT, revisions: revisions.iter().map(revision).collect() })
}

pub(crate) fn decode_revisions(bytes: &[u8]) -> Result<Vec<StoredRevision>, CodecError> {
    let wire: WireRevisions = decode(bytes)?;
    let revision = |it: WireRevision| {
        let decoded = it.source_base64.map(|text| STANDARD.decode(text)).transpose();
        let decoded = decoded.map_err(CodecError::damaged)?;
        Ok(StoredRevision {
            number: it.number,
            written_at: it.written_at,
            content: parse(&it.content, "the hash of a unit file")?,
            source: it.source.map(String::into_bytes).or(decoded),
        })
    };
    wire.revisions.into_iter().map(revision).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_read_back() {
        let revision = |number, source: Option<&[u8]>| StoredRevision {
            number,
            written_at: (number > 1).then_some(1_700_000_000_000),
            content: ContentId::of(source.unwrap_or_default()),
            source: source.map(<[u8]>::to_vec),
        };
        let all = [revision(1, Some(b"[Unit]\n")), revision(2, Some(b"\xff")), revision(3, None)];
        assert_eq!(decode_revisions(&encode_revisions(&all)).unwrap(), all);
    }
}
