//! Pure: selects the rows of lists by name, state and machine.

use std::collections::BTreeSet;

use fleet_core::Pattern;
use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::args::ranges::expand_all;
use super::select::{is_pattern, parse_pattern};
use super::session::machines::find_machine;
use crate::ui::error::CliError;
use crate::ui::names::{nearest, unit_arg};

/// Words for states: those of systemd and of fleet. A word that a unit currently has is accepted,
/// too.
pub(super) const STATES: [&str; 44] = [
    // Load states.
    "loaded",
    "not-found",
    "bad-setting",
    "error",
    "masked",
    // Active states. The state of a unit on an absent machine is unknown.
    "active",
    "reloading",
    "refreshing",
    "inactive",
    "failed",
    "activating",
    "deactivating",
    "maintenance",
    "unknown",
    // Results of health checks.
    "starting",
    "healthy",
    "unhealthy",
    // Substates.
    "dead",
    "condition",
    "start-pre",
    "start",
    "start-post",
    "running",
    "exited",
    "reload",
    "reload-signal",
    "reload-notify",
    "stop",
    "stop-watchdog",
    "stop-sigterm",
    "stop-sigkill",
    "stop-post",
    "final-sigterm",
    "final-sigkill",
    "auto-restart",
    "auto-restart-queued",
    "cleaning",
    "waiting",
    "listening",
    "mounted",
    "mounting",
    "unmounting",
    "elapsed",
    // Phases of ended jobs.
    "succeeded",
];

/// Names and patterns of units. Without any, all units match.
#[derive(Debug, Default)]
pub(crate) struct NameFilter {
    names: Vec<UnitName>,
    patterns: Vec<Pattern>,
}

impl NameFilter {
    /// Reads unit arguments: names, ranges of names, and patterns.
    ///
    /// # Errors
    ///
    /// Some arguments are neither valid names nor valid patterns.
    pub(crate) fn new(args: &[String]) -> Result<Self, CliError> {
        let (mut filter, mut wrong) = (Self::default(), Vec::new());
        for arg in expand_all(args)? {
            let read = match is_pattern(&arg) {
                true => parse_pattern(&arg).map(|pattern| filter.patterns.push(pattern)),
                false => unit_arg(&arg).map(|unit| filter.names.push(unit.name)),
            };
            wrong.extend(read.err());
        }
        CliError::combined(wrong)?;
        Ok(filter)
    }

    /// Returns whether the name is one of the filter's names, or matches one of its patterns.
    pub(crate) fn matches(&self, name: &str) -> bool {
        if self.names.is_empty() && self.patterns.is_empty() {
            return true;
        }
        let Ok(name) = name.parse::<UnitName>() else { return false };
        self.names.contains(&name) || self.patterns.iter().any(|pattern| pattern.matches(&name))
    }
}

/// Keeps the rows that have one of these state words. Like systemctl, compares each word with the
/// load state, the active state and the substate, and also with the result of the health check.
///
/// # Errors
///
/// A word is neither a known state nor that of any row.
pub(crate) fn retain_states(
    rows: &mut Vec<wire::UnitRow>,
    words: &[String],
) -> Result<(), CliError> {
    let present: BTreeSet<&str> = rows.iter().flat_map(states).collect();
    let is_known = |word: &str| STATES.contains(&word) || present.contains(word);
    if let Some(word) = words.iter().find(|word| word.is_empty() || !is_known(word)) {
        let error = CliError::usage(format!("--state: unknown state {word:?}"));
        return Err(match nearest(word, STATES) {
            Some(near) => error.help(format!("did you mean {near}?")),
            None => error.help(
                "give a state that list-units shows, such as failed, running, unknown or \
                 unhealthy",
            ),
        });
    }
    if !words.is_empty() {
        rows.retain(|row| states(row).iter().any(|state| words.iter().any(|word| word == state)));
    }
    Ok(())
}

/// Returns the state words of a row.
fn states(row: &wire::UnitRow) -> [&str; 4] {
    [&row.load, &row.active, &row.sub, &row.health]
}

/// Keeps the rows of the machine with this ID or name. The machine of a unit with an unknown state
/// is absent; it is found by its ID or a prefix of it.
///
/// # Errors
///
/// No machine has this ID or name, or several have.
pub(crate) fn retain_machine(
    rows: &mut Vec<wire::UnitRow>,
    name: &str,
    machines: &[wire::MachineEntity],
) -> Result<(), CliError> {
    let id = match find_machine(name, machines) {
        Ok(machine) => machine.id.clone(),
        Err(error) => {
            let ids = rows.iter().map(|row| row.machine.as_str());
            let absent = ids.filter(|id| !name.is_empty() && id.starts_with(name));
            match absent.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()[..] {
                [id] => id.to_owned(),
                _ => return Err(error),
            }
        }
    };
    rows.retain(|row| row.machine == id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: &str, machine: &str, active: &str, sub: &str, health: &str) -> wire::UnitRow {
        let mut row = wire::UnitRow::default();
        (row.unit, row.machine) = (unit.into(), machine.into());
        (row.active, row.sub, row.health) = (active.into(), sub.into(), health.into());
        row.load = if active == "unknown" { String::new() } else { "loaded".into() };
        row
    }

    fn rows() -> Vec<wire::UnitRow> {
        vec![
            row("a.service", "m1", "active", "running", "unhealthy"),
            row("b.service", "m1", "failed", "failed", ""),
            row("c.socket", "m2", "active", "listening", ""),
            row("d.service", "gone1", "unknown", "", ""),
            row("e.service", "", "active", "schedule paused", ""),
        ]
    }

    fn words(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    fn units(rows: &[wire::UnitRow]) -> String {
        rows.iter().map(|row| &row.unit[..1]).collect()
    }

    #[test]
    fn names_and_patterns_select_units() {
        for (args, name, expected) in [
            (&[] as &[&str], "a.service", true),
            (&["a"], "a.service", true),
            (&["a"], "ab.service", false),
            (&["a*"], "ab.service", true),
            (&["a*.socket"], "ab.service", false),
            (&["web@{1..3}"], "web@2.service", true),
            (&["x", "web@[12]*"], "web@2.service", true),
            (&["web@*"], "web@.service", true),
            (&["*"], "no unit name", false),
        ] {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            assert_eq!(NameFilter::new(&args).unwrap().matches(name), expected, "{args:?} {name}");
        }
        let error = NameFilter::new(&["web@[".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "\"web@[\" is not a valid pattern");
    }

    #[test]
    fn state_words_select_rows() {
        for (states, expected) in [
            ("failed", "b"),
            ("active", "ace"),
            ("loaded", "abce"),
            ("running,failed", "ab"),
            ("unknown", "d"),
            ("unhealthy", "a"),
            ("schedule paused", "e"),
            ("masked", ""),
            ("faild", "--state: unknown state \"faild\""),
            ("failed,", "--state: unknown state \"\""),
        ] {
            let mut rows = rows();
            let selected = match retain_states(&mut rows, &words(states)) {
                Ok(()) => units(&rows),
                Err(error) => error.to_string(),
            };
            assert_eq!(selected, expected, "{states}");
        }
        let mut all = rows();
        retain_states(&mut all, &[]).unwrap();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn machine_selects_rows() {
        let machine = |id: &str, name: &str| wire::MachineEntity {
            id: id.into(),
            hostname: name.into(),
            ..wire::MachineEntity::default()
        };
        let machines = [machine("m1", "one"), machine("m2", "two")];
        for (name, expected) in [
            ("m1", "ab"),
            ("two", "c"),
            ("gone", "d"),
            ("m3", "no present machine has an ID or name that starts with m3"),
        ] {
            let mut rows = rows();
            let selected = match retain_machine(&mut rows, name, &machines) {
                Ok(()) => units(&rows),
                Err(error) => error.to_string(),
            };
            assert_eq!(selected, expected, "{name}");
        }
    }
}
