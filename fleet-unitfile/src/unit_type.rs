//! The thirteen unit types, each identified by the suffix of a unit name.

use std::fmt;
use std::str::FromStr;

/// The type of a unit: the suffix after the last dot of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnitType {
    /// A mount point that is mounted on first access.
    Automount,
    /// A D-Bus name that activates a service.
    Busname,
    /// A device exposed by the kernel.
    Device,
    /// A mount point.
    Mount,
    /// A watched file or directory that activates another unit.
    Path,
    /// A group of processes that were started elsewhere and are only supervised.
    Scope,
    /// A supervised process, or a group of them.
    Service,
    /// A node of the tree of resource limits, which groups units.
    Slice,
    /// A saved set of running units.
    Snapshot,
    /// A socket that activates a service on traffic.
    Socket,
    /// A swap device or file.
    Swap,
    /// A synchronization point that groups other units.
    Target,
    /// A timer that activates another unit.
    Timer,
}

impl UnitType {
    /// All types, in alphabetical order.
    pub const ALL: [Self; 13] = [
        Self::Automount,
        Self::Busname,
        Self::Device,
        Self::Mount,
        Self::Path,
        Self::Scope,
        Self::Service,
        Self::Slice,
        Self::Snapshot,
        Self::Socket,
        Self::Swap,
        Self::Target,
        Self::Timer,
    ];

    /// Returns the suffix without its dot, such as `service`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Automount => "automount",
            Self::Busname => "busname",
            Self::Device => "device",
            Self::Mount => "mount",
            Self::Path => "path",
            Self::Scope => "scope",
            Self::Service => "service",
            Self::Slice => "slice",
            Self::Snapshot => "snapshot",
            Self::Socket => "socket",
            Self::Swap => "swap",
            Self::Target => "target",
            Self::Timer => "timer",
        }
    }

    /// Returns `true` if units of this type may be templates or instances.
    pub const fn may_be_template(self) -> bool {
        matches!(self, Self::Path | Self::Service | Self::Socket | Self::Target | Self::Timer)
    }
}

impl fmt::Display for UnitType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for UnitType {
    type Err = UnitTypeError;

    /// Parses a suffix without its dot. Case-sensitive: `Service` is not a type.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|unit_type| unit_type.as_str() == text)
            .ok_or_else(|| UnitTypeError(text.to_owned()))
    }
}

/// Error for a word that is not one of the thirteen unit types.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a unit type: write one of {types}", types = type_list())]
pub struct UnitTypeError(String);

/// Returns all types as a list, for messages.
pub(crate) fn type_list() -> String {
    UnitType::ALL.map(UnitType::as_str).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_types_parse_case_sensitively() {
        for unit_type in UnitType::ALL {
            assert_eq!(unit_type.to_string().parse(), Ok(unit_type));
            assert!(unit_type.as_str().to_uppercase().parse::<UnitType>().is_err());
        }
        assert!(UnitType::ALL.is_sorted());
        let error = "servce".parse::<UnitType>().unwrap_err().to_string();
        assert!(error.starts_with("\"servce\" is not a unit type: write one of automount, "));
    }

    #[test]
    fn five_types_may_be_templates() {
        let may: Vec<_> = UnitType::ALL.into_iter().filter(|t| t.may_be_template()).collect();
        let words: Vec<_> = may.into_iter().map(UnitType::as_str).collect();
        assert_eq!(words, ["path", "service", "socket", "target", "timer"]);
    }
}
