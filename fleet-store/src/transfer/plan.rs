//! Pure: the changes to a cluster that an import needs, and the checks of imported objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use fleet_core::cycle::{machine_of_cycle, replaces_cycle, start_after_cycle};
use fleet_core::requirements::ParsedRequirements;
use fleet_core::{Intent, MachineId, Requirements, Snapshot, Strictness, TargetState, Unit};
use fleet_unitfile::{Severity, UnitFile, UnitName};

use super::export::Export;
use super::import::{
    Import, ImportIntent, ImportMetadata, ImportReport, ImportUnit, ImportWarning, RefusedImport,
    RescheduleReason,
};
use super::line::{ContentDigest, intent_keyword};
use crate::Transaction;
use crate::registry::MetadataChange;

/// Options of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Treatment of unit files with problems that fleet v1 ignored.
    pub strictness: Strictness,
    /// Whether units of the target that differ from the file's are replaced.
    pub replace: bool,
    /// Whether refused objects are skipped and the others imported.
    pub keep_going: bool,
    /// Whether nothing is written.
    pub dry_run: bool,
}

/// Change to a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportAction {
    /// Create the unit.
    Create,
    /// Replace a different unit of the same name.
    Replace,
    /// Keep the existing unit, which is equal.
    Keep,
}

/// A unit that passed all checks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PlannedUnit {
    /// The unit.
    pub unit: Arc<Unit>,
    /// Machine of the unit in the file, if the unit may be placed.
    pub machine: Option<MachineId>,
    /// Change to the unit.
    pub action: ImportAction,
}

/// Changes to a cluster that an import needs.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ImportPlan {
    /// Units that passed all checks, ordered by name.
    pub units: Vec<PlannedUnit>,
    /// Metadata to set.
    pub metadata: Vec<MetadataChange>,
    /// Intents to set.
    pub intents: Vec<(MachineId, Intent)>,
    /// Refused objects.
    pub refused: Vec<RefusedImport>,
    /// Warnings about the files of units to write.
    pub warnings: Vec<ImportWarning>,
    /// Number of units in the target that are missing from the file or different from the file's.
    pub own_units: usize,
    /// All metadata of the file, including entries that are already set.
    pairs: Vec<ImportMetadata>,
    /// All intents of the file, including those that are already set.
    wanted_intents: Vec<ImportIntent>,
}

impl ImportPlan {
    /// Checks each object of the file, alone and together with the objects of `cluster`, and
    /// decides on the changes.
    #[must_use]
    pub fn new(import: Import, cluster: &Export, options: &ImportOptions) -> Self {
        let mut plan = Self { refused: import.refused, ..Self::default() };
        let target = &*cluster.snapshot;
        let mut all = target.clone();
        let mut sound = Vec::new();
        for from in import.units {
            match check_unit(&from, options.strictness) {
                Ok((unit, warnings)) => {
                    let unit = Arc::new(unit);
                    all.put_unit(unit.clone());
                    sound.push((ImportUnit { source: Vec::new(), ..from }, unit, warnings));
                }
                Err(reasons) => plan.refuse(from.location, from.name.to_string(), reasons),
            }
        }
        let names: Vec<&UnitName> = sound.iter().map(|(_, unit, _)| &unit.name).collect();
        let mut in_cycle = start_order_cycles(&all, &names);
        for (from, unit, warnings) in sound {
            let cycle = check_cycle(&all, &unit).or_else(|| in_cycle.remove(&unit.name));
            match cycle.map_or_else(|| decide(&unit, target, options), Err) {
                Ok(action) => {
                    plan.warn(&from, action, warnings);
                    plan.units.push(planned(unit, from.machine, action));
                }
                Err(reason) => plan.refuse(from.location, from.name.to_string(), vec![reason]),
            }
        }
        import.metadata.into_iter().for_each(|pair| plan.set(pair, target, options.replace));
        import.intents.into_iter().for_each(|it| plan.intend(it, cluster, options.replace));
        plan.refused.sort_by(|one, other| one.name.cmp(&other.name));
        plan.own_units = plan.own_units(target);
        plan
    }

    /// Returns the number of units in `target` that are missing from the file or different from the
    /// file's.
    #[must_use]
    pub fn own_units(&self, target: &Snapshot) -> usize {
        let there = self.units.iter().filter(|it| is_there(&it.unit, target)).count();
        target.units().len() + target.faults().len() - there
    }

    /// Returns whether nothing may be written.
    #[must_use]
    pub fn is_refused(&self, options: &ImportOptions) -> bool {
        !self.refused.is_empty() && !options.keep_going
    }

    /// Returns the report of the plan, without the result of reading the units back. With a
    /// `reschedule_reason`, the engine chooses the machines; without one, the placements are kept.
    #[must_use]
    pub fn report(&self, reschedule_reason: Option<RescheduleReason>) -> ImportReport {
        let count = |action| self.units.iter().filter(|it| it.action == action).count() as u64;
        let placements = self.new_units().filter(|it| it.machine.is_some()).count() as u64;
        let (placements_kept, left) =
            if reschedule_reason.is_none() { (placements, 0) } else { (0, placements) };
        ImportReport {
            created: count(ImportAction::Create),
            replaced: count(ImportAction::Replace),
            unchanged: count(ImportAction::Keep),
            refused: self.refused.clone(),
            warnings: self.warnings.clone(),
            metadata: self.metadata.len() as u64,
            intents: self.intents.len() as u64,
            placements_kept,
            rescheduled: left,
            reschedule_reason: reschedule_reason.filter(|_| left > 0),
            content: self.content(),
            mismatches: None,
        }
    }

    /// Returns the units to write.
    pub fn new_units(&self) -> impl Iterator<Item = &PlannedUnit> {
        self.units.iter().filter(|it| it.action != ImportAction::Keep)
    }

    /// Returns the names of the plan's units, metadata and intents that are missing or different in
    /// `cluster`.
    #[must_use]
    pub fn mismatches(&self, cluster: &Export) -> Vec<String> {
        let target = &*cluster.snapshot;
        let units = self.units.iter().filter(|it| !is_there(&it.unit, target));
        let units = units.map(|it| it.unit.name.to_string());
        let pairs = self.pairs.iter().filter(|pair| found(pair, target) != Some(&pair.value));
        let there = |it: &ImportIntent| cluster.intents.get(&it.machine) == Some(&it.intent);
        let wanted_intents = self.wanted_intents.iter().filter(|it| !there(it));
        units.chain(pairs.map(metadata_name)).chain(wanted_intents.map(intent_name)).collect()
    }

    fn content(&self) -> String {
        let mut content = ContentDigest::default();
        for pair in &self.pairs {
            content.metadata(pair.machine.as_str(), &pair.key, &pair.value);
        }
        for it in &self.wanted_intents {
            content.intent(it.machine.as_str(), it.intent);
        }
        for PlannedUnit { unit, .. } in &self.units {
            content.unit(unit.name.as_str(), unit.desired, unit.file.source());
        }
        content.finish()
    }

    fn refuse(&mut self, location: String, name: String, reasons: Vec<String>) {
        self.refused.push(RefusedImport { location, name, reasons });
    }

    /// Adds the warnings about the file of a unit, unless the target has the unit already.
    fn warn(&mut self, from: &ImportUnit, action: ImportAction, warnings: Vec<String>) {
        let messages = warnings.into_iter().filter(|_| action != ImportAction::Keep);
        self.warnings.extend(messages.map(|message| ImportWarning {
            location: from.location.clone(),
            unit: from.name.to_string(),
            message,
        }));
    }

    fn set(&mut self, pair: ImportMetadata, target: &Snapshot, replace: bool) {
        let name = metadata_name(&pair);
        if let Some(reason) = check_metadata(&pair) {
            return self.refuse(pair.location, name, vec![reason]);
        }
        match found(&pair, target) {
            Some(value) if *value == pair.value => {}
            Some(value) if !replace => {
                let reason = format!("the cluster has a different value, {value:?}");
                return self.refuse(pair.location, name, vec![reason]);
            }
            _ => self.metadata.push(MetadataChange::Set {
                machine: pair.machine.clone(),
                key: pair.key.clone(),
                value: pair.value.clone(),
            }),
        }
        self.pairs.push(pair);
    }

    fn intend(&mut self, it: ImportIntent, cluster: &Export, replace: bool) {
        match cluster.intents.get(&it.machine) {
            Some(intent) if *intent == it.intent => {}
            Some(intent) if !replace => {
                let (there, here) = (describe(*intent), describe(it.intent));
                let reason = format!("it is {there} in the cluster, but {here} in the file");
                return self.refuse(it.location.clone(), intent_name(&it), vec![reason]);
            }
            _ => self.intents.push((it.machine.clone(), it.intent)),
        }
        self.wanted_intents.push(it);
    }
}

/// Creates a planned unit. The unit keeps its machine only if an engine would place it, which means
/// that it is wanted and not global.
fn planned(unit: Arc<Unit>, machine: Option<MachineId>, action: ImportAction) -> PlannedUnit {
    let machine = machine.filter(|_| unit.is_wanted() && !unit.is_global());
    PlannedUnit { unit, machine, action }
}

/// Decides on the change to a unit by comparing it with the target's unit of the same name.
fn decide(unit: &Unit, target: &Snapshot, options: &ImportOptions) -> Result<ImportAction, String> {
    if is_there(unit, target) {
        return Ok(ImportAction::Keep);
    }
    let Some(difference) = difference(unit, target) else {
        return Ok(ImportAction::Create);
    };
    if options.replace { Ok(ImportAction::Replace) } else { Err(difference) }
}

fn is_there(unit: &Unit, target: &Snapshot) -> bool {
    let there = target.unit(unit.name.as_str());
    there.is_some_and(|it| it.file == unit.file && it.desired == unit.desired)
}

/// Describes how the target's unit of the same name differs. Returns `None` if the target has no
/// such unit.
fn difference(unit: &Unit, target: &Snapshot) -> Option<String> {
    let name = unit.name.as_str();
    let Some(there) = target.unit(name) else {
        let broken = |message: &str| format!("it is unreadable in the cluster: {message}");
        return target.fault(name).map(|fault| broken(&fault.message));
    };
    let (own, other) = (unit.hash(), there.hash());
    Some(match there.file == unit.file {
        true => format!("it is {} in the cluster, but {} in the file", there.desired, unit.desired),
        false if own == other => "its unit file in the cluster has other comments".to_owned(),
        false => format!(
            "its unit file in the cluster is different: the hash is {other}, in the file {own}"
        ),
    })
}

fn found<'a>(pair: &ImportMetadata, target: &'a Snapshot) -> Option<&'a String> {
    target.dynamic_metadata(pair.machine.as_str())?.get(&pair.key)
}

fn metadata_name(pair: &ImportMetadata) -> String {
    format!("metadata {} of machine {}", pair.key, pair.machine)
}

fn intent_name(it: &ImportIntent) -> String {
    format!("machine {}", it.machine)
}

fn describe(intent: Intent) -> String {
    match intent.min_available() {
        None | Some(0) => intent_keyword(intent).to_owned(),
        Some(up) => format!("{} with {up} up", intent_keyword(intent)),
    }
}

/// Space in a transaction for everything except the unit file, in bytes.
const RESERVED_BYTES: usize = 4096;

/// Returns the unit with the warnings about its file, or all problems of the unit itself.
fn check_unit(
    from: &ImportUnit,
    strictness: Strictness,
) -> Result<(Unit, Vec<String>), Vec<String>> {
    let (file, diagnostics) = UnitFile::parse_collecting(&from.source);
    let errors = diagnostics.iter().filter(|it| it.severity() == Severity::Error);
    let mut wrong: Vec<String> =
        errors.map(|it| with_location(it.location(), &it.message(), it.help())).collect();
    if wrong.is_empty() && file.options().is_empty() {
        wrong.push("the unit file has no options".to_owned());
    }
    if from.source.len() + RESERVED_BYTES > Transaction::MAX_BYTES {
        let most = (Transaction::MAX_BYTES - RESERVED_BYTES) >> 10;
        wrong.push(format!("the unit file is larger than {most} KiB"));
    }
    if from.name.is_template() && from.desired != TargetState::Inactive {
        wrong
            .push(format!("a template cannot be activated: its desired state is {}", from.desired));
    }
    let ParsedRequirements { requirements, warnings, .. } =
        match Requirements::parse(&from.name, &file, strictness) {
            Ok(parsed) => parsed,
            Err(errors) => {
                wrong.extend(
                    errors.iter().map(|it| with_location(it.location, &it.message(), &it.help())),
                );
                return Err(wrong);
            }
        };
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let unit = Unit::new(from.name.clone(), file, requirements, from.desired);
    let warnings =
        warnings.iter().map(|it| with_location(it.location, &it.message(), &it.help())).collect();
    Ok((Unit { generation: from.generation, ..unit }, warnings))
}

/// Describes the cycle of `MachineOf=` or `Replaces=` that the unit is part of, if any. `all` has
/// the units of the file and of the target.
fn check_cycle(all: &Snapshot, unit: &Unit) -> Option<String> {
    // Only units that refer to others can be part of a cycle, and few do.
    let requirements = &unit.requirements;
    let by_machine = (!requirements.machine_of.is_empty()).then(|| machine_of_cycle(all, unit));
    let replacing = || (!requirements.replaces.is_empty()).then(|| replaces_cycle(all, unit));
    let cycle = by_machine.flatten().or_else(|| replacing().flatten())?;
    Some(cycle.to_string())
}

/// Returns the units in cycles of `StartAfter=`, each with its cycle. Without these units, none of
/// the units called `names` is part of a cycle or waits for one.
fn start_order_cycles(all: &Snapshot, names: &[&UnitName]) -> BTreeMap<UnitName, String> {
    let (mut left, mut cycles) = (all.clone(), BTreeMap::new());
    while let Some(cycle) = start_after_cycle(&left, names.iter().copied()) {
        let text = cycle.to_string();
        for unit in cycle.units {
            left.remove_unit(unit.as_str());
            cycles.insert(unit, text.clone());
        }
    }
    cycles
}

/// Returns the problem of a metadata entry, if any.
fn check_metadata(pair: &ImportMetadata) -> Option<String> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    let sound = !pair.key.is_empty() && pair.key.bytes().all(allowed);
    (!sound).then(|| {
        "a metadata key may contain only letters, digits, \"_\", \".\" and \"-\"".to_owned()
    })
}

fn with_location(at: fleet_unitfile::Location, message: &str, help: &str) -> String {
    let help = if help.is_empty() { String::new() } else { format!("; {help}") };
    format!("{}:{}: {message}{help}", at.line, at.column)
}
