//! Reads `SystemCallFilter=` and `SystemCallErrorNumber=`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::graph::model::sandbox::{SystemCallAction, SystemCallFilter};

/// Adds the system calls of one line to the filter. The first line decides whether the filter lists
/// permitted or forbidden calls. A later line of the other kind takes calls out of the list. An
/// empty value removes the filter.
pub(super) fn add_filter(filter: &mut Option<SystemCallFilter>, value: &str) -> Result<(), String> {
    if value.is_empty() {
        *filter = None;
        return Ok(());
    }
    let (inverted, names) = value.strip_prefix('~').map_or((false, value), |rest| (true, rest));
    let filter = filter.get_or_insert_with(|| SystemCallFilter {
        permit: !inverted,
        // systemd always permits what an exec needs.
        calls: if inverted { BTreeMap::new() } else { calls("@default").unwrap_or_default() },
    });
    for word in names.split_whitespace() {
        let (name, action) = match word.split_once(':') {
            Some((name, action)) => (name, Some(read_action(action)?)),
            None => (word, None),
        };
        let named = calls(name).ok_or_else(|| unknown(name))?;
        if filter.permit == inverted {
            filter.calls.retain(|call, _| !named.contains_key(call));
        } else {
            filter.calls.extend(named.into_keys().map(|call| (call, action)));
        }
    }
    Ok(())
}

/// Reads the error of forbidden calls; `None` kills the process.
pub(super) fn error_number(value: &str) -> Result<Option<u16>, String> {
    match value {
        "" => Ok(None),
        value => read_action(value).map(|action| match action {
            SystemCallAction::Kill => None,
            SystemCallAction::Error(number) => Some(number),
        }),
    }
}

fn read_action(text: &str) -> Result<SystemCallAction, String> {
    if text == "kill" {
        return Ok(SystemCallAction::Kill);
    }
    let by_name = ERRORS.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    let number = by_name.or_else(|| text.parse().ok().filter(|number| (1..=4095).contains(number)));
    number
        .map(SystemCallAction::Error)
        .ok_or_else(|| format!("has the error {text:?}: write a name such as EPERM, or a number"))
}

/// Returns the calls of a group, or the call itself. Returns `None` for an unknown group, and for a
/// text that cannot be a system call.
fn calls(name: &str) -> Option<BTreeMap<String, Option<SystemCallAction>>> {
    let mut found = BTreeMap::new();
    let mut open = vec![name];
    while let Some(next) = open.pop() {
        if next.starts_with('@') {
            open.extend(groups().get(next)?);
        } else if !next.is_empty() && next.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            found.insert(next.to_owned(), None);
        } else {
            return None;
        }
    }
    Some(found)
}

fn unknown(name: &str) -> String {
    if name.starts_with('@') {
        format!("has the unknown group {name}: write a group of systemd, such as @system-service")
    } else {
        format!("has {name:?}: write names of system calls, with blanks between")
    }
}

fn groups() -> &'static BTreeMap<&'static str, Vec<&'static str>> {
    static GROUPS: OnceLock<BTreeMap<&str, Vec<&str>>> = OnceLock::new();
    GROUPS.get_or_init(|| {
        let paragraphs = include_str!("syscall_groups.txt").split("\n\n");
        let groups = paragraphs.filter_map(|text| {
            let mut words = text.split_whitespace();
            let name = words.next().filter(|word| word.starts_with('@'))?;
            Some((name, words.collect()))
        });
        groups.collect()
    })
}

/// Errors by name. Other errors are written as numbers.
const ERRORS: [(&str, u16); 42] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("ESRCH", 3),
    ("EINTR", 4),
    ("EIO", 5),
    ("ENXIO", 6),
    ("E2BIG", 7),
    ("ENOEXEC", 8),
    ("EBADF", 9),
    ("ECHILD", 10),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("ENOTBLK", 15),
    ("EBUSY", 16),
    ("EEXIST", 17),
    ("EXDEV", 18),
    ("ENODEV", 19),
    ("ENOTDIR", 20),
    ("EISDIR", 21),
    ("EINVAL", 22),
    ("ENFILE", 23),
    ("EMFILE", 24),
    ("ENOTTY", 25),
    ("ETXTBSY", 26),
    ("EFBIG", 27),
    ("ENOSPC", 28),
    ("ESPIPE", 29),
    ("EROFS", 30),
    ("EMLINK", 31),
    ("EPIPE", 32),
    ("EDOM", 33),
    ("ERANGE", 34),
    ("EDEADLK", 35),
    ("ENAMETOOLONG", 36),
    ("ENOLCK", 37),
    ("ENOSYS", 38),
    ("ENOTEMPTY", 39),
    ("ELOOP", 40),
    ("EOPNOTSUPP", 95),
    ("EAFNOSUPPORT", 97),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(lines: &[&str]) -> Result<Option<SystemCallFilter>, String> {
        let mut filter = None;
        for line in lines {
            add_filter(&mut filter, line)?;
        }
        Ok(filter)
    }

    #[test]
    fn every_group_resolves_to_calls() {
        assert_eq!(groups().len(), 28);
        for group in groups().keys() {
            assert!(calls(group).is_some_and(|calls| !calls.is_empty()), "{group}");
        }
    }

    #[test]
    fn first_line_decides_what_the_filter_lists() {
        let permitted = filter(&["@timer reboot", "~reboot", "~timer_create"]);
        let permitted = permitted.expect("it is valid").expect("it is set");
        let has = |name: &str| permitted.calls.contains_key(name);
        assert!(permitted.permit);
        assert_eq!(
            [has("alarm"), has("execve"), has("reboot"), has("timer_create")],
            [true, true, false, false]
        );
        let forbidden = filter(&["~reboot:EPERM kexec_load:kill swapon", "swapon"]);
        let forbidden = forbidden.expect("it is valid").expect("it is set");
        assert!(!forbidden.permit);
        let calls: Vec<_> = forbidden.calls.into_iter().collect();
        assert_eq!(
            calls,
            [
                ("kexec_load".to_owned(), Some(SystemCallAction::Kill)),
                ("reboot".to_owned(), Some(SystemCallAction::Error(1))),
            ]
        );
        assert_eq!(filter(&["@timer", ""]), Ok(None));
    }

    #[test]
    fn unknown_groups_and_errors_are_refused() {
        for (line, problem) in [
            ("@nothing", "has the unknown group @nothing"),
            ("a/b", "has \"a/b\""),
            ("~reboot:ENOTHING", "has the error \"ENOTHING\""),
            ("~reboot:0", "has the error \"0\""),
        ] {
            let found = filter(&[line]).expect_err(line);
            assert!(found.starts_with(problem), "{found}");
        }
    }
}
