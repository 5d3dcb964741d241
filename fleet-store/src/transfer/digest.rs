//! Pure: the checksums of an export.

use fleet_core::{Intent, TargetState};
use sha2::{Digest as _, Sha256};

use super::line::intent_keyword;

/// An incremental SHA-256.
#[derive(Debug, Clone, Default)]
pub(super) struct Digest(Sha256);

impl Digest {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest in lower-case hexadecimal.
    pub(super) fn finish(self) -> String {
        use std::fmt::Write as _;
        self.0.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            let _never = write!(text, "{byte:02x}");
            text
        })
    }
}

/// Digest of a cluster's desired state: the run-time metadata, the intents, and the units with
/// their files and desired states. It does not depend on placements or on the store.
#[derive(Debug, Clone, Default)]
pub(super) struct ContentDigest(Digest);

impl ContentDigest {
    pub(super) fn metadata(&mut self, machine: &str, key: &str, value: &str) {
        self.fields(&[b"metadata", machine.as_bytes(), key.as_bytes(), value.as_bytes()]);
    }

    pub(super) fn intent(&mut self, machine: &str, intent: Intent) {
        let min_available =
            intent.min_available().map(|number| number.to_string()).unwrap_or_default();
        let fields = ["intent", machine, intent_keyword(intent), &min_available];
        self.fields(&fields.map(str::as_bytes));
    }

    pub(super) fn unit(&mut self, name: &str, desired: TargetState, source: &[u8]) {
        self.fields(&[b"unit", name.as_bytes(), desired.as_str().as_bytes(), source]);
    }

    pub(super) fn finish(self) -> String {
        self.0.finish()
    }

    /// Hashes each field after its length, so different lists of fields cannot collide.
    fn fields(&mut self, fields: &[&[u8]]) {
        for field in fields {
            self.0.update(&(field.len() as u64).to_be_bytes());
            self.0.update(field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_matches_other_tools() {
        let mut digest = Digest::default();
        digest.update(b"ab");
        digest.update(b"c");
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.finish(), known);
    }

    #[test]
    fn content_digest_depends_on_every_field() {
        let of = |fields: [&str; 3]| {
            let mut content = ContentDigest::default();
            content.metadata(fields[0], fields[1], fields[2]);
            content.finish()
        };
        assert_ne!(of(["m", "ab", "c"]), of(["m", "a", "bc"]));
        assert_eq!(of(["m", "ab", "c"]), of(["m", "ab", "c"]));
    }
}
