//! Execution environment of a service: variables, directory, user and output.

use std::time::Duration;

use fleet_unitfile::values::{
    Size, parse_permyriad, parse_size, parse_timespan, split_words, split_words_relaxed,
};

use super::value::{ValueContext, choice, flag, number, read_resettable, unreadable};
use super::{exec_options, sandbox};
use crate::graph::model::{
    Amount, DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, ResourceLimits,
    WorkingDirectory,
};

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
        "StandardInput" => {
            let words = ["null", "tty", "tty-fail", "tty-force"].map(|word| (word, ()));
            choice(value, &words)?;
        }
        _ => {
            if let Some(limit) = limit_name(name) {
                it.limits.insert(limit, parse_limit(name, value)?);
                return Ok(());
            }
            let of_sandbox = sandbox::apply(&mut it.sandbox, name, value, unit);
            return of_sandbox
                .or_else(|| exec_options::apply(it, name, value, unit))
                .unwrap_or(Ok(()));
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
pub(super) fn account(value: &str, unit: &ValueContext<'_>) -> Result<Option<String>, String> {
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
        // Units have no terminal, and the log of a unit is its journal.
        "journal" | "journal+console" | "kmsg" | "kmsg+console" | "syslog" | "syslog+console"
        | "tty" => Ok(Some(ExecOutput::Log)),
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

/// A limit; `None` means no limit.
type Bound = Option<u64>;

/// Unit of a limit's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    Bytes,
    Count,
    Microseconds,
    Nice,
    Seconds,
}

/// Options that set kernel limits, each with the kernel's name of the limit and the unit of measure
/// of its value.
const LIMITS: [(&str, &str, Measure); 16] = [
    ("LimitAS", "as", Measure::Bytes),
    ("LimitCORE", "core", Measure::Bytes),
    ("LimitCPU", "cpu", Measure::Seconds),
    ("LimitDATA", "data", Measure::Bytes),
    ("LimitFSIZE", "fsize", Measure::Bytes),
    ("LimitLOCKS", "locks", Measure::Count),
    ("LimitMEMLOCK", "memlock", Measure::Bytes),
    ("LimitMSGQUEUE", "msgqueue", Measure::Bytes),
    ("LimitNICE", "nice", Measure::Nice),
    ("LimitNOFILE", "nofile", Measure::Count),
    ("LimitNPROC", "nproc", Measure::Count),
    ("LimitRSS", "rss", Measure::Bytes),
    ("LimitRTPRIO", "rtprio", Measure::Count),
    ("LimitRTTIME", "rttime", Measure::Microseconds),
    ("LimitSIGPENDING", "sigpending", Measure::Count),
    ("LimitSTACK", "stack", Measure::Bytes),
];

/// Returns the kernel's name of the limit that an option sets, or `None` if the option sets no
/// limit.
pub(super) fn limit_name(option: &str) -> Option<&'static str> {
    LIMITS.iter().find(|(known, ..)| *known == option).map(|(_, name, _)| *name)
}

/// Parses the soft and the hard limit.
pub(super) fn parse_limit(option: &str, value: &str) -> Result<(Bound, Bound), String> {
    let known = LIMITS.iter().find(|(known, ..)| *known == option);
    let measure = known.map_or(Measure::Count, |(.., measure)| *measure);
    let (soft, hard) = value.split_once(':').unwrap_or((value, value));
    let (soft, hard) = (bound(soft, measure)?, bound(hard, measure)?);
    if hard.is_some_and(|hard| soft.is_none_or(|soft| soft > hard)) {
        return Err(format!(
            "is {value:?}: write the soft limit first; it must not exceed the hard \
                            limit"
        ));
    }
    Ok((soft, hard))
}

fn bound(text: &str, measure: Measure) -> Result<Bound, String> {
    if text == "infinity" {
        return Ok(None);
    }
    let bound = match measure {
        Measure::Bytes => match parse_size(text).map_err(unreadable)? {
            Size::Bytes(bytes) => Some(bytes),
            _ => None,
        },
        Measure::Count => text.parse().ok(),
        Measure::Nice => nice(text),
        Measure::Seconds => time(text, Duration::from_secs(1))?,
        Measure::Microseconds => time(text, Duration::from_micros(1))?,
    };
    bound.map(Some).ok_or_else(|| match measure {
        Measure::Nice => format!("is {text:?}: write +5, -5 or a number from 1 to 40"),
        _ => format!("is {text:?}: write a number or infinity, or two with a colon"),
    })
}

/// Parses a duration in this unit, rounded up.
fn time(text: &str, unit: Duration) -> Result<Option<u64>, String> {
    // A plain number is in the unit of the limit.
    if let Ok(number) = text.parse() {
        return Ok(Some(number));
    }
    let span = parse_timespan(text).map_err(unreadable)?.as_duration();
    Ok(span.and_then(|span| u64::try_from(span.as_micros().div_ceil(unit.as_micros())).ok()))
}

/// Parses a `LimitNICE=` value. A number with a sign is a nice level, and a number without a sign
/// is the kernel's raw value.
fn nice(text: &str) -> Option<u64> {
    let number: i64 = text.parse().ok()?;
    let number = if text.starts_with(['+', '-']) {
        Some(20 - number).filter(|_| (-20..=19).contains(&number))
    } else {
        Some(number).filter(|number| (0..=40).contains(number))
    };
    number.and_then(|number| u64::try_from(number).ok())
}

/// Applies one option; an empty value resets it.
pub(super) fn apply_resource(
    resources: &mut ResourceLimits,
    option: &str,
    value: &str,
) -> Result<(), String> {
    match option {
        "MemoryMax" => resources.memory_max = memory(value)?,
        "MemoryHigh" => resources.memory_high = memory(value)?,
        "TasksMax" => resources.tasks_max = tasks(value)?,
        "CPUWeight" => resources.cpu_weight = weight(value)?,
        "IOWeight" => resources.io_weight = weight(value)?,
        _ => resources.cpu_quota = quota(value)?,
    }
    Ok(())
}

fn memory(value: &str) -> Result<Option<Amount>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    match parse_size(value).map_err(unreadable)? {
        Size::Bytes(bytes) => Ok(Some(Amount::Absolute(bytes))),
        Size::Permyriad(share) => Ok(Some(Amount::Share(share))),
        _ => Ok(None),
    }
}

fn tasks(value: &str) -> Result<Option<Amount>, String> {
    match value {
        "infinity" => Ok(None),
        _ if value.ends_with(['%', '‰', '‱']) => memory(value),
        _ => {
            let count = read_resettable(value, |value| number(value, 1, u64::MAX))?;
            Ok(count.map(Amount::Absolute))
        }
    }
}

fn weight(value: &str) -> Result<Option<u64>, String> {
    read_resettable(value, |value| number(value, 1, 10_000))
}

fn quota(value: &str) -> Result<Option<u64>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    match parse_permyriad(value).map_err(unreadable)? {
        0 => Err(format!("is {value:?}: write a share of one processor, such as 150%")),
        share => Ok(Some(share.into())),
    }
}
