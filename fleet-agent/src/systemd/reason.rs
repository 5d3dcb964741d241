//! Pure: says in a person's words why systemd did not do what it was asked.

use fleet_unitfile::{Severity, UnitFile, UnitName, check};

use super::state::Seen;
use crate::ServiceError;

/// Why systemd has refused a unit's file: what the check finds wrong in it, or else what systemd
/// says, which is little.
pub(crate) fn bad_file(unit: &UnitName, file: &UnitFile, said: &str) -> ServiceError {
    let findings = check(unit, file);
    let fatal = findings.iter().find(|finding| finding.severity() == Severity::Error);
    let (line, problem) = match fatal {
        Some(finding) if finding.help().is_empty() => {
            (finding.location().line, finding.message().to_owned())
        }
        Some(finding) => {
            (finding.location().line, format!("{}: {}", finding.message(), finding.help()))
        }
        None => (0, format!("systemd refuses the file: {said}")),
    };
    ServiceError::BadSetting { unit: unit.clone(), line, problem }
}

/// Why a start did not succeed, by the result of its job and what was seen of the unit.
pub(crate) fn start_problem(result: &str, seen: &Seen) -> String {
    match result {
        "failed" => seen.failure(),
        "dependency" => "a unit that it requires did not start".to_owned(),
        "timeout" => "its start took longer than its job may take".to_owned(),
        "canceled" => "another order has overtaken it".to_owned(),
        "skipped" => "systemd skipped it, since a condition of it does not hold".to_owned(),
        "assert" => "an assertion of it does not hold".to_owned(),
        "unsupported" => "this machine cannot run units of its type".to_owned(),
        "once" => "it runs once a boot, and has".to_owned(),
        other => format!("the result of its start is {other:?}"),
    }
}

/// Why a stop did not succeed, by the result of its job.
pub(crate) fn stop_problem(result: &str) -> String {
    match result {
        "timeout" => "its stop took longer than its job may take".to_owned(),
        "canceled" => "another order has overtaken it".to_owned(),
        other => format!("the result of its stop is {other:?}"),
    }
}
