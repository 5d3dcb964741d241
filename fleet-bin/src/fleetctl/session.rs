//! Requests to the cluster, with errors that name the failed action.

pub(super) mod credentials;
mod history;
mod jobs;
pub(super) mod machines;
mod rollouts;
pub(super) mod settings;
pub(super) mod ssh;
pub(super) mod tunnel;

pub(crate) use machines::is_complete_id;

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fleet_core::journal::JournalLine;
use fleet_core::{Epoch, Generation, Intent, MachineId, Requirements, Strictness};
use fleet_http::client::{
    EventOptions, Events, ExportBytes, JournalLines, JournalOptions, PutOutcome, StateFilter,
    UnitFilter, UnitUpload, UnitWrites, WrittenUnits,
};
use fleet_http::{Client, ClientError, Endpoint, wire};
use fleet_store::registry::MetadataChange;
use fleet_unitfile::{UnitFile, UnitName};
use tokio::sync::OnceCell;

use super::session::credentials::CredentialFiles;
use super::wait::Observation;
use crate::ui::error::CliError;
use crate::ui::names::nearest;

/// Connection to a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    client: Client,
    /// Names of all units, for suggestions. Fetched at most once.
    names: Arc<OnceCell<Vec<String>>>,
}

impl Session {
    /// Creates a session without connecting; the first request opens the connection.
    ///
    /// # Errors
    ///
    /// The endpoint is invalid, or a credential file cannot be used.
    pub(crate) fn new(endpoint: &str, credentials: &CredentialFiles) -> Result<Self, CliError> {
        let cannot_use = |text| CliError::usage(format!("cannot use --endpoint {text}"));
        let endpoint: Endpoint =
            endpoint.parse().map_err(|error| cannot_use(endpoint).because(error))?;
        let credentials = credentials.credentials(endpoint.is_tls())?;
        Ok(Self { client: Client::with_credentials(&endpoint, credentials), names: Arc::default() })
    }

    /// Returns the time for which the daemon had not reached its store when it sent the last
    /// response. Returns `None` if it was in contact with its store.
    pub(crate) fn behind(&self) -> Option<Duration> {
        self.client.behind()
    }

    /// Returns the daemon's version, and why its machine could not join the cluster.
    pub(crate) async fn daemon(&self) -> Result<wire::VersionResponse, CliError> {
        self.client.daemon().await.map_err(|error| cannot("get the version", error))
    }

    /// Returns why the daemon is not ready, or `None` if it is: its view may be outdated, or its
    /// store may refuse writes.
    pub(crate) async fn unready(&self) -> Result<Option<String>, CliError> {
        match self.client.ready().await {
            Ok(()) => Ok(None),
            Err(ClientError::Api { status: 503, message, .. }) => Ok(Some(message)),
            Err(error) => Err(cannot("check that fleetd is ready", error)),
        }
    }

    /// Returns all units.
    pub(crate) async fn units(&self) -> Result<Vec<wire::UnitEntity>, CliError> {
        self.client.units().await.map_err(|error| cannot("list the units", error))
    }

    /// Returns all states of units on machines.
    pub(crate) async fn states(&self) -> Result<Vec<wire::UnitStateEntity>, CliError> {
        let states = self.client.states(&StateFilter::default()).await;
        states.map_err(|error| cannot("list the unit states", error))
    }

    /// Returns all machines that are present.
    pub(crate) async fn machines(&self) -> Result<Vec<wire::MachineEntity>, CliError> {
        self.client.machines().await.map_err(|error| cannot("list the machines", error))
    }

    /// Returns the machines that were present within the last day, and are absent now.
    pub(crate) async fn absent_machines(&self) -> Result<Vec<wire::MachineEntity>, CliError> {
        const DAY: u64 = 24 * 60 * 60;
        let machines = self.client.absent_machines().await;
        let mut machines = machines.map_err(|error| cannot("list the absent machines", error))?;
        machines.retain(|machine| machine.absent_for.is_some_and(|seconds| seconds < DAY));
        Ok(machines)
    }

    /// Returns a unit; `None` if the cluster does not know it.
    pub(crate) async fn unit(&self, name: &UnitName) -> Result<Option<wire::UnitEntity>, CliError> {
        self.client.unit(name).await.map_err(|error| cannot(format!("look up {name}"), error))
    }

    /// Looks up a unit that must exist.
    ///
    /// # Errors
    ///
    /// The cluster does not know the unit. The error suggests a unit with a similar name, if any.
    pub(crate) async fn known_unit(&self, name: &UnitName) -> Result<wire::UnitEntity, CliError> {
        match self.unit(name).await? {
            Some(unit) => Ok(unit),
            None => Err(self.unknown(name).await),
        }
    }

    /// Returns the error for an unknown unit.
    pub(crate) async fn unknown(&self, name: &UnitName) -> CliError {
        let error = CliError::failed(format!("{name} is not known to the cluster"));
        match self.suggestion(name).await {
            Some(near) => error.help(near),
            None => error.help("\"fleetctl list-unit-files\" shows the units that are known"),
        }
    }

    /// Returns a question such as "did you mean web.service?" if a unit with a similar name exists.
    pub(crate) async fn suggestion(&self, name: &UnitName) -> Option<String> {
        let list = async || {
            let units = self.client.units().await.unwrap_or_default();
            units.into_iter().map(|unit| unit.name).collect()
        };
        let names = self.names.get_or_init(list).await;
        let near = nearest(name.as_str(), names.iter().map(String::as_str))?;
        Some(format!("did you mean {near}?"))
    }

    /// Returns the states of one unit on machines.
    pub(crate) async fn states_of(
        &self,
        name: &UnitName,
    ) -> Result<Vec<wire::UnitStateEntity>, CliError> {
        let filter = StateFilter::default().with_unit(name.as_str());
        let states = self.client.states(&filter).await;
        states.map_err(|error| cannot(format!("get the state of {name}"), error))
    }

    /// Observes one unit on all its machines.
    pub(crate) async fn observe(&self, name: &UnitName) -> Result<Observation, CliError> {
        let (unit, states) = futures_util::try_join!(self.unit(name), self.states_of(name))?;
        Ok(Observation { unit, states, ..Observation::default() })
    }

    /// Returns a unit with its last journal lines, or `None` if the cluster does not know the unit.
    pub(crate) async fn status(
        &self,
        name: &UnitName,
        lines: u32,
    ) -> Result<Option<wire::UnitStatusReport>, CliError> {
        let status = self.client.status(name, Some(lines)).await;
        status.map_err(|error| cannot(format!("look up {name}"), error))
    }

    /// Returns, for each machine, the reason why it accepts or refuses a unit. Returns an error if
    /// the cluster does not know the unit.
    pub(crate) async fn explain(
        &self,
        name: &UnitName,
    ) -> Result<wire::PlacementExplanation, CliError> {
        match self.client.explain(name).await {
            Ok(Some(explanation)) => Ok(explanation),
            Ok(None) => Err(self.unknown(name).await),
            Err(error) => Err(cannot(format!("explain {name}"), error)),
        }
    }

    /// Returns the engine's plan if these units were uploaded and those destroyed.
    pub(crate) async fn plan(
        &self,
        puts: &[(UnitName, UnitUpload)],
        destroy: &[UnitName],
    ) -> Result<wire::PlanReport, CliError> {
        let plan = self.client.plan(puts, destroy).await;
        plan.map_err(|error| cannot("preview the changes", error).help("nothing was changed"))
    }

    /// Returns the verdicts of the machines' service managers on unit files; `None` if the daemon
    /// is too old to give them.
    pub(crate) async fn check(
        &self,
        units: &[(UnitName, Option<UnitUpload>)],
    ) -> Result<Option<wire::CheckReport>, CliError> {
        let report = self.client.check(units).await;
        report.map_err(|error| cannot("check the unit files", error).help("nothing was changed"))
    }

    /// Returns the instances of a template.
    pub(crate) async fn instances(
        &self,
        template: &UnitName,
    ) -> Result<Vec<wire::UnitEntity>, CliError> {
        let filter = UnitFilter::default().with_template(template.clone());
        let units = self.client.units_matching(&filter).await;
        units.map_err(|error| cannot(format!("list the instances of {template}"), error))
    }

    /// Writes units together, all or nothing. `verb` is for messages.
    pub(crate) async fn write(
        &self,
        verb: &str,
        writes: &UnitWrites,
    ) -> Result<WriteOutcome, CliError> {
        if writes.is_empty() {
            return Ok(WriteOutcome::Written(WrittenUnits::default()));
        }
        let what = match &writes.names()[..] {
            [one] => format!("{verb} {one}"),
            all => format!("{verb} {} units", all.len()),
        };
        match self.client.write_units(writes).await {
            Ok(written) => Ok(WriteOutcome::Written(written)),
            Err(error @ ClientError::Api { status: 404 | 412, .. }) => {
                Ok(WriteOutcome::Changed(cannot(what, error)))
            }
            Err(ClientError::Api { status: 405, .. }) => {
                Err(CliError::failed(format!("cannot {what}: this fleetd is older than fleetctl"))
                    .help("upgrade fleetd, or use the fleetctl of its version"))
            }
            Err(error @ ClientError::Api { status: 413, .. }) => {
                Err(cannot(what, error).help("give fewer files at a time"))
            }
            Err(error) => Err(cannot(what, error)),
        }
    }

    /// Requests the stop of a loaded unit's run.
    pub(crate) async fn stop(&self, name: &UnitName) -> Result<(), CliError> {
        self.client.stop(name).await.map_err(|error| cannot(format!("stop {name}"), error))
    }

    /// Opens an export of the cluster.
    pub(crate) async fn export(&self) -> Result<ExportBytes, CliError> {
        self.client.export().await.map_err(|error| cannot("export the cluster", error))
    }

    /// Returns the next bytes of an export; `None` at the end.
    pub(crate) async fn next_export_chunk(
        &self,
        export: &mut ExportBytes,
    ) -> Result<Option<Bytes>, CliError> {
        export.next().await.map_err(|error| cannot("export the rest of the cluster", error))
    }

    /// Creates a unit with this generation, or replaces one. Returns `false` if `upload` must only
    /// create the unit and it already exists.
    pub(crate) async fn import_unit(
        &self,
        name: &UnitName,
        upload: &UnitUpload,
        generation: Generation,
    ) -> Result<bool, CliError> {
        match self.client.import_unit(name, upload, generation).await {
            Ok(outcome) => Ok(outcome != PutOutcome::Exists),
            Err(error) => Err(cannot(format!("import {name}"), error)),
        }
    }

    /// Sets metadata of machines atomically.
    pub(crate) async fn set_metadata(&self, changes: &[MetadataChange]) -> Result<(), CliError> {
        let set = self.client.patch_machines(changes).await;
        set.map_err(|error| cannot("set the metadata of machines", error))
    }

    /// Imports the epoch and the intents of another cluster.
    pub(crate) async fn import_epoch_and_intents(
        &self,
        past: Epoch,
        intents: &[(MachineId, Intent)],
    ) -> Result<(), CliError> {
        let result = self.client.prepare_import(past, intents).await;
        result.map_err(|error| {
            cannot("import the epoch and the intents of machines (cordons and drains)", error)
        })
    }

    /// Opens a unit's journal. A followed journal resumes after connection losses.
    pub(crate) async fn journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
    ) -> Result<JournalLines, CliError> {
        let lines = self.client.journal(name, options).await;
        lines.map(JournalLines::reconnecting).map_err(|error| journal_error("read", name, error))
    }

    /// Like [`journal`](Self::journal), with timestamps.
    pub(crate) async fn dated_journal(
        &self,
        name: &UnitName,
        options: &JournalOptions,
    ) -> Result<JournalLines, CliError> {
        let lines = self.client.journal_with_timestamps(name, options).await;
        lines.map(JournalLines::reconnecting).map_err(|error| journal_error("read", name, error))
    }

    /// Opens the stream of changes of the cluster.
    pub(crate) async fn events(&self, options: &EventOptions) -> Result<Events, CliError> {
        let events = self.client.events(options).await;
        events.map_err(|error| cannot("follow the events", error))
    }

    /// Returns the last lines of a unit's journal.
    pub(crate) async fn last_lines(
        &self,
        name: &UnitName,
        machine: Option<String>,
        lines: u32,
    ) -> Result<Vec<wire::LogLine>, CliError> {
        let options = JournalOptions::default().with_lines(lines).with_machine(machine);
        let mut journal = self.dated_journal(name, &options).await?;
        let mut read = Vec::new();
        while let Some(line) = next_dated(&mut journal, name).await? {
            read.push(line.into());
        }
        Ok(read)
    }
}

/// Result of a write of several units.
pub(crate) enum WriteOutcome {
    /// All were written.
    Written(WrittenUnits),
    /// The writes were not made, or only some of many, because other clients have changed the units
    /// since they were read. This is the error to report unless the write is tried again.
    Changed(CliError),
}

/// Returns the next line of a journal; `None` at the end.
pub(crate) async fn next_line(
    journal: &mut JournalLines,
    name: &UnitName,
) -> Result<Option<String>, CliError> {
    Ok(next_dated(journal, name).await?.map(|line| line.text))
}

/// Returns the next line with its timestamp, if timestamps were requested.
pub(crate) async fn next_dated(
    journal: &mut JournalLines,
    name: &UnitName,
) -> Result<Option<JournalLine>, CliError> {
    let line = journal.next_entry().await;
    line.map_err(|error| journal_error("continue reading", name, error))
}

/// Returns the error for a journal that cannot be opened or read on.
fn journal_error(what: &str, name: &UnitName, error: ClientError) -> CliError {
    let help = match &error {
        ClientError::Api { status: 409, .. } => {
            Some(format!("\"fleetctl status {name}\" shows its desired state"))
        }
        ClientError::Api { status: 400 | 401 | 403, .. } => None,
        ClientError::Api { .. } | ClientError::Broken { .. } | ClientError::TimedOut { .. } => {
            Some(format!(
                "\"fleetctl status {name}\" shows its machine, and \"fleetctl doctor\" reports \
                 problems there; then try again"
            ))
        }
        _ => None,
    };
    let error = cannot(format!("{what} the journal of {name}"), error);
    help.into_iter().fold(error, CliError::help)
}

/// Returns the content of a unit's file.
///
/// # Errors
///
/// The response contains no file (for example because the unit is broken), or the file cannot be
/// decoded.
pub(crate) fn source(unit: &wire::UnitEntity) -> Result<Vec<u8>, CliError> {
    match (&unit.source, &unit.source_base64) {
        (Some(text), _) => Ok(text.clone().into_bytes()),
        (None, Some(text)) => STANDARD.decode(text).map_err(|error| {
            CliError::failed(format!("cannot decode the file of {} that fleetd sent", unit.name))
                .because(error)
        }),
        (None, None) => Err(CliError::failed(match unit.problem.as_str() {
            "" => format!("fleetd sent no file of {}", unit.name),
            problem => format!("the file of {} is not available: {problem}", unit.name),
        })),
    }
}

/// Returns the bytes of a file that is sent as text or in base64. Returns `None` if there are none
/// or they cannot be decoded.
pub(crate) fn decoded_source(text: &Option<String>, base64: &Option<String>) -> Option<Vec<u8>> {
    match (text, base64) {
        (Some(text), _) => Some(text.clone().into_bytes()),
        (None, Some(text)) => STANDARD.decode(text).ok(),
        (None, None) => None,
    }
}

/// Returns the machines with the metadata that a global unit requires.
pub(crate) fn eligible(
    unit: &wire::UnitEntity,
    machines: &[wire::MachineEntity],
) -> BTreeSet<String> {
    let file = source(unit).ok().and_then(|source| UnitFile::parse(source).ok());
    let (Some(file), Ok(name)) = (file, unit.name.parse()) else {
        return BTreeSet::new();
    };
    let Ok(parsed) = Requirements::parse(&name, &file, Strictness::Warn) else {
        return BTreeSet::new();
    };
    let fits = |machine: &&wire::MachineEntity| {
        let mut demands = parsed.requirements.metadata.iter();
        demands.all(|(key, values)| machine.metadata.get(key).is_some_and(|it| values.contains(it)))
    };
    machines.iter().filter(fits).map(|machine| machine.id.clone()).collect()
}

/// Returns the error for a failed request. Advice of the client becomes hints.
fn cannot(what: impl std::fmt::Display, error: ClientError) -> CliError {
    let is_final = matches!(error, ClientError::Api { status: 401 | 403 | 404, .. });
    let error = described(what, error);
    if is_final { error.final_answer() } else { error }
}

fn described(what: impl std::fmt::Display, error: ClientError) -> CliError {
    match error {
        ClientError::Unreachable { endpoint, cause } if is_forbidden(&*cause) => {
            CliError::failed(format!("no access to the fleetd at {endpoint}"))
                .because_of(cause)
                .help("run fleetctl with sudo, or as a member of the group of that socket (fleet)")
        }
        ClientError::Unreachable { endpoint, cause } => CliError::unreachable(endpoint)
            .because_of(cause)
            .help("start the fleetd there (\"systemctl start fleet\", or \"fleetd dev\")")
            .help("or set the address of another fleetd, with --endpoint or FLEETCTL_ENDPOINT"),
        ClientError::Untrusted { endpoint, cause } => {
            CliError::failed(format!("{endpoint} answers, but no secure connection can be made"))
                .because_of(cause)
                .help("set the CA of the fleetd's certificate with --ca-file")
        }
        error @ ClientError::Api { status: 401, .. } => CliError::failed(format!("cannot {what}"))
            .because(error)
            .help("authenticate with --token-file, or with --cert-file and --key-file"),
        error @ ClientError::BadResponse { .. } => CliError::failed(format!("cannot {what}"))
            .because(error)
            .help("set the address of a fleetd, with --endpoint or FLEETCTL_ENDPOINT"),
        error => CliError::failed(format!("cannot {what}")).because(error),
    }
}

/// Returns whether the user may not use the socket.
fn is_forbidden(cause: &(dyn Error + 'static)) -> bool {
    let mut next = Some(cause);
    while let Some(error) = next {
        let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if error.downcast_ref().is_some_and(is_denied) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the help was to start a daemon, although one was there.
    #[test]
    fn socket_without_permission_is_reported_with_its_remedy() {
        let fails_by = |kind| {
            let endpoint = "unix:///run/fleet.sock".parse().unwrap();
            let cause = io::Error::from(kind).into();
            cannot("list units", ClientError::Unreachable { endpoint, cause })
        };
        let denied = fails_by(io::ErrorKind::PermissionDenied);
        assert_eq!(denied.to_string(), "no access to the fleetd at unix:///run/fleet.sock");
        assert!(!denied.is_unreachable());
        assert!(fails_by(io::ErrorKind::ConnectionRefused).is_unreachable());
    }
}
