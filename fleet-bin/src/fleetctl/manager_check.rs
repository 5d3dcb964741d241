//! Asks the service managers of the cluster's machines about unit files before they are sent.

use fleet_http::client::UnitUpload;
use fleet_http::wire;
use fleet_unitfile::{Severity, UnitFile, UnitName};

use super::Context;
use super::colocation::cluster_warnings;
use crate::ui::error::CliError;
use crate::ui::findings::{Finding, LOST};
use crate::ui::unit_text::SourcePath;

/// Size of the unit files in one request, unless a single file is larger.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// A unit file to check.
#[derive(Debug, Clone)]
pub(crate) struct CheckedUnit {
    pub(crate) name: UnitName,
    /// Path for messages, with the origin of each line.
    pub(crate) path: SourcePath,
    /// File to send; `None` for the file that the cluster has.
    pub(crate) file: Option<UnitFile>,
}

/// Prints the warnings about units that may be placed apart, and the findings of the machines'
/// service managers. A daemon that is too old to ask the managers is not asked.
///
/// # Errors
///
/// Every machine that could run one of the units would refuse its file.
pub(crate) async fn check_managers(
    context: &mut Context,
    units: Vec<CheckedUnit>,
) -> Result<(), CliError> {
    for warning in cluster_warnings(&context.session, &units).await? {
        context.progress.note(&warning.to_string());
    }
    let mut refused: Vec<String> = Vec::new();
    let mut shown: Vec<Finding> = Vec::new();
    for batch in batches(units) {
        let uploads: Vec<(UnitName, Option<UnitUpload>)> = batch
            .iter()
            .map(|it| (it.name.clone(), it.file.clone().map(UnitUpload::new)))
            .collect();
        let Some(report) = context.session.check(&uploads).await? else { return Ok(()) };
        for (unit, check) in batch.iter().zip(&report.units) {
            if check.is_refused_everywhere() {
                refused.push(check.name.clone());
            }
            // Instances of a template share its file.
            for finding in findings(unit, check) {
                if !shown.contains(&finding) {
                    context.progress.note(&finding.to_string());
                    shown.push(finding);
                }
            }
        }
    }
    let error = match &refused[..] {
        [] => return Ok(()),
        [one] => format!("nothing was sent: every machine that could run {one} would refuse it"),
        all => format!(
            "nothing was sent: {} units would be refused by every machine that could run them",
            all.len()
        ),
    };
    Err(CliError::failed(error).help("add --no-verify to send the files nevertheless"))
}

/// Splits the units into requests of limited size.
fn batches(units: Vec<CheckedUnit>) -> Vec<Vec<CheckedUnit>> {
    let mut batches: Vec<Vec<CheckedUnit>> = Vec::new();
    let mut size = MAX_BATCH_BYTES;
    for unit in units {
        let own = unit.name.as_str().len() + unit.file.as_ref().map_or(0, |it| it.source().len());
        match batches.last_mut().filter(|_| size + own <= MAX_BATCH_BYTES) {
            Some(batch) => {
                batch.push(unit);
                size += own;
            }
            None => {
                batches.push(vec![unit]);
                size = own;
            }
        }
    }
    batches
}

/// Converts the findings in one unit file. A refusal by some of the machines is only a warning.
fn findings(unit: &CheckedUnit, check: &wire::UnitCheck) -> Vec<Finding> {
    let (all, is_refused) = (check.machines, check.is_refused_everywhere());
    let finding = |it: &wire::UnitFinding| {
        let part = format!("{} of {all} machines", it.machines);
        let (severity, message, help) = match (it.severity.as_str(), it.machines == all) {
            ("error", _) if is_refused => (
                Severity::Error,
                it.message.clone(),
                "\"fleetctl verify --manager native\" checks each option",
            ),
            ("error", _) => (
                Severity::Warning,
                format!("{part} would refuse the unit: {}", it.message),
                "exclude these machines with MachineMetadata= in [X-Fleet], or change the unit",
            ),
            (_, true) => (Severity::Warning, it.message.clone(), LOST),
            (_, false) => (Severity::Warning, format!("on {part}: {}", it.message), LOST),
        };
        let ((file, line), help) = (unit.path.locate(it.line.max(1)), help.to_owned());
        Finding { file, line, column: 1, severity, code: None, message, help }
    };
    check.findings.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::unit_text::UnitText;

    fn unit(name: &str, size: usize) -> CheckedUnit {
        let text = format!("[Service]\n{}", "#\n".repeat(size / 2));
        let file = Some(UnitFile::parse(text).unwrap());
        CheckedUnit { name: name.parse().unwrap(), path: name.into(), file }
    }

    fn check(machines: usize, found: &[(&str, usize, &str)]) -> wire::UnitCheck {
        let mut check = wire::UnitCheck::default();
        check.machines = machines;
        for (severity, count, message) in found {
            let mut finding = wire::UnitFinding::default();
            (finding.severity, finding.machines) = ((*severity).to_owned(), *count);
            (finding.message, finding.line) = ((*message).to_owned(), 3);
            check.refused_by += if *severity == "error" { *count } else { 0 };
            check.findings.push(finding);
        }
        check
    }

    fn report(check: &wire::UnitCheck) -> String {
        let all = findings(&unit("web.service", 0), check);
        all.iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn refusal_by_some_machines_is_a_warning() {
        let some = check(3, &[("error", 2, "A= needs root"), ("warning", 1, "runs without A=")]);
        insta::assert_snapshot!(report(&some), @r"
        web.service:3:1: warning: 2 of 3 machines would refuse the unit: A= needs root
        help: exclude these machines with MachineMetadata= in [X-Fleet], or change the unit
        web.service:3:1: warning: on 1 of 3 machines: runs without A=
        help: nothing to do if the unit works without it; otherwise use fleetd as root, or systemd
        ");
    }

    #[test]
    fn refusal_by_all_machines_is_an_error() {
        let all = check(3, &[("error", 2, "A= needs root"), ("error", 1, "A= is refused")]);
        assert!(all.is_refused_everywhere());
        insta::assert_snapshot!(report(&all), @r#"
        web.service:3:1: A= needs root
        help: "fleetctl verify --manager native" checks each option
        web.service:3:1: A= is refused
        help: "fleetctl verify --manager native" checks each option
        "#);
        assert!(!check(0, &[]).is_refused_everywhere(), "there is no machine to ask");
    }

    #[test]
    fn finding_in_a_drop_in_has_its_path_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir(at("web.service.d")).unwrap();
        std::fs::write(at("web.service.d/a.conf"), "[Service]\nNice=1\n").unwrap();
        let name: UnitName = "web.service".parse().unwrap();
        let text = UnitText::read(&name, &at("web.service"), b"[Service]\nNice=0\n").unwrap();
        let unit = CheckedUnit { name, path: text.path().clone(), file: None };
        let mut all = check(1, &[("warning", 1, "A="), ("warning", 1, "B=")]);
        (all.findings[0].line, all.findings[1].line) = (0, 7);
        let places = findings(&unit, &all).into_iter().map(|it| (it.file, it.line));
        assert!(places.eq([(at("web.service"), 1), (at("web.service.d/a.conf"), 2)]));
    }

    #[test]
    fn requests_are_limited_in_size() {
        let half = MAX_BATCH_BYTES / 2;
        let units = [("a", half), ("b", half), ("c", 10), ("d", 2 * MAX_BATCH_BYTES), ("e", 1)];
        let units = units.map(|(name, size)| unit(&format!("{name}.service"), size));
        let sizes: Vec<usize> = batches(units.to_vec()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 2, 1, 1]);
        assert!(batches(Vec::new()).is_empty());
    }
}
