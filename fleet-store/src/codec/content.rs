//! Pure: the stored form of a unit file's bytes: a line that says the format, then the bytes.

use super::{CodecError, FORMAT, format_error};
use crate::ContentId;

/// The first line of format one; a later format begins with another number.
const HEADER: &[u8] = b"{\"v\":1}\n";

pub(crate) fn encode_content(source: &[u8]) -> Vec<u8> {
    [HEADER, source].concat()
}

/// The bytes of the unit file that is kept under `id`. What the first versions wrote has no line
/// before the bytes; what it is kept under tells the two apart.
pub(crate) fn decode_content(id: ContentId, value: &[u8]) -> Result<&[u8], CodecError> {
    let is_it = |source: &&[u8]| ContentId::of(source) == id;
    let headed = value.strip_prefix(HEADER).filter(is_it);
    if let Some(source) = headed.or(Some(value).filter(is_it)) {
        return Ok(source);
    }
    match format(value) {
        Some(found) if found != FORMAT => Err(format_error(found, FORMAT)),
        _ => Err(CodecError::damaged("its bytes are not those that it is kept under")),
    }
}

/// The number in the first line, if it has one.
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
    fn bytes_come_back_whether_a_version_stands_before_them_or_not() {
        let sources = [&b""[..], b"[Unit]\n", b"\xff\0", HEADER, b"{\"v\":2}\n[Unit]\n"];
        for source in sources {
            let id = ContentId::of(source);
            let value = encode_content(source);
            assert!(value.starts_with(b"{\"v\":1}\n"));
            assert_eq!(decode_content(id, &value).unwrap(), source);
            assert_eq!(decode_content(id, source).unwrap(), source, "as the first versions wrote");
        }
    }

    #[test]
    fn a_newer_content_is_told_from_a_damaged_one() {
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
