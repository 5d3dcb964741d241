//! Reads journals and status details from the machines of a unit, local or remote.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use fleet_core::journal::{JournalLine, JournalQuery, Since};
use fleet_core::{MachineId, Snapshot, Timestamp};
use fleet_unitfile::UnitName;
use fleet_unitfile::values::Timespan;
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::journal::{JournalError, JournalStream, is_cursor};
use super::merge::{follow, merged};
use crate::client::{EndpointError, JournalLines, JournalOptions};
use crate::clock::wall_time;
use crate::cursors::{Cursors, REQUEST_MARGIN};
use crate::server::api::SharedApi;
use crate::server::failure::Failure;
use crate::wire::{LogLine, MachineUsage, PROXIED, StatusDetails};
use crate::{Client, ClientError, Credentials};

/// Time limit for a machine's response, and for its existing lines.
pub(crate) const MACHINE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum size of the buffered lines of one machine, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Source of a unit's journal for one request.
#[derive(Clone)]
pub(crate) struct JournalSource {
    api: SharedApi,
    unit: UnitName,
    query: JournalQuery,
    /// Cursors to resume after, by machine.
    after: BTreeMap<String, String>,
    /// Whether another daemon forwarded the request. If so, this daemon responds from its own
    /// machine, and does not forward the request again.
    is_proxied: bool,
}

impl JournalSource {
    pub(crate) fn new(
        api: &SharedApi,
        unit: &UnitName,
        query: JournalQuery,
        request: &Parts,
    ) -> Self {
        Self {
            api: api.clone(),
            unit: unit.clone(),
            query,
            after: BTreeMap::new(),
            is_proxied: request.headers.contains_key(PROXIED),
        }
    }

    /// Resumes after the lines with these cursors, each prefixed with its machine ID.
    pub(crate) fn resume_after<'a>(
        &mut self,
        cursors: impl Iterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        for given in cursors {
            let known = given.split_once('/').filter(|_| is_cursor(given));
            let (machine, cursor) = known.ok_or_else(|| {
                Failure::bad_request(format!(
                    "query parameter \"after\": {given:?} is not a cursor; use one from a response \
                     to a request with cursors=1"
                ))
            })?;
            self.after.insert(machine.to_owned(), cursor.to_owned());
        }
        Ok(())
    }

    /// Resumes after the last line received from a machine.
    pub(crate) fn resume_from(mut self, machine: &MachineId, cursors: &Cursors) -> Self {
        match cursors.cursor(machine.as_str()) {
            Some(cursor) => {
                self.after.insert(machine.to_string(), cursor.to_owned());
            }
            None => {
                let since = Since::Age(cursors.time_since_opened());
                (self.query.lines, self.query.since) = (None, Some(since));
            }
        }
        self
    }

    /// Returns whether the machine may write more lines of the unit later. This is so if the unit
    /// is wanted and not placed elsewhere. Also returns `true` if the server's view may be
    /// outdated.
    pub(crate) fn may_return(&self, machine: &MachineId) -> bool {
        let mirror = &self.api.mirror;
        if !mirror.is_current() {
            return true;
        }
        let (snapshot, name) = (mirror.snapshot(), self.unit.as_str());
        let is_wanted = snapshot.unit(name).is_some_and(|unit| unit.is_wanted());
        is_wanted && snapshot.placement(name).is_none_or(|placement| placement.machine == *machine)
    }

    /// Returns the unit's name.
    pub(crate) fn unit(&self) -> &UnitName {
        &self.unit
    }

    /// Opens the journal of one machine.
    pub(crate) async fn open(&self, machine: &MachineId) -> Result<JournalStream, JournalError> {
        let after = self.after.get(machine.as_str()).cloned();
        let query = self.query.clone().with_after(after);
        match self.api.journals.open(machine, &self.unit, &query).await {
            Err(error @ JournalError::NotLocal { .. }) if !self.is_proxied => {
                let url = self.url(machine).ok_or(error)?;
                self.open_remote(machine, &url).await
            }
            opened => Ok(prefix_cursors(machine.clone(), opened?)),
        }
    }

    /// Returns the lines of several machines, each prefixed with its machine ID. If one machine
    /// fails, a line reports the error, and the other machines are not delayed.
    ///
    /// Followed lines are returned as they arrive, other lines in timestamp order.
    pub(crate) fn open_all(self, machines: Vec<MachineId>) -> JournalStream {
        let machines = machines.into_iter();
        if self.query.follow {
            return stream::select_all(machines.map(|machine| follow(self.clone(), machine)))
                .boxed();
        }
        let opening = machines.map(|machine| {
            let (source, id) = (self.clone(), machine.clone());
            (machine, async move { source.open(&id).await })
        });
        merged(opening.collect())
    }

    /// Returns the last lines from a machine, as far as they arrive within the time limit. If lines
    /// are missing, also returns the reason.
    pub(crate) async fn last_lines(
        &self,
        machine: &MachineId,
    ) -> (Vec<LogLine>, Option<JournalError>) {
        let mut last = Vec::new();
        // The timeout covers all lines together, so that a machine with an occasional line does not
        // delay the response.
        let had = timeout(MACHINE_TIMEOUT, self.collect_lines(machine, &mut last)).await;
        let missing = match had {
            Ok(gathered) => gathered.err(),
            Err(_) if last.is_empty() => Some(timed_out(machine)),
            Err(_) => {
                let seconds = MACHINE_TIMEOUT.as_secs();
                Some(unreachable(
                    machine,
                    format!("reading its lines took more than {seconds} seconds"),
                ))
            }
        };
        (last, missing)
    }

    /// Collects lines up to the requested number, even if the machine sends more.
    async fn collect_lines(
        &self,
        machine: &MachineId,
        last: &mut Vec<LogLine>,
    ) -> Result<(), JournalError> {
        let most = self.query.lines.unwrap_or(JournalOptions::MAX_LINES as usize);
        let mut lines = self.open(machine).await?.take(most);
        let mut room = MAX_BYTES;
        while let Some(line) = lines.next().await.transpose()? {
            let Some(left) = room.checked_sub(line.text.len()) else {
                let most = MAX_BYTES >> 10;
                let why = format!("its lines exceed {most} KiB: read the journal instead");
                return Err(JournalError::Failed(why.into()));
            };
            room = left;
            last.push(line.into());
        }
        Ok(())
    }

    /// Returns the status details from a machine. Returns `None` if the machine fails or does not
    /// respond in time, because a status is useful even without details.
    pub(crate) async fn details(&self, machine: &MachineId) -> Option<StatusDetails> {
        let details = async {
            match self.api.journals.details(machine, &self.unit).await {
                Err(JournalError::NotLocal { .. }) if !self.is_proxied => {
                    let client = self.api.peers.client(&self.url(machine)?).ok()?;
                    client.details(&self.unit, machine).await.ok()?
                }
                details => details.ok()?,
            }
        };
        timeout(MACHINE_TIMEOUT, details).await.ok()?
    }

    fn url(&self, machine: &MachineId) -> Option<String> {
        url_of(&self.api, machine)
    }

    /// Opens the journal at the machine's own daemon.
    async fn open_remote(
        &self,
        machine: &MachineId,
        url: &str,
    ) -> Result<JournalStream, JournalError> {
        let client = self.api.peers.client(url).map_err(|error| unreachable(machine, error))?;
        let JournalQuery { lines, since, follow, .. } = self.query;
        let lines = lines.and_then(|lines| u32::try_from(lines).ok());
        let since = since.map(|since| max_age(since, wall_time()));
        let options = JournalOptions { lines, since, follow, machine: Some(machine.to_string()) };
        let after = self.after.get(machine.as_str());
        let after = after.map(|cursor| format!("{machine}/{cursor}"));
        match client.full_journal(&self.unit, &options, after.as_deref()).await {
            Ok(lines) => Ok(forward(machine.clone(), lines)),
            // The daemon would recognize its own machine, so the URL is wrong.
            Err(ClientError::Api { status: 501, .. }) => {
                let why = format!(
                    "the daemon at {url} is that of another machine: correct public_url on \
                     {machine}"
                );
                Err(unreachable(machine, why))
            }
            Err(ClientError::Api { status: 404, .. }) => {
                Err(JournalError::NotLoaded { unit: self.unit.clone(), machine: machine.clone() })
            }
            Err(error) => Err(remote_error(machine, error)),
        }
    }
}

/// Returns the resources in use on a machine: from its daemon, unless this daemon is that one, or
/// another daemon forwarded the request.
pub(crate) async fn machine_usage(
    api: &SharedApi,
    machine: &MachineId,
    request: &Parts,
) -> Result<MachineUsage, JournalError> {
    let read = async {
        match api.journals.usage(machine).await {
            Err(error @ JournalError::NotLocal { .. })
                if !request.headers.contains_key(PROXIED) =>
            {
                let url = url_of(api, machine).ok_or(error)?;
                let client = api.peers.client(&url).map_err(|it| unreachable(machine, it))?;
                let usage = client.usage(machine).await.map_err(|it| remote_error(machine, it))?;
                usage.ok_or_else(|| unreachable(machine, "its daemon has another machine"))
            }
            usage => usage,
        }
    };
    timeout(MACHINE_TIMEOUT, read).await.unwrap_or_else(|_| Err(timed_out(machine)))
}

/// Returns the URL of a machine's daemon; `None` if it has none.
fn url_of(api: &SharedApi, machine: &MachineId) -> Option<String> {
    let snapshot: &Snapshot = &api.mirror.snapshot();
    let known = snapshot.machine(machine.as_str())?;
    Some(known.api.clone()).filter(|url| !url.is_empty())
}

/// Returns the maximum age of lines for a request at the time `now`. The API has no absolute times,
/// because the clocks of machines differ.
fn max_age(since: Since, now: Timestamp) -> Timespan {
    Timespan::Finite(match since {
        Since::Time(time) if time > now => Duration::ZERO,
        Since::Time(time) => now.since(time).saturating_add(REQUEST_MARGIN),
        Since::Age(age) => age,
    })
}

/// Maps an error of another daemon.
fn remote_error(machine: &MachineId, error: ClientError) -> JournalError {
    match error {
        // Passed on verbatim, the message would look as if it were addressed to the client.
        ClientError::Api { status: 401, message, .. } => {
            unreachable(machine, format!("its daemon refused authentication: {message}"))
        }
        // The failure is temporary.
        ClientError::Api { status: 408 | 429 | 502..=504, message, .. } => {
            unreachable(machine, message)
        }
        ClientError::Api { message, .. } => JournalError::Failed(message.into()),
        // The client error's advice is for an unreachable daemon, but the client did reach one.
        ClientError::Unreachable { endpoint, cause } => {
            unreachable(machine, format!("cannot connect to {endpoint}: {cause}"))
        }
        error => unreachable(machine, error),
    }
}

fn forward(machine: MachineId, lines: JournalLines) -> JournalStream {
    let next = async move |mut lines: JournalLines| {
        let line = lines.next_entry().await.transpose()?;
        Some((line, lines))
    };
    let failed = move |error: ClientError| remote_error(&machine, error);
    stream::unfold(lines, next).map(move |line| line.map_err(&failed)).boxed()
}

/// Prefixes the cursor of each line with the machine ID, because a cursor is valid only on its own
/// machine.
fn prefix_cursors(machine: MachineId, lines: JournalStream) -> JournalStream {
    let place = move |line: JournalLine| {
        let cursor = line.cursor.as_ref().map(|cursor| format!("{machine}/{cursor}"));
        line.with_cursor(cursor)
    };
    lines.map(move |line| line.map(&place)).boxed()
}

pub(crate) fn timed_out(machine: &MachineId) -> JournalError {
    unreachable(machine, format!("no data within {} seconds", MACHINE_TIMEOUT.as_secs()))
}

fn unreachable(
    machine: &MachineId,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> JournalError {
    JournalError::Unreachable { machine: machine.clone(), cause: cause.into() }
}

/// Clients of the daemons of other machines. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Peers(Arc<Mutex<PeerClients>>);

#[derive(Debug, Default)]
struct PeerClients {
    credentials: Credentials,
    /// Clients by URL.
    clients: BTreeMap<String, Client>,
}

/// Maximum number of cached clients. Beyond it all are dropped, with their connections.
const MAX_CLIENTS: usize = 1024;

impl Peers {
    /// Creates clients with these credentials.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        Self(Arc::new(Mutex::new(PeerClients { credentials, clients: BTreeMap::new() })))
    }

    /// Replaces the credentials.
    pub fn set_credentials(&self, credentials: Credentials) {
        *self.peers() = PeerClients { credentials, clients: BTreeMap::new() };
    }

    /// Returns the client of the daemon at that URL.
    pub(crate) fn client(&self, url: &str) -> Result<Client, EndpointError> {
        let mut peers = self.peers();
        if let Some(client) = peers.clients.get(url) {
            return Ok(client.clone());
        }
        let client = Client::proxying(&url.parse()?, peers.credentials.clone());
        if peers.clients.len() >= MAX_CLIENTS {
            peers.clients.clear();
        }
        peers.clients.insert(url.to_owned(), client.clone());
        Ok(client)
    }

    /// Ignores poisoning: no panic can leave the map partially modified.
    fn peers(&self) -> MutexGuard<'_, PeerClients> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_time_becomes_an_age() {
        let now = Timestamp::from_millis(5_000);
        let age = |since| max_age(since, now).as_duration().map(|age| age.as_millis());
        assert_eq!(age(Since::Time(Timestamp::from_millis(2_000))), Some(4_000));
        assert_eq!(age(Since::Time(Timestamp::from_millis(9_000))), Some(0), "in the future");
        assert_eq!(age(Since::Age(Duration::from_secs(7))), Some(7_000));
    }

    #[test]
    fn temporary_errors_are_unreachable() {
        let machine: MachineId = "m-1".parse().unwrap();
        for (status, is_unreachable) in [(401, true), (429, true), (503, true), (500, false)] {
            let error = ClientError::Api { status, message: "why".to_owned(), details: Vec::new() };
            let found = remote_error(&machine, error);
            let found = matches!(found, JournalError::Unreachable { .. });
            assert_eq!(found, is_unreachable, "{status}");
        }
    }
}
