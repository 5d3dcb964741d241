//! Requests about machines and rebalancing, and a cache of machines for their addresses.

use std::collections::BTreeSet;

use fleet_core::MachineId;
use fleet_core::rebalancing::RebalanceLimits;
use fleet_http::client::StateFilter;
use fleet_http::wire::RebalanceReport;
use fleet_http::{Client, wire};

use super::{Session, cannot};
use crate::fleetctl::concurrent::{abbreviated_list, buffered};
use crate::fleetctl::format::MachineLabels;
use crate::ui::error::CliError;
use crate::ui::names::nearest;

impl Session {
    /// Returns a client with the credentials of the session.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the present machine with this ID, or else the one with an ID that starts with
    /// `prefix`.
    ///
    /// # Errors
    ///
    /// No machine matches, or the prefix matches several machines.
    pub(crate) async fn machine_named(
        &self,
        prefix: &str,
    ) -> Result<wire::MachineEntity, CliError> {
        let start = prefix.trim_end_matches('.');
        if start.is_empty() {
            return Err(CliError::usage("the machine ID is empty")
                .help("give a prefix of an ID; \"fleetctl list-machines\" shows the IDs"));
        }
        if is_complete_id(start)
            && let Some(machine) = self.machine(start).await?
        {
            return Ok(machine);
        }
        let machines = self.machines().await?;
        let ids: Vec<&str> = machines.iter().map(|machine| machine.id.as_str()).collect();
        match pick(start, &ids).as_slice() {
            [id] => {
                Ok(machines.iter().find(|machine| machine.id == *id).cloned().unwrap_or_default())
            }
            [] => {
                let text = format!("no present machine has an ID that starts with {start}");
                let error = CliError::failed(text);
                Err(match nearest(start, ids) {
                    Some(near) => error.help(format!("did you mean {near}?")),
                    None => error.help("\"fleetctl list-machines\" shows the present machines"),
                })
            }
            several => Err(CliError::failed(format!("several machine IDs start with {start}"))
                .help(format!("give a longer part of one ID: {}", abbreviated_list(several)))),
        }
    }

    /// Returns a machine; `None` if it is not present.
    pub(crate) async fn machine(&self, id: &str) -> Result<Option<wire::MachineEntity>, CliError> {
        let Ok(parsed) = id.parse() else { return Ok(None) };
        let machine = self.client.machine(&parsed).await;
        machine.map_err(|error| cannot(format!("look up machine {id}"), error))
    }

    /// Returns the states of all units on one machine.
    pub(crate) async fn states_on(&self, id: &str) -> Result<Vec<wire::UnitStateEntity>, CliError> {
        let filter = StateFilter::default().with_machine(id);
        let states = self.client.states(&filter).await;
        states.map_err(|error| cannot(format!("list the units on machine {id}"), error))
    }

    /// Cordons a machine: no more units are placed on it.
    pub(crate) async fn cordon(&self, id: &MachineId) -> Result<(), CliError> {
        self.client.cordon(id).await.map_err(|error| cannot(format!("cordon machine {id}"), error))
    }

    /// Ends the cordon or drain of a machine.
    pub(crate) async fn uncordon(&self, id: &MachineId) -> Result<(), CliError> {
        self.client
            .uncordon(id)
            .await
            .map_err(|error| cannot(format!("uncordon machine {id}"), error))
    }

    /// Starts draining a machine, or returns the planned moves if `dry_run`.
    pub(crate) async fn drain(
        &self,
        id: &MachineId,
        min_available: u32,
        dry_run: bool,
    ) -> Result<wire::DrainReport, CliError> {
        let report = self.client.drain(id, min_available, dry_run).await;
        report.map_err(|error| cannot(format!("drain machine {id}"), error))
    }

    /// Returns the progress of a drain; `None` if the machine is not drained.
    pub(crate) async fn drain_status(
        &self,
        id: &MachineId,
    ) -> Result<Option<wire::DrainReport>, CliError> {
        let report = self.client.drain_status(id).await;
        report.map_err(|error| cannot(format!("get the progress of draining machine {id}"), error))
    }
}

/// Returns whether the text looks like a complete machine ID (32 hexadecimal digits). A machine
/// with a complete ID can be requested directly, without the list of all machines.
pub(crate) fn is_complete_id(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the ID that equals `prefix` if there is one. Otherwise returns all IDs that start with
/// `prefix`.
fn pick<'a>(prefix: &str, ids: &[&'a str]) -> Vec<&'a str> {
    if let Some(id) = ids.iter().find(|id| **id == prefix) {
        return vec![id];
    }
    ids.iter().copied().filter(|id| id.starts_with(prefix)).collect()
}

/// Maximum number of machines that are requested one by one. Beyond it, a single request for the
/// list of all machines is cheaper.
const MAX_SINGLE_REQUESTS: usize = 8;

/// Machines that a command has looked up, each requested only once.
///
/// A few machines are requested one by one. A command that shows one unit therefore does not fetch
/// the list of all machines of a large cluster.
#[derive(Debug, Default)]
pub(crate) struct MachineCache {
    requested: BTreeSet<String>,
    present: Vec<wire::MachineEntity>,
    has_all: bool,
}

impl MachineCache {
    /// Looks up machines that are not in the cache yet. Ignores empty IDs, and IDs of machines that
    /// are not present.
    ///
    /// # Errors
    ///
    /// A request failed.
    pub(crate) async fn load<'a>(
        &mut self,
        session: &Session,
        ids: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), CliError> {
        let is_new = |id: &&str| !id.is_empty() && !self.requested.contains(*id);
        let missing: BTreeSet<&str> = ids.into_iter().filter(is_new).collect();
        if self.has_all || missing.is_empty() {
            return Ok(());
        }
        if self.requested.len() + missing.len() > MAX_SINGLE_REQUESTS {
            return self.load_all(session).await;
        }
        let loaded = buffered(missing.iter().map(|id| session.machine(id))).await;
        self.present.extend(CliError::all_or_none(loaded)?.into_iter().flatten());
        self.requested.extend(missing.into_iter().map(str::to_owned));
        Ok(())
    }

    /// Looks up all machines that are present.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub(crate) async fn load_all(&mut self, session: &Session) -> Result<(), CliError> {
        if !self.has_all {
            self.present = session.machines().await?;
            self.has_all = true;
        }
        Ok(())
    }

    /// Returns the cached machines that are present.
    pub(crate) fn present(&self) -> &[wire::MachineEntity] {
        &self.present
    }

    /// Returns labels for the cached machines.
    pub(crate) fn labels(&self) -> MachineLabels {
        MachineLabels::new(&self.present)
    }
}

impl Session {
    /// Starts rebalancing, or returns the planned moves if `dry_run`.
    pub(crate) async fn rebalance(
        &self,
        limits: &RebalanceLimits,
        dry_run: bool,
    ) -> Result<RebalanceReport, CliError> {
        let report = self.client.rebalance(limits, dry_run).await;
        report.map_err(|error| cannot("rebalance the cluster".to_owned(), error))
    }

    /// Returns the progress of the rebalancing; `None` if there is none.
    pub(crate) async fn rebalancing(&self) -> Result<Option<RebalanceReport>, CliError> {
        let report = self.client.rebalance_status().await;
        report.map_err(|error| cannot("get the progress of rebalancing".to_owned(), error))
    }

    /// Cancels the rebalancing.
    pub(crate) async fn end_rebalancing(&self) -> Result<(), CliError> {
        let ended = self.client.cancel_rebalance().await;
        ended.map_err(|error| cannot("cancel rebalancing".to_owned(), error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_found_by_a_prefix_of_its_id() {
        let ids = ["m1", "m10", "m2"];
        for (start, expected) in
            [("m1", &["m1"] as &[_]), ("m2", &["m2"]), ("m10", &["m10"]), ("m", &ids), ("x", &[])]
        {
            assert_eq!(pick(start, &ids), expected, "{start}");
        }
    }
}
