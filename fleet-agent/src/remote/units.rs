//! The listening side of a service manager.

use std::sync::Arc;

use async_trait::async_trait;
use fleet_core::{Epoch, Generation};
use fleet_unitfile::UnitName;
use serde_json::Value;
use tokio::net::UnixListener;

use super::asks::{Ask, DriftWire, FileWire, OfUnits, ParticularsWire, TimeWire, Told};
use super::errors::ErrorWire;
use super::replies::Replies;
use super::server::{Service, serve_with};
use super::states::UnitWire;
use crate::{Clock, ServiceError, ServiceManager};

/// How the words begin that answer an ask of a version that knows more.
pub(super) const NOT_UNDERSTOOD: &str = "it does not understand: ";

/// How many units one item tells of.
const UNITS: usize = 256;

/// Serves a service manager to the [`RemoteManager`](super::RemoteManager)s of other processes,
/// until it is dropped. That leaves the units running, and so does the end of any client.
///
/// `program` is who serves, for people.
pub async fn serve(
    listener: UnixListener,
    manager: Arc<dyn ServiceManager>,
    program: &str,
    clock: Arc<dyn Clock>,
) {
    serve_with(listener, Arc::new(Units::new(manager)), program, clock).await;
}

/// Answers what is asked of a service manager, for a [`Service`] that answers more than that.
pub struct Units {
    manager: Arc<dyn ServiceManager>,
}

impl Units {
    /// For that service manager.
    #[must_use]
    pub fn new(manager: Arc<dyn ServiceManager>) -> Self {
        Self { manager }
    }

    /// Whether something is asked of a service manager at all.
    #[must_use]
    pub fn is_meant(ask: &Value) -> bool {
        ask.get("units").is_some()
    }

    /// The answer to all asks of it where there is none, in words that a person understands.
    #[must_use]
    pub fn unavailable(why: &str) -> Value {
        to_value(ServiceError::Unavailable(why.to_owned()))
    }

    async fn carry_out(&self, ask: Ask, replies: &mut Replies) -> Result<(), ServiceError> {
        match ask {
            Ask::Load { unit, file, epoch } => self.load(&name(&unit)?, &file, Epoch(epoch)).await,
            Ask::Reload => self.manager.reload().await,
            Ask::Ping => Ok(()),
            Ask::Unload { unit } => self.manager.unload(&name(&unit)?).await,
            Ask::Start { unit, generation } => {
                self.manager.start(&name(&unit)?, Generation(generation)).await
            }
            Ask::Restart { unit, generation } => {
                self.manager.restart(&name(&unit)?, Generation(generation)).await
            }
            Ask::Stop { unit } => self.manager.stop(&name(&unit)?).await,
            Ask::ReloadUnit { unit } => self.manager.reload_unit(&name(&unit)?).await,
            // In a place of its own: hundreds of starts at once would have the room.
            question => Box::pin(self.answer_question(question, replies)).await,
        }
    }

    async fn answer_question(&self, ask: Ask, replies: &mut Replies) -> Result<(), ServiceError> {
        match ask {
            Ask::Get { unit } => {
                let found = self.manager.get(&name(&unit)?).await?;
                replies.send(&found.map(UnitWire::from)).await;
            }
            Ask::Drift { unit } => {
                let drift = self.manager.drift(&name(&unit)?).await?;
                replies.send(&drift.map(DriftWire::from)).await;
            }
            Ask::StopTimeOut { unit } => {
                let time_out = self.manager.stop_time_out(&name(&unit)?).await?;
                replies.send(&time_out.map(TimeWire::from)).await;
            }
            Ask::Particulars { unit } => {
                let told = self.manager.particulars(&name(&unit)?).await?;
                replies.send(&ParticularsWire::from(told)).await;
            }
            Ask::List => {
                let mut units = self.manager.list().await?.into_iter().map(UnitWire::from);
                while let Some(first) = units.next() {
                    let part: Vec<_> =
                        [first].into_iter().chain(units.by_ref()).take(UNITS).collect();
                    replies.send(&part).await;
                }
            }
            Ask::Watch => self.watch(replies).await?,
            Ask::Journal { unit, query, whole } => {
                let journal = self.manager.journal(&name(&unit)?, query.into()).await?;
                match whole {
                    true => replies.send_whole_journal(journal).await?,
                    false => replies.send_journal(journal).await?,
                }
            }
            Ask::JournalAfter { unit, position, follow } => {
                let journal = self.manager.journal_after(&name(&unit)?, &position, follow).await?;
                replies.send_whole_journal(journal).await?;
            }
            change => return Err(ServiceError::Unavailable(format!("{change:?} is no question"))),
        }
        Ok(())
    }

    async fn load(
        &self,
        unit: &UnitName,
        file: &FileWire,
        epoch: Epoch,
    ) -> Result<(), ServiceError> {
        let file = file.read().map_err(|error| ServiceError::BadSetting {
            unit: unit.clone(),
            line: 0,
            problem: error.to_string(),
        })?;
        self.manager.load(unit, &file, epoch).await
    }

    /// Tells all names, and then those of units that change. It is told of a change before it
    /// looks at the whole, so that nothing falls between the two.
    async fn watch(&self, replies: &mut Replies) -> Result<(), ServiceError> {
        let mut changes = self.manager.changes();
        let units = self.manager.list().await?;
        let all: Vec<UnitName> = units.into_iter().map(|it| it.unit).collect();
        // Also where there is none: the first word says that this end is here.
        let here = |names: &[UnitName]| names.iter().map(ToString::to_string).collect();
        let (first, rest) = all.split_at(all.len().min(UNITS));
        for part in [first].into_iter().chain(rest.chunks(UNITS)) {
            replies.send(&Told { here: here(part), gone: Vec::new() }).await;
        }
        loop {
            let changed: Vec<UnitName> = changes.next().await.into_iter().collect();
            for part in changed.chunks(UNITS) {
                replies.send(&self.told(part).await).await;
            }
        }
    }

    async fn told(&self, changed: &[UnitName]) -> Told {
        let mut told = Told::default();
        for unit in changed {
            let is_gone = matches!(self.manager.get(unit).await, Ok(None));
            let list = if is_gone { &mut told.gone } else { &mut told.here };
            list.push(unit.to_string());
        }
        told
    }
}

#[async_trait]
impl Service for Units {
    async fn answer(&self, ask: Value, replies: &mut Replies) -> Result<(), Value> {
        let ask: OfUnits = serde_json::from_value(ask)
            .map_err(|error| Self::unavailable(&format!("{NOT_UNDERSTOOD}{error}")))?;
        self.carry_out(ask.units, replies).await.map_err(to_value)
    }
}

fn to_value(error: ServiceError) -> Value {
    // What cannot be written as JSON is not understood, and so an error all the same.
    serde_json::to_value(ErrorWire::from(error)).unwrap_or(Value::Null)
}

fn name(text: &str) -> Result<UnitName, ServiceError> {
    let bad = |error| ServiceError::Unavailable(format!("{text:?} is no unit: {error}"));
    UnitName::parse(text).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_of_many_units_at_once_takes_little_room() {
        fn size<'a, F: Future>(_: fn(&'a Units, Ask, &'a mut Replies) -> F) -> usize {
            size_of::<F>()
        }
        assert!(size(Units::carry_out) <= 400, "{} bytes", size(Units::carry_out));
    }
}
