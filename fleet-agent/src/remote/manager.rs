//! The service manager of another process, as this one sees it.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::{UnitFile, UnitName};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::AbortHandle;

use super::asks::{Ask, DriftWire, FileWire, LineWire, OfUnits, ParticularsWire, TimeWire};
use super::errors::ErrorWire;
use super::keeper::{Keeper, Standing};
use super::link::{Answer, AskError};
use super::states::UnitWire;
use super::units::NOT_UNDERSTOOD;
use crate::lock::acquire;
use crate::{
    Clock, Drift, Journal, JournalQuery, ManagedUnit, Particulars, ServiceError, ServiceManager,
    StateChanges,
};

/// How a [`RemoteManager`] is set up.
#[derive(Clone)]
pub struct RemoteConfig {
    /// The socket that is served.
    pub socket: PathBuf,
    /// A directory that one such manager at a time may use, so that not two daemons order the same
    /// units about; nothing for one that only looks.
    pub directory: Option<PathBuf>,
    /// Who asks, for people.
    pub program: String,
    /// The clock that attempts to connect go by.
    pub clock: Arc<dyn Clock>,
}

/// Runs units by the service manager of another process, which serves it by
/// [`serve`](super::serve). Dropping it changes nothing there.
///
/// While that process cannot be reached, every call is [`ServiceError::Unavailable`], and it is
/// looked for again and again. When it is back, all units that it has, and all that it had, are
/// reported as changed. A call that was under way when the connection was lost may have been
/// carried out or not.
pub struct RemoteManager {
    keeper: Arc<Keeper>,
    task: AbortHandle,
    _lock: Option<File>,
}

impl RemoteManager {
    /// Connects to the other process.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Unavailable`] when it cannot be reached, or another manager uses the
    /// directory; [`ServiceError::Io`] when the directory cannot be used.
    pub async fn open(config: RemoteConfig) -> Result<Arc<Self>, ServiceError> {
        let lock = match &config.directory {
            Some(directory) => Some(acquire(directory, &*config.clock).await?),
            None => None,
        };
        let keeper = Arc::new(Keeper::new(config));
        let (link, watch) = keeper.connect().await.map_err(ServiceError::Unavailable)?;
        let task = tokio::spawn(Arc::clone(&keeper).run(link, watch)).abort_handle();
        Ok(Arc::new(Self { keeper, task, _lock: lock }))
    }

    /// Asks; what comes back is under way already when this returns.
    fn ask(&self, ask: Ask) -> Result<Answer, ServiceError> {
        match &*self.keeper.standing() {
            Standing::Up(link) => link.ask(&OfUnits { units: ask }).map_err(read_error),
            Standing::Away(why) => Err(ServiceError::Unavailable(why.clone())),
        }
    }

    /// The next item of an answer, or its end, which comes as long as the other process is there.
    async fn next(&self, answer: &mut Answer) -> Result<Option<Value>, ServiceError> {
        let _waiting = self.keeper.silence.wait();
        answer.next().await.map_err(read_error)
    }

    /// Has something done.
    async fn order(&self, ask: Ask) -> Result<(), ServiceError> {
        match self.next(&mut self.ask(ask)?).await? {
            None => Ok(()),
            Some(_) => Err(not_understood("an order is answered with something")),
        }
    }

    /// Asks what is answered with one item.
    async fn question<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, ServiceError> {
        let mut answer = self.ask(ask)?;
        let item = self.next(&mut answer).await?;
        let item = item.ok_or_else(|| not_understood("a question has no answer"))?;
        // Only the end says that it was the whole.
        self.next(&mut answer).await?;
        read(item)
    }
}

impl Drop for RemoteManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[async_trait]
impl ServiceManager for RemoteManager {
    async fn load(
        &self,
        unit: &UnitName,
        file: &UnitFile,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let file = FileWire::new(file);
        self.order(Ask::Load { unit: unit.to_string(), file, epoch: epoch.0 }).await
    }

    async fn reload(&self) -> Result<(), ServiceError> {
        self.order(Ask::Reload).await
    }

    async fn unload(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.order(Ask::Unload { unit: unit.to_string() }).await
    }

    async fn start(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.order(Ask::Start { unit: unit.to_string(), generation: generation.0 }).await
    }

    async fn restart(&self, unit: &UnitName, generation: Generation) -> Result<(), ServiceError> {
        self.order(Ask::Restart { unit: unit.to_string(), generation: generation.0 }).await
    }

    async fn stop(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.order(Ask::Stop { unit: unit.to_string() }).await
    }

    async fn reload_unit(&self, unit: &UnitName) -> Result<(), ServiceError> {
        self.order(Ask::ReloadUnit { unit: unit.to_string() }).await
    }

    async fn get(&self, unit: &UnitName) -> Result<Option<ManagedUnit>, ServiceError> {
        let found: Option<UnitWire> = self.question(Ask::Get { unit: unit.to_string() }).await?;
        found.map(read_unit).transpose()
    }

    async fn list(&self) -> Result<Vec<ManagedUnit>, ServiceError> {
        let mut answer = self.ask(Ask::List)?;
        let mut units = Vec::new();
        // Without its end it is no list, however much of it has come.
        while let Some(item) = self.next(&mut answer).await? {
            for unit in read::<Vec<UnitWire>>(item)? {
                units.push(read_unit(unit)?);
            }
        }
        Ok(units)
    }

    async fn drift(&self, unit: &UnitName) -> Result<Option<Drift>, ServiceError> {
        let drift: Option<DriftWire> = self.question(Ask::Drift { unit: unit.to_string() }).await?;
        Ok(drift.map(Drift::from))
    }

    async fn stop_time_out(&self, unit: &UnitName) -> Result<Option<Duration>, ServiceError> {
        let time: Option<TimeWire> =
            self.question(Ask::StopTimeOut { unit: unit.to_string() }).await?;
        Ok(time.map(Duration::from))
    }

    async fn particulars(&self, unit: &UnitName) -> Result<Particulars, ServiceError> {
        let ask = Ask::Particulars { unit: unit.to_string() };
        match self.question::<ParticularsWire>(ask).await {
            Ok(told) => Ok(told.into()),
            // An earlier version, which does not tell.
            Err(ServiceError::Unavailable(why)) if why.starts_with(NOT_UNDERSTOOD) => {
                Ok(Particulars::default())
            }
            Err(error) => Err(error),
        }
    }

    fn changes(&self) -> StateChanges {
        self.keeper.changes()
    }

    async fn journal(&self, unit: &UnitName, query: JournalQuery) -> Result<Journal, ServiceError> {
        let (unit, query) = (unit.to_string(), query.into());
        self.open_journal(Ask::Journal { unit, query, whole: true }).await
    }

    async fn journal_after(
        &self,
        unit: &UnitName,
        position: &str,
        follow: bool,
    ) -> Result<Journal, ServiceError> {
        let ask =
            Ask::JournalAfter { unit: unit.to_string(), position: position.to_owned(), follow };
        match self.open_journal(ask).await {
            // An earlier version, which knows no positions.
            Err(ServiceError::Unavailable(why)) if why.starts_with(NOT_UNDERSTOOD) => {
                let query = JournalQuery { follow, ..JournalQuery::default() };
                Ok(self.journal(unit, query).await?.after_a_gap())
            }
            opened => opened,
        }
    }
}

impl RemoteManager {
    async fn open_journal(&self, ask: Ask) -> Result<Journal, ServiceError> {
        let mut answer = self.ask(ask)?;
        let first = self.next(&mut answer).await?;
        let mut lines: Vec<LineWire> = first.map_or_else(|| Ok(Vec::new()), read)?;
        let (sender, broken, journal) = Journal::breakable();
        tokio::spawn(async move {
            loop {
                for line in lines {
                    if sender.send(line.into()).await.is_err() {
                        return;
                    }
                }
                let next = tokio::select! {
                    () = sender.closed() => return,
                    next = answer.next() => next,
                };
                let more = next.map_err(read_error).and_then(|item| item.map(read).transpose());
                lines = match more {
                    Ok(Some(more)) => more,
                    Ok(None) => return,
                    // Where the reader has gone, nobody asks why.
                    Err(error) => return drop(broken.send(error)),
                };
            }
        });
        Ok(journal)
    }
}

fn read_unit(unit: UnitWire) -> Result<ManagedUnit, ServiceError> {
    unit.read().map_err(|word| not_understood(&format!("{word:?}")))
}

fn read<T: DeserializeOwned>(item: Value) -> Result<T, ServiceError> {
    serde_json::from_value(item).map_err(|error| not_understood(&error.to_string()))
}

fn read_error(error: AskError) -> ServiceError {
    match error {
        AskError::Failed(error) => match serde_json::from_value::<ErrorWire>(error) {
            Ok(error) => error.read(),
            Err(error) => not_understood(&error.to_string()),
        },
        AskError::Refused(why) => ServiceError::Unavailable(why),
        AskError::Lost(why) => ServiceError::Unavailable(format!(
            "the connection to it was lost before it answered: {why}"
        )),
    }
}

fn not_understood(what: &str) -> ServiceError {
    ServiceError::Unavailable(format!(
        "its answer is not understood: {what}; run both programs from one release"
    ))
}
