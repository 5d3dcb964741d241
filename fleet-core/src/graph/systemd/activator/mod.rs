//! Activators: sockets and paths, which start another unit when traffic arrives or a path changes.
//!
//! ```text
//! [Socket] ── SocketDraft ──> Socket ┐
//! [Path] ──── PathDraft ────> Path   ┴──> Activator ──> ActivatorMachine   waiting, running, …
//! ```
//!
//! All rules are those of systemd 252.

mod address;
mod machine;
mod path;
mod socket;

use std::time::Duration;

use fleet_unitfile::{UnitName, UnitType};

use super::draft::UnitProblems;
use super::value::{ValueContext, number, span, unreadable};
use crate::graph::model::UnitCondition;

pub use address::{ListenerKind, SocketAddress, SocketListener};
pub use machine::{ActivatorFailure, ActivatorMachine, ActivatorPhase, ActivatorState};
pub use path::{Path, PathTrigger, PathTriggerKind};
pub use socket::{BindIpv6Only, Socket, SocketOptions};

pub(in crate::graph::systemd) use path::PathDraft;
pub(in crate::graph::systemd) use socket::SocketDraft;

/// Settings of a `.socket` or `.path` unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activator {
    /// The unit that it starts.
    pub unit: UnitName,
    /// How often it may start the unit.
    pub limit: TriggerLimit,
    /// Conditions that are checked when it is started.
    pub conditions: Vec<UnitCondition>,
    /// The events for which it starts the unit.
    pub source: ActivatorSource,
}

/// The events for which an activator starts its unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActivatorSource {
    /// Traffic on sockets or FIFOs.
    Socket(Box<Socket>),
    /// Changes of paths.
    Path(Path),
}

/// Limit on the rate at which an activator starts its unit. A limit of zero in either field means
/// no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggerLimit {
    /// Length of the interval (`TriggerLimitIntervalSec=`).
    pub interval: Duration,
    /// Maximum number of starts per interval (`TriggerLimitBurst=`).
    pub burst: u32,
}

/// Remark on a relation of a socket or path.
pub(in crate::graph::systemd) const NO_RELATIONS: &str =
    "has no effect: a socket or path neither starts nor stops with other units that it names";

/// systemd's default interval.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(2);

/// Trigger limit collected so far.
#[derive(Debug, Default)]
struct LimitDraft {
    interval: Option<Duration>,
    burst: Option<u32>,
}

impl LimitDraft {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "TriggerLimitBurst" => self.burst = Some(number(value, 0, u32::MAX)?),
            // As in systemd, infinity selects the default.
            _ => self.interval = span(value)?.0,
        }
        Ok(())
    }

    fn limit(&self, default_burst: u32) -> TriggerLimit {
        TriggerLimit {
            interval: self.interval.unwrap_or(DEFAULT_INTERVAL),
            burst: self.burst.unwrap_or(default_burst),
        }
    }
}

/// Sets the unit to start; an empty value changes nothing.
fn take_unit(
    place: &mut Option<UnitName>,
    value: &str,
    types: &[UnitType],
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        return Ok(());
    }
    let name: UnitName = unit.expand(value)?.parse().map_err(unreadable)?;
    if name.is_template() {
        return Err(format!("names the template {name}: name an instance of it"));
    }
    if !types.contains(&name.unit_type()) {
        return Err(format!("names {name}: write the name of a .service unit"));
    }
    *place = Some(name);
    Ok(())
}

/// Returns the named unit, or the service with the name of the activator.
fn started_unit(named: Option<&UnitName>, unit: &ValueContext<'_>) -> Result<UnitName, String> {
    let usual = || format!("{}.service", unit.name.stem());
    named.map_or_else(|| usual().parse().map_err(unreadable), |named| Ok(named.clone()))
}

/// Reads file permissions.
fn mode(value: &str) -> Result<u32, String> {
    let is_octal = value.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let mode = u32::from_str_radix(value, 8).ok().filter(|mode| is_octal && *mode <= 0o7777);
    mode.ok_or_else(|| format!("is {value:?}: write an octal number from 0 to 7777"))
}

fn refused(problem: &str) -> UnitProblems {
    UnitProblems { refused: vec![(None, problem.to_owned())], ..UnitProblems::default() }
}
