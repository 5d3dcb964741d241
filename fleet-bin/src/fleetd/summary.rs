//! Output of `fleetd dev`: endpoints, units, and suggested commands.

use std::fmt::Write as _;

use fleet_core::{ActiveState, Snapshot, TargetState, Unit};
use fleet_http::ListenAddress;
use fleet_store::Mirror;

/// Formats the cluster's endpoints.
pub(crate) fn endpoints(machines: usize, endpoints: &[ListenAddress]) -> String {
    let list: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    format!("A cluster of {machines} machines listens on {}", list.join(" and "))
}

/// Waits until no launched unit is pending. A unit is pending until it has started, has failed, or
/// has a reason for which it cannot be placed.
pub(crate) async fn wait_settled(mirror: &Mirror) {
    let mut revisions = mirror.subscribe();
    while mirror.snapshot().units().any(|unit| is_pending(&mirror.snapshot(), unit)) {
        if revisions.changed().await.is_err() {
            return;
        }
    }
}

fn is_pending(snapshot: &Snapshot, unit: &Unit) -> bool {
    let name = unit.name.as_str();
    let wanted = unit.desired == TargetState::Launched && !unit.name.is_template();
    let begun = |active| !matches!(active, ActiveState::Inactive | ActiveState::Activating);
    let over = |state: &fleet_core::SystemdState| begun(state.active) || state.result.is_some();
    wanted
        && snapshot.reason(name).is_none()
        && !snapshot.states_of(name).any(|state| over(&state.systemd) || state.problem.is_some())
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
            let mut what = format!("{} ({sub}) on {machine}", systemd.active);
            if let Some(problem) = &state.problem {
                what = format!("{what}: {problem}");
            }
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
/// shell unchanged.
pub(crate) fn next_steps(snapshot: &Snapshot, endpoints: &[ListenAddress]) -> String {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("fleetctl"));
    let program = beside.filter(|path| path.exists());
    let fleetctl = program.map_or("fleetctl".to_owned(), |path| path.display().to_string());
    let endpoint = endpoints.first().map(ToString::to_string).unwrap_or_default();
    let mut text = "In another terminal:\n".to_owned();
    step(&mut text, &["export", &format!("FLEETCTL_ENDPOINT={endpoint}")]);
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
    use super::*;

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
