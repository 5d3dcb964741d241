//! Keeps the connection: looks for the other process while it is away, and tells what changes.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fleet_unitfile::UnitName;
use serde_json::Value;

use super::asks::{Ask, OfUnits, Told};
use super::link::{Answer, AskError, Link, LinkError};
use super::manager::RemoteConfig;
use super::silence::Silence;
use crate::backoff::Pace;
use crate::{Clock, StateChanges, StateFeed};

/// How long to wait before looking for the other process again.
const PACE: Pace = Pace { first: Duration::from_millis(50), longest: Duration::from_secs(5) };

/// How long the first answer may take after which the other process counts as there.
const FIRST: Duration = Duration::from_secs(10);

/// Whether the other process is there.
pub(super) enum Standing {
    Up(Arc<Link>),
    /// Why it is not.
    Away(String),
}

pub(super) struct Keeper {
    socket: PathBuf,
    program: String,
    /// Whether it is only looked at, and nothing is made of it.
    looks: bool,
    clock: Arc<dyn Clock>,
    standing: Mutex<Standing>,
    pub(super) silence: Silence,
    feed: StateFeed,
    /// The units that the other process is last known to have.
    known: Mutex<BTreeSet<UnitName>>,
}

impl Keeper {
    pub(super) fn new(config: RemoteConfig) -> Self {
        let RemoteConfig { socket, program, clock, directory } = config;
        let standing = Mutex::new(Standing::Away("it was not reached yet".to_owned()));
        let (feed, known) = (StateFeed::default(), Mutex::default());
        let (looks, silence) = (directory.is_none(), Silence::new(Arc::clone(&clock)));
        Self { socket, program, looks, clock, standing, silence, feed, known }
    }

    pub(super) fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<UnitName>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn changes(&self) -> StateChanges {
        self.feed.subscribe()
    }

    /// Connects, and hears the first word of what there is.
    ///
    /// # Errors
    ///
    /// Why that cannot be, in words for a person.
    pub(super) async fn connect(&self) -> Result<(Arc<Link>, Answer), String> {
        let attempt = async {
            let link = match self.looks {
                true => Link::connect_to_ask(&self.socket, &self.program).await,
                false => Link::connect(&self.socket, &self.program).await,
            };
            let link = link.map_err(|error| chain(&error))?;
            let mut watch = link.ask(&OfUnits { units: Ask::Watch }).map_err(in_words)?;
            let told = watch.next().await.map_err(in_words)?;
            self.tell(told.unwrap_or_default());
            Ok::<_, String>((Arc::new(link), watch))
        };
        let (link, watch) = tokio::select! {
            connected = attempt => connected?,
            () = self.clock.sleep(FIRST) => {
                return Err(format!("{} does not answer", self.socket.display()));
            }
        };
        *self.standing() = Standing::Up(Arc::clone(&link));
        Ok((link, watch))
    }

    /// Follows what changes, and connects anew whenever the connection is lost.
    pub(super) async fn run(self: Arc<Self>, link: Arc<Link>, watch: Answer) {
        let mut connected = Some((link, watch));
        let mut failures = 0;
        loop {
            if let Some((link, watch)) = connected.take() {
                let why = self.follow(&link, watch).await;
                drop(link); // what stands holds it
                let place = self.socket.display();
                tracing::warn!(%place, why, "the service manager is away; units are left alone");
                *self.standing() = Standing::Away(why);
                self.known().iter().for_each(|unit| self.feed.report(unit));
                failures = 0;
            }
            failures += 1;
            self.clock.sleep(PACE.wait(failures)).await;
            // What it had and has no more has changed, too.
            let before = std::mem::take(&mut *self.known());
            match self.connect().await {
                Ok(both) => {
                    tracing::info!(place = %self.socket.display(), "the service manager is back");
                    connected = Some(both);
                    before.iter().for_each(|unit| self.feed.report(unit));
                }
                Err(why) => {
                    self.known().extend(before);
                    *self.standing() = Standing::Away(why);
                }
            }
        }
    }

    /// Tells of changes until there is no more to be heard; returns why.
    async fn follow(&self, link: &Link, mut watch: Answer) -> String {
        let silent = self.silence.lasts(link);
        tokio::pin!(silent);
        loop {
            let told = tokio::select! {
                told = watch.next() => told,
                () = &mut silent => {
                    let why = "it says nothing, as one that is stopped does";
                    link.give_up(why);
                    return why.to_owned();
                }
            };
            match told {
                Ok(Some(told)) => self.tell(told),
                Ok(None) => return "it tells of no more changes".to_owned(),
                Err(error) => return in_words(error),
            }
        }
    }

    fn tell(&self, told: Value) {
        let Told { here, gone } = serde_json::from_value(told).unwrap_or_default();
        let mut known = self.known();
        for unit in gone.iter().filter_map(|name| UnitName::parse(name).ok()) {
            self.feed.report(&unit);
            known.remove(&unit);
        }
        for unit in here.iter().filter_map(|name| UnitName::parse(name).ok()) {
            self.feed.report(&unit);
            known.insert(unit);
        }
    }
}

fn in_words(error: AskError) -> String {
    match error {
        AskError::Failed(error) => format!("it answers {error}"),
        AskError::Refused(why) | AskError::Lost(why) => why,
    }
}

fn chain(error: &LinkError) -> String {
    let cause = error.source().map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
