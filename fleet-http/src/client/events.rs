//! Following what changes, event by event.

use super::ClientError;
use super::again::Again;
use super::call::Caller;
use super::lines::BodyLines;
use super::query::Query;
use crate::wire::Event;

/// How large an event may be, in bytes: a unit file of the largest size, however it is written.
const LARGEST: usize = 64 << 20;

/// Which events are wanted, and from where on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventOptions {
    /// What was seen last, as [`Events::last_id`] told it; `None` begins with [`Event::Resync`].
    pub since: Option<String>,
    /// Only those of this unit.
    pub unit: Option<String>,
    /// Only those of this machine, and of units that come there or leave it.
    pub machine: Option<String>,
    /// Only those of instances of this template.
    pub template: Option<String>,
}

impl EventOptions {
    pub(super) fn query(&self) -> Query {
        Query::new()
            .with("machine", self.machine.as_deref())
            .with("since", self.since.as_deref())
            .with("template", self.template.as_deref())
            .with("unit", self.unit.as_deref())
    }
}

/// What changes in the cluster, as it is told.
///
/// On [`Event::Resync`] list what you need, and go on. When the stream ends or breaks, another one
/// that is opened with [`last_id`](Self::last_id) goes on where this one ended; one that is
/// [`lasting`](Self::lasting) does so by itself.
#[derive(Debug)]
pub struct Events {
    caller: Caller,
    lines: BodyLines,
    options: EventOptions,
    is_lasting: bool,
    id: Option<String>,
    kind: String,
    data: String,
}

impl Events {
    pub(super) async fn open(caller: Caller, options: EventOptions) -> Result<Self, ClientError> {
        let lines = open(&caller, &options).await?;
        let (kind, data) = (String::new(), String::new());
        Ok(Self { caller, lines, options, is_lasting: false, id: None, kind, data })
    }

    /// The same, which goes on where it breaks off.
    ///
    /// It asks again for what came after the last event, at first after a tenth of a second and
    /// then ever less often, for a minute. Where nobody can say what was missed, the next event is
    /// [`Event::Resync`]. After a minute, or where trying again is of no use, its error is given
    /// out; who asks for the next event all the same has it try again.
    ///
    /// ```
    /// use fleet_http::wire::Event;
    /// use fleet_http::{Client, ClientError, EventOptions};
    ///
    /// async fn follow(client: &Client) -> Result<(), ClientError> {
    ///     let mut events = client.events(&EventOptions::default()).await?.lasting();
    ///     while let Some(event) = events.next_event().await? {
    ///         match event {
    ///             Event::Resync => println!("{} units", client.units().await?.len()),
    ///             event => println!("{}", event.kind()),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn lasting(self) -> Self {
        Self { is_lasting: true, ..self }
    }

    /// The next event; `None` when the server ends the stream, and it is not
    /// [`lasting`](Self::lasting). May be dropped at any time: no event is lost by that.
    ///
    /// # Errors
    ///
    /// [`ClientError::Broken`] when the stream was cut off, [`ClientError::BadAnswer`] when
    /// what came is no event. Those of a lasting one are the ones of its last try.
    pub async fn next_event(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            match self.next_of_this().await {
                Ok(None) if self.is_lasting => self.go_on().await?,
                Err(error) if self.is_lasting && error.is_passing() => self.go_on().await?,
                told => return told,
            }
        }
    }

    /// Opens the stream anew, from what was told last on.
    async fn go_on(&mut self) -> Result<(), ClientError> {
        let since = self.id.clone().or_else(|| self.options.since.clone());
        let options = EventOptions { since, ..self.options.clone() };
        let mut again = Again::new();
        self.lines = loop {
            again.pause().await;
            match open(&self.caller, &options).await {
                Err(error) if again.goes_on(&error) => {}
                opened => break opened?,
            }
        };
        // What was told in part is told again.
        self.kind.clear();
        self.data.clear();
        Ok(())
    }

    async fn next_of_this(&mut self) -> Result<Option<Event>, ClientError> {
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
                "data" if self.data.len() + value.len() > LARGEST => {
                    let problem = format!("an event of more than {LARGEST} bytes");
                    return Err(self.caller.bad_answer(problem));
                }
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

async fn open(caller: &Caller, options: &EventOptions) -> Result<BodyLines, ClientError> {
    let answer = caller.open("events", &options.query()).await?;
    Ok(BodyLines::new(caller.endpoint().clone(), answer))
}
