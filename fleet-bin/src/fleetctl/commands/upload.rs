//! Uploads of unit files, which precede all changes of desired states.

use fleet_core::{Requirements, Strictness, TargetState};
use fleet_http::wire;
use fleet_unitfile::{UnitFile, UnitName};

use crate::fleetctl::concurrent::{try_buffered, with_completed};
use crate::fleetctl::manager_check::CheckedUnit;
use crate::fleetctl::resolve::{ContentAction, ContentSource, resolve_create_race, unstable_unit};
use crate::fleetctl::session::Session;
use crate::ui::error::CliError;

/// Maximum number of attempts to create a unit that already exists according to the create request,
/// but not according to the lookup that follows. Either another client has just destroyed the unit,
/// or the daemon's copy of the store lags behind.
const MAX_TRIES: usize = 5;

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

    /// Returns the unit with the file that it will have, for a check by the machines.
    pub(super) fn to_check(&self) -> CheckedUnit {
        let path = match &self.content {
            ContentAction::Create(ContentSource::Local(local))
            | ContentAction::Replace(ContentSource::Local(local)) => local.path.clone(),
            _ => self.name.as_str().into(),
        };
        CheckedUnit { name: self.name.clone(), path, file: self.file.clone() }
    }
}

/// A failed upload, with the units that were uploaded before it.
pub(super) struct UploadFailure {
    pub(super) error: CliError,
    pub(super) uploaded: Vec<UnitName>,
}

impl From<UploadFailure> for CliError {
    fn from(refusal: UploadFailure) -> Self {
        refusal.error
    }
}

/// Uploads all files. A new unit becomes inactive, and a replaced unit keeps its desired state.
///
/// After a failure, the uploads that succeeded are kept, and the error lists them.
pub(super) async fn send_contents(
    session: &Session,
    steps: &[UploadStep],
) -> Result<(), UploadFailure> {
    let new = steps.iter().filter_map(|step| Some((step, step.file.as_ref()?)));
    // The cluster detects dependency cycles among units only if they arrive one by one.
    let (dependent, free): (Vec<_>, Vec<_>) =
        new.partition(|(step, file)| depends_on_others(&step.name, file));
    let sending = free.iter().map(|(step, file)| send(session, step, (*file).clone()));
    let mut sent = try_buffered(sending).await;
    for (step, file) in &dependent {
        if sent.iter().any(Result::is_err) {
            break;
        }
        sent.push(send(session, step, (*file).clone()).await);
    }
    combine_results(free.iter().chain(&dependent).map(|(step, _)| *step).zip(sent))
}

/// Returns the first failure, if any, together with the names of the units that were uploaded. The
/// error lists new and replaced units separately, because new units are inactive. Replaced units
/// have their new file, and restart with it if they are launched.
fn combine_results<'a>(
    sent: impl Iterator<Item = (&'a UploadStep, Result<(), CliError>)>,
) -> Result<(), UploadFailure> {
    let (uploaded, refused): (Vec<_>, Vec<_>) = sent.partition(|(_, result)| result.is_ok());
    let Some(error) = refused.into_iter().find_map(|(_, result)| result.err()) else {
        return Ok(());
    };
    let named = |is_known: bool| {
        let those = uploaded.iter().filter(|(step, _)| step.known.is_some() == is_known);
        those.map(|(step, _)| step.name.as_str()).collect::<Vec<_>>()
    };
    let error = with_completed(error, "submitted, and not started,", &named(false));
    let error = with_completed(error, "replaced", &named(true));
    Err(UploadFailure {
        error,
        uploaded: uploaded.iter().map(|(step, _)| step.name.clone()).collect(),
    })
}

/// Whether the unit has `MachineOf=` or `Replaces=`.
fn depends_on_others(name: &UnitName, file: &UnitFile) -> bool {
    Requirements::parse(name, file, Strictness::Warn).is_ok_and(|parsed| {
        let Requirements { machine_of, replaces, .. } = &parsed.requirements;
        !machine_of.is_empty() || !replaces.is_empty()
    })
}

async fn send(session: &Session, step: &UploadStep, file: UnitFile) -> Result<(), CliError> {
    let name = &step.name;
    if let Some(known) = &step.known {
        return session.replace(name, file, known.desired()).await;
    }
    for _ in 0..MAX_TRIES {
        if session.create(name, file.clone()).await? {
            return Ok(());
        }
        if let Some(now) = session.unit(name).await? {
            return resolve_create_race(name, file.hash(), &now);
        }
    }
    Err(unstable_unit(name))
}
