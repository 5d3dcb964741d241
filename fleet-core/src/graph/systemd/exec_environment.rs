//! Execution environment of a service: variables, directory, user and output.

use fleet_unitfile::{split_words, split_words_relaxed};

use super::limit;
use super::value::{ValueContext, choice, flag, number, read_resettable, unreadable};
use crate::graph::{DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, WorkingDirectory};

/// Applies one option.
pub(super) fn apply(
    surroundings: &mut ExecEnvironment,
    name: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    let it = surroundings;
    match name {
        "Environment" => add_variables(&mut it.environment, value, unit)?,
        "EnvironmentFile" => add_file(&mut it.environment_files, value, unit)?,
        "PassEnvironment" => add_names(&mut it.pass_environment, value, unit)?,
        "UnsetEnvironment" => add_names(&mut it.unset_environment, value, unit)?,
        "WorkingDirectory" => it.directory = directory(value, unit)?,
        "User" => it.user = account(value, unit)?,
        "Group" => it.group = account(value, unit)?,
        "SupplementaryGroups" => add_groups(&mut it.supplementary_groups, value, unit)?,
        "UMask" => it.umask = Some(umask(value)?),
        "IgnoreSIGPIPE" => it.ignore_sigpipe = flag(value)?,
        "Nice" => it.nice = read_resettable(value, |value| number(value, -20, 19))?,
        "OOMScoreAdjust" => {
            it.oom_score_adjust = read_resettable(value, |value| number(value, -1000, 1000))?;
        }
        // Standard output inherits the standard input, which is `/dev/null`.
        "StandardOutput" => it.output = output(value, unit)?.unwrap_or(ExecOutput::Null),
        "StandardError" => it.error = output(value, unit)?,
        "StandardInput" => choice(value, &[("null", ())])?,
        _ => {
            if let Some(limit) = limit::name(name) {
                it.limits.insert(limit, limit::parse(name, value)?);
            }
        }
    }
    Ok(())
}

fn add_variables(
    list: &mut Vec<(String, String)>,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    for word in split_words(value).map_err(unreadable)? {
        let word = unit.expand(&word)?;
        let assignment = word.split_once('=').filter(|(name, _)| is_variable(name));
        let (name, value) = assignment.ok_or_else(|| {
            format!("has {word:?}: write NAME=value, in quotes where the value has blanks")
        })?;
        list.push((name.to_owned(), value.to_owned()));
    }
    Ok(())
}

fn add_file(
    list: &mut Vec<EnvironmentFile>,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
        return Ok(());
    }
    let (path, optional) = value.strip_prefix('-').map_or((value, false), |path| (path, true));
    let path = unit.path(path)?;
    if path.contains(['*', '?', '[']) {
        return Err(format!("is the pattern {path:?}: name each file by itself"));
    }
    list.push(EnvironmentFile { path, optional });
    Ok(())
}

/// Adds names of variables, each with an optional value.
fn add_names(list: &mut Vec<String>, value: &str, unit: &ValueContext<'_>) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    for word in split_words_relaxed(value).map_err(unreadable)? {
        let word = unit.expand(&word)?;
        if !is_variable(word.split('=').next().unwrap_or_default()) {
            return Err(format!("has {word:?}: write names of variables, with blanks between"));
        }
        list.push(word);
    }
    Ok(())
}

fn add_groups(list: &mut Vec<String>, value: &str, unit: &ValueContext<'_>) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    for word in value.split_whitespace() {
        list.extend(account(word, unit)?);
    }
    Ok(())
}

fn directory(value: &str, unit: &ValueContext<'_>) -> Result<WorkingDirectory, String> {
    let (path, optional) = value.strip_prefix('-').map_or((value, false), |path| (path, true));
    let path = match path {
        "" => DirectoryPath::Root,
        "~" => DirectoryPath::Home,
        path => DirectoryPath::At(unit.path(path)?),
    };
    Ok(WorkingDirectory { path, optional })
}

/// Reads the name or number of a user or group.
fn account(value: &str, unit: &ValueContext<'_>) -> Result<Option<String>, String> {
    let name = unit.expand(value)?;
    if name.contains(|c: char| c.is_whitespace() || c.is_control() || "/:".contains(c)) {
        return Err(format!("is {name:?}: write the name or the number of one"));
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

fn umask(value: &str) -> Result<u32, String> {
    let mask = u32::from_str_radix(value, 8).ok().filter(|mask| *mask <= 0o777);
    mask.ok_or_else(|| format!("is {value:?}: write an octal number from 0 to 0777"))
}

/// Reads an output; `None` means inherit.
fn output(value: &str, unit: &ValueContext<'_>) -> Result<Option<ExecOutput>, String> {
    if let Some((kind @ ("file" | "append" | "truncate"), path)) = value.split_once(':') {
        let path = unit.path(path)?;
        return Ok(Some(match kind {
            "file" => ExecOutput::File(path),
            "append" => ExecOutput::Append(path),
            _ => ExecOutput::Truncate(path),
        }));
    }
    match value {
        "journal" | "syslog" => Ok(Some(ExecOutput::Log)),
        "null" => Ok(Some(ExecOutput::Null)),
        "inherit" => Ok(None),
        other => Err(format!(
            "is {other:?}: write journal, null, inherit, or file:, append: or truncate: and a path"
        )),
    }
}

/// Returns whether the text is a valid variable name.
fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
