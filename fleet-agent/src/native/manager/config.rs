//! How the service manager that runs units itself is set up.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use fleet_unitfile::UnitName;

use crate::native::external::External;
use crate::{Clock, SystemClock};

/// How a [`NativeManager`](crate::NativeManager) is set up.
#[derive(Clone)]
pub struct NativeConfig {
    /// Where unit files, records and logs are kept. One manager at a time may use it.
    pub directory: PathBuf,
    /// Variables that every process of every unit is given, besides `PATH`.
    pub environment: Vec<(String, String)>,
    /// How many bytes of its output are kept of each unit; see [`DEFAULT_LOG_LIMIT`].
    ///
    /// [`DEFAULT_LOG_LIMIT`]: Self::DEFAULT_LOG_LIMIT
    pub log_limit: u64,
    /// Whether each run of a unit gets a control group of its own where that is possible, as it is
    /// for root, and for others in a group that was delegated to them.
    pub control_groups: bool,
    /// Names of options, such as `PrivateTmp`, that are passed over where a unit would be refused
    /// for them. It then runs as if they did not stand there, and the log says so.
    pub accept: BTreeSet<String>,
    /// Units that somebody else runs on this machine, for those that depend on them. One that is
    /// loaded here under such a name counts in its place.
    pub external: BTreeMap<UnitName, External>,
    /// How many units may be starting at once; nothing is as many as there are. A oneshot is
    /// starting for as long as it runs. See [`DEFAULT_MAX_STARTING`].
    ///
    /// [`DEFAULT_MAX_STARTING`]: Self::DEFAULT_MAX_STARTING
    pub max_starting: Option<NonZeroU32>,
    /// The clock that time-outs and restarts go by.
    pub clock: Arc<dyn Clock>,
}

impl NativeConfig {
    /// Four mebibytes.
    pub const DEFAULT_LOG_LIMIT: u64 = 4 * 1024 * 1024;
    /// 512: what a machine hardly ever starts together, and what does not overwhelm one that does.
    pub const DEFAULT_MAX_STARTING: NonZeroU32 = NonZeroU32::MIN.saturating_add(511);

    /// The usual set-up with everything in that directory, going by the real clock.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
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
