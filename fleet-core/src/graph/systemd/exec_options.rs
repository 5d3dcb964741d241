//! Reads the options for directories, credentials and scheduling of a service.

use std::collections::BTreeSet;

use fleet_unitfile::values::{cunescape, parse_bool, parse_timespan, split_words};

use super::value::{ValueContext, absolute, choice, flag, number, read_resettable, unreadable};
use crate::graph::model::ExecEnvironment;
use crate::graph::model::exec_options::{
    Credential, CredentialSource, DirectoryGroup, DirectoryKind, PreserveRuntime, Scheduling,
};

/// Applies an option. Returns `None` if it is none of these.
pub(super) fn apply(
    exec: &mut ExecEnvironment,
    name: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Option<Result<(), String>> {
    if let Some((_, kind, base)) = DIRECTORIES.iter().find(|(known, ..)| *known == name) {
        let group = &mut exec.directories.kinds[*kind as usize];
        return Some(add_directories(group, base, value, unit));
    }
    let of_mode = |known: &str| name.strip_suffix("Mode") == Some(known);
    if let Some((_, kind, _)) = DIRECTORIES.iter().find(|(known, ..)| of_mode(known)) {
        let mode = &mut exec.directories.kinds[*kind as usize].mode;
        return Some(read_mode(value).map(|read| *mode = read));
    }
    take(exec, name, value, unit).transpose()
}

fn take(
    exec: &mut ExecEnvironment,
    name: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<Option<()>, String> {
    match name {
        "RuntimeDirectoryPreserve" => {
            exec.directories.preserve_runtime = match (value, parse_bool(value)) {
                ("restart", _) => PreserveRuntime::Restart,
                (_, Some(true)) => PreserveRuntime::Yes,
                (_, Some(false)) => PreserveRuntime::No,
                _ => return Err(format!("is {value:?}: write yes, no or restart")),
            };
        }
        "LoadCredential" => add_loaded(&mut exec.credentials, value, unit)?,
        "SetCredential" => add_set(&mut exec.credentials, value, unit)?,
        "ExecSearchPath" => {
            if value.is_empty() {
                exec.search_path.clear();
            }
            for path in value.split(':').filter(|path| !path.is_empty()) {
                exec.search_path.push(unit.path(path)?);
            }
        }
        _ => return take_scheduling(&mut exec.scheduling, name, value),
    }
    Ok(Some(()))
}

const DIRECTORIES: [(&str, DirectoryKind, &str); 5] = [
    ("RuntimeDirectory", DirectoryKind::Runtime, "%t"),
    ("StateDirectory", DirectoryKind::State, "%S"),
    ("CacheDirectory", DirectoryKind::Cache, "%C"),
    ("LogsDirectory", DirectoryKind::Logs, "%L"),
    ("ConfigurationDirectory", DirectoryKind::Configuration, "%E"),
];

fn add_directories(
    group: &mut DirectoryGroup,
    base: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        *group = DirectoryGroup { mode: group.mode, ..DirectoryGroup::default() };
    }
    for word in split_words(value).map_err(unreadable)? {
        let word = unit.expand(&word)?;
        let base = unit.expand(base)?;
        group.base.clone_from(&base);
        let (path, link) =
            word.split_once(':').map_or((&*word, None), |(path, link)| (path, Some(link)));
        let path = below(&base, path)?;
        let link = link.map(|link| below(&base, link)).transpose()?;
        match group.paths.iter_mut().find(|(known, _)| *known == path) {
            Some((_, links)) => links.extend(link),
            None => group.paths.push((path, link.into_iter().collect())),
        }
    }
    Ok(())
}

/// Returns the path of a directory of the unit, which is relative to the base directory.
fn below(base: &str, path: &str) -> Result<String, String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if path.starts_with('/') || parts.is_empty() || parts.contains(&"..") {
        return Err(format!("has {path:?}: write a path relative to {base}, without \"..\""));
    }
    if parts[0] == "private" {
        return Err(format!("has {path:?}: the name \"private\" is reserved: use another one"));
    }
    Ok(format!("{base}/{}", parts.join("/")))
}

fn read_mode(value: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("is {value:?}: write an octal file mode, such as 0750"))
}

fn add_loaded(
    list: &mut Vec<Credential>,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        list.retain(|it| !matches!(it.source, CredentialSource::File(_)));
        return Ok(());
    }
    let value = unit.expand(value)?;
    let (id, path) = value.split_once(':').unwrap_or((&value, ""));
    let id = credential_id(id)?;
    // Without an absolute path, the credential is one of the service manager. There are none here,
    // and systemd skips missing ones too.
    if !path.starts_with('/') {
        return Ok(());
    }
    add(list, id, CredentialSource::File(absolute(path)?));
    Ok(())
}

fn add_set(list: &mut Vec<Credential>, value: &str, unit: &ValueContext<'_>) -> Result<(), String> {
    if value.is_empty() {
        list.retain(|it| !matches!(it.source, CredentialSource::Text(_)));
        return Ok(());
    }
    let (id, text) = value
        .split_once(':')
        .ok_or_else(|| format!("is {value:?}: write the name, a colon, and the text"))?;
    let id = credential_id(&unit.expand(id)?)?;
    add(list, id, CredentialSource::Text(cunescape(text).map_err(unreadable)?));
    Ok(())
}

/// Adds a credential. It replaces one of the same name and kind.
fn add(list: &mut Vec<Credential>, id: String, source: CredentialSource) {
    let is_same = |it: &Credential| {
        it.id == id && std::mem::discriminant(&it.source) == std::mem::discriminant(&source)
    };
    list.retain(|it| !is_same(it));
    list.push(Credential { id, source });
}

fn credential_id(id: &str) -> Result<String, String> {
    let is_valid = !id.is_empty() && !id.contains(['/', '\0']) && ![".", ".."].contains(&id);
    let problem = || format!("has the name {id:?}: write the name of a file without a directory");
    is_valid.then(|| id.to_owned()).ok_or_else(problem)
}

/// Values of `CPUSchedulingPolicy=` and `IOSchedulingClass=`, with the kernel's numbers.
const CPU_POLICIES: [(&str, i32); 5] =
    [("other", 0), ("fifo", 1), ("rr", 2), ("batch", 3), ("idle", 5)];
const IO_CLASSES: [(&str, i32); 8] = [
    ("none", 0),
    ("realtime", 1),
    ("best-effort", 2),
    ("idle", 3),
    ("0", 0),
    ("1", 1),
    ("2", 2),
    ("3", 3),
];

fn take_scheduling(
    scheduling: &mut Scheduling,
    name: &str,
    value: &str,
) -> Result<Option<()>, String> {
    let it = scheduling;
    match name {
        "CPUAffinity" => add_processors(&mut it.cpu_affinity, value)?,
        "CPUSchedulingPolicy" => {
            it.cpu_policy = read_resettable(value, |value| choice(value, &CPU_POLICIES))?;
        }
        "CPUSchedulingPriority" => {
            it.cpu_priority = read_resettable(value, |value| number(value, 0, 99))?;
        }
        "CPUSchedulingResetOnFork" => it.reset_on_fork = flag(value)?,
        "IOSchedulingClass" => {
            it.io_class = read_resettable(value, |value| choice(value, &IO_CLASSES))?;
        }
        "IOSchedulingPriority" => {
            it.io_priority = read_resettable(value, |value| number(value, 0, 7))?;
        }
        "CoredumpFilter" => match value {
            "" => it.coredump_filter = None,
            value => {
                let added = coredump_filter(value)?;
                it.coredump_filter = Some(it.coredump_filter.unwrap_or_default() | added);
            }
        },
        "TimerSlackNSec" => it.timer_slack = read_resettable(value, nanoseconds)?,
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// Names of the kernel's bits, beginning with the lowest one.
const DUMPED: [&str; 9] = [
    "private-anonymous",
    "shared-anonymous",
    "private-file-backed",
    "shared-file-backed",
    "elf-headers",
    "private-huge",
    "shared-huge",
    "private-dax",
    "shared-dax",
];

/// Reads kinds of memory that a core dump contains: names, or a hexadecimal mask.
fn coredump_filter(value: &str) -> Result<u32, String> {
    const DEFAULT: u32 = 0x33;
    const ALL: u32 = (1 << DUMPED.len()) - 1;
    let mut mask = 0;
    for word in value.split_whitespace() {
        let bit = DUMPED.iter().position(|known| *known == word);
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let read = match (word, bit) {
            ("all", _) => Some(ALL),
            ("default", _) => Some(DEFAULT),
            (_, Some(bit)) => Some(1 << bit),
            (_, None) => u32::from_str_radix(digits, 16).ok(),
        };
        let names = DUMPED.join(", ");
        mask |= read.ok_or_else(|| {
            format!("has {word:?}: write default, all, a hexadecimal mask, or some of {names}")
        })?;
    }
    Ok(mask)
}

fn nanoseconds(value: &str) -> Result<u64, String> {
    if let Ok(number) = value.parse() {
        return Ok(number);
    }
    let span = parse_timespan(value).map_err(unreadable)?.as_duration();
    let nanoseconds = span.and_then(|span| u64::try_from(span.as_nanos()).ok());
    nanoseconds.ok_or_else(|| format!("is {value:?}: write a time, such as 50us"))
}

fn add_processors(list: &mut BTreeSet<u16>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    let words = split_words(value).map_err(unreadable)?;
    for word in words.iter().flat_map(|word| word.split(',')).filter(|word| !word.is_empty()) {
        // The processors of a NUMA mask, which is not supported.
        if word == "numa" {
            continue;
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let range = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
        let range = range.filter(|(first, last)| first <= last && *last < 8192);
        let (first, last) = range.ok_or_else(|| {
            format!("has {word:?}: write numbers of processors, such as 0-3 or 0,2")
        })?;
        list.extend(first..=last);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fleet_unitfile::SpecifierContext;

    use super::*;

    fn read(lines: &str) -> Result<ExecEnvironment, String> {
        let name = "a.service".parse().expect("it is a name");
        let specifiers = SpecifierContext::system_manager();
        let unit = ValueContext::new(&name, &specifiers);
        let mut exec = ExecEnvironment::default();
        for line in lines.split('\n') {
            let (name, value) = line.split_once('=').expect("it is an assignment");
            apply(&mut exec, name, value, &unit).expect("it is such an option")?;
        }
        Ok(exec)
    }

    #[test]
    fn directories_are_below_those_of_the_manager() {
        let exec = read(
            "RuntimeDirectory=a b/c\nRuntimeDirectoryMode=0750\nStateDirectory=d:e d:f\n\
             LogsDirectory=g\nLogsDirectory=\nConfigurationDirectory=%p\n\
             RuntimeDirectoryPreserve=restart",
        );
        insta::assert_debug_snapshot!(exec.expect("it is valid").directories, @r#"
        ExecDirectories {
            kinds: [
                DirectoryGroup {
                    base: "/run",
                    paths: [
                        (
                            "/run/a",
                            [],
                        ),
                        (
                            "/run/b/c",
                            [],
                        ),
                    ],
                    mode: 488,
                },
                DirectoryGroup {
                    base: "/var/lib",
                    paths: [
                        (
                            "/var/lib/d",
                            [
                                "/var/lib/e",
                                "/var/lib/f",
                            ],
                        ),
                    ],
                    mode: 493,
                },
                DirectoryGroup {
                    base: "",
                    paths: [],
                    mode: 493,
                },
                DirectoryGroup {
                    base: "",
                    paths: [],
                    mode: 493,
                },
                DirectoryGroup {
                    base: "/etc",
                    paths: [
                        (
                            "/etc/a",
                            [],
                        ),
                    ],
                    mode: 493,
                },
            ],
            preserve_runtime: Restart,
        }
        "#);
    }

    #[test]
    fn credentials_and_scheduling_are_read() {
        let exec = read(
            "LoadCredential=key:/etc/key\nSetCredential=key:a:b\\x41\nLoadCredential=key:/etc/%p\n\
             CPUAffinity=0-2,5\nCPUSchedulingPolicy=fifo\nCPUSchedulingPriority=7\n\
             IOSchedulingClass=idle\nIOSchedulingPriority=3\nTimerSlackNSec=1ms\n\
             CoredumpFilter=private-anonymous shared-anonymous\nCoredumpFilter=0x4",
        );
        let exec = exec.expect("it is valid");
        insta::assert_debug_snapshot!((exec.credentials, exec.scheduling), @r#"
        (
            [
                Credential {
                    id: "key",
                    source: Text(
                        "a:bA",
                    ),
                },
                Credential {
                    id: "key",
                    source: File(
                        "/etc/a",
                    ),
                },
            ],
            Scheduling {
                cpu_affinity: {
                    0,
                    1,
                    2,
                    5,
                },
                cpu_policy: Some(
                    1,
                ),
                cpu_priority: Some(
                    7,
                ),
                reset_on_fork: false,
                io_class: Some(
                    3,
                ),
                io_priority: Some(
                    3,
                ),
                coredump_filter: Some(
                    7,
                ),
                timer_slack: Some(
                    1000000,
                ),
            },
        )
        "#);
    }

    #[test]
    fn wrong_values_are_refused_with_a_remedy() {
        let problems = [
            "RuntimeDirectory=/run/a",
            "StateDirectory=a/../b",
            "StateDirectory=private/a",
            "CacheDirectoryMode=rwx",
            "SetCredential=a/b:c",
            "CPUAffinity=3-1",
            "CPUSchedulingPolicy=realtime",
            "IOSchedulingPriority=8",
        ]
        .map(|line| {
            format!(
                "{line}:
  {}",
                read(line).expect_err(line)
            )
        });
        insta::assert_snapshot!(problems.join("
").replace(": write", ":
  write"), @r#"
  RuntimeDirectory=/run/a:
    has "/run/a":
    write a path relative to /run, without ".."
  StateDirectory=a/../b:
    has "a/../b":
    write a path relative to /var/lib, without ".."
  StateDirectory=private/a:
    has "private/a": the name "private" is reserved: use another one
  CacheDirectoryMode=rwx:
    is "rwx":
    write an octal file mode, such as 0750
  SetCredential=a/b:c:
    has the name "a/b":
    write the name of a file without a directory
  CPUAffinity=3-1:
    has "3-1":
    write numbers of processors, such as 0-3 or 0,2
  CPUSchedulingPolicy=realtime:
    is "realtime":
    write other, fifo, rr, batch or idle
  IOSchedulingPriority=8:
    is "8":
    write a whole number from 0 to 7
  "#);
    }
}
