//! Configuration of a supervisor, and the preparation of its directory.

use std::path::PathBuf;
use std::sync::Arc;

use super::error::io_error;
use crate::lock::acquire;
use crate::native::linux::cgroup::{Groups, leave_units};
use crate::native::state::manager_context::{ManagerContext, forget_old_boot};
use crate::native::state::runtime_directory::Directories;
use crate::{Clock, ServiceError, SystemClock};

/// Environment variable for the language of programs.
pub(super) const LANGUAGE: &str = "LANG";

/// Configuration of an [`InitSupervisor`](crate::native::InitSupervisor).
#[derive(Clone)]
pub struct SupervisorConfig {
    /// Directory for state and logs. At most one supervisor at a time may use the directory, and it
    /// must not be the directory of a [`NativeManager`](crate::NativeManager).
    pub directory: PathBuf,
    /// Directory in memory, such as `/run/fleet-init`. Records of runs and notification sockets are
    /// in a subdirectory of it, so that a full disk prevents no start, and units of other users and
    /// in other network namespaces can send notifications. `None`: records are in `directory`, and
    /// sockets have abstract addresses.
    pub runtime_directory: Option<PathBuf>,
    /// Environment variables that every process of every unit gets, besides `PATH`. An
    /// [`InitSupervisor`](crate::native::InitSupervisor) also passes on its own `LANG`, unless `LANG` is
    /// set here.
    pub environment: Vec<(String, String)>,
    /// Bytes of output kept per unit.
    pub log_limit: u64,
    /// Whether each run of a unit gets its own control group, on machines where fleet may create
    /// control groups.
    pub control_groups: bool,
    /// Clock for timeouts and restarts.
    pub clock: Arc<dyn Clock>,
}

impl SupervisorConfig {
    /// Returns the default configuration with this directory and the real clock.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            runtime_directory: None,
            environment: Vec::new(),
            log_limit: crate::NativeConfig::DEFAULT_LOG_LIMIT,
            control_groups: true,
            clock: Arc::new(SystemClock::start()),
        }
    }

    /// Adds `LANG` with this value, unless the configuration sets it already.
    pub(super) fn with_language(mut self, language: Option<String>) -> Self {
        let is_named = self.environment.iter().any(|(name, _)| name == LANGUAGE);
        let found = language.filter(|_| !is_named).map(|language| (LANGUAGE.to_owned(), language));
        self.environment.extend(found);
        self
    }

    /// Locks and prepares the directory.
    pub(super) async fn open(&self) -> Result<Arc<ManagerContext>, ServiceError> {
        let lock = acquire(&self.directory, &*self.clock).await?;
        let base = self.runtime_directory.as_deref();
        let directories = Directories::prepare(self.directory.clone(), base)
            .map_err(io_error("use the directories of this boot"))?;
        let prepared = forget_old_boot(&directories);
        prepared.map_err(io_error("identify the current boot"))?;
        let groups = if self.control_groups {
            leave_units(&self.directory)
                .map_err(io_error("leave the control groups of its units"))?;
            Groups::find(&self.directory)
        } else {
            Err("control groups are disabled".to_owned())
        };
        let context = ManagerContext::new(
            Arc::clone(&self.clock),
            self.environment.clone(),
            directories,
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
    fn language_is_inherited_unless_configured() {
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
