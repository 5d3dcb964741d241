//! Pure: no I/O, no clock. The options that say what surrounds a process: variables, directory,
//! user, and where its output goes.

use std::path::{Path, PathBuf};

use fleet_unitfile::{split_words, split_words_relaxed};

use super::compile::{Host, shown};
use super::spec::{Context, EnvironmentFile, Output, Place, WorkingDirectory};

/// Takes one option over.
pub(crate) fn apply_context(
    context: &mut Context,
    name: &str,
    value: &str,
    host: &Host,
) -> Result<(), String> {
    match name {
        "Environment" => add_variables(&mut context.environment, value)?,
        "EnvironmentFile" => add_file(&mut context.environment_files, value)?,
        "PassEnvironment" => add_names(&mut context.pass_environment, value)?,
        "UnsetEnvironment" => add_names(&mut context.unset_environment, value)?,
        "WorkingDirectory" => context.directory = parse_directory(value)?,
        "User" => context.user = parse_identity(value, "user", host.root, &host.users)?,
        "Group" => context.group = parse_identity(value, "group", host.root, &host.groups)?,
        "UMask" => context.umask = parse_umask(value)?,
        "StandardOutput" => context.output = parse_output(value)?.unwrap_or(Output::Null),
        "StandardError" => context.error = parse_output(value)?,
        "StandardInput" if matches!(value, "" | "null") => {}
        "StandardInput" => return Err(format!("is {value:?}: only null is possible here")),
        _ => unreachable!("the table of options honours {name}, which nothing reads"),
    }
    Ok(())
}

fn add_variables(list: &mut Vec<(String, String)>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    for word in split_words(value).map_err(shown)? {
        let assignment = word.split_once('=').filter(|(name, _)| is_variable(name));
        let (name, value) = assignment.ok_or_else(|| {
            format!("has {word:?}: write NAME=value, in quotes where the value has blanks")
        })?;
        list.push((name.to_owned(), value.to_owned()));
    }
    Ok(())
}

fn add_file(list: &mut Vec<EnvironmentFile>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
        return Ok(());
    }
    let (path, optional) = value.strip_prefix('-').map_or((value, false), |path| (path, true));
    list.push(EnvironmentFile { path: absolute(path)?, optional });
    Ok(())
}

fn add_names(list: &mut Vec<String>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    list.extend(split_words_relaxed(value).map_err(shown)?);
    Ok(())
}

fn parse_directory(value: &str) -> Result<WorkingDirectory, String> {
    let (path, optional) = value.strip_prefix('-').map_or((value, false), |path| (path, true));
    let place = match path {
        "" => Place::Root,
        "~" => Place::Home,
        path => Place::At(absolute(path)?),
    };
    Ok(WorkingDirectory { place, optional })
}

fn absolute(path: &str) -> Result<PathBuf, String> {
    if Path::new(path).is_absolute() {
        return Ok(PathBuf::from(path));
    }
    Err(format!("has the relative path {path:?}: write it from the root on"))
}

fn parse_identity(
    value: &str,
    kind: &str,
    root: bool,
    own: &[String],
) -> Result<Option<String>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    if root || own.iter().any(|own| own == value) {
        return Ok(Some(value.to_owned()));
    }
    let own = own.first().map_or("", String::as_str);
    Err(format!(
        "is {value:?}, but fleet runs as the {kind} {own:?} and may not become another: \
         take the option out, or run fleet as root"
    ))
}

fn parse_umask(value: &str) -> Result<Option<u32>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    let mask = u32::from_str_radix(value, 8).ok().filter(|mask| *mask <= 0o777);
    mask.map(Some).ok_or_else(|| format!("is {value:?}: write an octal number from 0 to 0777"))
}

/// `None` is to inherit.
fn parse_output(value: &str) -> Result<Option<Output>, String> {
    match value {
        "" | "journal" => Ok(Some(Output::Log)),
        "null" => Ok(Some(Output::Null)),
        "inherit" => Ok(None),
        other => Err(format!("is {other:?}: write journal, null or inherit")),
    }
}

/// Whether a text may be the name of a variable.
pub(crate) fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
