//! Checks unit files as the native service manager of another machine does.

use std::collections::BTreeSet;

use fleet_core::graph::systemd::{
    AcceptedOptions, CompileOptions, Confinement, Remark, RemarkKind,
};
use fleet_core::manager::{ManagerFinding, ManagerVerdict, NativeInfo};
use fleet_unitfile::{UnitFile, UnitName};

use super::linux::identity::specifiers;
use super::supervisor::compile::{HostCapabilities, compile, host_capabilities};

/// Maximum number of options that one warning lists.
const MAX_OPTIONS: usize = 8;

/// Returns the settings of a native service manager on this host that accepts the loss of these
/// options. The machine publishes them, so that other machines can [check](check_unit) unit files
/// for it.
#[must_use]
pub fn native_info(accept: &AcceptedOptions) -> NativeInfo {
    let HostCapabilities { root, users, groups, .. } =
        host_capabilities(AcceptedOptions::default(), Ok(BTreeSet::new()), true, true);
    NativeInfo { root, users, groups, accept: accept.names().map(str::to_owned).collect() }
}

/// Checks a unit file as a native service manager with these settings does when it loads the file.
/// A template is checked as one of its instances.
///
/// Relations to other units are not checked, nor are limits whose cgroup controller may be missing:
/// a missing limit never refuses a unit. Specifiers and time zones are those of this host.
#[must_use]
pub fn check_unit(manager: &NativeInfo, unit: &UnitName, file: &UnitFile) -> ManagerVerdict {
    let instance = unit.is_template().then(|| unit.instantiate("instance").ok()).flatten();
    match compile(instance.as_ref().unwrap_or(unit), file, &capabilities(manager)) {
        Ok(compiled) => ManagerVerdict { refusal: None, warnings: warnings(&compiled.remarks) },
        Err(refused) => {
            let refusal = ManagerFinding { line: refused.line, text: refused.problem };
            ManagerVerdict { refusal: Some(refusal), warnings: Vec::new() }
        }
    }
}

fn capabilities(manager: &NativeInfo) -> HostCapabilities {
    let mut accept = AcceptedOptions::default();
    for name in &manager.accept {
        // A later version may have more groups, which say nothing about the options known here.
        drop(accept.add(name));
    }
    HostCapabilities {
        root: manager.root,
        users: manager.users.clone(),
        groups: manager.groups.clone(),
        controllers: Ok(BTreeSet::new()),
        cgroup_filters: true,
        site: CompileOptions {
            specifiers: specifiers(),
            accept,
            confinement: if manager.root { Confinement::All } else { Confinement::Unprivileged },
        },
    }
}

/// Returns one warning for all accepted losses, and one for each unknown option.
fn warnings(remarks: &[Remark]) -> Vec<ManagerFinding> {
    let lost: Vec<&Remark> =
        remarks.iter().filter(|it| matches!(it.kind, RemarkKind::Accepted(_))).collect();
    let line = lost.first().map(|remark| remark.position.line);
    let mut all: Vec<ManagerFinding> = line
        .map(|line| ManagerFinding { line, text: format!("runs without {}", listed(&lost)) })
        .into_iter()
        .collect();
    let unknown = remarks.iter().filter(|remark| remark.kind == RemarkKind::Unknown);
    all.extend(unknown.map(|remark| ManagerFinding {
        line: remark.position.line,
        text: format!("{}= {}", remark.position.name(), remark.text),
    }));
    all
}

/// Joins the first of these options, and counts the others.
fn listed(lost: &[&Remark]) -> String {
    let names: BTreeSet<&str> = lost.iter().map(|remark| remark.position.name()).collect();
    let mut shown: Vec<String> =
        names.iter().take(MAX_OPTIONS).map(|name| format!("{name}=")).collect();
    match (names.len() - shown.len(), shown.pop()) {
        (0, Some(last)) if shown.is_empty() => last,
        (0, Some(last)) => format!("{} and {last}", shown.join(", ")),
        (more, last) => {
            shown.extend(last);
            format!("{} and {more} more", shown.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(manager: &NativeInfo, name: &str, text: &str) -> ManagerVerdict {
        let file = UnitFile::parse(text).expect("it is well formed");
        check_unit(manager, &name.parse().expect("it is a name"), &file)
    }

    const CONFINED: &str = "[Service]\nExecStart=/bin/web %i\nUser=web\nOpenFile=/etc/web\n";

    #[test]
    fn verdict_depends_on_the_manager_of_the_machine() {
        let root = NativeInfo { root: true, ..NativeInfo::default() };
        let verdict = check(&root, "web@.service", CONFINED);
        let refusal = verdict.refusal.expect("root refuses the loss of options");
        assert_eq!(refusal.line, 4);
        assert!(refusal.text.contains("native_accept = ["), "{}", refusal.text);

        let mut user = NativeInfo { users: vec!["me".to_owned()], ..NativeInfo::default() };
        let refused = check(&user, "web@.service", CONFINED).refusal;
        assert!(refused.is_some_and(|it| it.text.contains("OpenFile=")));
        user.accept.extend(["sandboxing", "environment", "a-later-group"].map(str::to_owned));
        let verdict = check(&user, "web@.service", CONFINED);
        let text = "runs without OpenFile= and User=".to_owned();
        assert_eq!(verdict.warnings, [ManagerFinding { line: 4, text }]);
    }

    #[test]
    fn unknown_option_is_a_warning_and_misspelt_one_refuses() {
        let accept = AcceptedOptions::all().names().map(str::to_owned).collect();
        let lenient = NativeInfo { accept, ..NativeInfo::default() };
        let text = |option: &str| format!("[Service]\nExecStart=/bin/web\n{option}\n");
        let unknown = check(&lenient, "web.service", &text("QuantumShield=yes"));
        assert_eq!((unknown.refusal, unknown.warnings.len()), (None, 1));
        assert!(unknown.warnings[0].text.starts_with("QuantumShield= is ignored"));
        let misspelt = check(&lenient, "web.service", &text("Restrat=always"));
        assert!(misspelt.refusal.is_some_and(|it| it.text.contains("write Restart=")));
    }

    #[test]
    fn containers_are_refused_with_the_machines_that_run_them() {
        let root = NativeInfo { root: true, ..NativeInfo::default() };
        let refusal = check(&root, "web@.container", "[Container]\nImage=localhost/web\n").refusal;
        let expected = "a .container unit needs systemd and podman 5.4 or later: place it on \
                        machines with service_manager = \"systemd\"";
        assert_eq!(refusal, Some(ManagerFinding { line: 0, text: expected.to_owned() }));
    }

    #[test]
    fn this_host_publishes_its_accepted_options() {
        let mut accept = AcceptedOptions::default();
        accept.add("sandboxing").expect("it is a group");
        accept.add("OpenFile").expect("it is an option");
        assert_eq!(native_info(&accept).accept, ["sandboxing", "OpenFile"]);
    }
}
