//! Warnings about timers, sockets and paths that the cluster may place apart from the units that
//! they start.

use std::collections::BTreeMap;

use fleet_core::pattern::Peer;
use fleet_core::{Requirements, Strictness};
use fleet_unitfile::specifier::expand_fleet_specifiers;
use fleet_unitfile::{Severity, UnitFile, UnitName, UnitType};

use super::manager_check::CheckedUnit;
use super::session::{Session, source};
use crate::ui::error::CliError;
use crate::ui::findings::Finding;

/// Returns a warning for each of these units that starts a unit of the cluster, unless both are
/// sure to be on one machine.
pub(crate) async fn cluster_warnings(
    session: &Session,
    units: &[CheckedUnit],
) -> Result<Vec<Finding>, CliError> {
    let mut files: BTreeMap<UnitName, UnitFile> =
        units.iter().filter_map(|it| Some((it.name.clone(), it.file.clone()?))).collect();
    for unit in units {
        let Some(started) = unit.file.as_ref().and_then(|file| started_unit(&unit.name, file))
        else {
            continue;
        };
        if files.contains_key(&started) {
            continue;
        }
        let known = session.unit(&started).await?;
        // A unit without a readable file has no requirements that matter here.
        if let Some(file) = known.and_then(|it| UnitFile::parse(source(&it).ok()?).ok()) {
            files.insert(started, file);
        }
    }
    Ok(warnings(units, &files))
}

/// Returns a warning for each of `units` that starts one of `files`, unless both are sure to be on
/// one machine.
pub(crate) fn warnings(
    units: &[CheckedUnit],
    files: &BTreeMap<UnitName, UnitFile>,
) -> Vec<Finding> {
    units.iter().filter_map(|unit| warning(unit, files)).collect()
}

fn warning(unit: &CheckedUnit, files: &BTreeMap<UnitName, UnitFile>) -> Option<Finding> {
    let (name, file) = (&unit.name, unit.file.as_ref()?);
    let started = started_unit(name, file)?;
    let own = requirements(name, file)?;
    let other = requirements(&started, files.get(&started)?)?;
    let is_tied = own.global
        || other.global
        || own.machine_id.is_some()
        || names(&own, &started)
        || names(&other, name)
        || own.machine_of.iter().any(|peer| other.machine_of.contains(peer));
    (!is_tied).then(|| Finding {
        file: unit.path.clone(),
        line: 1,
        column: 1,
        severity: Severity::Warning,
        code: None,
        message: format!("starts {started}, which can be placed on another machine"),
        help: format!("add MachineOf={started} to its [X-Fleet] section"),
    })
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
            path: name.into(),
            file: Some(UnitFile::parse(text).unwrap()),
        };
        let units: Vec<CheckedUnit> = units.iter().map(unit).collect();
        let files = units.iter().map(|it| (it.name.clone(), it.file.clone().unwrap())).collect();
        warnings(&units, &files).iter().map(|it| format!("{it}\n")).collect()
    }

    #[test]
    fn untied_activators_get_a_warning() {
        let service = "[Service]\nExecStart=/bin/a\n";
        let units = [
            ("a.service", service),
            ("a.timer", "[Timer]\nOnCalendar=daily\n"),
            ("b.timer", "[Timer]\nUnit=a.service\nOnCalendar=daily\n"),
            ("a@1.service", service),
            ("a@1.socket", "[Socket]\nListenStream=1\nService=%p@%i.service\n"),
        ];
        insta::assert_snapshot!(render(&units), @r"
        a.timer:1:1: warning: starts a.service, which can be placed on another machine
        help: add MachineOf=a.service to its [X-Fleet] section
        b.timer:1:1: warning: starts a.service, which can be placed on another machine
        help: add MachineOf=a.service to its [X-Fleet] section
        a@1.socket:1:1: warning: starts a@1.service, which can be placed on another machine
        help: add MachineOf=a@1.service to its [X-Fleet] section
        ");
    }

    #[test]
    fn tied_or_lone_activators_get_no_warning() {
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
        ] {
            assert_eq!(render(units), "", "{units:?}");
        }
    }
}
