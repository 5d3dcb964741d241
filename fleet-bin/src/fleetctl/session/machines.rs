//! What commands ask of the cluster about machines.

use fleet_core::MachineId;
use fleet_http::{StateFilter, wire};

use super::{Session, cannot};
use crate::fleetctl::error::CliError;
use crate::fleetctl::names::nearest;
use crate::fleetctl::partly::some_of;

impl Session {
    /// The machine of which this is the ID, or the start of the ID.
    ///
    /// # Errors
    ///
    /// None that is present is called so, or several are.
    pub(crate) async fn machine_named(&self, start: &str) -> Result<wire::Machine, CliError> {
        let start = start.trim_end_matches('.');
        if start.is_empty() {
            return Err(CliError::usage("a machine without a name is none")
                .help("write the start of an ID; \"fleetctl list-machines\" shows them"));
        }
        if is_whole(start)
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
                let error =
                    CliError::failed(format!("no machine that is present is called {start}"));
                Err(match nearest(start, ids) {
                    Some(near) => error.help(format!("did you mean {near}?")),
                    None => error.help("\"fleetctl list-machines\" shows those that are"),
                })
            }
            several => Err(CliError::failed(format!("several machines are called {start}"))
                .help(format!("write more of one of {}", some_of(several)))),
        }
    }

    /// One machine; `None` if it is not present.
    pub(crate) async fn machine(&self, id: &str) -> Result<Option<wire::Machine>, CliError> {
        let Ok(parsed) = id.parse() else { return Ok(None) };
        let machine = self.client.machine(&parsed).await;
        machine.map_err(|error| cannot(format!("look at machine {id}"), error))
    }

    /// The states of all units on one machine.
    pub(crate) async fn states_on(&self, id: &str) -> Result<Vec<wire::UnitState>, CliError> {
        let filter = StateFilter { machine: Some(id.to_owned()), ..StateFilter::default() };
        let states = self.client.states(&filter).await;
        states.map_err(|error| cannot(format!("look at the units on {id}"), error))
    }

    /// Lets a machine take no more units.
    pub(crate) async fn cordon(&self, id: &MachineId) -> Result<(), CliError> {
        self.client.cordon(id).await.map_err(|error| cannot(format!("cordon {id}"), error))
    }

    /// Lets a machine take units again.
    pub(crate) async fn uncordon(&self, id: &MachineId) -> Result<(), CliError> {
        self.client.uncordon(id).await.map_err(|error| cannot(format!("uncordon {id}"), error))
    }

    /// Has a machine emptied, or tells what that would come to.
    pub(crate) async fn drain(
        &self,
        id: &MachineId,
        keep_up: u32,
        dry_run: bool,
    ) -> Result<wire::DrainReport, CliError> {
        let report = self.client.drain(id, keep_up, dry_run).await;
        report.map_err(|error| cannot(format!("drain {id}"), error))
    }

    /// What is left to be done on a machine that is drained; `None` if it is not.
    pub(crate) async fn draining(
        &self,
        id: &MachineId,
    ) -> Result<Option<wire::DrainReport>, CliError> {
        let report = self.client.draining(id).await;
        report.map_err(|error| cannot(format!("look at the drain of {id}"), error))
    }
}

/// Whether a text has the form of the ID that a machine has by itself, which needs no list.
pub(crate) fn is_whole(id: &str) -> bool {
    id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The ID that is the text, or those that start with it.
fn pick<'a>(start: &str, ids: &[&'a str]) -> Vec<&'a str> {
    if let Some(id) = ids.iter().find(|id| **id == start) {
        return vec![id];
    }
    ids.iter().copied().filter(|id| id.starts_with(start)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_known_by_the_start_of_its_id() {
        let ids = ["m1", "m10", "m2"];
        for (start, expected) in
            [("m1", &["m1"] as &[_]), ("m2", &["m2"]), ("m10", &["m10"]), ("m", &ids), ("x", &[])]
        {
            assert_eq!(pick(start, &ids), expected, "{start}");
        }
    }
}
