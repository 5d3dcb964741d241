//! Diagnostics of local unit files in the style of compilers, for all programs.

use std::fmt;
use std::path::{Path, PathBuf};

use fleet_agent::native::linux::machine_specifiers;
use fleet_core::graph::systemd::{CompileOptions, OptionPosition, RemarkKind, compile};
use fleet_core::requirements::{RequirementError, RequirementErrorKind};
use fleet_core::{Requirements, Strictness, Timestamp};
use fleet_unitfile::calendar::Zone;
use fleet_unitfile::check::{FindingCode, SystemdVersion};
use fleet_unitfile::{Diagnostic, Location, Severity, UnitFile, UnitName, UnitTree};
use jiff::tz::TimeZone;
use serde::Serialize;

use super::drop_ins::{drop_in_folder, orphaned_folders};
use super::error::CliError;
use super::unit_text::{SourcePath, UnitText};

/// Directory of the files that are checked as parts of a unit.
const UNIT_DIRECTORY: &str = "/etc/systemd/system";

/// Help for a unit that runs without an option.
pub(crate) const LOST: &str = "nothing to do if the unit works without it; otherwise use fleetd \
                               as root, or systemd";

/// One diagnostic of a unit file.
///
/// `Display` prints a line such as `web.service:3:1: hint: message [code]` and then a line with the
/// fix. It omits the severity of an error, and a missing code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Path of the file as given by the caller.
    pub(crate) file: PathBuf,
    /// Line, counted from 1.
    pub(crate) line: usize,
    /// Column in characters, counted from 1.
    pub(crate) column: usize,
    /// `error`, `warning` or `hint`.
    #[serde(serialize_with = "serialize_severity")]
    pub(crate) severity: Severity,
    /// Code of the diagnostic; `None` for those about section `[X-Fleet]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<&'static str>,
    /// Description of the problem.
    pub(crate) message: String,
    /// Suggested fix.
    pub(crate) help: String,
}

/// Checks a unit file without drop-ins, like [`check_text`].
pub(crate) fn check(
    path: &Path,
    name: &UnitName,
    source: &[u8],
) -> (Option<UnitFile>, Vec<Finding>) {
    check_text(name, &UnitText::single(path, source))
}

/// Checks a unit file and its drop-ins with the rules of the cluster, but not with those of
/// systemd.
///
/// Returns all findings in the order of the files and their lines, and the parsed text. The text is
/// `None` if any finding is an error.
pub(crate) fn check_text(name: &UnitName, text: &UnitText) -> (Option<UnitFile>, Vec<Finding>) {
    let diagnostics = text.diagnostics().iter();
    let mut findings: Vec<Finding> =
        diagnostics.map(|(path, diagnostic)| from_diagnostic(path, diagnostic)).collect();
    findings.extend(located(text, requirement_findings(name, text)));
    sort(text, &mut findings);
    let is_sound = findings.iter().all(|finding| finding.severity < Severity::Error);
    (is_sound.then(|| text.file().clone()), findings)
}

/// Converts lines of a unit's text to lines of its files.
fn located(text: &UnitText, findings: Vec<Finding>) -> impl Iterator<Item = Finding> {
    findings.into_iter().map(|finding| {
        let (file, line) = text.path().locate(finding.line);
        Finding { file, line, ..finding }
    })
}

fn sort(text: &UnitText, findings: &mut [Finding]) {
    findings.sort_by_key(|it| (text.path().index_of(&it.file), it.line, it.column));
}

/// Checks a unit file and its drop-ins with the rules of the cluster and those of systemd.
///
/// A file that breaks only rules of systemd can still be submitted, because each machine's service
/// manager checks these rules itself. Without a version, text that any version of systemd knows is
/// accepted.
pub(crate) fn verify(
    name: &UnitName,
    text: &UnitText,
    version: Option<SystemdVersion>,
) -> Vec<Finding> {
    let (_, mut findings) = check_text(name, text);
    let systemd_findings = text.check_for(name, version);
    let target = text.path().main().canonicalize();
    let is_mask = target.is_ok_and(|target| target == Path::new("/dev/null"));
    // The advice for an empty file is to link it to /dev/null.
    let systemd_findings =
        systemd_findings.iter().filter(|(_, it)| !is_mask || it.code() != FindingCode::Masked);
    findings.extend(systemd_findings.map(|(path, it)| from_unitfile(path, it)));
    sort(text, &mut findings);
    findings
}

/// Checks a unit file and its drop-ins with the rules of the cluster and those of fleet's own
/// service manager, with its default settings for root. A template is checked as one of its
/// instances.
pub(crate) fn verify_native(name: &UnitName, text: &UnitText) -> Vec<Finding> {
    let (_, mut findings) = check_text(name, text);
    let path = text.path().main();
    let options = CompileOptions { specifiers: machine_specifiers(), ..CompileOptions::default() };
    let instance = name.is_template().then(|| name.instantiate("instance").ok()).flatten();
    let mut of_manager: Vec<Finding> = Vec::new();
    match compile(instance.as_ref().unwrap_or(name), text.file(), &options) {
        Ok(compiled) => of_manager.extend(compiled.remarks.iter().map(|remark| {
            let help = LOST.to_owned();
            let severity = match remark.kind {
                RemarkKind::Difference => Severity::Hint,
                RemarkKind::Accepted(_) | RemarkKind::Unenforced | RemarkKind::Unknown => {
                    Severity::Warning
                }
            };
            native_finding(path, Some(&remark.position), severity, &remark.text, help)
        })),
        Err(refusals) => of_manager.extend(refusals.all.iter().map(|refusal| {
            let (problem, help) = refusal
                .problem
                .rsplit_once(": ")
                .unwrap_or((refusal.problem.as_str(), "correct the unit, or run it under systemd"));
            let accept = refusal.group.map(|group| {
                format!(", or set native_accept = [\"{group}\"] on the machines to run without it")
            });
            let help = format!("{help}{}", accept.unwrap_or_default());
            native_finding(path, refusal.position.as_ref(), Severity::Error, problem, help)
        })),
    }
    findings.extend(located(text, of_manager));
    sort(text, &mut findings);
    findings
}

/// Creates a finding about an option, or about the whole file without a position.
fn native_finding(
    path: &Path,
    position: Option<&OptionPosition>,
    severity: Severity,
    text: &str,
    help: String,
) -> Finding {
    let (line, column) = position.map_or((1, 1), |position| (position.line, position.column));
    let message =
        position.map_or_else(|| text.to_owned(), |option| format!("{}= {text}", option.name()));
    Finding { file: path.to_owned(), line, column, severity, code: None, message, help }
}

/// Checks a drop-in without its unit file, with the rules of the cluster and those of systemd.
/// Missing options are not reported.
pub(crate) fn verify_drop_in(
    path: &Path,
    name: &UnitName,
    source: &[u8],
    version: Option<SystemdVersion>,
) -> Vec<Finding> {
    let (_, mut findings) = check(path, name, source);
    let (file, _) = UnitFile::parse_collecting(source);
    let drop_in = format!("{UNIT_DIRECTORY}/{name}.d/drop-in.conf");
    let unit = UnitTree::new(&[UNIT_DIRECTORY], [(drop_in, file)]).unit(name);
    findings.extend(unit.check_for(version).iter().map(|it| from_unitfile(path, it)));
    findings.sort_by_key(|finding| (finding.line, finding.column));
    findings
}

/// Creates a finding about a folder with drop-ins that are not used, because their unit file is not
/// beside it.
pub(crate) fn unused_drop_ins(folder: &Path, severity: Severity) -> Finding {
    let message = "drop-ins are not used without their unit file".to_owned();
    let unit = folder.file_stem().unwrap_or_default().to_string_lossy();
    let template = UnitName::parse(&unit).ok().and_then(|unit| unit.template());
    let file = template.map_or_else(|| unit.to_string(), |template| template.to_string());
    let help = format!("add the file {file} beside this folder, even if the cluster has the unit");
    Finding { file: folder.to_owned(), line: 1, column: 1, severity, code: None, message, help }
}

/// Returns an error for each folder of drop-ins in a folder without a unit file for them.
///
/// # Errors
///
/// The folder cannot be read.
pub(crate) fn orphaned_drop_ins(folder: &Path) -> Result<Vec<Finding>, CliError> {
    if !folder.is_dir() || drop_in_folder(folder).is_some() {
        return Ok(Vec::new());
    }
    let orphans = orphaned_folders(folder)?;
    Ok(orphans.iter().map(|it| unused_drop_ins(it, Severity::Error)).collect())
}

fn from_diagnostic(path: &Path, diagnostic: &Diagnostic) -> Finding {
    from_unitfile(path, &fleet_unitfile::Finding::from(diagnostic))
}

fn from_unitfile(path: &Path, it: &fleet_unitfile::Finding) -> Finding {
    let position = (it.location(), it.severity());
    let finding = new_finding(path, position, it.message().to_owned(), it.help().to_owned());
    Finding { code: Some(it.code().as_str()), ..finding }
}

fn requirement_findings(name: &UnitName, text: &UnitText) -> Vec<Finding> {
    let path = text.path().main();
    match Requirements::parse(name, text.file(), Strictness::Refuse) {
        Ok(parsed) => {
            let warnings = parsed.warnings.iter().map(|it| {
                new_finding(path, (it.location, Severity::Warning), it.message(), it.help())
            });
            warnings.collect()
        }
        Err(errors) => {
            let errors = errors.iter().map(|it| {
                let message = with_located_line(text, it.kind(), it.message());
                new_finding(path, (it.location, Severity::Error), message, it.help())
            });
            errors.collect()
        }
    }
}

/// Checks that the schedule of a unit elapses after `now`. A time zone that this machine does not
/// know is only a warning, because the daemons may know it.
pub(crate) fn schedule_findings(
    name: &UnitName,
    path: &SourcePath,
    file: &UnitFile,
    now: Timestamp,
) -> Vec<Finding> {
    let Ok(parsed) = Requirements::parse(name, file, Strictness::Warn) else { return Vec::new() };
    let requirements = parsed.requirements;
    let schedule = requirements.job.as_ref().and_then(|job| job.schedule.as_ref());
    let Some(schedule) = schedule else { return Vec::new() };
    let zone = schedule.calendar.time_zone(&TimeZone::UTC, jiff::tz::db()).ok();
    let severity = if zone.is_some() { Severity::Error } else { Severity::Warning };
    let zone = zone.as_ref().map(|zone| zone as &dyn Zone);
    let errors = requirements.check_schedule(file, zone, now).err();
    let finding = |it: &RequirementError| {
        let (file, line) = path.locate(it.location.line);
        let position = (it.location, severity);
        Finding { line, ..new_finding(&file, position, it.message(), it.help()) }
    };
    errors.iter().flatten().map(finding).collect()
}

/// Converts the line in the message of an error about two options.
fn with_located_line(text: &UnitText, kind: &RequirementErrorKind, message: String) -> String {
    use RequirementErrorKind::{
        MutuallyExclusive, PeerExcluded, SeveralHealthChecks, SeveralMachineIds,
    };
    let (SeveralMachineIds { line, .. }
    | SeveralHealthChecks { line }
    | MutuallyExclusive { line, .. }
    | PeerExcluded { line, .. }) = kind
    else {
        return message;
    };
    let (file, own) = text.path().locate(*line);
    let place = match text.path().index_of(&file) {
        0 => format!("(line {own})"),
        _ => format!("({}:{own})", file.display()),
    };
    message.replace(&format!("(line {line})"), &place)
}

fn new_finding(
    path: &Path,
    position: (Location, Severity),
    message: String,
    help: String,
) -> Finding {
    let (Location { line, column }, severity) = position;
    Finding { file: path.to_owned(), line, column, severity, code: None, message, help }
}

fn serialize_severity<S: serde::Serializer>(severity: &Severity, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(severity)
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: ", self.file.display(), self.line, self.column)?;
        if self.severity < Severity::Error {
            write!(f, "{}: ", self.severity)?;
        }
        f.write_str(&self.message)?;
        if let Some(code) = self.code {
            write!(f, " [{code}]")?;
        }
        write!(f, "\nhelp: {}", self.help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(name: &str, source: &str) -> String {
        let path = Path::new("units").join(name);
        let (_, findings) = check(&path, &name.parse().unwrap(), source.as_bytes());
        findings.iter().map(|finding| format!("{finding}\n").replace(", or", ",\nor")).collect()
    }

    #[test]
    fn all_findings_are_in_file_order() {
        let source = "[Service]\nExecStart=/bin/web\nthis is no option\n\n[X-Fleet]\n\
                      MachineMetaData=disk=ssd\nGlobal=perhaps\nX-Conflicts=db*\n";
        insta::assert_snapshot!(render("web.service", source), @r##"
        units/web.service:3:1: missing "=" in "this is no option" [U0007]
        help: write Name=value, start a comment with "#",
        or end the line above with a backslash to continue it
        units/web.service:6:1: [X-Fleet] has no option "MachineMetaData"
        help: write MachineMetadata, spelled exactly so
        units/web.service:7:8: Global=perhaps is neither yes nor no
        help: write true or false
        "##);
    }

    #[test]
    fn file_with_a_warning_stays_valid() {
        let source = "[X-Fleet]\nX-Conflicts=db*\n";
        insta::assert_snapshot!(render("web.service", source), @r"
        units/web.service:2:1: warning: X-Conflicts is the old name of Conflicts
        help: write Conflicts
        ");
        let name = "web.service".parse().unwrap();
        let (file, findings) = check(Path::new("web.service"), &name, source.as_bytes());
        assert_eq!((file.is_some(), findings.len()), (true, 1));
    }

    #[test]
    fn verify_reports_systemd_findings_that_check_accepts() {
        let source = b"[Service]\nExecStart=bin/web\nRestrat=always\n[X-Fleet]\nGlobal=maybe\n";
        let (path, name) = (Path::new("web.service"), "web.service".parse().unwrap());
        let findings: String = verify(&name, &UnitText::single(path, source), None)
            .iter()
            .map(|finding| format!("{finding}\n"))
            .collect();
        insta::assert_snapshot!(findings, @r#"
        web.service:2:11: ExecStart: "bin/web" is neither an absolute path nor a plain name [U0301]
        help: write an absolute path
        web.service:3:1: warning: [Service] has no option "Restrat" [U0103]
        help: write Restart
        web.service:5:8: Global=maybe is neither yes nor no
        help: write true or false
        "#);
        let container = b"[Container]\nImage=localhost/web\nEnviroment=A=1\n";
        let findings = verify(
            &"web.container".parse().unwrap(),
            &UnitText::single(Path::new("web.container"), container),
            None,
        );
        assert_eq!((findings.len(), &*findings[0].help), (1, "write Environment"));
        let (file, findings) = check(path, &name, &source[..source.len() - "Global=maybe\n".len()]);
        assert_eq!((file.is_some(), findings), (true, Vec::new()));
    }

    #[test]
    fn native_manager_reports_what_it_refuses_or_ignores() {
        let render = |name: &str, source: &str| -> String {
            let findings = verify_native(
                &name.parse().unwrap(),
                &UnitText::single(Path::new(name), source.as_bytes()),
            );
            let lines = findings.iter().map(|finding| format!("{finding}\n"));
            lines.map(|line| line.replace(", or", ",\nor").replace(" cannot", "\ncannot")).collect()
        };
        let refused = "[Service]\nExecStart=/bin/web %i\nPrivatePIDs=yes\nRestrat=always\n";
        insta::assert_snapshot!(render("web@.service", refused), @r#"
        web@.service:3:1: PrivatePIDs= is not supported: the native supervisor
        cannot confine processes in this way
        help: remove the option, set it to a neutral value,
        or run the unit under systemd,
        or set native_accept = ["sandboxing"] on the machines to run without it
        web@.service:4:1: Restrat= is not a systemd option in [Service]
        help: write Restart=
        "#);
        let ignored = "[Service]\nExecStart=/bin/web\nSyslogIdentifier=web\n";
        insta::assert_snapshot!(render("web.service", ignored), @r"
        web.service:3:1: hint: SyslogIdentifier= has no effect, because there is no journal
        help: nothing to do if the unit works without it; otherwise use fleetd as root,
        or systemd
        ");
        let newer = "[Service]\nExecStart=/bin/web\nQuantumShield=yes\n";
        let newer = render("web.service", newer);
        assert!(
            newer.starts_with("web.service:3:1: warning: QuantumShield= is ignored"),
            "{newer}"
        );
        let mount = render("web.mount", "[Mount]\nWhat=/a\nWhere=/web\n");
        assert!(mount.contains(".path, .timer and .target units only"), "{mount}");
        let container = render("web.container", "[Container]\nImage=localhost/web\n");
        insta::assert_snapshot!(container, @r#"
        web.container:1:1: a .container unit needs systemd and podman 5.4 or later
        help: place it on machines with service_manager = "systemd"
        "#);
    }

    #[test]
    fn verify_accepts_a_link_to_dev_null() {
        let directory = tempfile::tempdir().unwrap();
        let (link, empty) =
            (directory.path().join("link.service"), directory.path().join("empty.service"));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        std::fs::write(&empty, "").unwrap();
        let codes = |path: &Path| {
            let name = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            verify(&name, &UnitText::single(path, b""), None)
                .into_iter()
                .filter_map(|it| it.code)
                .collect::<Vec<_>>()
        };
        assert_eq!(codes(&empty), [FindingCode::Masked.as_str()]);
        assert!(codes(&link).is_empty());
    }

    #[test]
    fn json_finding_has_the_documented_fields() {
        let name = "web.service".parse().unwrap();
        let (file, findings) = check(Path::new("web.service"), &name, b"oops\n");
        assert!(file.is_none());
        insta::assert_snapshot!(serde_json::to_string_pretty(&findings).unwrap(), @r#"
        [
          {
            "file": "web.service",
            "line": 1,
            "column": 1,
            "severity": "error",
            "code": "U0006",
            "message": "option before the first section in \"oops\"",
            "help": "put a section header such as [Unit] above the option"
          }
        ]
        "#);
    }
}
