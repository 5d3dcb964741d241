//! What `fleetd dev` prints: where the cluster is, what runs, and what to try next.

use std::fmt::Write as _;

use fleet_core::{ActiveState, Snapshot, TargetState, Unit};
use fleet_http::Listen;
use fleet_store::Mirror;

/// Where to reach the cluster.
pub(crate) fn endpoints(machines: usize, endpoints: &[Listen]) -> String {
    let list: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
    format!("A cluster of {machines} machines listens on {}", list.join(" and "))
}

/// Waits until every unit that should run does, or has a reason why not.
pub(crate) async fn settled(mirror: &Mirror) {
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

/// One line for each unit: where it runs, or why it does not.
pub(crate) fn units(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for unit in snapshot.units() {
        let name = unit.name.as_str();
        if let Some(reason) = snapshot.reason(name) {
            line(&mut text, name, &format!("has no place: {reason}"));
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

/// How to go on, with the paths that hold here.
pub(crate) fn next_steps(endpoints: &[Listen]) -> String {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("fleetctl"));
    let program = beside.filter(|path| path.exists());
    let fleetctl = program.map_or("fleetctl".to_owned(), |path| path.display().to_string());
    let endpoint = endpoints.first().map(ToString::to_string).unwrap_or_default();
    format!(
        "In another terminal:\n\
         \x20 export FLEETCTL_ENDPOINT={endpoint}\n\
         \x20 {fleetctl} list-units\n\
         \x20 {fleetctl} status UNIT\n\
         \x20 {fleetctl} journal -f UNIT\n\
         Ctrl-C ends the cluster and its units."
    )
}
