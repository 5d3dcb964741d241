//! How one who runs units is set up, and its directory prepared.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::io_error;
use crate::lock::acquire_private;
use crate::native::cgroup::{Groups, leave_units};
use crate::native::manager_context::{ManagerContext, forget_old_boot};
use crate::{Clock, ServiceError, SystemClock};

/// The variable by which programs know which language to speak.
pub(super) const LANGUAGE: &str = "LANG";

/// How a [`InitSupervisor`](crate::InitSupervisor) is set up.
#[derive(Clone)]
pub struct SupervisorConfig {
    /// Where records and logs are kept. One supervisor at a time may use it, and no
    /// [`NativeManager`](crate::NativeManager).
    pub directory: PathBuf,
    /// Variables that every process of every unit is given, besides `PATH` and, of a
    /// [`InitSupervisor`](crate::InitSupervisor), the `LANG` that it finds.
    pub environment: Vec<(String, String)>,
    /// How many bytes of its output are kept of each unit.
    pub log_limit: u64,
    /// Whether each run of a unit gets a control group of its own where that is possible.
    pub control_groups: bool,
    /// The clock that time-outs and restarts go by.
    pub clock: Arc<dyn Clock>,
}

impl SupervisorConfig {
    /// The usual set-up with everything in that directory, going by the real clock.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            environment: Vec::new(),
            log_limit: crate::NativeConfig::DEFAULT_LOG_LIMIT,
            control_groups: true,
            clock: Arc::new(SystemClock::start()),
        }
    }

    /// The same with the language that the machine speaks, unless it names one itself.
    pub(super) fn with_language(mut self, language: Option<String>) -> Self {
        let is_named = self.environment.iter().any(|(name, _)| name == LANGUAGE);
        let found = language.filter(|_| !is_named).map(|language| (LANGUAGE.to_owned(), language));
        self.environment.extend(found);
        self
    }

    /// Prepares the directory for one who runs units there.
    pub(super) async fn open(&self) -> Result<Arc<ManagerContext>, ServiceError> {
        let lock = acquire_private(&self.directory, &*self.clock).await?;
        let units = self.directory.join("units");
        let prepared = forget_old_boot(&self.directory, &units);
        prepared.map_err(io_error("read the boot that this machine is in"))?;
        let groups = if self.control_groups {
            leave_units(&self.directory).map_err(io_error("begin beside its own units"))?;
            Groups::find(&self.directory)
        } else {
            Err("they are turned off".to_owned())
        };
        let context = ManagerContext::new(
            Arc::clone(&self.clock),
            self.environment.clone(),
            units,
            self.log_limit,
            groups,
            lock,
        );
        Ok(Arc::new(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_files_are_handed_the_language_of_the_machine() {
        let given = |own: &[&str], language: Option<&str>| {
            let mut config = SupervisorConfig::new("/nowhere");
            config.environment.extend(own.iter().map(|it| (LANGUAGE.into(), (*it).to_owned())));
            let config = config.with_language(language.map(ToOwned::to_owned));
            config.environment.into_iter().map(|(_, value)| value).collect::<Vec<_>>()
        };
        assert_eq!(given(&[], Some("C.UTF-8")), ["C.UTF-8"]);
        assert_eq!(given(&["de_DE.UTF-8"], Some("C.UTF-8")), ["de_DE.UTF-8"]);
        assert_eq!(given(&[], None), Vec::<String>::new());
    }
}
