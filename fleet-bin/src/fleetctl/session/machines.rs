//! Requests about machines and rebalancing, and a cache of machines for their addresses.

use std::collections::BTreeSet;

use fleet_core::MachineId;
use fleet_core::rebalancing::RebalanceLimits;
use fleet_http::client::StateFilter;
use fleet_http::wire::RebalanceReport;
use fleet_http::{Client, wire};

use super::{Session, cannot};
use crate::fleetctl::concurrent::{abbreviated_list, buffered};
use crate::fleetctl::format::{MachineLabels, given_name};
use crate::ui::error::CliError;
use crate::ui::names::nearest;

impl Session {
    /// Returns a client with the credentials of the session.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the present machine with this ID or name; see [`find_machine`].
    ///
    /// # Errors
    ///
    /// No machine matches, or several do.
    pub(crate) async fn machine_named(&self, name: &str) -> Result<wire::MachineEntity, CliError> {
        prefix(name)?;
        if is_complete_id(name)
            && let Some(machine) = self.machine(name).await?
        {
            return Ok(machine);
        }
        find_machine(name, &self.machines().await?).cloned()
    }

    /// Returns a machine; `None` if it is not present.
    pub(crate) async fn machine(&self, id: &str) -> Result<Option<wire::MachineEntity>, CliError> {
        let Ok(parsed) = id.parse() else { return Ok(None) };
        let machine = self.client.machine(&parsed).await;
        machine.map_err(|error| cannot(format!("look up machine {id}"), error))
    }

    /// Returns the resources in use on a machine; `None` if it does not report them.
    pub(crate) async fn usage(&self, id: &str) -> Result<Option<wire::MachineUsage>, CliError> {
        let Ok(parsed) = id.parse() else { return Ok(None) };
        let usage = self.client.usage(&parsed).await;
        usage.map_err(|error| cannot(format!("get the usage of machine {id}"), error))
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

/// Returns the machine with this ID or name. In this order, these count: the ID, the metadata
/// `name` or the host name, a prefix of the ID, and a prefix of a name. Dots at the end of a
/// prefix, which lists print, are ignored.
///
/// # Errors
///
/// No machine matches, or several do.
pub(crate) fn find_machine<'a>(
    name: &str,
    machines: &'a [wire::MachineEntity],
) -> Result<&'a wire::MachineEntity, CliError> {
    let start = prefix(name)?;
    type Rule = fn(&wire::MachineEntity, &str) -> bool;
    let rules: [(&str, Rule); 4] = [
        ("machines have the ID", |machine, id| machine.id == id),
        ("machines have the name", |machine, name| names(machine).any(|it| it == name)),
        ("machine IDs start with", |machine, start| machine.id.starts_with(start)),
        ("machine names start with", |machine, start| {
            names(machine).any(|name| name.starts_with(start))
        }),
    ];
    for (what, matches) in rules {
        match machines.iter().filter(|it| matches(it, start)).collect::<Vec<_>>()[..] {
            [] => {}
            [machine] => return Ok(machine),
            ref several => return Err(ambiguous(what, start, several)),
        }
    }
    let text = format!("no present machine has an ID or name that starts with {start}");
    let known = machines.iter().flat_map(|it| names(it).chain([it.id.as_str()]));
    Err(match nearest(start, known) {
        Some(near) => CliError::failed(text).help(format!("did you mean {near}?")),
        None => {
            CliError::failed(text).help("\"fleetctl list-machines\" shows the present machines")
        }
    })
}

/// Returns a name without the dots at its end.
fn prefix(name: &str) -> Result<&str, CliError> {
    match name.trim_end_matches('.') {
        "" => Err(CliError::usage("the name of the machine is empty")
            .help("give an ID or a name; \"fleetctl list-machines\" shows them")),
        start => Ok(start),
    }
}

/// Returns the names of a machine, besides its ID.
fn names(machine: &wire::MachineEntity) -> impl Iterator<Item = &str> {
    let name = machine.metadata.get("name").map(String::as_str);
    let names = name.into_iter().chain([machine.hostname.as_str()]);
    names.filter(|name| !name.is_empty())
}

fn ambiguous(what: &str, name: &str, candidates: &[&wire::MachineEntity]) -> CliError {
    let label = |machine: &&wire::MachineEntity| match given_name(machine) {
        Some(name) => format!("{} ({name})", machine.id),
        None => machine.id.clone(),
    };
    let labels: Vec<String> = candidates.iter().map(label).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    CliError::failed(format!("several {what} {name}"))
        .help(format!("give a longer part of one ID: {}", abbreviated_list(&labels)))
}

/// Returns whether a machine matches an argument: a pattern over IDs and names, or a prefix of one.
pub(crate) fn matches_machine(arg: &str, machine: &wire::MachineEntity) -> bool {
    let start = arg.trim_end_matches('.');
    let mut all = names(machine).chain([machine.id.as_str()]);
    match glob::Pattern::new(arg) {
        Ok(pattern) if arg.contains(['*', '?', '[']) => all.any(|name| pattern.matches(name)),
        _ => all.any(|name| name.starts_with(start)),
    }
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

    fn machine(id: &str, name: &str, hostname: &str) -> wire::MachineEntity {
        let name = Some(name).filter(|name| !name.is_empty());
        wire::MachineEntity {
            id: id.into(),
            hostname: hostname.into(),
            metadata: name.map(|it| ("name".to_owned(), it.to_owned())).into_iter().collect(),
            ..wire::MachineEntity::default()
        }
    }

    fn machines() -> [wire::MachineEntity; 5] {
        [
            machine("m1", "", "alpha"),
            machine("m10", "m2", "beta"),
            machine("m2", "db", "db-host"),
            machine("x3", "twin", "gamma"),
            machine("y4", "twin", "m"),
        ]
    }

    #[test]
    fn machine_is_found_by_id_and_by_name() {
        let machines = machines();
        for (name, expected) in [
            // The ID counts first, even if it is the name of another machine.
            ("m1", "m1"),
            ("m2", "m2"),
            ("m10", "m10"),
            ("alpha", "m1"),
            ("db", "m2"),
            // A whole name counts before the prefix of an ID.
            ("m", "y4"),
            ("x", "x3"),
            ("x3...", "x3"),
            ("be", "m10"),
            ("db-", "m2"),
            ("twin", "several machines have the name twin"),
            ("tw", "several machine names start with tw"),
            ("nix", "no present machine has an ID or name that starts with nix"),
            ("...", "the name of the machine is empty"),
        ] {
            let found = find_machine(name, &machines);
            let found = found.map(|it| it.id.clone()).unwrap_or_else(|error| error.to_string());
            assert_eq!(found, expected, "{name}");
        }
        let only_ids = [machine("a1", "", ""), machine("a2", "", "")];
        let error = find_machine("a", &only_ids).unwrap_err();
        assert_eq!(error.to_string(), "several machine IDs start with a");
    }

    #[test]
    fn ambiguous_name_lists_the_candidates() {
        let mut text = Vec::new();
        find_machine("tw", &machines()).unwrap_err().print(&mut text).unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @r"
        fleetctl: several machine names start with tw
        help: give a longer part of one ID: x3 (twin), y4 (twin)
        ");
    }

    #[test]
    fn arguments_of_a_list_match_machines() {
        let machines = machines();
        for (arg, expected) in [
            ("m1", "m1 m10"),
            ("m?", "m1 m10 m2"),
            ("*a", "m1 m10 x3"),
            ("twin", "x3 y4"),
            ("db-*", "m2"),
            ("nix", ""),
        ] {
            let found = machines.iter().filter(|machine| matches_machine(arg, machine));
            let found: Vec<&str> = found.map(|machine| machine.id.as_str()).collect();
            let expected: Vec<&str> = expected.split_whitespace().collect();
            assert_eq!(found, expected, "{arg}");
        }
    }
}
