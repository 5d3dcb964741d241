//! Machines: their identity and what they say of themselves.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use crate::{Intent, Resources};

/// The key-value pairs that a machine publishes, for example `region=us-east-1`.
pub type Metadata = BTreeMap<String, String>;

/// The identity of a machine: on Linux the content of `/etc/machine-id`.
///
/// At most 64 characters out of letters, digits, `.`, `_` and `-`. Cloning is cheap.
///
/// ```
/// use fleet_core::MachineId;
///
/// let id: MachineId = "148a18ff6e95460fb2dc5b1a4b6b4d21".parse()?;
/// assert_eq!(id.short(), "148a18ff");
/// assert!("".parse::<MachineId>().is_err());
/// assert!("a/b".parse::<MachineId>().is_err());
/// # Ok::<(), fleet_core::MachineIdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(Arc<str>);

impl MachineId {
    const MAX_LEN: usize = 64;
    const SHORT_LEN: usize = 8;

    /// The whole identity.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first eight characters, as people see it in tables. Not an identity.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..self.0.len().min(Self::SHORT_LEN)]
    }

    /// Whether `text` looks like what [`short`](Self::short) prints of a machine-id.
    pub(crate) fn looks_short(text: &str) -> bool {
        let digits = text.strip_suffix("...").unwrap_or(text);
        digits.len() == Self::SHORT_LEN && digits.bytes().all(|b| b.is_ascii_hexdigit())
    }
}

/// Why a text is not a machine's identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{input:?} is not a machine ID: write 1 to 64 letters, digits, \".\", \"_\" or \"-\", \
     as in /etc/machine-id"
)]
pub struct MachineIdError {
    input: String,
}

impl FromStr for MachineId {
    type Err = MachineIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let dots_only = text.bytes().all(|b| b == b'.');
        if dots_only || text.len() > Self::MAX_LEN || !text.bytes().all(allowed) {
            return Err(MachineIdError { input: text.to_owned() });
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Borrow<str> for MachineId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A machine that is present in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Machine {
    /// Its identity.
    pub id: MachineId,
    /// The address at which other hosts reach it, if it has one.
    pub address: Option<IpAddr>,
    /// The URL at which other daemons reach the API of its own; empty if they cannot.
    pub api: String,
    /// Its effective metadata: what its configuration says, overridden by what was set at run time.
    pub metadata: Metadata,
    /// The version of the daemon that runs on it.
    pub version: String,
    /// What units may reserve of it in all.
    pub offers: Resources,
    /// Whether it takes no units but those that are placed there already.
    pub cordoned: bool,
    /// What people said is to become of it, if they did; it is cordoned then.
    pub intent: Option<Intent>,
}

impl Machine {
    /// A machine without address, metadata or version, that offers nothing and is not cordoned.
    #[must_use]
    pub fn new(id: MachineId) -> Self {
        Self {
            id,
            address: None,
            api: String::new(),
            metadata: Metadata::new(),
            version: String::new(),
            offers: Resources::ZERO,
            cordoned: false,
            intent: None,
        }
    }

    /// The same machine, of which people said that.
    #[must_use]
    pub fn with_intent(self, intent: Intent) -> Self {
        Self { cordoned: true, intent: Some(intent), ..self }
    }

    /// The same machine with one more metadata pair.
    #[must_use]
    pub fn with_metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_checked() {
        for good in ["a", "148a18ff6e95460fb2dc5b1a4b6b4d21", "node-7.example_1"] {
            assert_eq!(good.parse::<MachineId>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(bad.parse::<MachineId>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn short_forms_are_recognised() {
        for short in ["148a18ff", "148a18ff..."] {
            assert!(MachineId::looks_short(short), "{short}");
        }
        for whole in ["148a18ff6e95460fb2dc5b1a4b6b4d21", "node-007", "148a18f"] {
            assert!(!MachineId::looks_short(whole), "{whole}");
        }
    }
}
