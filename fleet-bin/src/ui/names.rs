//! Pure: parses unit arguments: names, or paths of unit files.

use std::path::{Path, PathBuf};

use fleet_unitfile::spelling::suggest;
use fleet_unitfile::{NameError, UnitName, UnitType};

use super::error::CliError;

/// A unit argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitArg {
    /// Name of the unit: the last part of the path.
    pub(crate) name: UnitName,
    /// Path where a local file may be, with the type added.
    pub(crate) path: PathBuf,
}

/// Parses a unit argument, which is the name of a unit or the path of its file. The unit type may
/// be missing (`web` means `web.service`).
///
/// # Errors
///
/// The name is invalid.
pub(crate) fn unit_arg(arg: &str) -> Result<UnitArg, CliError> {
    let (name, path) = with_type(arg);
    let name = UnitName::parse(&name).map_err(|error| bad_name(arg, error))?;
    Ok(UnitArg { name, path })
}

/// Parses all arguments and removes duplicates.
///
/// # Errors
///
/// Some names are invalid (the error lists all of them), or one name is given with two paths.
pub(crate) fn unit_args(args: &[String]) -> Result<Vec<UnitArg>, CliError> {
    let mut units: Vec<UnitArg> = Vec::new();
    let mut wrong = Vec::new();
    for arg in args {
        match unit_arg(arg) {
            Ok(unit) => match units.iter().find(|known| known.name == unit.name) {
                Some(known) if known.path != unit.path => return Err(two_paths(known, &unit)),
                Some(_) => {}
                None => units.push(unit),
            },
            Err(error) => wrong.push(error),
        }
    }
    CliError::combined(wrong)?;
    Ok(units)
}

/// Returns the nearest of several names, if one is near enough. Names with the same type are
/// compared without it, because most names share it.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (stem, unit_type) = name.rsplit_once('.').unwrap_or((name, ""));
    let stem_of = |known: &'a str| match known.rsplit_once('.') {
        Some((stem, known_type)) if known_type == unit_type => stem,
        _ => known,
    };
    let known: Vec<&str> = known.into_iter().collect();
    let near = suggest(stem, known.iter().map(|known| stem_of(known)))?;
    known.into_iter().find(|known| stem_of(known) == near)
}

/// Returns the last part of an argument's path, and the whole path. Adds `.service` to both if the
/// unit type is missing.
fn with_type(arg: &str) -> (String, PathBuf) {
    let path = Path::new(arg);
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return (String::new(), path.to_owned());
    };
    let has_type = UnitType::ALL
        .iter()
        .any(|known| name.strip_suffix(known.as_str()).is_some_and(|stem| stem.ends_with('.')));
    if has_type {
        return (name.to_owned(), path.to_owned());
    }
    let name = format!("{name}.{}", UnitType::Service);
    (name.clone(), path.with_file_name(name))
}

fn bad_name(arg: &str, error: NameError) -> CliError {
    CliError::failed(format!("invalid unit {arg:?}")).because(error)
}

fn two_paths(one: &UnitArg, other: &UnitArg) -> CliError {
    let (name, one, other) = (&one.name, one.path.display(), other.path.display());
    CliError::failed(format!("{one} and {other} are both files of {name}"))
        .help("rename or omit one of them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_type_defaults_to_service() {
        for (arg, name, path) in [
            ("foo", "foo.service", "foo.service"),
            ("foo.1", "foo.1.service", "foo.1.service"),
            ("a/b.socket", "b.socket", "a/b.socket"),
            ("./a/web@1", "web@1.service", "./a/web@1.service"),
            ("web@", "web@.service", "web@.service"),
            ("service", "service.service", "service.service"),
            ("foo.services", "foo.services.service", "foo.services.service"),
        ] {
            let unit = unit_arg(arg).unwrap();
            assert_eq!((unit.name.as_str(), unit.path), (name, PathBuf::from(path)), "{arg}");
        }
        for unit_type in UnitType::ALL {
            let arg = format!("foo.{unit_type}");
            assert_eq!(unit_arg(&arg).unwrap().name.as_str(), arg);
        }
    }

    #[test]
    fn every_invalid_name_is_reported_with_its_rule() {
        let args = ["ok", "not ok", "..", "é"].map(str::to_owned);
        let mut text = Vec::new();
        unit_args(&args).unwrap_err().print(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap().replace(": ", ":\n  ");
        insta::assert_snapshot!(text, @r#"
        fleetctl:
          invalid unit "not ok":
          unit name "not ok.service" has the character ' ':
          use ASCII letters, digits and ":-_.\@", and write any other as an escape such as "\x20"
        fleetctl:
          invalid unit "..":
          unit name "" is empty:
          write a name such as "web.service"
        fleetctl:
          invalid unit "é":
          unit name "é.service" has the character 'é':
          use ASCII letters, digits and ":-_.\@", and write any other as an escape such as "\x20"
        "#);
    }

    #[test]
    fn duplicate_units_count_once() {
        let args = ["b", "a", "b.service"].map(str::to_owned);
        let names: Vec<_> = unit_args(&args).unwrap().into_iter().map(|unit| unit.name).collect();
        assert_eq!(names, ["b.service", "a.service"]);
        let args = ["x/b.service", "y/b.service"].map(str::to_owned);
        let error = unit_args(&args).unwrap_err().to_string();
        assert_eq!(error, "x/b.service and y/b.service are both files of b.service");
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["web.service", "db.service", "web@1.service", "typo.service"];
        for (name, expected) in [
            ("wbe.service", Some("web.service")),
            ("web@2.service", Some("web@1.service")),
            ("cache.service", None),
            ("nope.service", None),
            ("b", None),
        ] {
            assert_eq!(nearest(name, known), expected, "{name}");
        }
    }
}
