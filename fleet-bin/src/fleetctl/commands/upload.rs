//! Writes of unit files and desired states, all units together.

use fleet_core::TargetState;
use fleet_http::client::{UnitUpload, UnitWrites, WrittenUnits};
use fleet_http::wire;
use fleet_unitfile::{UnitFile, UnitName};

use crate::fleetctl::manager_check::CheckedUnit;
use crate::fleetctl::resolve::{ContentAction, ContentSource};
use crate::fleetctl::session::{Session, WriteOutcome};
use crate::ui::error::CliError;

/// Maximum number of attempts when other clients change the units at the same time.
pub(super) const MAX_ATTEMPTS: usize = 5;

/// Changes to make to one unit.
pub(super) struct UploadStep {
    pub(super) name: UnitName,
    /// The cluster's unit of this name.
    pub(super) known: Option<wire::UnitEntity>,
    /// Change to its file.
    pub(super) content: ContentAction,
    /// File to upload, if any.
    pub(super) file: Option<UnitFile>,
    /// Desired state to set, if any.
    pub(super) goal: Option<TargetState>,
}

impl UploadStep {
    /// Whether the unit already has its file and its desired state.
    pub(super) fn is_up_to_date(&self) -> bool {
        self.goal.is_none() && matches!(self.content, ContentAction::Keep)
    }

    /// Whether the cluster knows the unit as a job or a schedule.
    pub(super) fn is_job_or_schedule(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.job.is_some() || known.schedule.is_some())
    }

    /// Returns the unit with the file that it will have, for a check by the machines.
    pub(super) fn to_check(&self) -> CheckedUnit {
        let path = match &self.content {
            ContentAction::Create(ContentSource::Local(local))
            | ContentAction::Replace(ContentSource::Local(local)) => local.path.clone(),
            _ => self.name.as_str().into(),
        };
        CheckedUnit { name: self.name.clone(), path, file: self.file.clone() }
    }

    /// Adds the write of the unit. It is made only if the cluster still has the file that this
    /// program has seen.
    pub(super) fn add_to(&self, writes: UnitWrites) -> UnitWrites {
        let name = &self.name;
        let writes = match (&self.file, self.goal) {
            // Without a goal, the unit keeps the desired state that it has then.
            (Some(file), goal) => {
                writes.put(name, &UnitUpload::new(file.clone()).with_desired(goal))
            }
            (None, Some(goal)) => writes.set_desired(name, goal),
            (None, None) => return writes,
        };
        match self.known.as_ref().map(|known| known.hash.parse()) {
            None => writes.expect(name, None),
            Some(Ok(hash)) => writes.expect(name, Some(hash)),
            // A broken unit has no hash.
            Some(Err(_)) => writes,
        }
    }
}

/// Writes all files and desired states.
pub(super) fn writes(steps: &[UploadStep]) -> UnitWrites {
    steps.iter().fold(UnitWrites::default(), |writes, step| step.add_to(writes))
}

/// Prepares writes from the present state of the cluster, and makes them. Prepares them again if
/// other clients change the units meanwhile. Returns the last preparation, and the written units.
/// `verb` is for messages.
///
/// # Errors
///
/// The preparation or the request failed, or other clients keep changing the units. Nothing was
/// written then, unless the error gives a number of written units.
pub(super) async fn write_prepared<T>(
    session: &Session,
    verb: &str,
    mut prepare: impl AsyncFnMut() -> Result<(T, UnitWrites), CliError>,
) -> Result<(T, WrittenUnits), CliError> {
    let mut changed = None;
    for _ in 0..MAX_ATTEMPTS {
        let (prepared, writes) = prepare().await?;
        match session.write(verb, &writes).await? {
            WriteOutcome::Written(written) => return Ok((prepared, written)),
            WriteOutcome::Changed(error) => changed = Some(error),
        }
    }
    Err(changed.unwrap_or_else(|| CliError::failed("nothing was written")))
}
