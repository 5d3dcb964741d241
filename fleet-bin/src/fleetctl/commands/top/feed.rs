//! Follows the cluster, and sends updates to the live view.

use std::time::Duration;

use fleet_agent::{Clock as _, SystemClock, wall_time};
use fleet_http::client::{EventOptions, Events, JournalOptions};
use fleet_http::wire;
use fleet_unitfile::UnitName;
use tokio::sync::mpsc::Sender;
use tokio::time::timeout;

use super::state::Cluster;
use super::usage::Sample;
use crate::fleetctl::concurrent::buffered;
use crate::fleetctl::session::{Session, next_line};
use crate::ui::error::CliError;
use crate::ui::table::Colour;

/// Pause between two requests for the usage of machines.
const USAGE_PAUSE: Duration = Duration::from_secs(2);

/// Pause before a lost connection is opened again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Time without further changes after which the cluster is listed again. If changes continue, it is
/// listed after [`MAX_DELAY`].
const QUIET_TIME: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Number of existing journal lines to show.
const LOG_LINES: u32 = 500;

/// A change of the view.
#[derive(Debug)]
pub(super) enum Update {
    /// The cluster, after a change.
    Cluster(Box<Cluster>),
    /// A note about a lost connection.
    Note(String),
    /// The usage of the machine with this ID.
    Usage(String, Sample),
    /// Lines to add to the page.
    Lines(Vec<String>),
}

/// Lists the cluster.
pub(super) async fn cluster(session: &Session) -> Result<Cluster, CliError> {
    let (units, states, machines, absent) = futures_util::try_join!(
        session.units(),
        session.states(),
        session.machines(),
        session.absent_machines()
    )?;
    Ok(Cluster { rows: wire::unit_rows(units, states), machines, absent })
}

/// Sends the cluster after each change. Reconnects until the view is closed.
pub(super) async fn follow_cluster(session: Session, updates: Sender<Update>) {
    let clock = SystemClock::start();
    while !updates.is_closed() {
        let Err(error) = follow_events(&session, &updates).await else { return };
        let note = format!("fleetd does not respond; reconnecting ({error})");
        if updates.send(Update::Note(note)).await.is_err() {
            return;
        }
        clock.sleep_until(clock.now().after(RETRY_PAUSE)).await;
    }
}

/// Sends the cluster after each change, until the stream of events ends.
async fn follow_events(session: &Session, updates: &Sender<Update>) -> Result<(), CliError> {
    let lost = || CliError::failed("the event stream ended");
    let mut events: Events = session.events(&EventOptions::default()).await?;
    loop {
        match events.next_event().await {
            Ok(Some(_)) => {}
            Ok(None) => return Err(lost()),
            Err(error) => return Err(lost().because(error)),
        }
        let collected = async {
            while matches!(timeout(QUIET_TIME, events.next_event()).await, Ok(Ok(Some(_)))) {}
        };
        let _is_quiet = timeout(MAX_DELAY, collected).await;
        let cluster = Box::new(cluster(session).await?);
        if updates.send(Update::Cluster(cluster)).await.is_err() {
            return Ok(());
        }
    }
}

/// Sends the usage of all machines again and again. A machine that does not report it is skipped.
pub(super) async fn follow_usage(session: Session, updates: Sender<Update>) {
    let clock = SystemClock::start();
    while !updates.is_closed() {
        let machines = session.machines().await.unwrap_or_default();
        let requests = machines.iter().map(|machine| session.usage(&machine.id));
        for (machine, usage) in machines.iter().zip(buffered(requests).await) {
            let Ok(Some(usage)) = usage else { continue };
            let sample = (wall_time(), usage);
            if updates.send(Update::Usage(machine.id.clone(), sample)).await.is_err() {
                return;
            }
        }
        clock.sleep_until(clock.now().after(USAGE_PAUSE)).await;
    }
}

/// Sends the journal of a unit on its machine, as it grows.
pub(super) async fn follow_logs(
    session: &Session,
    unit: &str,
    machine: String,
    lines: &Sender<Update>,
) {
    let Ok(name) = unit.parse::<UnitName>() else { return };
    let machine = Some(machine).filter(|machine| !machine.is_empty());
    let options =
        JournalOptions::default().with_lines(LOG_LINES).with_machine(machine).with_follow(true);
    let read = async {
        let mut journal = session.journal(&name, &options).await?;
        while let Some(line) = next_line(&mut journal, &name).await? {
            if lines.send(Update::Lines(vec![line])).await.is_err() {
                break;
            }
        }
        Ok(String::new())
    };
    send_text(read.await, lines).await;
}

/// Sends the lines of a text or of an error.
pub(super) async fn send_text(text: Result<String, CliError>, lines: &Sender<Update>) {
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            let mut bytes = Vec::new();
            let _infallible = error.print_as("fleetctl", Colour::Off, &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }
    };
    let all = text.lines().map(str::to_owned).collect();
    let _closed = lines.send(Update::Lines(all)).await;
}
