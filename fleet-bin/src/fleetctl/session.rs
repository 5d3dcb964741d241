//! What commands ask of the cluster, with errors that say what could not be done.

mod balance;
mod machines;

pub(crate) use machines::is_whole;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fleet_core::{Epoch, Intent, MachineId, Requirements, Strictness, TargetState};
use fleet_http::{
    Client, ClientError, Endpoint, EventOptions, Events, ExportBytes, JournalLine, JournalLines,
    JournalOptions, PutOutcome, StateFilter, UnitFilter, UnitUpload, wire,
};
use fleet_store::MetadataChange;
use fleet_unitfile::{UnitFile, UnitName};
use tokio::sync::OnceCell;

use super::access::Access;
use super::error::CliError;
use super::names::nearest;
use super::wait::Sight;

/// How the daemon says that a desired state is for a unit that is not there.
const NO_UNIT: &str = "unit does not exist";

/// The connection to a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    client: Client,
    /// The names of all units, listed once at most, for whoever wrote one wrongly.
    names: Arc<OnceCell<Vec<String>>>,
}

impl Session {
    /// Names the daemon; it is connected to when something is first asked of it.
    ///
    /// # Errors
    ///
    /// The text says not where a daemon is, or a file that it takes to be let in is of no use.
    pub(crate) fn new(endpoint: &str, access: &Access) -> Result<Self, CliError> {
        let endpoint: Endpoint = endpoint
            .parse()
            .map_err(|error| CliError::usage("--endpoint cannot be used").because(error))?;
        let credentials = access.credentials(endpoint.is_tls())?;
        Ok(Self { client: Client::with(&endpoint, credentials), names: Arc::default() })
    }

    /// How long ago the daemon lost sight of the cluster, if it has, as of its last answer.
    pub(crate) fn behind(&self) -> Option<Duration> {
        self.client.behind()
    }

    /// The daemon's version.
    pub(crate) async fn version(&self) -> Result<String, CliError> {
        self.client.version().await.map_err(|error| cannot("ask for the version", error))
    }

    /// All units.
    pub(crate) async fn units(&self) -> Result<Vec<wire::Unit>, CliError> {
        self.client.units().await.map_err(|error| cannot("list the units", error))
    }

    /// All states of units on machines.
    pub(crate) async fn states(&self) -> Result<Vec<wire::UnitState>, CliError> {
        let states = self.client.states(&StateFilter::default()).await;
        states.map_err(|error| cannot("list the unit states", error))
    }

    /// All machines that are present.
    pub(crate) async fn machines(&self) -> Result<Vec<wire::Machine>, CliError> {
        self.client.machines().await.map_err(|error| cannot("list the machines", error))
    }

    /// One unit; `None` if the cluster does not know it.
    pub(crate) async fn unit(&self, name: &UnitName) -> Result<Option<wire::Unit>, CliError> {
        self.client.unit(name).await.map_err(|error| cannot(format!("look at {name}"), error))
    }

    /// One unit that must be known.
    ///
    /// # Errors
    ///
    /// It is not known; a name that is near is suggested.
    pub(crate) async fn known_unit(&self, name: &UnitName) -> Result<wire::Unit, CliError> {
        match self.unit(name).await? {
            Some(unit) => Ok(unit),
            None => Err(self.unknown(name).await),
        }
    }

    /// The error for a unit that the cluster does not know.
    pub(crate) async fn unknown(&self, name: &UnitName) -> CliError {
        let error = CliError::failed(format!("{name} is not known to the cluster"));
        match self.near(name).await {
            Some(near) => error.help(near),
            None => error.help("\"fleetctl list-unit-files\" shows the units that are known"),
        }
    }

    /// A question for the unit that was probably meant, if the name of one is near.
    pub(crate) async fn near(&self, name: &UnitName) -> Option<String> {
        let list = async || {
            let units = self.client.units().await.unwrap_or_default();
            units.into_iter().map(|unit| unit.name).collect()
        };
        let names = self.names.get_or_init(list).await;
        let near = nearest(name.as_str(), names.iter().map(String::as_str))?;
        Some(format!("did you mean {near}?"))
    }

    /// The states of one unit on machines.
    pub(crate) async fn states_of(
        &self,
        name: &UnitName,
    ) -> Result<Vec<wire::UnitState>, CliError> {
        let filter = StateFilter { unit: Some(name.to_string()), ..StateFilter::default() };
        let states = self.client.states(&filter).await;
        states.map_err(|error| cannot(format!("look at the state of {name}"), error))
    }

    /// Looks at one unit, wherever it is.
    pub(crate) async fn sight(&self, name: &UnitName) -> Result<Sight, CliError> {
        let (unit, states) = futures_util::try_join!(self.unit(name), self.states_of(name))?;
        Ok(Sight { unit, states, ..Sight::default() })
    }

    /// One unit with the last lines that it wrote; `None` if the cluster does not know it.
    pub(crate) async fn status(
        &self,
        name: &UnitName,
        lines: u32,
    ) -> Result<Option<wire::UnitStatus>, CliError> {
        let status = self.client.status(name, Some(lines)).await;
        status.map_err(|error| cannot(format!("look at {name}"), error))
    }

    /// What every machine says to a unit that must be known.
    pub(crate) async fn explain(&self, name: &UnitName) -> Result<wire::Explanation, CliError> {
        match self.client.explain(name).await {
            Ok(Some(told)) => Ok(told),
            Ok(None) => Err(self.unknown(name).await),
            Err(error) => Err(cannot(format!("explain {name}"), error)),
        }
    }

    /// What the engine would do if these units were put there and those destroyed.
    pub(crate) async fn plan(
        &self,
        puts: &[(UnitName, UnitUpload)],
        destroy: &[UnitName],
    ) -> Result<wire::Plan, CliError> {
        let plan = self.client.plan(puts, destroy).await;
        plan.map_err(|error| cannot("plan this", error).help("nothing was sent"))
    }

    /// The instances of a template.
    pub(crate) async fn instances(&self, template: &UnitName) -> Result<Vec<wire::Unit>, CliError> {
        let filter = UnitFilter { template: Some(template.clone()), ..UnitFilter::default() };
        let units = self.client.units_that(&filter).await;
        units.map_err(|error| cannot(format!("list the instances of {template}"), error))
    }

    /// Makes a unit known that is not. `false`: somebody else was faster.
    pub(crate) async fn create(&self, name: &UnitName, file: UnitFile) -> Result<bool, CliError> {
        let desired = Some(TargetState::Inactive);
        let upload = UnitUpload { file, desired, create_only: true };
        match self.client.put_unit(name, &upload).await {
            Ok(outcome) => Ok(outcome != PutOutcome::Exists),
            Err(error) => Err(cannot(format!("submit {name}"), error)),
        }
    }

    /// Puts another file in the place of a unit's file.
    pub(crate) async fn replace(
        &self,
        name: &UnitName,
        file: UnitFile,
        desired: Option<TargetState>,
    ) -> Result<(), CliError> {
        let upload = UnitUpload { file, desired, create_only: false };
        let outcome = self.client.put_unit(name, &upload).await;
        outcome.map(drop).map_err(|error| cannot(format!("replace {name}"), error))
    }

    /// Changes a unit's desired state.
    pub(crate) async fn set_desired(
        &self,
        name: &UnitName,
        desired: TargetState,
    ) -> Result<(), CliError> {
        let set = self.client.set_desired(name, desired).await;
        set.map_err(|error| match &error {
            // The words of fleet v1, whose clients left the options out for this alone.
            ClientError::Api { status: 409, message, .. } if message.starts_with(NO_UNIT) => {
                CliError::failed(format!("{name} is known no more: somebody has destroyed it"))
            }
            _ => cannot(format!("make {desired} the desired state of {name}"), error),
        })
    }

    /// Forgets a unit.
    pub(crate) async fn destroy(&self, name: &UnitName) -> Result<bool, CliError> {
        let gone = self.client.destroy(name).await;
        gone.map_err(|error| cannot(format!("destroy {name}"), error))
    }

    /// Asks for a restart, and returns the generation that the unit will then have.
    pub(crate) async fn restart(&self, name: &UnitName) -> Result<u64, CliError> {
        let generation = self.client.restart(name).await;
        generation.map(|it| it.0).map_err(|error| cannot(format!("restart {name}"), error))
    }

    /// Opens an export of the cluster.
    pub(crate) async fn export(&self) -> Result<ExportBytes, CliError> {
        self.client.export().await.map_err(|error| cannot("export the cluster", error))
    }

    /// The next bytes of an export; `None` after the last ones.
    pub(crate) async fn more(&self, export: &mut ExportBytes) -> Result<Option<Bytes>, CliError> {
        export.next().await.map_err(|error| cannot("go on exporting the cluster", error))
    }

    /// Puts a unit in the place of whatever is there, or where nothing is. `false`: it was to be
    /// new, and somebody else was faster.
    pub(crate) async fn put(&self, name: &UnitName, upload: &UnitUpload) -> Result<bool, CliError> {
        match self.client.put_unit(name, upload).await {
            Ok(outcome) => Ok(outcome != PutOutcome::Exists),
            Err(error) => Err(cannot(format!("import {name}"), error)),
        }
    }

    /// Sets metadata of machines, all of it or nothing.
    pub(crate) async fn set_metadata(&self, changes: &[MetadataChange]) -> Result<(), CliError> {
        let set = self.client.patch_machines(changes).await;
        set.map_err(|error| cannot("set the metadata of machines", error))
    }

    /// Hands over what another cluster leaves behind beside units and metadata.
    pub(crate) async fn hand_over(
        &self,
        past: Epoch,
        intents: &[(MachineId, Intent)],
    ) -> Result<(), CliError> {
        let handed = self.client.hand_over(past, intents).await;
        handed.map_err(|error| cannot("hand the cluster over", error))
    }

    /// Opens a unit's journal. One that is followed goes on where the connection breaks.
    pub(crate) async fn journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
    ) -> Result<JournalLines, CliError> {
        let lines = self.client.journal(name, options).await;
        lines.map(JournalLines::lasting).map_err(|error| unreadable("read", name, error))
    }

    /// The same with when each line was written.
    pub(crate) async fn dated_journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
    ) -> Result<JournalLines, CliError> {
        let lines = self.client.dated_journal(name, options).await;
        lines.map(JournalLines::lasting).map_err(|error| unreadable("read", name, error))
    }

    /// Opens what changes in the cluster.
    pub(crate) async fn events(&self, options: &EventOptions) -> Result<Events, CliError> {
        let events = self.client.events(options).await;
        events.map_err(|error| cannot("follow the cluster", error))
    }

    /// The last lines of a unit's journal, as far as they can be had.
    pub(crate) async fn last_lines(
        &self,
        name: &UnitName,
        machine: Option<String>,
        lines: u32,
    ) -> Result<Vec<String>, CliError> {
        let options = JournalOptions { lines: Some(lines), machine, ..JournalOptions::default() };
        let mut journal = self.journal(name, &options).await?;
        let mut read = Vec::new();
        while let Some(line) = next_line(&mut journal, name).await? {
            read.push(line);
        }
        Ok(read)
    }
}

/// The next line of a journal; `None` after the last one.
pub(crate) async fn next_line(
    journal: &mut JournalLines,
    name: &UnitName,
) -> Result<Option<String>, CliError> {
    Ok(next_dated(journal, name).await?.map(|line| line.text))
}

/// The same with when it was written, if that was asked for.
pub(crate) async fn next_dated(
    journal: &mut JournalLines,
    name: &UnitName,
) -> Result<Option<JournalLine>, CliError> {
    let line = journal.next_dated().await;
    line.map_err(|error| unreadable("go on reading", name, error))
}

/// Says that a journal cannot be had, at its beginning or in the middle of it.
fn unreadable(what: &str, name: &UnitName, error: ClientError) -> CliError {
    let help = match &error {
        ClientError::Api { status: 409, .. } => {
            Some(format!("\"fleetctl status {name}\" shows what is wanted of it"))
        }
        ClientError::Api { status: 400 | 401 | 403, .. } => None,
        ClientError::Api { .. } | ClientError::Broken { .. } | ClientError::TimedOut { .. } => {
            Some(format!(
                "\"fleetctl status {name}\" shows where it is, and \"fleetctl doctor\" what is \
                 wrong there; then ask for its journal again"
            ))
        }
        _ => None,
    };
    let error = cannot(format!("{what} the journal of {name}"), error);
    help.into_iter().fold(error, CliError::help)
}

/// The bytes of a unit's file.
///
/// # Errors
///
/// The server sent none, or none that can be read.
pub(crate) fn source(unit: &wire::Unit) -> Result<Vec<u8>, CliError> {
    match (&unit.source, &unit.source_base64) {
        (Some(text), _) => Ok(text.clone().into_bytes()),
        (None, Some(text)) => STANDARD.decode(text).map_err(|error| {
            CliError::failed(format!("the file of {} cannot be read", unit.name)).because(error)
        }),
        (None, None) => Err(CliError::failed(match unit.problem.as_str() {
            "" => format!("the server sent no file of {}", unit.name),
            problem => format!("the file of {} cannot be had: {problem}", unit.name),
        })),
    }
}

/// The machines whose metadata a global unit asks for.
pub(crate) fn eligible(unit: &wire::Unit, machines: &[wire::Machine]) -> BTreeSet<String> {
    let file = source(unit).ok().and_then(|source| UnitFile::parse(source).ok());
    let (Some(file), Ok(name)) = (file, unit.name.parse()) else {
        return BTreeSet::new();
    };
    let Ok(parsed) = Requirements::parse(&name, &file, Strictness::Warn) else {
        return BTreeSet::new();
    };
    let fits = |machine: &&wire::Machine| {
        let mut demands = parsed.requirements.metadata.iter();
        demands.all(|(key, wanted)| machine.metadata.get(key).is_some_and(|it| wanted.contains(it)))
    };
    machines.iter().filter(fits).map(|machine| machine.id.clone()).collect()
}

/// Says what could not be done. What the client advises becomes hints of their own.
fn cannot(what: impl std::fmt::Display, error: ClientError) -> CliError {
    match error {
        ClientError::Unreachable { endpoint, cause } => {
            CliError::failed(format!("no fleetd answers at {endpoint}"))
                .because_of(cause)
                .help("start one there, for example with \"fleetd dev\"")
                .help("or name where one listens, with --endpoint or FLEETCTL_ENDPOINT")
        }
        ClientError::Untrusted { endpoint, cause } => {
            CliError::failed(format!("{endpoint} answers, but no secure connection can be made"))
                .because_of(cause)
                .help("name the authority of its certificate, with --ca-file")
        }
        error @ ClientError::Api { status: 401, .. } => CliError::failed(format!("cannot {what}"))
            .because(error)
            .help("name what to show, with --token-file, or --cert-file and --key-file"),
        error @ ClientError::BadAnswer { .. } => CliError::failed(format!("cannot {what}"))
            .because(error)
            .help("name where a fleetd listens, with --endpoint or FLEETCTL_ENDPOINT"),
        error => CliError::failed(format!("cannot {what}")).because(error),
    }
}
