//! Maintains the connection to systemd, and processes its signals.
//!
//! One task connects, reads all units once, and then processes the signals in the order in which
//! systemd has sent them. So all changes that a job has made are processed before the end of the
//! job. If the connection is lost, the task connects again. It also does so if systemd leaves the
//! bus to re-execute itself.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use zbus::message::Type;
use zbus::{Message, MessageStream, OwnedObjectPath};

use super::bus::{Bus, CallError};
use super::context::{ManagerContext, Session};
use super::refresh::refresh_all;
use super::state::{ObservedState, Properties};
use super::units::apply_properties;

/// Shortest and longest pause between connection attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));

/// Runs until it is aborted.
pub(crate) async fn run(context: Arc<ManagerContext>) {
    let mut pause = PAUSES.0;
    loop {
        let error = match Bus::open(&context.config).await {
            Ok((bus, signals)) => follow(&context, Arc::new(bus), signals).await,
            Err(error) => error,
        };
        let reason = match error {
            CallError::Lost(reason) => reason,
            CallError::Refused { message, .. } => format!("systemd refuses: {message}"),
        };
        if matches!(&*context.session.borrow(), Session::Up(_)) {
            tracing::warn!(reason, "lost the connection to systemd: connecting again");
            pause = PAUSES.0;
        }
        context.session.send_replace(Session::Down(reason));
        context.config.clock.sleep(pause).await;
        pause = PAUSES.1.min(pause * 2);
    }
}

/// Processes one connection until it ends; returns the reason.
async fn follow(context: &ManagerContext, bus: Arc<Bus>, signals: MessageStream) -> CallError {
    // Queries wait for responses, which come after signals. So both run concurrently.
    let error = tokio::select! {
        error = dispatch(context, signals) => error,
        error = refresh(context, &bus) => error,
    };
    bus.abandon();
    error
}

/// Reads everything, on connection and on each request.
async fn refresh(context: &ManagerContext, bus: &Arc<Bus>) -> CallError {
    loop {
        if let Err(error) = refresh_all(context, bus).await {
            return error;
        }
        context.session.send_if_modified(|session| {
            let is_new = !matches!(session, Session::Up(_));
            *session = Session::Up(Arc::clone(bus));
            is_new
        });
        context.refresh_requested.notified().await;
    }
}

async fn dispatch(context: &ManagerContext, mut signals: MessageStream) -> CallError {
    context.processed.send_replace(None);
    loop {
        let message = signals.next().await;
        let position = message.as_ref().and_then(|it| it.as_ref().ok()).map(Message::recv_position);
        match message {
            Some(Ok(message)) if message.message_type() == Type::Signal => {
                match on_signal(context, &message) {
                    Ok(false) => {}
                    Ok(true) => return CallError::Lost("systemd has left the bus".to_owned()),
                    Err(error) => {
                        tracing::warn!(%error, "cannot parse a D-Bus signal of systemd: ignored");
                    }
                }
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return CallError::Lost(error.to_string()),
            None => return CallError::Lost("the connection has ended".to_owned()),
        }
        context.processed.send_replace(position);
    }
}

/// Processes one signal; `true` if it is the last.
fn on_signal(context: &ManagerContext, message: &Message) -> zbus::Result<bool> {
    let header = message.header();
    let member = header.member().map_or("", |member| member.as_str());
    let body = message.body();
    match member {
        "PropertiesChanged" => {
            let path = header.path().map_or("", |path| path.as_str());
            // systemd sends signals of all units; most are not fleet's, and are not even parsed.
            if context.units.is_followed(path) {
                let (interface, changed, _): (String, Properties, Vec<String>) =
                    body.deserialize()?;
                report(context, path, apply_properties(&interface, &changed));
            }
        }
        "JobNew" => {
            let (_, job, unit): (u32, OwnedObjectPath, String) = body.deserialize()?;
            context.units.on_job(job.as_str(), &unit);
        }
        "JobRemoved" => {
            let (_, job, unit, result): (u32, OwnedObjectPath, String, String) =
                body.deserialize()?;
            let is_ours = context.jobs.on_removed(job.as_str(), &unit, &result);
            let queued = context.units.on_queued_end(&unit, &result);
            let stopped = context.units.on_job_end(job.as_str(), &unit, is_ours);
            if let Some(unit) = stopped.or(queued) {
                context.feed.report(&unit);
            }
        }
        "UnitRemoved" => {
            let (_, path): (String, OwnedObjectPath) = body.deserialize()?;
            report(context, path.as_str(), ObservedState::on_unloaded);
        }
        "Reloading" => {
            let begins: bool = body.deserialize()?;
            if !begins {
                context.refresh_requested.notify_one();
            }
        }
        "NameOwnerChanged" => {
            let (_, _, owner): (String, String, String) = body.deserialize()?;
            return Ok(owner.is_empty());
        }
        _ => {}
    }
    Ok(false)
}

fn report(context: &ManagerContext, path: &str, change: impl FnOnce(&mut ObservedState)) {
    if let Some(unit) = context.units.on_signal(path, change) {
        context.feed.report(&unit);
    }
}
