//! Waits for the outcome of `set-target`, `restart` and `reload UNIT`.

use std::time::Duration;

use fleet_agent::remote::Connection;
use fleet_agent::{Clock as _, SystemClock};

use super::client::{StatusHeader, Unit};
use super::status;
use crate::ui::error::CliError;

/// Delay before the second query; it doubles up to [`MAX_POLL`].
const MIN_POLL: Duration = Duration::from_millis(20);

/// Maximum delay between queries.
const MAX_POLL: Duration = Duration::from_millis(500);

/// Maximum number of units named in an error.
const MAX_NAMES: usize = 5;

/// Queries the status of all units until `outcome` returns a result.
pub(super) async fn wait<T>(
    init: &Connection,
    outcome: impl Fn(&StatusHeader, &[Unit]) -> Option<Result<T, CliError>>,
) -> Result<T, CliError> {
    let (clock, mut delay) = (SystemClock::start(), MIN_POLL);
    loop {
        let (head, units) = status::all(init).await?;
        if let Some(outcome) = outcome(&head, &units) {
            return outcome;
        }
        clock.sleep(delay).await;
        delay = (delay * 2).min(MAX_POLL);
    }
}

/// Returns the outcome of a choice of targets: all needed units are up, or some are not. Returns
/// `None` while a needed unit changes its state. Stops of other units are not awaited.
pub(super) fn of_targets(
    goal: &str,
    head: &StatusHeader,
    units: &[Unit],
) -> Option<Result<String, CliError>> {
    if head.goal.as_deref() != Some(goal) {
        let error = CliError::failed(format!("{goal} is no longer the goal"));
        return Some(Err(error.help("another command has chosen a goal meanwhile")));
    }
    let mut needed = units.iter().filter(|unit| unit.needed);
    if needed.clone().any(|unit| unit.changing) {
        return None;
    }
    let down: Vec<&Unit> = needed.clone().filter(|unit| !is_good(unit)).collect();
    if down.is_empty() {
        let count = needed.by_ref().count();
        return Some(Ok(format!("{goal}: all needed units are up ({count})")));
    }
    let names = down.iter().take(MAX_NAMES).map(|unit| described(unit)).collect::<Vec<_>>();
    let more = down.len().saturating_sub(MAX_NAMES);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let error = CliError::failed(format!("{goal} is not fully up: {}{more}", names.join("; ")));
    Some(
        Err(error.help("`fleet-init status` shows all units, `fleet-init logs UNIT` their output")),
    )
}

/// Returns the outcome of the restart of a unit whose run was `before`. Returns `None` while the
/// restart is in progress.
pub(super) fn of_restart(
    name: &str,
    before: Option<u64>,
    units: &[Unit],
) -> Option<Result<String, CliError>> {
    let Some(unit) = find(units, name) else { return Some(Err(gone(name))) };
    let is_quiet = !units.iter().any(|unit| unit.needed && unit.changing);
    let is_over = !unit.changing && unit.incarnation != before;
    if !is_quiet && !is_over {
        return None;
    }
    Some(if is_good(unit) {
        Ok(format!("{name} was restarted"))
    } else {
        Err(CliError::failed(format!("the restart failed: {}", described(unit)))
            .help(format!("see its output with `fleet-init logs {}`", unit.unit)))
    })
}

/// Returns the outcome of the reload of a unit. Returns `None` while it is in progress.
pub(super) fn of_reload(name: &str, units: &[Unit]) -> Option<Result<String, CliError>> {
    let Some(unit) = find(units, name) else { return Some(Err(gone(name))) };
    if unit.changing {
        return None;
    }
    Some(if !is_good(unit) {
        Err(CliError::failed(format!("the reload failed: {}", described(unit))))
    } else if unit.reload_failed {
        Err(CliError::failed(format!("the reload of {name} failed; it keeps running"))
            .help(format!("see its output with `fleet-init logs {}`", unit.unit)))
    } else {
        Ok(format!("{name} was reloaded"))
    })
}

/// Finds a unit by its name, or by a target that it provides.
pub(super) fn find<'a>(units: &'a [Unit], name: &str) -> Option<&'a Unit> {
    let by_target = || units.iter().find(|unit| unit.provides.iter().any(|it| it == name));
    units.iter().find(|unit| unit.unit == name).or_else(by_target)
}

fn is_good(unit: &Unit) -> bool {
    matches!(unit.state.as_str(), "running" | "reloading" | "exited" | "completed")
}

fn described(unit: &Unit) -> String {
    let reason = unit.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    format!("{} is {}{reason}", unit.unit, unit.state)
}

fn gone(name: &str) -> CliError {
    CliError::failed(format!("{name} no longer exists"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, state: &str, changing: bool) -> Unit {
        let (unit, state) = (name.to_owned(), state.to_owned());
        Unit { unit, state, changing, needed: true, incarnation: Some(1), ..Unit::default() }
    }

    fn text(outcome: Option<Result<String, CliError>>) -> String {
        match outcome {
            None => "in progress".to_owned(),
            Some(Ok(text)) => text,
            Some(Err(error)) => format!("error: {}", error.parts().0),
        }
    }

    #[test]
    fn goal_is_awaited_until_nothing_needed_changes() {
        let head = StatusHeader { goal: Some("g".to_owned()), ..StatusHeader::default() };
        let of = |units: &[Unit]| text(of_targets("g", &head, units));
        let mut unneeded = unit("old", "stopping", true);
        unneeded.needed = false;
        let up = unit("g", "running", false);
        assert_eq!(of(&[up.clone(), unit("a", "starting", true)]), "in progress");
        assert_eq!(of(&[up.clone(), unneeded]), "g: all needed units are up (1)");
        assert_eq!(of(&[up, unit("a", "failed", false)]), "error: g is not fully up: a is failed");
        let other = text(of_targets("h", &head, &[]));
        assert_eq!(other, "error: h is no longer the goal");
    }

    #[test]
    fn restart_is_over_with_the_next_run() {
        let of = |units: &[Unit], before| text(of_restart("a", before, units));
        let up = unit("a", "running", false);
        let busy = unit("b", "stopping", true);
        assert_eq!(of(&[up.clone(), busy.clone()], Some(1)), "in progress");
        assert_eq!(of(&[up, busy], Some(0)), "a was restarted");
        let failed = unit("a", "failed", false);
        assert_eq!(of(&[failed], Some(0)), "error: the restart failed: a is failed");
        assert_eq!(of(&[], None), "error: a no longer exists");
    }

    #[test]
    fn failed_reload_is_an_error() {
        let mut web = unit("web", "running", false);
        assert_eq!(text(of_reload("web", &[web.clone()])), "web was reloaded");
        web.reload_failed = true;
        let failed = "error: the reload of web failed; it keeps running";
        assert_eq!(text(of_reload("web", &[web.clone()])), failed);
        web.changing = true;
        assert_eq!(text(of_reload("web", &[web])), "in progress");
    }
}
