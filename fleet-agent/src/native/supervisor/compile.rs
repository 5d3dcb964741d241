//! Compiles a unit file into the definition that the supervisor runs, or reports the lines that
//! prevent this.

use fleet_core::graph::systemd::{self, UnitRefusals};
use fleet_unitfile::{UnitFile, UnitName};

use super::host_capabilities::HostCapabilities;
use super::support::unsupported_options;

/// Maximum number of refusals reported per unit.
const MAX_REFUSALS: usize = 8;

/// Reasons for refusing a unit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadSetting {
    /// First line concerned, counted from one; zero if the whole file is concerned.
    pub(crate) line: usize,
    /// Description of the problems, each with a remedy.
    pub(crate) problem: String,
}

/// A unit that can run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunnableUnit {
    pub(crate) unit: systemd::CompiledUnit,
    /// Remarks for the operator.
    pub(crate) remarks: Vec<String>,
}

/// Compiles a unit file. Nothing of a refused unit ever runs.
pub(crate) fn compile(
    unit: &UnitName,
    file: &UnitFile,
    host: &HostCapabilities,
) -> Result<RunnableUnit, BadSetting> {
    let compiled = systemd::compile(unit, file, &host.site).map_err(|it| bad_setting(&it))?;
    let unsupported_options = unsupported_options(&compiled, host);
    if !unsupported_options.is_empty() {
        return Err(bad_setting(&UnitRefusals { unit: unit.clone(), all: unsupported_options }));
    }
    let remarks = compiled.remarks.iter().map(ToString::to_string).collect();
    Ok(RunnableUnit { unit: compiled, remarks })
}

fn bad_setting(refusals: &UnitRefusals) -> BadSetting {
    let line = refusals.all.first().and_then(|it| it.position.as_ref()).map_or(0, |it| it.line);
    let messages = refusals.all.iter().take(MAX_REFUSALS).enumerate().map(|(index, refusal)| {
        let place = refusal.position.as_ref();
        // The caller reports the first line separately.
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
