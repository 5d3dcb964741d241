//! Why one who runs units does not do what it is asked.

use fleet_core::graph::{GraphError, Name, NotReloadable, Target};

use crate::ServiceError;

/// Why a supervisor does not do what it is asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SupervisorError {
    /// It cannot be there for that.
    #[error("it cannot be wanted")]
    InvalidTargets(#[source] GraphError),
    /// A shutdown has begun.
    #[error("all units are being ended: choose a goal once they are run again")]
    ShuttingDown,
    /// A unit cannot read its configuration again.
    #[error("{target} cannot be reloaded")]
    NotReloadable {
        /// The target of the unit.
        target: Target,
        /// Why.
        #[source]
        why: NotReloadable,
    },
    /// There is no unit of that name, or it never ran.
    #[error("there is no log of {unit}")]
    NoLog {
        /// The name.
        unit: Name,
    },
    /// The directory cannot be used, or not be read or written.
    #[error(transparent)]
    ServiceRun(#[from] ServiceError),
    /// What leads the units has ended by a defect. They go on running; start a supervisor anew.
    #[error("the supervisor has ended by a defect: start it again")]
    Crashed,
}

pub(super) fn io_error(action: &str) -> impl FnOnce(std::io::Error) -> ServiceError {
    let action = action.to_owned();
    move |source| ServiceError::Io { action, source }
}
