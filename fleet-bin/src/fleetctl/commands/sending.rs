//! Sending the files of units: all of them, before any desired state is changed.

use fleet_core::{Requirements, Strictness, TargetState};
use fleet_http::wire;
use fleet_unitfile::{UnitFile, UnitName};

use crate::fleetctl::at_once::until_refused;
use crate::fleetctl::error::CliError;
use crate::fleetctl::partly::with_done;
use crate::fleetctl::resolve::{Content, came_meanwhile, comes_and_goes};
use crate::fleetctl::session::Session;

/// How often a unit is sent that is in the way of itself and is not there when it is looked for: it
/// was destroyed meanwhile, or the daemon sees it later than the store.
const MOST_TRIES: usize = 5;

/// What is to be done for one unit.
pub(super) struct Step {
    pub(super) name: UnitName,
    /// What the cluster has under this name.
    pub(super) known: Option<wire::Unit>,
    /// What is to be done about its file.
    pub(super) content: Content,
    /// The file to send, where one is to be sent.
    pub(super) file: Option<UnitFile>,
    /// The desired state that it is to get.
    pub(super) goal: Option<TargetState>,
}

impl Step {
    /// Whether the unit has its file and its desired state already.
    pub(super) fn is_there(&self) -> bool {
        self.goal.is_none() && matches!(self.content, Content::Keep)
    }
}

/// That a file was refused, and whose were taken before that.
pub(super) struct Refusal {
    pub(super) error: CliError,
    pub(super) taken: Vec<UnitName>,
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        refusal.error
    }
}

/// Sends every file that is to be sent. Units that are new stay inactive for now, and a file that
/// takes another's place leaves the desired state as it is.
///
/// When the cluster refuses one, those that it has taken stay so; the error names them.
pub(super) async fn send_contents(session: &Session, steps: &[Step]) -> Result<(), Refusal> {
    let new = steps.iter().filter_map(|step| Some((step, step.file.as_ref()?)));
    // Only one after the other the cluster sees whether they lead in a circle.
    let (tied, free): (Vec<_>, Vec<_>) = new.partition(|(step, file)| is_tied(&step.name, file));
    let sending = free.iter().map(|(step, file)| send(session, step, (*file).clone()));
    let mut sent = until_refused(sending).await;
    for (step, file) in &tied {
        if sent.iter().any(Result::is_err) {
            break;
        }
        sent.push(send(session, step, (*file).clone()).await);
    }
    tell_sent(free.iter().chain(&tied).map(|(step, _)| *step).zip(sent))
}

/// The first refusal, with what was taken beside it: what is new waits, and what is not has its new
/// file, and was started anew with it if it was launched.
fn tell_sent<'a>(
    sent: impl Iterator<Item = (&'a Step, Result<(), CliError>)>,
) -> Result<(), Refusal> {
    let (taken, refused): (Vec<_>, Vec<_>) = sent.partition(|(_, result)| result.is_ok());
    let Some(error) = refused.into_iter().find_map(|(_, result)| result.err()) else {
        return Ok(());
    };
    let named = |is_known: bool| {
        let those = taken.iter().filter(|(step, _)| step.known.is_some() == is_known);
        those.map(|(step, _)| step.name.as_str()).collect::<Vec<_>>()
    };
    let error = with_done(error, "submitted, and not started,", &named(false));
    let error = with_done(error, "replaced", &named(true));
    Err(Refusal { error, taken: taken.iter().map(|(step, _)| step.name.clone()).collect() })
}

/// Whether a unit names others that it goes with.
fn is_tied(name: &UnitName, file: &UnitFile) -> bool {
    Requirements::parse(name, file, Strictness::Warn).is_ok_and(|parsed| {
        let Requirements { machine_of, replaces, .. } = &parsed.requirements;
        !machine_of.is_empty() || !replaces.is_empty()
    })
}

async fn send(session: &Session, step: &Step, file: UnitFile) -> Result<(), CliError> {
    let name = &step.name;
    if let Some(known) = &step.known {
        return session.replace(name, file, known.desired()).await;
    }
    for _ in 0..MOST_TRIES {
        if session.create(name, file.clone()).await? {
            return Ok(());
        }
        if let Some(now) = session.unit(name).await? {
            return came_meanwhile(name, file.hash(), &now);
        }
    }
    Err(comes_and_goes(name))
}
