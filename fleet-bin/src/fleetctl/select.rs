//! Resolves unit arguments: names, ranges of names such as `web@{1..3}`, and patterns such as
//! `web@*`, which are matched with the names in the cluster.

use fleet_core::{Pattern, TargetState};
use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::args::ranges::expand_all;
use super::session::Session;
use crate::ui::error::CliError;
use crate::ui::names::{UnitArg, unit_arg, unit_args};

/// Filter for the units of a pattern, by desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DesiredFilter {
    /// All units.
    All,
    /// Units that are to be on a machine.
    Placed,
    /// Units that are to run.
    Launched,
}

impl DesiredFilter {
    fn matches(self, unit: &wire::UnitEntity) -> bool {
        match self {
            Self::All => true,
            Self::Placed => unit.desired() > Some(TargetState::Inactive),
            Self::Launched => unit.desired() == Some(TargetState::Launched),
        }
    }

    /// Returns the message for a pattern that matches `count` units, none of which passes.
    fn none_of(self, pattern: &str, count: usize) -> String {
        let (units, their) = match count {
            1 => (format!("1 unit matches {pattern}"), "its desired state"),
            _ => (format!("{count} units match {pattern}"), "the desired state of each"),
        };
        match (self, count) {
            (Self::Launched, 1) => format!("{units}, but its desired state is not launched"),
            (Self::Launched, _) => format!("{units}, but none has the desired state launched"),
            (Self::All | Self::Placed, _) => format!("{units}, but {their} is inactive"),
        }
    }
}

/// Returns the units of these arguments, each once, in the order of the arguments.
///
/// A pattern selects units of the cluster, but never templates. `filter` restricts the matches of
/// patterns, but not units given by name. Only a pattern requires a request for the list of units.
///
/// # Errors
///
/// An argument is not a valid name or pattern, or a pattern selects no unit.
pub(crate) async fn select(
    session: &Session,
    args: &[String],
    filter: DesiredFilter,
) -> Result<Vec<UnitArg>, CliError> {
    let args = expand_all(args)?;
    if !args.iter().any(|arg| is_pattern(arg)) {
        return unit_args(&args);
    }
    let plain: Vec<String> = args.iter().filter(|arg| !is_pattern(arg)).cloned().collect();
    let named = unit_args(&plain)?;
    let units = session.units().await?;
    let mut selected: Vec<UnitArg> = Vec::new();
    let mut wrong = Vec::new();
    for arg in &args {
        let found = match is_pattern(arg) {
            true => matching(arg, &units, filter),
            false => unit_arg(arg).map(|arg| vec![arg]),
        };
        match found {
            Ok(found) => selected.extend(found),
            Err(error) => wrong.push(error),
        }
    }
    CliError::combined(wrong)?;
    Ok(deduplicate(selected, &named))
}

/// Returns the names of units that only patterns have selected. `units` is the result of
/// [`select`] for the same arguments.
pub(crate) fn selected_by_pattern<'a>(args: &[String], units: &'a [UnitArg]) -> Vec<&'a str> {
    if !args.iter().any(|arg| is_pattern(arg)) {
        return Vec::new();
    }
    // The arguments are valid, or nothing would have been selected.
    let named: Vec<String> = expand_all(args).unwrap_or_default();
    let named: Vec<UnitArg> = named.iter().filter_map(|arg| unit_arg(arg).ok()).collect();
    let is_named = |unit: &&UnitArg| named.iter().any(|it| it.name == unit.name);
    units.iter().filter(|unit| !is_named(unit)).map(|unit| unit.name.as_str()).collect()
}

/// Removes duplicates. A unit that is also given by path keeps that path.
fn deduplicate(selected: Vec<UnitArg>, named: &[UnitArg]) -> Vec<UnitArg> {
    let mut names = std::collections::BTreeSet::new();
    let once = selected.into_iter().filter(|unit| names.insert(unit.name.clone()));
    let at_path =
        |unit: UnitArg| named.iter().find(|it| it.name == unit.name).cloned().unwrap_or(unit);
    once.map(at_path).collect()
}

/// Returns whether the argument is a pattern. An argument with `/` is a path, in which the shell
/// has already expanded patterns.
pub(super) fn is_pattern(arg: &str) -> bool {
    arg.contains(['*', '?', '[']) && !arg.contains('/')
}

/// Reads a pattern.
pub(super) fn parse_pattern(arg: &str) -> Result<Pattern, CliError> {
    arg.parse()
        .map_err(|error| CliError::usage(format!("{arg:?} is not a valid pattern")).because(error))
}

fn matching(
    arg: &str,
    units: &[wire::UnitEntity],
    filter: DesiredFilter,
) -> Result<Vec<UnitArg>, CliError> {
    let pattern = parse_pattern(arg)?;
    let name = |unit: &wire::UnitEntity| unit.name.parse::<UnitName>().ok();
    let matches = |unit: &&wire::UnitEntity| {
        name(unit).is_some_and(|name| !name.is_template() && pattern.matches(&name))
    };
    let all: Vec<&wire::UnitEntity> = units.iter().filter(matches).collect();
    let fitting: Vec<UnitArg> = all
        .iter()
        .filter(|it| filter.matches(it))
        .filter_map(|it| unit_arg(&it.name).ok())
        .collect();
    match (fitting.is_empty(), all.len()) {
        (false, _) => Ok(fitting),
        (true, 0) => Err(CliError::failed(format!("no unit of the cluster matches {arg}"))
            .help("a pattern must match the whole name with its type, as in \"web@*.service\"")
            .help("\"fleetctl list-unit-files\" shows the units that are known")),
        (true, count) => Err(CliError::failed(filter.none_of(arg, count))
            .help("\"fleetctl list-unit-files\" shows the desired states")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, desired: &str) -> wire::UnitEntity {
        wire::UnitEntity {
            name: name.into(),
            desired_state: desired.into(),
            ..wire::UnitEntity::default()
        }
    }

    #[test]
    fn patterns_match_whole_names_but_no_templates() {
        let units = [
            unit("web.service", "launched"),
            unit("web@.service", "inactive"),
            unit("web@1.service", "launched"),
            unit("web@2.service", "inactive"),
            unit("web@3.service", "loaded"),
            unit("web@1.socket", "launched"),
        ];
        let names = |arg: &str, filter| match matching(arg, &units, filter) {
            Ok(found) => found.iter().map(|it| it.name.as_str().to_owned()).collect::<Vec<_>>(),
            Err(error) => vec![error.to_string()],
        };
        for (arg, filter, expected) in [
            ("web@*.service", DesiredFilter::All, "web@1.service web@2.service web@3.service"),
            ("web@*.service", DesiredFilter::Placed, "web@1.service web@3.service"),
            ("web@*.service", DesiredFilter::Launched, "web@1.service"),
            ("web@[1]*", DesiredFilter::All, "web@1.service web@1.socket"),
            ("web@?", DesiredFilter::All, "no unit of the cluster matches web@?"),
            (
                "*@2.*",
                DesiredFilter::Placed,
                "1 unit matches *@2.*, but its desired state is inactive",
            ),
            ("web@[", DesiredFilter::All, "\"web@[\" is not a valid pattern"),
        ] {
            assert_eq!(names(arg, filter).join(" "), expected, "{arg}");
        }
        assert!(is_pattern("web@*") && !is_pattern("./web*.service") && !is_pattern("web"));
    }

    #[test]
    fn named_units_are_not_selected_by_pattern() {
        let units = ["web@1", "web@2", "db"].map(|arg| unit_arg(arg).unwrap());
        for (args, expected) in [
            (&["web@{1..2}", "db"] as &[_], ""),
            (&["web@*", "db"], "web@1.service web@2.service"),
            (&["*", "web@1", "db.service"], "web@2.service"),
            (&["{web@*,d?}.service"], "web@1.service web@2.service db.service"),
        ] {
            let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
            assert_eq!(selected_by_pattern(&args, &units).join(" "), expected, "{args:?}");
        }
    }

    #[test]
    fn named_and_matched_unit_counts_once_at_its_path() {
        let arg = |arg: &str| unit_arg(arg).unwrap();
        let found = deduplicate(vec![arg("web"), arg("x/web.service")], &[arg("x/web.service")]);
        assert_eq!(found, [arg("x/web.service")]);
    }
}
