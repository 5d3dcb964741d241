//! From a unit file to what the supervisor runs, or to the line that keeps it from being run.

use fleet_core::graph::systemd::{self, Refusals};
use fleet_unitfile::{UnitFile, UnitName};

use super::abilities::lacking;
use super::identity::Host;

/// How many refusals of one unit are told at once.
const MOST: usize = 8;

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
    pub(crate) unit: systemd::Compiled,
    /// What a person should know of it.
    pub(crate) remarks: Vec<String>,
}

/// Turns a unit file into what the supervisor runs. Nothing of a unit that is refused ever runs.
pub(crate) fn compile(
    unit: &UnitName,
    file: &UnitFile,
    host: &Host,
) -> Result<Compiled, BadSetting> {
    let compiled = systemd::compile(unit, file, &host.site).map_err(|it| bad_setting(&it))?;
    let lacking = lacking(&compiled, host);
    if !lacking.is_empty() {
        return Err(bad_setting(&Refusals { unit: unit.clone(), all: lacking }));
    }
    let remarks = compiled.remarks.iter().map(ToString::to_string).collect();
    Ok(Compiled { unit: compiled, remarks })
}

fn bad_setting(refusals: &Refusals) -> BadSetting {
    let line = refusals.all.first().and_then(|it| it.place.as_ref()).map_or(0, |it| it.line);
    let told = refusals.all.iter().take(MOST).enumerate().map(|(index, refusal)| {
        let place = refusal.place.as_ref();
        // The line of the first is told beside it.
        let place = place.map(|place| match index {
            0 => format!("{}= ", place.name()),
            _ => format!("line {}: {}= ", place.line, place.name()),
        });
        format!("{}{}", place.unwrap_or_default(), refusal.problem)
    });
    let mut problem = told.collect::<Vec<_>>().join("; ");
    if refusals.all.len() > MOST {
        problem.push_str("; and more");
    }
    BadSetting { line, problem }
}
