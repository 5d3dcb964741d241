//! Pure: what submit, load and start do with a unit, given what is here and what the cluster has.
//!
//! Nothing is overwritten unless it was asked for, and nothing half done: a unit whose file here is
//! not the one that the cluster has is an error, with both hashes.

use fleet_core::{TargetState, Verb};
use fleet_http::wire;
use fleet_unitfile::{UnitHash, UnitName};

use super::error::CliError;
use super::local::{LocalFile, LocalUnit};
use super::words::short_hash;

/// What is to be done about a unit's file before its desired state is changed.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Nothing: the cluster has it.
    Keep,
    /// The cluster does not know the unit: this becomes its file.
    Create(Source),
    /// The cluster has another file under this name: this takes its place.
    Replace(Source),
}

/// Where the content of a unit that is created comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// From a file on this computer.
    Local(LocalFile),
    /// From the unit's template, which the cluster has.
    Template,
}

/// Decides about a unit's file. `known` is what the cluster has under the unit's name;
/// `has_template` says whether the cluster has the unit's template.
///
/// # Errors
///
/// There is no content; or there is another one in the cluster and `replace` was not asked for, or
/// cannot be done by this command.
pub(crate) fn content(
    verb: Verb,
    unit: &LocalUnit,
    known: Option<&wire::Unit>,
    has_template: bool,
    replace: bool,
) -> Result<Content, CliError> {
    match (known, &unit.file) {
        (None, Some(file)) => Ok(Content::Create(Source::Local(file.clone()))),
        (None, None) if has_template => Ok(Content::Create(Source::Template)),
        (None, None) => Err(no_content(unit)),
        (Some(_), None) if replace => Err(CliError::failed(format!(
            "cannot replace {}: there is no file {}",
            unit.name,
            unit.path.display()
        ))),
        (Some(_), None) => Ok(Content::Keep),
        (Some(known), Some(file)) if known.hash == file.file.hash().to_string() => {
            Ok(Content::Keep)
        }
        (Some(known), Some(file)) if !replace => Err(differs(known, file)),
        (Some(known), Some(file)) => replacement(verb, known, file),
    }
}

/// Judges a unit that was not there when it was looked for, and was when it was sent. `now` is what
/// the cluster has: the same file is what was to be done, whoever did it. It may have been an
/// earlier command, whose outcome nobody got to know.
///
/// # Errors
///
/// The cluster has another file.
pub(crate) fn came_meanwhile(
    name: &UnitName,
    sent: UnitHash,
    now: &wire::Unit,
) -> Result<(), CliError> {
    if now.hash == sent.to_string() {
        return Ok(());
    }
    Err(CliError::failed(format!("somebody else submitted another {name} at the same moment"))
        .help("run the command again to compare the two"))
}

/// What is said of a unit that is there whenever it is sent, and not when it is looked for.
pub(crate) fn comes_and_goes(name: &UnitName) -> CliError {
    CliError::failed(format!(
        "{name} is in the way when it is sent, and gone when it is looked for"
    ))
    .help(
        "somebody submits and destroys it, or the daemon is far behind its store: run fleetctl \
             doctor, and the command again",
    )
}

/// The desired state that a command leaves a unit in, and `None` where it changes nothing.
///
/// Submitting a unit again asks for nothing that is not there, whatever its state is.
///
/// # Errors
///
/// The command makes no sense for a unit in this state.
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
        Ok(fleet_core::Transition::Unchanged) => Ok(None),
        Ok(fleet_core::Transition::Change(goal)) => Ok(goal),
        Err(error) => Err(CliError::failed(name.to_string())
            .because(error)
            .help(format!("\"fleetctl status {name}\" shows how it is"))),
    }
}

/// A new file is taken by a command that leaves the unit no lower than it is: `submit --replace`
/// must not change what runs.
fn replacement(verb: Verb, known: &wire::Unit, file: &LocalFile) -> Result<Content, CliError> {
    let in_reach = known.desired().is_none_or(|desired| Some(desired) <= verb.goal());
    if in_reach {
        return Ok(Content::Replace(Source::Local(file.clone())));
    }
    let (name, desired, verb) = (&known.name, &known.desired_state, verb.as_str());
    let right = if desired == "launched" { "start" } else { "load" };
    let message = format!("cannot {verb} another {name} while its desired state is {desired}");
    Err(CliError::failed(message).help(format!("use {right} --replace, which keeps it {desired}")))
}

fn differs(known: &wire::Unit, file: &LocalFile) -> CliError {
    let (name, theirs, ours) = (&known.name, short_hash(&known.hash), file.file.hash().short());
    let here = file.path.display();
    CliError::failed(format!(
        "{here} (hash {ours}) is not the {name} of the cluster (hash {theirs})"
    ))
    .help(format!("add --replace to put {here} in its place"))
    .help(format!("\"fleetctl cat {name}\" shows the other one"))
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
        None => error.help("name the path of its unit file"),
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
        let file =
            text.map(|text| LocalFile { path: path.clone(), file: UnitFile::parse(text).unwrap() });
        LocalUnit { name: name.parse().unwrap(), path, file }
    }

    fn known(text: &str, desired: &str) -> wire::Unit {
        wire::Unit {
            name: "web.service".into(),
            hash: UnitFile::parse(text).unwrap().hash().to_string(),
            desired_state: desired.into(),
            ..wire::Unit::default()
        }
    }

    fn told(result: Result<Content, CliError>) -> String {
        match result {
            Ok(Content::Keep) => "keep".into(),
            Ok(Content::Create(Source::Local(file))) => {
                format!("create of {}", file.path.display())
            }
            Ok(Content::Create(Source::Template)) => "create of its template".into(),
            Ok(Content::Replace(_)) => "replace".into(),
            Err(error) => {
                let mut text = Vec::new();
                error.print(&mut text).unwrap();
                String::from_utf8(text).unwrap()
            }
        }
    }

    #[test]
    fn a_unit_that_is_not_known_gets_its_file_from_here_or_from_its_template() {
        let (web, instance) = (unit("web.service", Some(HERE)), unit("web@1.service", None));
        let own = unit("web@1.service", Some(HERE));
        for (unit, has_template, expected) in [
            (&web, false, "create of web.service"),
            (&instance, true, "create of its template"),
            (&own, true, "create of web@1.service"),
        ] {
            assert_eq!(told(content(Verb::Start, unit, None, has_template, false)), expected);
        }
        insta::assert_snapshot!(told(content(Verb::Start, &instance, None, false, false)), @r"
        fleetctl: web@1.service is not known to the cluster, and there is no file web@1.service
        help: write that file, or submit its template web@.service
        ");
        let nowhere = unit("web.service", None);
        insta::assert_snapshot!(told(content(Verb::Start, &nowhere, None, false, false)), @r"
        fleetctl: web.service is not known to the cluster, and there is no file web.service
        help: name the path of its unit file
        ");
    }

    #[test]
    fn a_unit_that_is_known_keeps_its_file_unless_that_is_said() {
        let (here, nothing) = (unit("web.service", Some(HERE)), unit("web.service", None));
        let same = known(&format!("# with a comment\n{HERE}"), "launched");
        let other = known("[Service]\nExecStart=/bin/other\n", "launched");
        for (unit, known, replace, expected) in [
            (&nothing, &other, false, "keep"),
            (&here, &same, false, "keep"),
            (&here, &same, true, "keep"),
            (&here, &other, true, "replace"),
        ] {
            assert_eq!(told(content(Verb::Start, unit, Some(known), false, replace)), expected);
        }
        let differs = told(content(Verb::Start, &here, Some(&other), false, false));
        insta::assert_snapshot!(differs, @r#"
        fleetctl: web.service (hash 91fedf9) is not the web.service of the cluster (hash ec3b7e6)
        help: add --replace to put web.service in its place
        help: "fleetctl cat web.service" shows the other one
        "#);
        let no_file = told(content(Verb::Start, &nothing, Some(&other), false, true));
        assert!(no_file.contains("cannot replace web.service: there is no file web.service"));
    }

    /// An earlier command may have been told that the store did not answer, and its unit may still
    /// have been written, between a look and the next write.
    #[test]
    fn a_unit_that_came_meanwhile_is_as_good_as_one_that_was_sent() {
        let name: UnitName = "web.service".parse().unwrap();
        let sent = UnitFile::parse(HERE).unwrap().hash();
        let judged =
            |now: &wire::Unit| told(came_meanwhile(&name, sent, now).map(|()| Content::Keep));
        assert_eq!(judged(&known(HERE, "inactive")), "keep");
        let other = judged(&known("[Service]\nExecStart=/bin/other\n", "inactive"));
        insta::assert_snapshot!(other, @r"
        fleetctl: somebody else submitted another web.service at the same moment
        help: run the command again to compare the two
        ");
    }

    #[test]
    fn a_command_replaces_only_what_it_does_not_pull_down() {
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
        insta::assert_snapshot!(told(refused), @r"
        fleetctl: cannot load another web.service while its desired state is launched
        help: use start --replace, which keeps it launched
        ");
    }

    #[test]
    fn submitting_again_asks_for_nothing() {
        let name: UnitName = "web.service".parse().unwrap();
        for from in TargetState::ALL {
            assert_eq!(change(Verb::Submit, &name, Some(from)).unwrap(), None);
        }
        assert_eq!(change(Verb::Submit, &name, None).unwrap(), Some(TargetState::Inactive));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |verb, name: &str, from| {
            told(Err(change(verb, &name.parse().unwrap(), from).unwrap_err()))
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
