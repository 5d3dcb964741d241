//! From a unit file to what the supervisor runs, or to the line that keeps it from being run.

use fleet_core::graph::systemd::{self, UnitRefusals};
use fleet_unitfile::{UnitFile, UnitName};

use super::identity::HostCapabilities;
use super::support::unsupported_options;

/// How many refusals of one unit are told at once.
const MAX_REFUSALS: usize = 8;

/// A line that cannot be obeyed, and those after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadSetting {
    /// The first line, from one; zero when it is about the whole file.
    pub(crate) line: usize,
    /// What is wrong, and what would do instead.
    pub(crate) problem: String,
}

/// A unit that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compiled {
    pub(crate) unit: systemd::CompiledUnit,
    /// What a person should know of it.
    pub(crate) remarks: Vec<String>,
}

/// Turns a unit file into what the supervisor runs. Nothing of a unit that is refused ever runs.
pub(crate) fn compile(
    unit: &UnitName,
    file: &UnitFile,
    host: &HostCapabilities,
) -> Result<Compiled, BadSetting> {
    let compiled = systemd::compile(unit, file, &host.site).map_err(|it| bad_setting(&it))?;
    let unsupported_options = unsupported_options(&compiled, host);
    if !unsupported_options.is_empty() {
        return Err(bad_setting(&UnitRefusals { unit: unit.clone(), all: unsupported_options }));
    }
    let remarks = compiled.remarks.iter().map(ToString::to_string).collect();
    Ok(Compiled { unit: compiled, remarks })
}

fn bad_setting(refusals: &UnitRefusals) -> BadSetting {
    let line = refusals.all.first().and_then(|it| it.position.as_ref()).map_or(0, |it| it.line);
    let messages = refusals.all.iter().take(MAX_REFUSALS).enumerate().map(|(index, refusal)| {
        let place = refusal.position.as_ref();
        // The line of the first is told beside it.
        let place = place.map(|place| match index {
            0 => format!("{}= ", place.name()),
            _ => format!("line {}: {}= ", place.line, place.name()),
        });
        format!("{}{}", place.unwrap_or_default(), refusal.problem)
    });
    let mut problem = messages.collect::<Vec<_>>().join("; ");
    if refusals.all.len() > MAX_REFUSALS {
        problem.push_str("; and more");
    }
    BadSetting { line, problem }
}
