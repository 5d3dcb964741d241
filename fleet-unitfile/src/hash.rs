//! The hash by which unit files are compared.

use std::fmt;
use std::str::FromStr;

/// The SHA-1 of a unit file's canonical text.
///
/// Two files with the same hash contain the same options in the same order. Comments, blank lines
/// and line ends do not affect the hash. The hash identifies contents, but does not protect against
/// an attacker, because SHA-1 collisions can be constructed. Its text form is 40 lower-case
/// hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitHash([u8; 20]);

impl UnitHash {
    /// Makes a hash from its bytes, as returned by [`as_bytes`](Self::as_bytes).
    pub const fn from_bytes(bytes: [u8; 20]) -> Self {
        Self(bytes)
    }

    /// Returns the twenty bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// Returns the first seven digits, for display in tables. Two unit files can share these seven
    /// digits, so compare unit files by the whole hash.
    pub fn short(&self) -> String {
        let mut digits = self.to_string();
        digits.truncate(7);
        digits
    }

    /// Hashes a string that is passed in pieces.
    pub(crate) fn from_pieces(pieces: impl FnOnce(&mut dyn FnMut(&str))) -> Self {
        let mut sha1 = sha1_smol::Sha1::new();
        pieces(&mut |piece| sha1.update(piece.as_bytes()));
        Self(sha1.digest().bytes())
    }
}

impl fmt::Display for UnitHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for UnitHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnitHash({self})")
    }
}

impl FromStr for UnitHash {
    type Err = HashError;

    /// Parses exactly 40 lower-case hexadecimal digits, as written by `Display`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refusal = || HashError(text.chars().take(48).collect());
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return Err(refusal());
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(refusal)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

/// Error for a string that is not 40 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a unit hash: write 40 hexadecimal digits in lower case")]
pub struct HashError(String);

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_reads_back_from_its_exact_text() {
        let hash = UnitHash::from_bytes([0x0a; 20]);
        assert_eq!(hash.to_string(), "0a".repeat(20));
        assert_eq!(hash.short(), "0a0a0a0");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(UnitHash::from_bytes(*hash.as_bytes()), hash);
        for wrong in
            ["", "0a", &"0A".repeat(20), &"0a".repeat(21), &"0g".repeat(20), &"é".repeat(20)]
        {
            assert!(wrong.parse::<UnitHash>().is_err(), "{wrong}");
        }
    }
}
