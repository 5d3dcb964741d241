//! Errors of a supervisor.

use fleet_core::graph::{GraphError, Name, NotReloadable, Target};

use crate::ServiceError;

/// Error returned by an [`InitSupervisor`](crate::native::InitSupervisor).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// The graph cannot provide the desired targets.
    #[error("invalid goal or targets")]
    InvalidTargets(#[source] GraphError),
    /// A shutdown has begun.
    #[error("all units are shutting down: set the goal after fleet-init has started again")]
    ShuttingDown,
    /// The unit cannot be reloaded.
    #[error("{target} cannot be reloaded")]
    NotReloadable {
        /// Target of the unit.
        target: Target,
        /// Reason.
        #[source]
        why: NotReloadable,
    },
    /// The settings mask the target, so a request cannot unmask it.
    #[error("{target} is masked in init.conf: remove it from `mask` there, then reload")]
    MaskedBySettings {
        /// The masked target.
        target: Target,
    },
    /// The unit does not exist, or it never ran.
    #[error("there is no log of {unit}: the unit does not exist, or has never run")]
    NoLog {
        /// Name of the unit.
        unit: Name,
    },
    /// The directory is in use, or cannot be read or written.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The supervisor task has panicked. The units keep running; start a supervisor again.
    #[error("the supervisor has crashed; its units keep running: restart fleet-init or fleetd")]
    Crashed,
}

/// The task of the supervisor is gone, because it has panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::native) struct Crashed;

impl From<Crashed> for SupervisorError {
    fn from(_: Crashed) -> Self {
        Self::Crashed
    }
}

impl From<Crashed> for ServiceError {
    fn from(_: Crashed) -> Self {
        let problem = "its supervisor task has crashed: restart the daemon";
        Self::Unavailable(problem.to_owned())
    }
}

/// Returns a function that describes an I/O error by the failed action.
pub(in crate::native) fn io_error(action: &str) -> impl FnOnce(std::io::Error) -> ServiceError {
    let action = action.to_owned();
    move |source| ServiceError::Io { action, source }
}
