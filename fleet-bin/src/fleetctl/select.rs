//! Which units arguments mean: names, ranges of names, and patterns over the names that the cluster
//! knows.

use fleet_core::{Pattern, TargetState};
use fleet_http::wire;
use fleet_unitfile::UnitName;

use super::error::CliError;
use super::names::{UnitArg, unit_arg, unit_args};
use super::ranges::expand_all;
use super::session::Session;

/// Which of the units that match a pattern a command can do something for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fits {
    /// Any.
    All,
    /// Those that are to be on a machine.
    Placed,
    /// Those that are to run.
    Launched,
}

impl Fits {
    fn takes(self, unit: &wire::Unit) -> bool {
        match self {
            Self::All => true,
            Self::Placed => unit.desired() > Some(TargetState::Inactive),
            Self::Launched => unit.desired() == Some(TargetState::Launched),
        }
    }
}

/// The units that these arguments mean, each once, in the order of the arguments.
///
/// The list of units is asked for only where an argument is a pattern. Patterns stand for no
/// templates, which have to be named.
///
/// # Errors
///
/// An argument names no unit, is no pattern, or stands for no unit.
pub(crate) async fn select(
    session: &Session,
    args: &[String],
    fits: Fits,
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
            true => matching(arg, &units, fits),
            false => unit_arg(arg).map(|arg| vec![arg]),
        };
        match found {
            Ok(found) => selected.extend(found),
            Err(error) => wrong.push(error),
        }
    }
    CliError::of_all(wrong)?;
    Ok(each_once(selected, &named))
}

/// What is named is at the path that was written, whichever pattern matches it, too.
fn each_once(selected: Vec<UnitArg>, named: &[UnitArg]) -> Vec<UnitArg> {
    let mut seen = std::collections::BTreeSet::new();
    let once = selected.into_iter().filter(|unit| seen.insert(unit.name.clone()));
    let at_path =
        |unit: UnitArg| named.iter().find(|it| it.name == unit.name).cloned().unwrap_or(unit);
    once.map(at_path).collect()
}

/// A path is never a pattern: shells know which files there are.
fn is_pattern(arg: &str) -> bool {
    arg.contains(['*', '?', '[']) && !arg.contains('/')
}

fn matching(arg: &str, units: &[wire::Unit], fits: Fits) -> Result<Vec<UnitArg>, CliError> {
    let pattern: Pattern = arg
        .parse()
        .map_err(|error| CliError::usage(format!("{arg:?} stands for no units")).because(error))?;
    let name = |unit: &wire::Unit| unit.name.parse::<UnitName>().ok();
    let matches = |unit: &&wire::Unit| {
        name(unit).is_some_and(|name| !name.is_template() && pattern.matches(&name))
    };
    let all: Vec<&wire::Unit> = units.iter().filter(matches).collect();
    let fitting: Vec<UnitArg> =
        all.iter().filter(|it| fits.takes(it)).filter_map(|it| unit_arg(&it.name).ok()).collect();
    match (fitting.is_empty(), all.len()) {
        (false, _) => Ok(fitting),
        (true, 0) => Err(CliError::failed(format!("no unit of the cluster matches {arg}"))
            .help("a pattern covers the whole name with its type, as in \"web@*.service\"")
            .help("\"fleetctl list-unit-files\" shows the units that are known")),
        (true, n) => Err(CliError::failed(format!("nothing is to be done for what matches {arg}"))
            .help(format!("{n} match; \"fleetctl list-unit-files\" shows their desired states"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str, desired: &str) -> wire::Unit {
        wire::Unit { name: name.into(), desired_state: desired.into(), ..wire::Unit::default() }
    }

    #[test]
    fn patterns_cover_whole_names_and_no_templates() {
        let units = [
            unit("web.service", "launched"),
            unit("web@.service", "inactive"),
            unit("web@1.service", "launched"),
            unit("web@2.service", "inactive"),
            unit("web@3.service", "loaded"),
            unit("web@1.socket", "launched"),
        ];
        let names = |arg: &str, fits| match matching(arg, &units, fits) {
            Ok(found) => found.iter().map(|it| it.name.as_str().to_owned()).collect::<Vec<_>>(),
            Err(error) => vec![error.to_string()],
        };
        for (arg, fits, expected) in [
            ("web@*.service", Fits::All, "web@1.service web@2.service web@3.service"),
            ("web@*.service", Fits::Placed, "web@1.service web@3.service"),
            ("web@*.service", Fits::Launched, "web@1.service"),
            ("web@[1]*", Fits::All, "web@1.service web@1.socket"),
            ("web@?", Fits::All, "no unit of the cluster matches web@?"),
            ("*@2.*", Fits::Placed, "nothing is to be done for what matches *@2.*"),
            ("web@[", Fits::All, "\"web@[\" stands for no units"),
        ] {
            assert_eq!(names(arg, fits).join(" "), expected, "{arg}");
        }
        assert!(is_pattern("web@*") && !is_pattern("./web*.service") && !is_pattern("web"));
    }

    #[test]
    fn what_is_named_and_matched_counts_once_at_its_path() {
        let arg = |arg: &str| unit_arg(arg).unwrap();
        let found = each_once(vec![arg("web"), arg("x/web.service")], &[arg("x/web.service")]);
        assert_eq!(found, [arg("x/web.service")]);
    }
}
