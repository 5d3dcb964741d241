//! Following what changes, event by event.

use super::call::Caller;
use super::query::Query;
use super::{ClientError, JournalLines};
use crate::wire::Event;

/// Which events are wanted, and from where on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventOptions {
    /// What was seen last, as [`Events::last_id`] told it; `None` begins with [`Event::Resync`].
    pub since: Option<String>,
    /// Only those of this unit.
    pub unit: Option<String>,
    /// Only those of this machine, and of units that come there or leave it.
    pub machine: Option<String>,
}

impl EventOptions {
    pub(super) fn query(&self) -> Query {
        Query::new()
            .with("machine", self.machine.as_deref())
            .with("since", self.since.as_deref())
            .with("unit", self.unit.as_deref())
    }
}

/// What changes in the cluster, as it is told.
///
/// When the stream ends or breaks, another one that is opened with [`last_id`](Self::last_id) goes
/// on where this one ended. On [`Event::Resync`] list what you need, and go on.
#[derive(Debug)]
pub struct Events {
    caller: Caller,
    lines: JournalLines,
    id: Option<String>,
    kind: String,
    data: String,
}

impl Events {
    pub(super) fn new(caller: Caller, lines: JournalLines) -> Self {
        let (kind, data) = (String::new(), String::new());
        Self { caller, lines, id: None, kind, data }
    }

    /// The next event; `None` when the server ends the stream.
    ///
    /// # Errors
    ///
    /// [`ClientError::Broken`] when the stream was cut off, [`ClientError::BadAnswer`] when
    /// what came is no event.
    pub async fn next_event(&mut self) -> Result<Option<Event>, ClientError> {
        while let Some(line) = self.lines.next_line().await? {
            if line.is_empty() {
                let (kind, data) = (std::mem::take(&mut self.kind), std::mem::take(&mut self.data));
                let event = Event::read(&kind, &data);
                match event.map_err(|error| self.caller.bad_answer(error))? {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
            match name {
                "id" => self.id = Some(value.to_owned()),
                "event" => value.clone_into(&mut self.kind),
                "data" => self.data.push_str(value),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The place in the stream up to which all events were given out; `None` before the first.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}
