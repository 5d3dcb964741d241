//! Findings about several units: warnings about units that the cluster may place apart from the
//! units that they start or require, and errors about cycles of `StartAfter=`.

use std::collections::BTreeMap;

use fleet_core::cycle::start_after_cycle;
use fleet_core::pattern::Peer;
use fleet_core::requirements::FleetOption;
use fleet_core::{Requirements, Snapshot, Strictness, TargetState, Unit};
use fleet_unitfile::specifier::expand_fleet_specifiers;
use fleet_unitfile::{Severity, UnitFile, UnitName, UnitType};

use super::manager_check::CheckedUnit;
use super::session::{Session, source};
use crate::ui::error::CliError;
use crate::ui::findings::Finding;

/// Returns a warning for each of these units that starts or requires a unit of the cluster, unless
/// both are sure to be on one machine.
pub(crate) async fn cluster_warnings(
    session: &Session,
    units: &[CheckedUnit],
) -> Result<Vec<Finding>, CliError> {
    let mut files: BTreeMap<UnitName, UnitFile> =
        units.iter().filter_map(|it| Some((it.name.clone(), it.file.clone()?))).collect();
    let needed = units.iter().filter_map(|unit| Some(needs(&unit.name, unit.file.as_ref()?)));
    for Need { unit, .. } in needed.flatten() {
        if files.contains_key(&unit) {
            continue;
        }
        let known = session.unit(&unit).await?;
        // A unit without a readable file has no requirements that matter here.
        if let Some(file) = known.and_then(|it| UnitFile::parse(source(&it).ok()?).ok()) {
            files.insert(unit, file);
        }
    }
    Ok(warnings(units, &files))
}

/// Returns a warning for each of `units` that starts or requires one of `files`, unless both are
/// sure to be on one machine.
pub(crate) fn warnings(
    units: &[CheckedUnit],
    files: &BTreeMap<UnitName, UnitFile>,
) -> Vec<Finding> {
    units.iter().flat_map(|unit| warnings_for(unit, files)).collect()
}

/// Returns an error about a cycle of `StartAfter=` among these units, if there is one.
pub(crate) fn start_order_error(units: &[CheckedUnit]) -> Option<Finding> {
    let mut known = Snapshot::default();
    for unit in units {
        let Some(file) = unit.file.clone() else { continue };
        let Some(requirements) = requirements(&unit.name, &file) else { continue };
        known.put_unit(Unit::new(unit.name.clone(), file, requirements, TargetState::Launched));
    }
    let cycle = start_after_cycle(&known, units.iter().map(|unit| &unit.name))?;
    let first = units.iter().find(|unit| unit.name == cycle.units[0])?;
    let mut options = first.file.as_ref()?.options();
    let option = options.find(|it| it.name() == FleetOption::StartAfter.as_str())?;
    let (file, line) = first.path.locate(option.line());
    Some(Finding {
        file,
        line,
        column: 1,
        severity: Severity::Error,
        code: None,
        message: cycle.to_string(),
        help: "remove one of these units from the option".to_owned(),
    })
}

fn warnings_for(unit: &CheckedUnit, files: &BTreeMap<UnitName, UnitFile>) -> Vec<Finding> {
    let Some(file) = &unit.file else { return Vec::new() };
    let is_apart = |need: &Need| {
        files.get(&need.unit).is_some_and(|other| can_be_apart(unit, file, &need.unit, other))
    };
    let finding = |Need { unit: other, verb, line }| {
        let (file, line) = unit.path.locate(line);
        Finding {
            file,
            line,
            column: 1,
            severity: Severity::Warning,
            code: None,
            message: format!("{verb} {other}, which can be placed on another machine"),
            help: format!("add MachineOf={other} to its [X-Fleet] section"),
        }
    };
    needs(&unit.name, file).into_iter().filter(is_apart).map(finding).collect()
}

/// Returns whether nothing keeps two units on one machine.
fn can_be_apart(unit: &CheckedUnit, file: &UnitFile, other: &UnitName, of: &UnitFile) -> bool {
    let (Some(own), Some(theirs)) = (requirements(&unit.name, file), requirements(other, of))
    else {
        return false;
    };
    !(own.global
        || theirs.global
        || own.machine_id.is_some()
        || names(&own, other)
        || names(&theirs, &unit.name)
        || own.machine_of.iter().any(|peer| theirs.machine_of.contains(peer)))
}

/// A unit that another unit needs on its machine.
struct Need {
    unit: UnitName,
    verb: &'static str,
    /// Line of the option, or 1.
    line: usize,
}

/// Returns the unit that a timer, socket or path starts, and the units that any unit requires.
fn needs(name: &UnitName, file: &UnitFile) -> Vec<Need> {
    let started = started_unit(name, file).map(|unit| Need { unit, verb: "starts", line: 1 });
    let required = file
        .section("Unit")
        .filter(|option| matches!(option.name(), "Requires" | "Requisite" | "BindsTo"));
    let required = required.flat_map(|option| {
        let units = option.value().split_whitespace().filter_map(|unit| {
            let unit = expand_fleet_specifiers(unit, name).ok()?.parse().ok()?;
            Some(Need { unit, verb: "requires", line: option.line() })
        });
        units.collect::<Vec<_>>()
    });
    started.into_iter().chain(required).collect()
}

/// Returns the unit that a timer, socket or path starts.
fn started_unit(name: &UnitName, file: &UnitFile) -> Option<UnitName> {
    let (section, option) = match name.unit_type() {
        UnitType::Timer => ("Timer", "Unit"),
        UnitType::Path => ("Path", "Unit"),
        UnitType::Socket => ("Socket", "Service"),
        _ => return None,
    };
    match file.get(section, option).filter(|value| !value.is_empty()) {
        Some(value) => expand_fleet_specifiers(value, name).ok()?.parse().ok(),
        None => format!("{}.service", name.stem()).parse().ok(),
    }
}

fn requirements(name: &UnitName, file: &UnitFile) -> Option<Requirements> {
    let parsed = Requirements::parse(name, file, Strictness::Warn).ok()?;
    Some(parsed.requirements)
}

fn names(requirements: &Requirements, unit: &UnitName) -> bool {
    requirements.machine_of.iter().any(|peer| match peer {
        Peer::Named(name) => name == unit,
        Peer::Matching(pattern) => pattern.matches(unit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(units: &[(&str, &str)]) -> String {
        let unit = |(name, text): &(&str, &str)| CheckedUnit {
            name: name.parse().unwrap(),
            path: (*name).into(),
            file: Some(UnitFile::parse(text).unwrap()),
        };
        let units: Vec<CheckedUnit> = units.iter().map(unit).collect();
        let files = units.iter().map(|it| (it.name.clone(), it.file.clone().unwrap())).collect();
        warnings(&units, &files).iter().map(|it| format!("{it}\n")).collect()
    }

    #[test]
    fn untied_units_get_a_warning() {
        let service = "[Service]\nExecStart=/bin/a\n";
        let units = [
            ("a.service", service),
            ("a.timer", "[Timer]\nOnCalendar=daily\n"),
            ("b.timer", "[Timer]\nUnit=a.service\nOnCalendar=daily\n"),
            ("a@1.service", service),
            ("a@1.socket", "[Socket]\nListenStream=1\nService=%p@%i.service\n"),
            ("c.service", "[Service]\nExecStart=/c\n[Unit]\nRequires=a.service db.service\n"),
        ];
        insta::assert_snapshot!(render(&units), @r"
        a.timer:1:1: warning: starts a.service, which can be placed on another machine
        help: add MachineOf=a.service to its [X-Fleet] section
        b.timer:1:1: warning: starts a.service, which can be placed on another machine
        help: add MachineOf=a.service to its [X-Fleet] section
        a@1.socket:1:1: warning: starts a@1.service, which can be placed on another machine
        help: add MachineOf=a@1.service to its [X-Fleet] section
        c.service:4:1: warning: requires a.service, which can be placed on another machine
        help: add MachineOf=a.service to its [X-Fleet] section
        ");
    }

    #[test]
    fn tied_or_lone_units_get_no_warning() {
        let service = "[Service]\nExecStart=/bin/a\n";
        let timer = "[Timer]\nOnCalendar=daily\n[X-Fleet]\n";
        let tied = format!("{timer}MachineOf=a.service\n");
        let beside = format!("{service}[X-Fleet]\nMachineOf=a.timer\n");
        let global = format!("{timer}Global=true\n");
        let patterns = format!("{timer}MachineOf=a*.service\n");
        for units in [
            &[("a.service", service), ("a.timer", &tied)][..],
            &[("a.service", &beside), ("a.timer", timer)],
            &[("a.service", service), ("a.timer", &global)],
            &[("a.service", service), ("a.timer", &patterns)],
            &[("a.timer", timer)],
            &[("b.service", "[Unit]\nWants=a.service\n"), ("a.service", service)],
        ] {
            assert_eq!(render(units), "", "{units:?}");
        }
    }

    #[test]
    fn start_order_cycle_is_an_error() {
        let unit = |name: &str, after: &str| CheckedUnit {
            name: name.parse().unwrap(),
            path: name.into(),
            file: Some(UnitFile::parse(format!("[X-Fleet]\nStartAfter={after}\n")).unwrap()),
        };
        let units = [
            unit("a.service", "x.service"),
            unit("b.service", "a.service c.service"),
            unit("c.service", "b.service"),
        ];
        assert_eq!(start_order_error(&units[..2]), None);
        insta::assert_snapshot!(start_order_error(&units).unwrap(), @"
        b.service:2:1: StartAfter forms a dependency cycle: b.service -> c.service -> b.service
        help: remove one of these units from the option
        ");
    }
}
