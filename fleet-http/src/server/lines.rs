//! Lines of a unit's journal, and what else a machine alone can tell, from whichever it is.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::request::Parts;
use fleet_core::{MachineId, Snapshot, TargetState};
use fleet_unitfile::{Timespan, UnitName};
use futures_util::{StreamExt as _, stream};
use tokio::time::timeout;

use super::api::Shared;
use super::failure::Failure;
use super::followed::followed;
use super::journals::{JournalError, JournalLine, JournalQuery, JournalStream, is_position};
use super::merge::merged;
use crate::client::{JournalLines, JournalOptions};
use crate::told::Told;
use crate::wire::Particulars;
use crate::{ClientError, PROXIED};

/// How long a machine may take to answer, and over lines that are there already.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// How many bytes there may be of one machine where they are kept until its last line is there.
const MOST_BYTES: usize = 1 << 20;

/// Where lines come from for one request.
#[derive(Clone)]
pub(super) struct Source {
    api: Shared,
    unit: UnitName,
    query: JournalQuery,
    /// After which lines it is to go on, by machine.
    after: BTreeMap<String, String>,
    /// Whether a daemon asks for somebody else. It is answered with what is here: what was asked
    /// for once is never asked for again.
    is_proxied: bool,
}

impl Source {
    pub(super) fn new(api: &Shared, unit: &UnitName, query: JournalQuery, request: &Parts) -> Self {
        Self {
            api: api.clone(),
            unit: unit.clone(),
            query,
            after: BTreeMap::new(),
            is_proxied: request.headers.contains_key(PROXIED),
        }
    }

    /// Goes on after lines of which these are the positions, each with its machine.
    pub(super) fn go_on_after<'a>(
        &mut self,
        positions: impl Iterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        for given in positions {
            let known = given.split_once('/').filter(|_| is_position(given));
            let (machine, position) = known.ok_or_else(|| {
                Failure::bad(format!(
                    "invalid value of after: {given:?} is none of the positions that \
                     positions=1 has told"
                ))
            })?;
            self.after.insert(machine.to_owned(), position.to_owned());
        }
        Ok(())
    }

    /// Asks for what comes after what was told of a machine.
    pub(super) fn going_on(mut self, machine: &MachineId, told: &Told) -> Self {
        match told.position(machine.as_str()) {
            Some(position) => {
                self.after.insert(machine.to_string(), position.to_owned());
            }
            None => (self.query.lines, self.query.since) = (None, Some(told.since_opened())),
        }
        self
    }

    /// Whether there may be lines of it again from that machine: it is wanted, and nowhere else.
    pub(super) fn is_awaited(&self, machine: &MachineId) -> bool {
        let mirror = &self.api.mirror;
        if !mirror.is_current() {
            return true;
        }
        let (snapshot, name) = (mirror.snapshot(), self.unit.as_str());
        let is_wanted = snapshot.unit(name).is_some_and(|u| u.desired != TargetState::Inactive);
        is_wanted && snapshot.placement(name).is_none_or(|placement| placement.machine == *machine)
    }

    /// Whose lines they are.
    pub(super) fn unit(&self) -> &UnitName {
        &self.unit
    }

    /// The lines of one machine.
    pub(super) async fn open(&self, machine: &MachineId) -> Result<JournalStream, JournalError> {
        let after = self.after.get(machine.as_str()).cloned();
        let query = JournalQuery { after, ..self.query.clone() };
        match self.api.journals.open(machine, &self.unit, &query).await {
            Err(error @ JournalError::NotHere { .. }) if !self.is_proxied => {
                let url = self.url(machine).ok_or(error)?;
                self.ask(machine, &url).await
            }
            opened => Ok(placed(machine.clone(), opened?)),
        }
    }

    /// The lines of several machines, each with the machine's ID before it. What cannot be had of
    /// one is said in a line of it, and holds up no other.
    ///
    /// Where lines to come are wanted, all are told as they come; otherwise in the order in which
    /// they were written.
    pub(super) fn open_all(self, machines: Vec<MachineId>) -> JournalStream {
        let machines = machines.into_iter();
        if self.query.follow {
            return stream::select_all(machines.map(|machine| followed(self.clone(), machine)))
                .boxed();
        }
        let opening = machines.map(|machine| {
            let (source, id) = (self.clone(), machine.clone());
            (machine, async move { source.open(&id).await })
        });
        merged(opening.collect())
    }

    /// The last lines of a machine, as far as they can be had in time, and why not all.
    pub(super) async fn last(&self, machine: &MachineId) -> (Vec<String>, Option<JournalError>) {
        let mut last = Vec::new();
        // For all of them together: one that tells a line now and then must not hold up the rest.
        let had = timeout(PATIENCE, self.gather(machine, &mut last)).await;
        let missing = match had {
            Ok(gathered) => gathered.err(),
            Err(_) if last.is_empty() => Some(late(machine)),
            Err(_) => {
                let seconds = PATIENCE.as_secs();
                Some(unreachable(machine, format!("its lines took more than {seconds} seconds")))
            }
        };
        (last, missing)
    }

    /// No more lines than were asked for, whatever a machine tells.
    async fn gather(
        &self,
        machine: &MachineId,
        last: &mut Vec<String>,
    ) -> Result<(), JournalError> {
        let most = self.query.lines.unwrap_or(JournalQuery::MOST_LINES) as usize;
        let mut lines = self.open(machine).await?.take(most);
        let mut room = MOST_BYTES;
        while let Some(line) = lines.next().await.transpose()? {
            let Some(left) = room.checked_sub(line.text.len()) else {
                let most = MOST_BYTES >> 10;
                let why = format!("its lines have more than {most} KiB: ask for the journal");
                return Err(JournalError::Failed(why.into()));
            };
            room = left;
            last.push(line.text);
        }
        Ok(())
    }

    /// What a machine tells of the unit beyond its state, if it does in time. A status is whole
    /// without it.
    pub(super) async fn particulars(&self, machine: &MachineId) -> Option<Particulars> {
        let told = async {
            match self.api.journals.particulars(machine, &self.unit).await {
                Err(JournalError::NotHere { .. }) if !self.is_proxied => {
                    let client = self.api.peers.client(&self.url(machine)?).ok()?;
                    client.particulars(&self.unit, machine).await.ok()?
                }
                told => told.ok()?,
            }
        };
        timeout(PATIENCE, told).await.ok()?
    }

    fn url(&self, machine: &MachineId) -> Option<String> {
        let snapshot: &Snapshot = &self.api.mirror.snapshot();
        let known = snapshot.machine(machine.as_str())?;
        Some(known.api.clone()).filter(|url| !url.is_empty())
    }

    /// Has the daemon of the machine tell them.
    async fn ask(&self, machine: &MachineId, url: &str) -> Result<JournalStream, JournalError> {
        let client = self.api.peers.client(url).map_err(|error| unreachable(machine, error))?;
        let JournalQuery { lines, since, follow, .. } = self.query;
        let since = since.map(Timespan::Finite);
        let options = JournalOptions { lines, since, follow, machine: Some(machine.to_string()) };
        let after = self.after.get(machine.as_str());
        let after = after.map(|position| format!("{machine}/{position}"));
        match client.whole_journal(&self.unit, &options, after.as_deref()).await {
            Ok(lines) => Ok(passed_on(machine.clone(), lines)),
            // It would know its own machine.
            Err(ClientError::Api { status: 501, .. }) => {
                let why = format!("the daemon at {url} is not its own: its public_url is wrong");
                Err(unreachable(machine, why))
            }
            Err(ClientError::Api { status: 404, .. }) => {
                Err(JournalError::NotLoaded { unit: self.unit.clone(), machine: machine.clone() })
            }
            Err(error) => Err(no_answer(machine, error)),
        }
    }
}

/// What a daemon has said against it, or why it says nothing.
fn no_answer(machine: &MachineId, error: ClientError) -> JournalError {
    match error {
        // Said as it is, it would be taken for a word to who asks here.
        ClientError::Api { status: 401, message, .. } => {
            unreachable(machine, format!("its daemon does not let this one in: {message}"))
        }
        // It cannot tell now, and may be able to soon.
        ClientError::Api { status: 408 | 429 | 502..=504, message, .. } => {
            unreachable(machine, message)
        }
        ClientError::Api { message, .. } => JournalError::Failed(message.into()),
        // What to do about it is told to who cannot reach a daemon, and this one was reached.
        ClientError::Unreachable { endpoint, cause } => {
            unreachable(machine, format!("nobody is at {endpoint}: {cause}"))
        }
        error => unreachable(machine, error),
    }
}

fn passed_on(machine: MachineId, lines: JournalLines) -> JournalStream {
    let next = async move |mut lines: JournalLines| {
        let line = lines.next_dated().await.transpose()?;
        Some((line, lines))
    };
    let failed = move |error: ClientError| no_answer(&machine, error);
    stream::unfold(lines, next).map(move |line| line.map_err(&failed)).boxed()
}

/// The lines of a machine, whose positions begin with its ID: they mean nothing to another one.
fn placed(machine: MachineId, lines: JournalStream) -> JournalStream {
    let place = move |line: JournalLine| {
        let position = line.position.map(|position| format!("{machine}/{position}"));
        JournalLine { position, ..line }
    };
    lines.map(move |line| line.map(&place)).boxed()
}

pub(super) fn late(machine: &MachineId) -> JournalError {
    unreachable(machine, format!("nothing came within {} seconds", PATIENCE.as_secs()))
}

fn unreachable(
    machine: &MachineId,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> JournalError {
    JournalError::Unreachable { machine: machine.clone(), cause: cause.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_cannot_tell_yet_is_as_one_that_does_not_answer() {
        let machine: MachineId = "m-1".parse().unwrap();
        for (status, is_unreachable) in [(401, true), (429, true), (503, true), (500, false)] {
            let error = ClientError::Api { status, message: "why".to_owned(), details: Vec::new() };
            let found = no_answer(&machine, error);
            let found = matches!(found, JournalError::Unreachable { .. });
            assert_eq!(found, is_unreachable, "{status}");
        }
    }
}
