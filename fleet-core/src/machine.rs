//! Machines: their identity, the data that they publish, and the intents of operators.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use crate::Resources;
use crate::manager::ManagerInfo;

/// Key-value pairs that a machine publishes, for example `region=us-east-1`.
pub type Metadata = BTreeMap<String, String>;

/// The identity of a machine. On Linux it is the content of `/etc/machine-id`.
///
/// An ID consists of one to 64 letters, digits, `.`, `_` and `-`. Cloning is cheap.
///
/// ```
/// use fleet_core::MachineId;
///
/// let id: MachineId = "148a18ff6e95460fb2dc5b1a4b6b4d21".parse()?;
/// assert_eq!(id.short(), "148a18ff");
/// assert!("".parse::<MachineId>().is_err());
/// assert!("a/b".parse::<MachineId>().is_err());
/// # Ok::<(), fleet_core::machine::MachineIdError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId(Arc<str>);

impl MachineId {
    const MAX_LEN: usize = 64;
    const SHORT_LEN: usize = 8;

    /// Returns the full identity.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first eight characters, for display in tables. These characters alone do not
    /// identify the machine.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..self.0.len().min(Self::SHORT_LEN)]
    }

    /// Returns `true` if `text` looks like the [`short`](Self::short) form of a machine ID.
    pub(crate) fn looks_short(text: &str) -> bool {
        let digits = text.strip_suffix("...").unwrap_or(text);
        digits.len() == Self::SHORT_LEN && digits.bytes().all(|b| b.is_ascii_hexdigit())
    }
}

/// Error for a text that is not a machine ID.
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
///
/// All fields are listed on purpose, without `#[non_exhaustive]`: the compiler then points to each
/// encoding of machines that a new field has to become a part of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Machine {
    /// The machine ID.
    pub id: MachineId,
    /// The address at which other hosts reach the machine, if it has one.
    pub address: Option<IpAddr>,
    /// The URL at which other daemons reach the machine's API. It is empty if the API is not
    /// reachable.
    pub api: String,
    /// The host name; empty if it is not known.
    pub hostname: String,
    /// The effective metadata. Metadata that was set at run time overrides the metadata of the
    /// configuration.
    pub metadata: Metadata,
    /// Version of the daemon on the machine.
    pub version: String,
    /// Total resources that units may reserve on the machine.
    pub offers: Resources,
    /// The service manager, if the machine publishes it.
    pub manager: Option<Arc<ManagerInfo>>,
    /// Whether the machine keeps the units that are placed on it, but accepts no others.
    pub cordoned: bool,
    /// The operator's intent, if there is one. For a machine with an intent, `cordoned` is also
    /// `true`.
    pub intent: Option<Intent>,
}

impl Machine {
    /// Creates a machine without address, metadata or version. The machine offers no resources and
    /// is not cordoned.
    #[must_use]
    pub fn new(id: MachineId) -> Self {
        Self {
            id,
            address: None,
            api: String::new(),
            metadata: Metadata::new(),
            version: String::new(),
            offers: Resources::ZERO,
            hostname: String::new(),
            manager: None,
            cordoned: false,
            intent: None,
        }
    }

    /// Creates a machine from the text of its ID, as [`new`](Self::new) does.
    ///
    /// ```
    /// use fleet_core::{Machine, Resources};
    ///
    /// let offers = Resources { cpu: 4000, memory: 16 << 30, disk: 0 };
    /// let machine = Machine::named("m1")?.with_metadata("disk", "ssd").with_offers(offers);
    /// assert_eq!(machine.id.as_str(), "m1");
    /// # Ok::<(), fleet_core::machine::MachineIdError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a machine ID.
    pub fn named(id: &str) -> Result<Self, MachineIdError> {
        Ok(Self::new(id.parse()?))
    }

    /// Sets the resources that units may reserve on the machine.
    #[must_use]
    pub fn with_offers(self, offers: Resources) -> Self {
        Self { offers, ..self }
    }

    /// Cordons the machine: it keeps its units, but accepts no others.
    #[must_use]
    pub fn with_cordon(self) -> Self {
        Self { cordoned: true, ..self }
    }

    /// Sets an operator's intent.
    #[must_use]
    pub fn with_intent(self, intent: Intent) -> Self {
        Self { cordoned: true, intent: Some(intent), ..self }
    }

    /// Adds one metadata pair.
    #[must_use]
    pub fn with_metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }
}

/// An operator's intent for a machine.
///
/// An intent stays in the cluster until an operator withdraws it, even while the machine is absent.
/// (The data that a machine publishes disappears with the machine.) A machine without an intent
/// accepts units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Keeps the units that are placed on the machine, and accepts no others.
    Cordoned,
    /// Moves its units to other machines, and accepts none.
    Drained {
        /// Minimum number of running instances of a template while its instances are moved.
        min_available: u32,
    },
}

impl Intent {
    /// Returns the minimum number of instances of a template that must keep running during a drain.
    /// Returns `None` if the intent is not a drain.
    #[must_use]
    pub fn min_available(self) -> Option<u32> {
        match self {
            Self::Cordoned => None,
            Self::Drained { min_available } => Some(min_available),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_ids_are_validated() {
        for good in ["a", "148a18ff6e95460fb2dc5b1a4b6b4d21", "node-7.example_1"] {
            assert_eq!(good.parse::<MachineId>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(bad.parse::<MachineId>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn short_machine_ids_are_recognised() {
        for short in ["148a18ff", "148a18ff..."] {
            assert!(MachineId::looks_short(short), "{short}");
        }
        for whole in ["148a18ff6e95460fb2dc5b1a4b6b4d21", "node-007", "148a18f"] {
            assert!(!MachineId::looks_short(whole), "{whole}");
        }
    }
}
