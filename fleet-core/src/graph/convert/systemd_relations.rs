//! The relations of systemd units that have no equivalent in a stanza.

use std::collections::BTreeSet;

use fleet_unitfile::{UnitName, UnitType};

use super::draft::Report;
use super::systemd::{FileUnit, MANUAL_REMEDY, at};
use crate::graph::model::Name;
use crate::graph::systemd::{CompiledUnit, Relation, RelationKind};

/// Drops and reports relations to units outside the files, and relations that only apply to enabled
/// units.
pub(super) fn drop_relations(units: &mut [FileUnit], enabled: bool, report: &mut Report<'_>) {
    let names = units.iter().map(|(_, unit)| unit.unit.name.as_str().to_owned());
    let aliases = units.iter().flat_map(|(_, unit)| unit.aliases.iter().map(ToString::to_string));
    let known: BTreeSet<String> = names.chain(aliases).collect();
    for (file, unit) in units.iter_mut() {
        let name = unit.unit.name.clone();
        let relations = std::mem::take(&mut unit.relations);
        for relation in relations {
            let inside = known.contains(relation.unit.as_str());
            let of_install = matches!(
                relation.kind,
                RelationKind::RequiredBy | RelationKind::UpheldBy | RelationKind::WantedBy
            );
            let applies = enabled || !of_install;
            let has_edge = !relation.kind.is_effect()
                && !matches!(relation.kind, RelationKind::Conflicts | RelationKind::PartOf);
            match has_edge {
                true if inside && applies => unit.relations.push(relation),
                true => report_lost_edge(*file, &name, &relation, applies, report),
                false => report_lost_effect(*file, &name, &relation, report),
            }
        }
    }
}

/// Reports a dependency that is not converted. `applies` is whether the unit has it even if it is
/// not enabled.
fn report_lost_edge(
    file: usize,
    name: &Name,
    relation: &Relation,
    applies: bool,
    report: &mut Report<'_>,
) {
    let position = at(file, &relation.position);
    let (other, option) = (&relation.unit, &relation.position.option);
    match relation.kind {
        RelationKind::After | RelationKind::Before => {
            let message = format!("{option} names {other}, which is not among the files");
            let help = format!("if {other} should run, submit its file as well");
            report.remark(position, message, help);
        }
        RelationKind::RequiredBy | RelationKind::UpheldBy | RelationKind::WantedBy if applies => {
            let message = format!("{option}: {other}, which starts {name}, is not among the files");
            let help = format!("name `{name}` in waits-for of the goal's unit");
            report.remark(position, message, help);
        }
        RelationKind::RequiredBy | RelationKind::UpheldBy | RelationKind::WantedBy => {
            let message =
                format!("{option} is not converted: {other} starts {name} only if it is enabled");
            let help = format!(
                "if it is enabled, convert it with --enabled, or name `{name}` in waits-for of \
                 another unit"
            );
            report.remark(position, message, help);
        }
        _ => {
            let message = format!("{option} names {other}, which is not among the files");
            let help = format!(
                "submit {other} as well; or write a stanza that provides `{other}`, and \
                 `depends-ms: {other}` or `waits-for: {other}` in the stanza of {name}"
            );
            report.loss(position, message, help);
        }
    }
}

/// Reports a relation that is no dependency.
fn report_lost_effect(file: usize, name: &Name, relation: &Relation, report: &mut Report<'_>) {
    let (other, option): (&UnitName, _) = (&relation.unit, &relation.position.option);
    let (what, help) = match relation.kind {
        RelationKind::Conflicts if other.unit_type() == UnitType::Service => (
            format!("the start of {name} does not stop {other}"),
            "make sure that no unit needs both".to_owned(),
        ),
        // Other conflicts are with targets of a shutdown.
        RelationKind::Conflicts => return,
        RelationKind::OnFailure | RelationKind::OnSuccess => (
            format!("the result of {name} does not start {other}"),
            "run the commands of the other unit in exec-stop-post".to_owned(),
        ),
        RelationKind::PropagatesReloadTo | RelationKind::ReloadPropagatedFrom => (
            format!("{name} and {other} do not reload together"),
            "reload the other unit in exec-reload".to_owned(),
        ),
        RelationKind::PropagatesStopTo | RelationKind::StopPropagatedFrom => (
            format!("{name} and {other} do not stop together"),
            "write depends-on into the stanza of the unit that should stop".to_owned(),
        ),
        _ => (
            format!("{name} does not stop together with {other}"),
            format!("if both should stop together, write `depends-on: {other}` into the stanza"),
        ),
    };
    let message = format!("{option} is not converted: {what}");
    report.loss(at(file, &relation.position), message, help);
}

/// Reports that units of this format are not upheld, and that all of them stop when unneeded.
pub(super) fn report_lost_upkeep(file: usize, unit: &CompiledUnit, report: &mut Report<'_>) {
    let upholds =
        |it: &&Relation| matches!(it.kind, RelationKind::UpheldBy | RelationKind::Upholds);
    for relation in unit.relations.iter().filter(upholds) {
        let message = format!(
            "{} becomes a dependency, which does not start an ended unit again",
            relation.position.option
        );
        report.loss(at(file, &relation.position), message, "write `restart: always` in that unit");
    }
    if let Some(position) = unit.position_of("Unit", "StopWhenUnneeded") {
        let message = format!(
            "{} has no equivalent: each unit stops once no needed unit depends on it",
            position.option
        );
        report.remark(at(file, &position), message, MANUAL_REMEDY);
    }
}
