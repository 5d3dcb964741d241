//! Configuration of the service manager that runs units itself.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::native::supervisor::external::External;
use crate::{Clock, SystemClock};

/// Configuration of a [`NativeManager`](crate::NativeManager).
#[derive(Clone)]
pub struct NativeConfig {
    /// Directory for unit files, state and logs. Only one manager at a time may use it.
    pub directory: PathBuf,
    /// Directory in memory for records of runs and notification sockets; see
    /// [`SupervisorConfig::runtime_directory`](crate::SupervisorConfig::runtime_directory).
    pub runtime_directory: Option<PathBuf>,
    /// Environment variables for every process of every unit, besides `PATH`.
    pub environment: Vec<(String, String)>,
    /// Bytes of output kept per unit; see [`DEFAULT_LOG_LIMIT`].
    ///
    /// [`DEFAULT_LOG_LIMIT`]: Self::DEFAULT_LOG_LIMIT
    pub log_limit: u64,
    /// Whether each run of a unit gets its own control group where possible. Root can create
    /// control groups. Other users can do so if the daemon's control group is delegated to them.
    pub control_groups: bool,
    /// Names of unit file options, such as `PrivateTmp`, that are ignored instead of refused. A
    /// unit with such an option runs as if the option were absent, and the log reports that.
    pub accept: BTreeSet<String>,
    /// External units of this machine, which loaded units may depend on. A loaded unit takes
    /// precedence over an external unit of the same name.
    pub external: BTreeMap<UnitName, External>,
    /// Maximum number of units that may be starting at once. `None` sets no limit. A oneshot counts
    /// as starting for as long as it runs. See [`DEFAULT_MAX_STARTING`].
    ///
    /// [`DEFAULT_MAX_STARTING`]: Self::DEFAULT_MAX_STARTING
    pub max_starting: Option<NonZeroU32>,
    /// Clock for timeouts and restarts.
    pub clock: Arc<dyn Clock>,
}

impl NativeConfig {
    /// Four mebibytes.
    pub const DEFAULT_LOG_LIMIT: u64 = 4 * 1024 * 1024;
    /// 512: hardly ever reached, and low enough not to overwhelm a machine.
    pub const DEFAULT_MAX_STARTING: NonZeroU32 = NonZeroU32::MIN.saturating_add(511);

    /// Returns the default configuration, with everything in this directory and the real clock.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            runtime_directory: None,
            environment: Vec::new(),
            log_limit: Self::DEFAULT_LOG_LIMIT,
            accept: BTreeSet::new(),
            external: BTreeMap::new(),
            max_starting: Some(Self::DEFAULT_MAX_STARTING),
            control_groups: true,
            clock: Arc::new(SystemClock::start()),
        }
    }
}
