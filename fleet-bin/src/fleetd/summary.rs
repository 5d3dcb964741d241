//! Output of `fleetd dev`: endpoints, units, and suggested commands.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use fleet_core::{ActiveState, MachineId, Snapshot, TargetState, Unit, UnitState};
use fleet_http::ListenAddress;
use fleet_store::Mirror;
use fleet_unitfile::UnitName;

/// Formats the cluster's endpoints.
pub(crate) fn endpoints(machines: usize, endpoints: &[ListenAddress]) -> String {
    let list: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    format!("A cluster of {machines} machines listens on {}", list.join(" and "))
}

/// Returns the first complete snapshot. Its states are those of an earlier cluster on the same
/// data.
pub(crate) async fn first_snapshot(mirror: &Mirror) -> Arc<Snapshot> {
    let mut revisions = mirror.subscribe();
    loop {
        if let Some(snapshot) = mirror.current() {
            return snapshot;
        }
        if revisions.changed().await.is_err() {
            return mirror.snapshot();
        }
    }
}

/// Waits until no launched unit is pending. `earlier` is the [`first_snapshot`].
pub(crate) async fn wait_settled(mirror: &Mirror, earlier: Arc<Snapshot>) {
    let (mut revisions, mut settling) = (mirror.subscribe(), Settling::new(earlier));
    while !settling.is_settled(&mirror.snapshot()) {
        if revisions.changed().await.is_err() {
            return;
        }
    }
}

/// Decides whether launched units are pending. A unit is pending until it has started or failed on
/// all its machines, or has a reason for which it cannot be placed.
///
/// The states of an earlier cluster on the same data are outdated: it has stopped the units, and
/// they start again. So an active unit counts once its machine has reported another state, and an
/// inactive one once it was seen in this cluster.
struct Settling {
    earlier: Arc<Snapshot>,
    /// Units and machines with a new state.
    changed: BTreeSet<(UnitName, MachineId)>,
    /// Those of them with a new state in which the unit was not inactive.
    seen: BTreeSet<(UnitName, MachineId)>,
}

impl Settling {
    fn new(earlier: Arc<Snapshot>) -> Self {
        Self { earlier, changed: BTreeSet::new(), seen: BTreeSet::new() }
    }

    fn is_settled(&mut self, snapshot: &Snapshot) -> bool {
        for state in snapshot.states() {
            let earlier = self.earlier.state(state.unit.as_str(), state.machine.as_str());
            let key = || (state.unit.clone(), state.machine.clone());
            if earlier != Some(state) {
                self.changed.insert(key());
            }
            let is_inactive = state.systemd.active == ActiveState::Inactive;
            if earlier.is_none() || (earlier != Some(state) && !is_inactive) {
                self.seen.insert(key());
            }
        }
        !snapshot.units().any(|unit| self.is_pending(snapshot, unit))
    }

    fn is_pending(&self, snapshot: &Snapshot, unit: &Unit) -> bool {
        let name = unit.name.as_str();
        let wanted = unit.desired == TargetState::Launched && !unit.name.is_template();
        let mut states = snapshot.states_of(name).peekable();
        wanted
            && snapshot.reason(name).is_none()
            && (states.peek().is_none() || !states.all(|state| self.has_begun(state)))
    }

    fn has_begun(&self, state: &UnitState) -> bool {
        let key = (state.unit.clone(), state.machine.clone());
        state.problem.is_some()
            || match state.systemd.active {
                ActiveState::Failed => true,
                ActiveState::Activating => false,
                ActiveState::Inactive => state.systemd.result.is_some() && self.seen.contains(&key),
                _ => self.changed.contains(&key),
            }
    }
}

/// Formats a line for each state of a unit on a machine, and a line for each unit that has no
/// machine, with the reason.
pub(crate) fn units(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for unit in snapshot.units() {
        let name = unit.name.as_str();
        if let Some(reason) = snapshot.reason(name) {
            line(&mut text, name, &format!("on no machine: {reason}"));
        }
        for state in snapshot.states_of(name) {
            let systemd = &state.systemd;
            let (machine, sub) = (state.machine.short(), &systemd.sub);
            // The first report of a unit is from before its start.
            let is_new = unit.desired == TargetState::Launched
                && systemd.active == ActiveState::Inactive
                && systemd.result.is_none();
            let what = match &state.problem {
                Some(problem) => format!("{} ({sub}) on {machine}: {problem}", systemd.active),
                None if is_new => format!("starting on {machine}"),
                None => format!("{} ({sub}) on {machine}", systemd.active),
            };
            line(&mut text, name, &what);
        }
    }
    text
}

fn line(text: &mut String, unit: &str, what: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {unit}: {what}");
}

/// Formats commands to try next. They contain real paths and names, so they can be pasted into a
/// shell unchanged. `is_found` is whether fleetctl finds the cluster by itself.
pub(crate) fn next_steps(
    snapshot: &Snapshot,
    endpoints: &[ListenAddress],
    is_found: bool,
) -> String {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("fleetctl"));
    let program = beside.filter(|path| path.exists());
    let fleetctl = program.map_or("fleetctl".to_owned(), |path| path.display().to_string());
    let endpoint = endpoints.first().map(ToString::to_string).unwrap_or_default();
    let mut text = "In another terminal:\n".to_owned();
    if !is_found {
        step(&mut text, &["export", &format!("FLEETCTL_ENDPOINT={endpoint}")]);
    }
    step(&mut text, &[&fleetctl, "list-units"]);
    match example_unit(snapshot) {
        Some(unit) => {
            step(&mut text, &[&fleetctl, "status", unit]);
            step(&mut text, &[&fleetctl, "journal", "-f", unit]);
        }
        None => step(&mut text, &[&fleetctl, "help", "start"]),
    }
    text.push_str("Press Ctrl-C to stop the cluster and its units.");
    text
}

/// Returns a unit to use in the suggested commands: the first that runs on exactly one machine, or
/// else the first that is placed.
fn example_unit(snapshot: &Snapshot) -> Option<&str> {
    let names = || snapshot.units().map(|unit| unit.name.as_str());
    let runs = |name: &&str| {
        let mut states = snapshot.states_of(name);
        let only = states.next().filter(|_| states.next().is_none());
        only.is_some_and(|state| state.systemd.sub == "running")
    };
    let placed = |name: &&str| snapshot.placement(name).is_some();
    names().find(runs).or_else(|| names().find(placed))
}

/// Appends an indented command line, with its words quoted as needed.
fn step(text: &mut String, words: &[&str]) {
    let words: Vec<String> = words.iter().copied().map(quoted).collect();
    text.extend(["  ", &words.join(" "), "\n"]);
}

/// Quotes a word for a POSIX shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use fleet_core::unit::LoadState;
    use fleet_core::{Epoch, Generation, Requirements, Strictness, SystemdState};
    use fleet_unitfile::UnitFile;

    use super::*;

    #[test]
    fn states_of_an_earlier_cluster_do_not_settle() {
        let (unit, machine): (UnitName, MachineId) =
            ("a.service".parse().unwrap(), "1".repeat(32).parse().unwrap());
        let file = UnitFile::parse("[Service]\nExecStart=/a\n").unwrap();
        let parsed = Requirements::parse(&unit, &file, Strictness::Refuse).unwrap();
        let mut snapshot = Snapshot::default();
        let (hash, requirements) = (file.hash(), parsed.requirements);
        snapshot.put_unit(Unit::new(unit.clone(), file, requirements, TargetState::Launched));
        let state = |active, sub: &str| UnitState {
            unit: unit.clone(),
            machine: machine.clone(),
            hash,
            requested: TargetState::Launched,
            epoch: Epoch(1),
            generation: Generation(1),
            systemd: SystemdState {
                result: Some("success".to_owned()),
                ..SystemdState::new(LoadState::Loaded, active, sub)
            },
            problem: None,
            health: None,
            output: Vec::new(),
        };
        let (running, stopped) =
            (state(ActiveState::Active, "running"), state(ActiveState::Inactive, "dead"));
        for last in [&running, &stopped] {
            snapshot.put_state(last.clone());
            let mut settling = Settling::new(Arc::new(snapshot.clone()));
            let mut is_settled = |state: UnitState| {
                snapshot.put_state(state);
                settling.is_settled(&snapshot)
            };
            assert!(!is_settled(last.clone()), "it was stopped with the earlier cluster");
            assert!(!is_settled(stopped.clone()), "the machine has not started it yet");
            assert!(!is_settled(state(ActiveState::Activating, "start")));
            assert!(is_settled(stopped.clone()), "it has run again");
        }
        // A oneshot unit that stays active looks the same in each cluster.
        snapshot.put_state(running.clone());
        let mut settling = Settling::new(Arc::new(snapshot.clone()));
        for (state, expected) in [(&running, false), (&stopped, false), (&running, true)] {
            snapshot.put_state(state.clone());
            assert_eq!(settling.is_settled(&snapshot), expected, "{:?}", state.systemd);
        }
        snapshot.put_state(stopped.clone());
        let mut settling = Settling::new(Arc::default());
        assert!(settling.is_settled(&snapshot), "it has run for the first time");
    }

    #[test]
    fn shell_words_are_quoted() {
        for (word, expected) in [
            (
                "FLEETCTL_ENDPOINT=unix:///run/fleet.sock",
                "FLEETCTL_ENDPOINT=unix:///run/fleet.sock",
            ),
            ("/home/a b/fleetctl", "'/home/a b/fleetctl'"),
            ("it's", r"'it'\''s'"),
            (r"a\x20b.service", r"'a\x20b.service'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
