//! Options that a machine does not honour: those that an operator accepts to lose, and those that
//! need privileges.

use std::collections::BTreeSet;
use std::fmt;

use fleet_unitfile::check::directives;
use fleet_unitfile::spelling::suggest;

use super::service_options::{CGROUP_FILTERS, EXEC_OPTIONS, FILTERS, SANDBOX, SCHEDULING};

/// A group of unsupported options that have the same kind of effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OptionGroup {
    /// Options that confine processes or change their privileges.
    Sandboxing,
    /// Options that provide something to processes, such as directories, descriptors and
    /// credentials.
    Environment,
    /// Options that decide when a unit starts and stops, such as conditions and dependencies.
    Lifecycle,
}

impl OptionGroup {
    /// All groups.
    pub const ALL: [Self; 3] = [Self::Sandboxing, Self::Environment, Self::Lifecycle];

    /// Returns the name that an operator writes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sandboxing => "sandboxing",
            Self::Environment => "environment",
            Self::Lifecycle => "lifecycle",
        }
    }
}

impl fmt::Display for OptionGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The unsupported options that an operator accepts to lose. The default is none.
///
/// ```
/// use fleet_core::graph::systemd::AcceptedOptions;
///
/// let mut accepted = AcceptedOptions::default();
/// accepted.add("sandboxing")?;
/// accepted.add("RootImage")?;
/// let error = accepted.add("PrivatTmp").unwrap_err().to_string();
/// assert!(error.ends_with("write PrivateTmp"), "{error}");
/// # Ok::<(), fleet_core::graph::systemd::UnknownOption>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AcceptedOptions {
    groups: BTreeSet<OptionGroup>,
    /// Names without sections.
    options: BTreeSet<String>,
}

/// A name that is neither a group of options nor an option of systemd.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is neither an option of systemd nor a group of options: write {remedy}")]
pub struct UnknownOption {
    name: String,
    remedy: String,
}

impl AcceptedOptions {
    /// Accepts every unsupported option.
    #[must_use]
    pub fn all() -> Self {
        Self { groups: OptionGroup::ALL.into(), options: BTreeSet::new() }
    }

    /// Adds a group or an option by name.
    ///
    /// # Errors
    ///
    /// Returns an error with the most similar name if there is no such group or option.
    pub fn add(&mut self, name: &str) -> Result<(), UnknownOption> {
        if let Some(group) = OptionGroup::ALL.into_iter().find(|group| group.name() == name) {
            self.groups.insert(group);
            return Ok(());
        }
        if directives().any(|directive| directive.name == name) {
            self.options.insert(name.to_owned());
            return Ok(());
        }
        let groups = OptionGroup::ALL.map(OptionGroup::name);
        let known = directives().map(|directive| directive.name).chain(groups);
        let remedy = suggest(name, known)
            .map_or_else(|| format!("an option or one of {}", groups.join(", ")), str::to_owned);
        Err(UnknownOption { name: name.to_owned(), remedy })
    }

    /// Returns the names of the groups and options, for [`add`](Self::add).
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let groups = self.groups.iter().map(|group| group.name());
        groups.chain(self.options.iter().map(String::as_str))
    }

    /// Adds an option by a name that is not checked.
    #[cfg(feature = "convert")]
    pub(crate) fn insert(&mut self, option: &str) {
        self.options.insert(option.to_owned());
    }

    /// Returns whether the loss of an option is accepted. `group` is the group of the option;
    /// `None` if only its name can be accepted.
    #[must_use]
    pub fn contains(&self, option: &str, group: Option<OptionGroup>) -> bool {
        self.options.contains(option) || group.is_some_and(|group| self.groups.contains(&group))
    }
}

/// The restrictions that a supervisor can impose on processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Confinement {
    /// All: the supervisor runs as root.
    #[default]
    All,
    /// Those that need no privileges, such as filters of system calls.
    Unprivileged,
    /// None.
    None,
    /// None, nor anything else for which a stanza has no key: the unit is converted.
    Stanza,
}

impl Confinement {
    /// Returns why an option cannot be honoured. Returns `None` if it can.
    pub(super) fn lacks(self, option: &str) -> Option<&'static str> {
        let is_filter = FILTERS.contains(&option);
        let is_cgroup_filter = CGROUP_FILTERS.contains(&option);
        let is_restriction = is_filter || SANDBOX.contains(&option) || SCHEDULING.contains(&option);
        match self {
            Self::None if is_restriction => Some(NO_EXECUTOR),
            Self::Stanza if is_cgroup_filter => Some(NO_KEY),
            Self::Stanza if is_restriction || EXEC_OPTIONS.contains(&option) => Some(NO_KEY),
            Self::Unprivileged if SANDBOX.contains(&option) => Some(NEEDS_ROOT),
            _ => None,
        }
    }
}

const NEEDS_ROOT: &str = "needs root: remove it, or run fleet as root";
const NO_KEY: &str = "has no key in a stanza: keep the unit file for fleetd";
const NO_EXECUTOR: &str = "is not supported: this program has no executor, which confines \
                           processes: remove it, or set one";
