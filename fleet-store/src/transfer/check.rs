//! Pure: checks of imported objects, by the rules for creating them.

use fleet_core::{
    ParsedRequirements, Requirements, Snapshot, Strictness, TargetState, Unit, machine_of_cycle,
    replaces_cycle,
};
use fleet_unitfile::{Severity, UnitFile};

use super::import::{ImportMetadata, ImportUnit};
use crate::Transaction;

/// Space in a transaction for everything except the unit file, in bytes.
const RESERVED_BYTES: usize = 4096;

/// Returns the unit with the warnings about its file, or all problems of the unit itself.
pub(super) fn unit(
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
    let ParsedRequirements { requirements, warnings } =
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
pub(super) fn cycle(all: &Snapshot, unit: &Unit) -> Option<String> {
    // Only units that refer to others can be part of a cycle, and few do.
    let requirements = &unit.requirements;
    let by_machine = (!requirements.machine_of.is_empty()).then(|| machine_of_cycle(all, unit));
    let replacing = || (!requirements.replaces.is_empty()).then(|| replaces_cycle(all, unit));
    let cycle = by_machine.flatten().or_else(|| replacing().flatten())?;
    Some(cycle.to_string())
}

/// Returns the problem of a metadata entry, if any.
pub(super) fn metadata(pair: &ImportMetadata) -> Option<String> {
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
