//! Pure: the stored form of a unit file, which is one line with the format number and then the
//! unchanged bytes of the file.

use super::{CodecError, FORMAT, format_error};
use crate::registry::ContentId;

/// The first line of format one; a later format begins with another number.
const HEADER: &[u8] = b"{\"v\":1}\n";

pub(crate) fn encode_content(source: &[u8]) -> Vec<u8> {
    [HEADER, source].concat()
}

/// Returns the bytes of the unit file stored under `id`, after checking that the bytes match the
/// ID.
pub(crate) fn decode_content(id: ContentId, value: &[u8]) -> Result<&[u8], CodecError> {
    let source = value.strip_prefix(HEADER).filter(|source| ContentId::of(source) == id);
    source.ok_or_else(|| match format(value) {
        Some(found) if found != FORMAT => format_error(found, FORMAT),
        _ => CodecError::damaged("the content does not match the hash in its key"),
    })
}

/// Returns the format in the first line, if it has one.
fn format(value: &[u8]) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct Probe {
        v: u32,
    }
    let line = value.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice::<Probe>(line).ok().map(|probe| probe.v)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_round_trips() {
        let sources = [&b""[..], b"[Unit]\n", b"\xff\0", HEADER, b"{\"v\":2}\n[Unit]\n"];
        for source in sources {
            let id = ContentId::of(source);
            let value = encode_content(source);
            assert!(value.starts_with(b"{\"v\":1}\n"));
            assert_eq!(decode_content(id, &value).unwrap(), source);
        }
    }

    #[test]
    fn newer_format_differs_from_damage() {
        let id = ContentId::of(b"[Unit]\n");
        let newer = |value: &[u8]| match decode_content(id, value) {
            Err(CodecError::Newer { found, .. }) => Some(found),
            Err(CodecError::Damaged(_)) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(newer(b"{\"v\":2,\"packed\":true}\nxxxx"), Some(2));
        for damaged in [&b"{\"v\":1}\n[unit]\n"[..], b"[unit]\n", b"", b"{\"v\":0}\n"] {
            assert_eq!(newer(damaged), None);
        }
    }
}
