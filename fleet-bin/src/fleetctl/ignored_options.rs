//! Warns about running units that lost options which confine their processes.

use std::collections::{BTreeMap, BTreeSet};

use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::concurrent::buffered;
use super::diagnosis::Diagnosis;
use super::session::Session;
use crate::ui::error::CliError;

/// Maximum number of sets of options with a warning of their own.
const MAX_SETS: usize = 8;

/// Maximum number of options that a warning lists.
const MAX_OPTIONS: usize = 8;

/// Maximum number of units that a warning lists.
const MAX_UNITS: usize = 3;

const REMEDY: &str = "\"fleetctl status\" shows the lines: remove the options, or use machines \
                      that honour them (systemd, or fleetd as root with control groups)";

/// Names of options, each with its equals sign.
type OptionSet = BTreeSet<String>;

/// Returns the options that running units lost and that confine processes or change their
/// privileges, by unit. Only present machines are asked, and none with systemd, which honours all
/// options.
pub(crate) async fn lost_sandboxing(
    session: &Session,
    states: &[wire::UnitStateEntity],
    machines: &[wire::MachineEntity],
) -> Result<BTreeMap<String, OptionSet>, CliError> {
    let by_systemd = |machine: &wire::MachineEntity| {
        machine.service_manager.as_ref().is_some_and(|manager| manager.kind == "systemd")
    };
    let asked = machines.iter().filter(|machine| !by_systemd(machine));
    let asked: BTreeSet<&str> = asked.map(|machine| machine.id.as_str()).collect();
    let is_running = |state: &&wire::UnitStateEntity| {
        matches!(state.systemd_active_state.as_str(), "active" | "activating" | "reloading")
            && asked.contains(state.machine_id.as_str())
    };
    let units: BTreeSet<UnitName> =
        states.iter().filter(is_running).filter_map(|state| state.name.parse().ok()).collect();
    let reports = buffered(units.iter().map(|unit| session.status(unit, 0))).await;
    let mut lost = BTreeMap::new();
    for (unit, report) in units.iter().zip(reports) {
        let machines = report?.map(|report| report.machines).unwrap_or_default();
        let options: OptionSet = machines
            .into_iter()
            .filter_map(|machine| machine.details)
            .flat_map(|details| details.ignored_sandboxing)
            .map(|option| without_line(&option).to_owned())
            .collect();
        if !options.is_empty() {
            lost.insert(unit.to_string(), options);
        }
    }
    Ok(lost)
}

/// Returns one warning per set of options, and one for the units with rarer sets if there are many.
pub(crate) fn warnings(lost: &BTreeMap<String, OptionSet>) -> Vec<Diagnosis> {
    let mut by_set: BTreeMap<&OptionSet, Vec<&str>> = BTreeMap::new();
    for (unit, options) in lost {
        by_set.entry(options).or_default().push(unit);
    }
    let mut sets: Vec<(&OptionSet, Vec<&str>)> = by_set.into_iter().collect();
    sets.sort_by_key(|(_, units)| std::cmp::Reverse(units.len()));
    let rare = sets.split_off(sets.len().min(MAX_SETS));
    let mut all: Vec<Diagnosis> = sets
        .iter()
        .map(|(options, units)| {
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            warning(units, &listed(&options, MAX_OPTIONS))
        })
        .collect();
    let units: Vec<&str> = rare.into_iter().flat_map(|(_, units)| units).collect();
    if !units.is_empty() {
        all.push(warning(&units, "other options that confine processes"));
    }
    all
}

fn warning(units: &[&str], options: &str) -> Diagnosis {
    let message = match units {
        [unit] => format!("{unit} runs without {options}"),
        units => {
            let (count, units) = (units.len(), listed(units, MAX_UNITS));
            format!("{count} units run without {options}: {units}")
        }
    };
    Diagnosis::warning(units[0], message, REMEDY)
}

/// Joins the first of these texts, and counts the others.
fn listed(texts: &[&str], max: usize) -> String {
    match texts {
        [] => String::new(),
        [one] => (*one).to_owned(),
        texts if texts.len() <= max => {
            let (last, first) = texts.split_last().expect("it has several");
            format!("{} and {last}", first.join(", "))
        }
        texts => {
            let shown = max - 1;
            format!("{} and {} more", texts[..shown].join(", "), texts.len() - shown)
        }
    }
}

/// Removes the line from an option such as `PrivateTmp= (line 7)`.
fn without_line(option: &str) -> &str {
    option.split_once(' ').map_or(option, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleetctl::diagnosis::Severity;

    fn report(lost: impl IntoIterator<Item = (String, Vec<String>)>) -> String {
        let lost = lost.into_iter().map(|(unit, options)| (unit, options.into_iter().collect()));
        let all = warnings(&lost.collect());
        assert!(all.iter().all(|it| it.severity == Severity::Warning && !it.remedy.is_empty()));
        all.iter().map(|it| format!("{}\n", it.message.replace("=: ", "=:\n"))).collect()
    }

    #[test]
    fn units_with_the_same_lost_options_share_one_warning() {
        let options = |names: &[&str]| names.iter().map(|name| format!("{name}=")).collect();
        let workers = (1..=12)
            .map(|n| (format!("w@{n:02}.service"), options(&["ProtectSystem", "PrivateTmp"])));
        let alone = ("web.service".to_owned(), options(&["User"]));
        insta::assert_snapshot!(report(workers.chain([alone])), @r"
        12 units run without PrivateTmp= and ProtectSystem=:
        w@01.service, w@02.service and 10 more
        web.service runs without User=
        ");
    }

    #[test]
    fn rare_sets_of_lost_options_share_one_warning() {
        let many = (10..40).map(|n| (format!("u{n}.service"), vec![format!("Option{n}=")]));
        let text = report(many);
        assert_eq!(text.lines().count(), MAX_SETS + 1, "{text}");
        let last = "22 units run without other options that confine processes: \
                    u18.service, u19.service and 20 more\n";
        assert!(text.contains(last), "{text}");
    }

    #[test]
    fn list_of_many_options_is_cut() {
        let names: Vec<String> = (10..30).map(|n| format!("Option{n}=")).collect();
        let text = report([("web.service".to_owned(), names)]);
        assert!(text.contains("Option16= and 13 more\n"), "{text}");
        assert_eq!(without_line("PrivateTmp= (line 7)"), "PrivateTmp=");
    }
}
