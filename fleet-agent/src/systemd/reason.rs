//! Pure: formats why systemd did not do what was requested.

use fleet_unitfile::{Severity, UnitFile, UnitName, UnitType};

use super::state::ObservedState;
use crate::ServiceError;

/// Returns the error for a unit file that systemd has refused. The reason is the first error that
/// fleet's own check finds. If the check finds none, the reason is systemd's message, which
/// contains few details.
pub(crate) fn bad_file(unit: &UnitName, file: &UnitFile, reason: &str) -> ServiceError {
    let findings = file.check(unit);
    let fatal = findings.iter().find(|finding| finding.severity() == Severity::Error);
    let (line, problem) = match fatal {
        Some(finding) if finding.help().is_empty() => {
            (finding.location().line, finding.message().to_owned())
        }
        Some(finding) => {
            (finding.location().line, format!("{}: {}", finding.message(), finding.help()))
        }
        None => (0, format!("systemd refuses the file: {reason}")),
    };
    ServiceError::BadSetting { unit: unit.clone(), line, problem }
}

/// Returns the reason why a start failed, derived from the result of its job and the state of the
/// unit.
pub(crate) fn start_problem(unit: &UnitName, result: &str, observed: &ObservedState) -> String {
    match result {
        // systemd refuses such a unit without a failed state.
        "failed" if triggers(unit) && !observed.has_failed() => {
            "systemd refuses it without a reason: see systemd's journal".to_owned()
        }
        "failed" => observed.failure(),
        "dependency" => "a unit that it requires did not start".to_owned(),
        "timeout" => "its start exceeded the timeout of its job".to_owned(),
        "canceled" => "a later request has cancelled it".to_owned(),
        "skipped" => "systemd skipped it, since one of its conditions does not hold".to_owned(),
        "assert" => "one of its assertions does not hold".to_owned(),
        "unsupported" => "this machine cannot run units of its type".to_owned(),
        "once" => "it runs only once per boot, and already has".to_owned(),
        other => format!("the result of its start is {other:?}"),
    }
}

/// Whether a unit's only purpose is to start another.
pub(crate) fn triggers(unit: &UnitName) -> bool {
    matches!(unit.unit_type(), UnitType::Path | UnitType::Socket | UnitType::Timer)
}

/// Returns why a reload failed, by the result of its job.
pub(crate) fn reload_problem(result: &str) -> String {
    match result {
        "failed" => "its reload command failed: see its log for the reason".to_owned(),
        "timeout" => "it exceeded the timeout of its job".to_owned(),
        "canceled" => "a later request has cancelled it".to_owned(),
        // It has ended since it was checked.
        "invalid" => "it is not active: start it".to_owned(),
        other => format!("the result of its reload is {other:?}"),
    }
}

/// Returns why a stop failed, by the result of its job.
pub(crate) fn stop_problem(result: &str) -> String {
    match result {
        "timeout" => "its stop exceeded the timeout of its job".to_owned(),
        "canceled" => "a later request has cancelled it".to_owned(),
        other => format!("the result of its stop is {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bus::States;
    use super::*;

    fn observed(active: &str) -> ObservedState {
        let mut observed = ObservedState::default();
        let [load, active, sub] = ["loaded", active, ""].map(str::to_owned);
        let (name, job) = (String::new(), String::new());
        observed.on_states(&States { name, load, active, sub, job }, true);
        observed
    }

    #[test]
    fn failed_start_has_a_reason() {
        let rows = [
            ("a.service", "failed", "failed", "systemd gives no reason"),
            ("a.timer", "failed", "failed", "systemd gives no reason"),
            (
                "a.timer",
                "failed",
                "inactive",
                "systemd refuses it without a reason: see systemd's journal",
            ),
            ("a.service", "dependency", "inactive", "a unit that it requires did not start"),
            ("a.service", "canceled", "inactive", "a later request has cancelled it"),
            ("a.service", "odd", "inactive", "the result of its start is \"odd\""),
        ];
        for (unit, result, active, expected) in rows {
            let unit: UnitName = unit.parse().expect("it is a name");
            assert_eq!(start_problem(&unit, result, &observed(active)), expected);
        }
    }

    #[test]
    fn bad_file_is_refused_with_its_line() {
        let unit: UnitName = "a.service".parse().expect("it is a name");
        let refused = |text: &str| {
            let file = UnitFile::parse(text).expect("it is well formed");
            bad_file(&unit, &file, "something").to_string()
        };
        assert_eq!(
            refused("[Unit]\n[Service]\nRestart=always\n"),
            "a.service, line 2: the service has nothing to run: add ExecStart= to [Service]"
        );
        assert_eq!(
            refused("[Service]\nExecStart=/bin/true\n"),
            "a.service: systemd refuses the file: something"
        );
    }
}
