//! Pure: decides on the changes that `submit`, `load` and `start` make to a unit, given the local
//! file and the cluster's file.
//!
//! A file of the cluster is overwritten only with `--replace`. Without it, a local file that
//! differs causes a warning with the hashes of both files, as in fleet v1.

use fleet_core::{TargetState, Verb};
use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::format::short_hash;
use super::local::{LocalFile, LocalUnit};
use crate::ui::error::CliError;

/// Change to a unit's file that precedes the change of its desired state.
#[derive(Debug, Clone)]
pub(crate) enum ContentAction {
    /// No change: the cluster has the file.
    Keep,
    /// Creates the unit, which the cluster does not know.
    Create(ContentSource),
    /// Replaces a different file of this unit.
    Replace(ContentSource),
}

/// Origin of a created unit's content.
#[derive(Debug, Clone)]
pub(crate) enum ContentSource {
    /// A local file.
    Local(LocalFile),
    /// The unit's template, which the cluster has.
    Template,
}

/// Decides on the change to a unit's file.
///
/// `known` is the cluster's unit of this name. `has_template` is `true` if the cluster has the
/// template of this unit.
///
/// # Errors
///
/// - The cluster does not know the unit, and there is neither a local file nor a template.
/// - The cluster's file is broken, and `replace` is not set.
/// - `replace` is set, but there is no local file, or the command would lower the desired state.
pub(crate) fn content(
    verb: Verb,
    unit: &LocalUnit,
    known: Option<&wire::UnitEntity>,
    has_template: bool,
    replace: bool,
) -> Result<ContentAction, CliError> {
    match (known, &unit.file) {
        (None, Some(file)) => Ok(ContentAction::Create(ContentSource::Local(file.clone()))),
        (None, None) if has_template => Ok(ContentAction::Create(ContentSource::Template)),
        (None, None) => Err(no_content(unit)),
        (Some(_), None) if replace => Err(CliError::failed(format!(
            "cannot replace {}: there is no file {}",
            unit.name,
            unit.path.display()
        ))),
        (Some(_), None) => Ok(ContentAction::Keep),
        (Some(known), Some(file)) if known.hash == file.file.hash().to_string() => {
            Ok(ContentAction::Keep)
        }
        (Some(known), Some(file)) if !replace && !known.problem.is_empty() => {
            Err(broken(known, file))
        }
        (Some(_), Some(_)) if !replace => Ok(ContentAction::Keep),
        (Some(known), Some(file)) => replacement(verb, known, file),
    }
}

/// Returns the warning about a local file that differs from the cluster's file and is not used.
pub(crate) fn unused_file_warning(
    unit: &LocalUnit,
    known: Option<&wire::UnitEntity>,
    replace: bool,
) -> Option<String> {
    let (known, file) = (known?, unit.file.as_ref()?);
    if replace || known.hash == file.file.hash().to_string() {
        return None;
    }
    let (name, theirs, ours) = (&known.name, short_hash(&known.hash), file.file.hash().short());
    let here = file.path.main().display();
    Some(format!(
        "warning: {here} (hash {ours}) is not used: it differs from {name} in the cluster \
         (hash {theirs})\n\
         help: add --replace to use {here}\n\
         help: \"fleetctl cat {name}\" shows the cluster's file"
    ))
}

/// Returns the desired state that a command sets, or `None` if it sets none.
///
/// `from` is the current desired state; it is `None` if the cluster does not know the unit.
/// `submit` changes nothing for a known unit, even if the unit is launched.
///
/// # Errors
///
/// The command is not valid for a unit in this state, or for a template.
pub(crate) fn change(
    verb: Verb,
    name: &UnitName,
    from: Option<TargetState>,
) -> Result<Option<TargetState>, CliError> {
    if verb == Verb::Submit && from.is_some() {
        return Ok(None);
    }
    if name.is_template() && verb.goal() > Some(TargetState::Inactive) {
        return Err(is_template(verb, name));
    }
    match verb.apply(from) {
        Ok(fleet_core::unit::Transition::Unchanged) => Ok(None),
        Ok(fleet_core::unit::Transition::Change(goal)) => Ok(goal),
        Err(error) => Err(CliError::failed(name.to_string())
            .because(error)
            .help(format!("\"fleetctl status {name}\" shows its state"))),
    }
}

/// Returns the replacement of a unit's file by the local file. Returns an error if the command
/// would lower the unit's desired state: for example, `submit --replace` must not stop a running
/// unit.
fn replacement(
    verb: Verb,
    known: &wire::UnitEntity,
    file: &LocalFile,
) -> Result<ContentAction, CliError> {
    let is_allowed = known.desired().is_none_or(|desired| Some(desired) <= verb.goal());
    if is_allowed {
        return Ok(ContentAction::Replace(ContentSource::Local(file.clone())));
    }
    let (name, desired, verb) = (&known.name, &known.desired_state, verb.as_str());
    let command = if desired == "launched" { "start" } else { "load" };
    let message = format!("cannot {verb} a different {name} while its desired state is {desired}");
    Err(CliError::failed(message).help(format!(
        "\"fleetctl {command} --replace {}\" replaces the file and keeps that desired state",
        file.path.main().display()
    )))
}

fn broken(known: &wire::UnitEntity, file: &LocalFile) -> CliError {
    let here = file.path.main().display();
    CliError::failed(format!("{} in the cluster is broken: {}", known.name, known.problem))
        .help(format!("add --replace to use {here}"))
}

fn is_template(verb: Verb, name: &UnitName) -> CliError {
    let verb = verb.as_str();
    let error = CliError::failed(format!("cannot {verb} {name}: it is a template"));
    match name.instantiate("1") {
        Ok(instance) => error.help(format!("{verb} an instance of it, such as {instance}")),
        Err(_too_long) => error,
    }
}

fn no_content(unit: &LocalUnit) -> CliError {
    let (name, path) = (&unit.name, unit.path.display());
    let error = CliError::failed(format!(
        "{name} is not known to the cluster, and there is no file {path}"
    ));
    match unit.name.template() {
        Some(template) => error.help(format!("write that file, or submit its template {template}")),
        None => error.help("give the path of its unit file"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use fleet_unitfile::UnitFile;

    use super::*;

    const HERE: &str = "[Service]\nExecStart=/bin/web\n";

    fn unit(name: &str, text: Option<&str>) -> LocalUnit {
        let path = PathBuf::from(name);
        let file = text.map(|text| LocalFile {
            path: path.clone().into(),
            file: UnitFile::parse(text).unwrap(),
        });
        LocalUnit { name: name.parse().unwrap(), path, file }
    }

    fn known(text: &str, desired: &str) -> wire::UnitEntity {
        wire::UnitEntity {
            name: "web.service".into(),
            hash: UnitFile::parse(text).unwrap().hash().to_string(),
            desired_state: desired.into(),
            ..wire::UnitEntity::default()
        }
    }

    fn render(result: Result<ContentAction, CliError>) -> String {
        match result {
            Ok(ContentAction::Keep) => "keep".into(),
            Ok(ContentAction::Create(ContentSource::Local(file))) => {
                format!("create of {}", file.path.main().display())
            }
            Ok(ContentAction::Create(ContentSource::Template)) => "create of its template".into(),
            Ok(ContentAction::Replace(_)) => "replace".into(),
            Err(error) => {
                let mut text = Vec::new();
                error.print(&mut text).unwrap();
                String::from_utf8(text).unwrap()
            }
        }
    }

    #[test]
    fn unknown_unit_uses_local_file_or_template() {
        let (web, instance) = (unit("web.service", Some(HERE)), unit("web@1.service", None));
        let own = unit("web@1.service", Some(HERE));
        for (unit, has_template, expected) in [
            (&web, false, "create of web.service"),
            (&instance, true, "create of its template"),
            (&own, true, "create of web@1.service"),
        ] {
            assert_eq!(render(content(Verb::Start, unit, None, has_template, false)), expected);
        }
        insta::assert_snapshot!(render(content(Verb::Start, &instance, None, false, false)), @r"
        fleetctl: web@1.service is not known to the cluster, and there is no file web@1.service
        help: write that file, or submit its template web@.service
        ");
        let nowhere = unit("web.service", None);
        insta::assert_snapshot!(render(content(Verb::Start, &nowhere, None, false, false)), @"
        fleetctl: web.service is not known to the cluster, and there is no file web.service
        help: give the path of its unit file
        ");
    }

    #[test]
    fn known_unit_keeps_its_file_without_replace() {
        let (here, nothing) = (unit("web.service", Some(HERE)), unit("web.service", None));
        let same = known(&format!("# with a comment\n{HERE}"), "launched");
        let other = known("[Service]\nExecStart=/bin/other\n", "launched");
        for (unit, known, replace, expected) in [
            (&nothing, &other, false, "keep"),
            (&here, &other, false, "keep"),
            (&here, &same, false, "keep"),
            (&here, &same, true, "keep"),
            (&here, &other, true, "replace"),
        ] {
            assert_eq!(render(content(Verb::Start, unit, Some(known), false, replace)), expected);
        }
        let broken = wire::UnitEntity { problem: "no content".into(), ..other.clone() };
        let refused = render(content(Verb::Start, &here, Some(&broken), false, false));
        insta::assert_snapshot!(refused, @r"
        fleetctl: web.service in the cluster is broken: no content
        help: add --replace to use web.service
        ");
        let no_file = render(content(Verb::Start, &nothing, Some(&other), false, true));
        assert!(no_file.contains("cannot replace web.service: there is no file web.service"));
    }

    #[test]
    fn unused_local_file_gets_a_warning() {
        let (here, nothing) = (unit("web.service", Some(HERE)), unit("web.service", None));
        let (same, other) = (known(HERE, "launched"), known("[Service]\nUser=web\n", "loaded"));
        for (unit, known, replace) in [
            (&here, None, false),
            (&here, Some(&same), false),
            (&here, Some(&other), true),
            (&nothing, Some(&other), false),
        ] {
            assert_eq!(unused_file_warning(unit, known, replace), None);
        }
        let warning = unused_file_warning(&here, Some(&other), false).unwrap();
        insta::assert_snapshot!(warning.replace("used: ", "used:\n"), @r#"
        warning: web.service (hash 91fedf9) is not used:
        it differs from web.service in the cluster (hash 7fc63f2)
        help: add --replace to use web.service
        help: "fleetctl cat web.service" shows the cluster's file
        "#);
    }

    #[test]
    fn replace_must_not_lower_the_desired_state() {
        let here = unit("web.service", Some(HERE));
        let other = "[Service]\nExecStart=/bin/other\n";
        for (verb, desired, replaces) in [
            (Verb::Submit, "inactive", true),
            (Verb::Submit, "loaded", false),
            (Verb::Submit, "launched", false),
            (Verb::Load, "inactive", true),
            (Verb::Load, "loaded", true),
            (Verb::Load, "launched", false),
            (Verb::Start, "inactive", true),
            (Verb::Start, "loaded", true),
            (Verb::Start, "launched", true),
        ] {
            let result = content(verb, &here, Some(&known(other, desired)), false, true);
            assert_eq!(result.is_ok(), replaces, "{verb:?} {desired}");
        }
        let refused = content(Verb::Load, &here, Some(&known(other, "launched")), false, true);
        insta::assert_snapshot!(render(refused), @r#"
        fleetctl: cannot load a different web.service while its desired state is launched
        help: "fleetctl start --replace web.service" replaces the file and keeps that desired state
        "#);
    }

    #[test]
    fn submitting_again_changes_nothing() {
        let name: UnitName = "web.service".parse().unwrap();
        for from in TargetState::ALL {
            assert_eq!(change(Verb::Submit, &name, Some(from)).unwrap(), None);
        }
        assert_eq!(change(Verb::Submit, &name, None).unwrap(), Some(TargetState::Inactive));
    }

    #[test]
    fn invalid_state_changes_are_refused() {
        let refused = |verb, name: &str, from| {
            render(Err(change(verb, &name.parse().unwrap(), from).unwrap_err()))
        };
        let stopped = refused(Verb::Stop, "web.service", Some(TargetState::Inactive));
        let expected = "web.service: cannot stop a unit whose desired state is inactive";
        assert!(stopped.contains(expected), "{stopped}");
        let template = refused(Verb::Start, "web@.service", Some(TargetState::Inactive));
        insta::assert_snapshot!(template, @r"
        fleetctl: cannot start web@.service: it is a template
        help: start an instance of it, such as web@1.service
        ");
    }
}
