//! Service managers of machines, as far as they determine which unit files a machine runs.

/// The service manager of a machine, which the machine publishes.
///
/// ```
/// use fleet_core::manager::{ManagerInfo, NativeInfo};
///
/// let native = NativeInfo { root: true, ..NativeInfo::default() };
/// assert_eq!(ManagerInfo::Native(native).kind(), "native");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManagerInfo {
    /// systemd.
    Systemd,
    /// fleet's own.
    Native(NativeInfo),
}

/// Settings of a native service manager.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NativeInfo {
    /// Whether it runs as root, and so may change the user of its units.
    pub root: bool,
    /// Its own user, by name and by number.
    pub users: Vec<String>,
    /// Its own group, by name and by number.
    pub groups: Vec<String>,
    /// Unsupported options, and groups of them, without which it runs units.
    pub accept: Vec<String>,
}

impl ManagerInfo {
    /// Returns the name of the kind: `systemd` or `native`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Native(_) => "native",
        }
    }
}

/// What the service manager of a machine does with a unit file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManagerVerdict {
    /// Why it refuses the file, if it does.
    pub refusal: Option<ManagerFinding>,
    /// Options that the unit runs without.
    pub warnings: Vec<ManagerFinding>,
}

/// One finding of a service manager in a unit file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ManagerFinding {
    /// Line, counted from one; zero if the whole file is concerned.
    pub line: usize,
    /// The finding with its remedy, as one sentence.
    pub text: String,
}
