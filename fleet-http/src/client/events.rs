//! Event stream of the cluster, and the backoff for reopening streams.

use std::time::Duration;

use tokio::time::timeout;

use super::ClientError;
use super::body::BodyLines;
use super::call::Caller;
use super::query::Query;
use crate::setters::setters;
use crate::wire::ClusterEvent;

/// Maximum size of an event, in bytes; a larger event is an error. The server's events are much
/// smaller, because they contain no unit files. The limit bounds the client's memory.
const MAX_EVENT_SIZE: usize = 64 << 20;

/// Selects events and the position to start from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventOptions {
    /// ID of the last received event, from [`Events::last_id`]. If `None`, the stream begins with
    /// [`ClusterEvent::Resync`].
    pub since: Option<String>,
    /// Only events of this unit.
    pub unit: Option<String>,
    /// Only events of this machine, and events of units that are placed on it or leave it.
    pub machine: Option<String>,
    /// Only events of instances of this template.
    pub template: Option<String>,
}

impl EventOptions {
    setters! {
        optional:
            with_since = since: String,
            with_unit = unit: String,
            with_machine = machine: String;
        text:
            with_template = template;
    }
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

/// Stream of cluster events.
///
/// After [`ClusterEvent::Resync`], list the objects that you need, and then continue to read
/// events. If the stream ends or breaks, open a new stream that resumes after
/// [`last_id`](Self::last_id). A [`reconnecting`](Self::reconnecting) stream does this
/// automatically.
#[derive(Debug)]
pub struct Events {
    caller: Caller,
    lines: BodyLines,
    options: EventOptions,
    reconnects: bool,
    id: Option<String>,
    kind: String,
    data: String,
}

impl Events {
    pub(super) async fn open(caller: Caller, options: EventOptions) -> Result<Self, ClientError> {
        let lines = open(&caller, &options).await?;
        let (kind, data) = (String::new(), String::new());
        Ok(Self { caller, lines, options, reconnects: false, id: None, kind, data })
    }

    /// Makes the stream reconnect and resume when it ends or breaks.
    ///
    /// The stream retries for up to one minute with exponential backoff, beginning after a tenth of
    /// a second. If the server no longer knows the missed events, the next event is
    /// [`ClusterEvent::Resync`]. If the stream cannot be resumed within the minute, or an error is
    /// permanent, [`next_event`](Self::next_event) returns the error. A further call of
    /// `next_event` tries again.
    ///
    /// ```
    /// use fleet_http::wire::ClusterEvent;
    /// use fleet_http::{Client, ClientError};
    /// use fleet_http::client::EventOptions;
    ///
    /// async fn follow(client: &Client) -> Result<(), ClientError> {
    ///     let mut events = client.events(&EventOptions::default()).await?.reconnecting();
    ///     while let Some(event) = events.next_event().await? {
    ///         match event {
    ///             ClusterEvent::Resync => println!("{} units", client.units().await?.len()),
    ///             event => println!("{}", event.kind()),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn reconnecting(self) -> Self {
        Self { reconnects: true, ..self }
    }

    /// Returns the next event, or `None` if the server has ended the stream. A
    /// [`reconnecting`](Self::reconnecting) stream never returns `None`, because it resumes
    /// instead. Cancel-safe: dropping the future loses no event.
    ///
    /// # Errors
    ///
    /// Returns [`ClientError::Broken`] if the connection broke, and [`ClientError::BadResponse`] if
    /// the server sent an invalid event. A reconnecting stream returns the error of its last
    /// attempt.
    pub async fn next_event(&mut self) -> Result<Option<ClusterEvent>, ClientError> {
        loop {
            match self.read_event().await {
                Ok(None) if self.reconnects => self.reconnect().await?,
                Err(error) if self.reconnects && error.is_transient() => self.reconnect().await?,
                result => return result,
            }
        }
    }

    /// Reopens the stream after the last received event.
    async fn reconnect(&mut self) -> Result<(), ClientError> {
        let since = self.id.clone().or_else(|| self.options.since.clone());
        let options = EventOptions { since, ..self.options.clone() };
        let mut retry = Retry::new();
        self.lines = loop {
            retry.wait().await;
            match open(&self.caller, &options).await {
                Err(error) if retry.should_retry(&error) => {}
                opened => break opened?,
            }
        };
        // A partially received event is sent again in full.
        self.kind.clear();
        self.data.clear();
        Ok(())
    }

    async fn read_event(&mut self) -> Result<Option<ClusterEvent>, ClientError> {
        while let Some(line) = self.lines.next_line().await? {
            if line.is_empty() {
                let (kind, data) = (std::mem::take(&mut self.kind), std::mem::take(&mut self.data));
                let event = ClusterEvent::read(&kind, &data);
                match event.map_err(|error| self.caller.bad_response(error))? {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
            match name {
                "id" => self.id = Some(value.to_owned()),
                "event" => value.clone_into(&mut self.kind),
                "data" if self.data.len() + value.len() > MAX_EVENT_SIZE => {
                    let problem = format!("an event exceeds {MAX_EVENT_SIZE} bytes");
                    return Err(self.caller.bad_response(problem));
                }
                "data" => self.data.push_str(value),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns the ID of the stream's position, for [`EventOptions::since`]. A new stream can
    /// resume there, because all events up to this position have been returned. Returns `None` if
    /// the server has not sent an ID yet.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

async fn open(caller: &Caller, options: &EventOptions) -> Result<BodyLines, ClientError> {
    let response = caller.open("events", &options.query()).await?;
    Ok(BodyLines::new(caller.endpoint().clone(), response))
}

/// Delay before the first attempt to reopen a stream. The delay doubles after each failed attempt.
const INITIAL_DELAY: Duration = Duration::from_millis(100);

/// Maximum delay between two attempts.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Total waiting time after which the error is returned.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Exponential backoff between attempts, for up to a minute in total.
#[derive(Debug)]
pub(crate) struct Retry {
    delay: Duration,
    waited: Duration,
}

impl Retry {
    pub(crate) fn new() -> Self {
        Self { delay: INITIAL_DELAY, waited: Duration::ZERO }
    }

    /// Waits until the next attempt.
    pub(crate) async fn wait(&mut self) {
        let never = std::future::pending::<()>();
        let _elapsed = timeout(self.delay, never).await;
        self.waited += self.delay;
        self.delay = MAX_DELAY.min(self.delay * 2);
    }

    /// Resets the total waiting time after a response from the server.
    pub(super) fn on_response(&mut self) {
        self.waited = Duration::ZERO;
    }

    /// Whether to try again after this error.
    pub(super) fn should_retry(&self, error: &ClientError) -> bool {
        error.is_transient() && self.waited < MAX_WAIT
    }
}
