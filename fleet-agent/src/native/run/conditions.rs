//! Evaluates the `Condition…=` and `Assert…=` settings of a unit on this machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use fleet_core::graph::{ConditionResult, ConditionTest, UnitCondition};
use glob::{MatchOptions, Pattern};
use nix::unistd::{Uid, User};

/// First user ID that does not belong to the system.
const FIRST_REGULAR_UID: u32 = 1000;

/// Evaluates the conditions of a unit, and returns `Ok` if the unit may start. Otherwise the error
/// holds the unmet condition. The flag is `true` if this counts as a failure (`Assert…=`), and
/// `false` if the start is only skipped (`Condition…=`). `in_stanza` is `true` if the
/// conditions come from a stanza, and not from a systemd unit file.
pub(crate) fn check_conditions(
    conditions: &[UnitCondition],
    in_stanza: bool,
) -> Result<(), (String, bool)> {
    match UnitCondition::judge(conditions, holds) {
        ConditionResult::Start => Ok(()),
        ConditionResult::Skip(condition) => Err((unmet(condition, in_stanza), false)),
        ConditionResult::Fail(condition) => Err((unmet(condition, in_stanza), true)),
    }
}

fn unmet(condition: &UnitCondition, in_stanza: bool) -> String {
    if in_stanza {
        let key = if condition.assert { "assert" } else { "condition" };
        return format!("its `{key}: {condition}` does not hold");
    }
    let (name, value) = match &condition.test {
        ConditionTest::PathExists(path) => ("PathExists", path),
        ConditionTest::PathIsDirectory(path) => ("PathIsDirectory", path),
        ConditionTest::FileNotEmpty(path) => ("FileNotEmpty", path),
        ConditionTest::FileIsExecutable(path) => ("FileIsExecutable", path),
        ConditionTest::Host(pattern) => ("Host", pattern),
        ConditionTest::KernelCommandLine(word) => ("KernelCommandLine", word),
        ConditionTest::User(user) => ("User", user),
    };
    let kind = if condition.assert { "Assert" } else { "Condition" };
    let negated = if condition.negated { "!" } else { "" };
    format!("its {kind}{name}={negated}{value} does not hold")
}

fn holds(test: &ConditionTest) -> bool {
    match test {
        ConditionTest::PathExists(path) => fs::metadata(path).is_ok(),
        ConditionTest::PathIsDirectory(path) => fs::metadata(path).is_ok_and(|it| it.is_dir()),
        ConditionTest::FileNotEmpty(path) => {
            fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() > 0)
        }
        ConditionTest::FileIsExecutable(path) => {
            fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        }
        ConditionTest::Host(pattern) => is_host(pattern),
        ConditionTest::KernelCommandLine(word) => has_word(&read("/proc/cmdline"), word),
        ConditionTest::User(user) => is_user(user),
    }
}

fn is_host(pattern: &str) -> bool {
    let id = pattern.replace('-', "").to_ascii_lowercase();
    if read("/etc/machine-id").trim() == id {
        return true;
    }
    let name = read("/proc/sys/kernel/hostname");
    // Host names are case-insensitive.
    let how = MatchOptions { case_sensitive: false, ..MatchOptions::new() };
    Pattern::new(pattern).is_ok_and(|pattern| pattern.matches_with(name.trim(), how))
}

fn has_word(line: &str, word: &str) -> bool {
    let assigns = |given: &str| given.split_once('=').is_some_and(|(name, _)| name == word);
    line.split_whitespace().any(|given| given == word || assigns(given))
}

fn is_user(user: &str) -> bool {
    let own = Uid::effective();
    let named = || User::from_name(user).ok().flatten().is_some_and(|it| it.uid == own);
    match user {
        "@system" => own.as_raw() < FIRST_REGULAR_UID,
        _ => user.parse::<u32>().map_or_else(|_| named(), |number| number == own.as_raw()),
    }
}

/// Reads a file; an unreadable one counts as empty.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_evaluated_on_this_machine() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::write(path("empty"), "").expect("it can be written");
        fs::write(path("full"), "x").expect("it can be written");
        let own = Uid::effective().as_raw();
        for (test, expected) in [
            (ConditionTest::PathExists(path("empty")), true),
            (ConditionTest::PathExists(path("none")), false),
            (ConditionTest::PathIsDirectory(path(".")), true),
            (ConditionTest::PathIsDirectory(path("full")), false),
            (ConditionTest::FileNotEmpty(path("full")), true),
            (ConditionTest::FileNotEmpty(path("empty")), false),
            (ConditionTest::FileNotEmpty(path(".")), false),
            (ConditionTest::FileIsExecutable("/bin/sh".into()), true),
            (ConditionTest::FileIsExecutable(path("full")), false),
            (ConditionTest::Host("*".into()), true),
            (ConditionTest::Host("no such host".into()), false),
            (
                ConditionTest::Host(read("/proc/sys/kernel/hostname").trim().to_ascii_uppercase()),
                true,
            ),
            (ConditionTest::Host(read("/etc/machine-id").trim().to_ascii_uppercase()), true),
            (ConditionTest::User(own.to_string()), true),
            (ConditionTest::User((own + 1).to_string()), false),
            (ConditionTest::User("@system".into()), own < FIRST_REGULAR_UID),
        ] {
            assert_eq!(holds(&test), expected, "{test:?}");
        }
        assert!(has_word("quiet root=/dev/x\n", "quiet") && has_word("a root=/dev/x", "root"));
        assert!(has_word("root=/dev/x", "root=/dev/x") && !has_word("roots=1", "root"));
    }

    #[test]
    fn a_false_condition_is_named() {
        let condition = |assert| UnitCondition {
            test: ConditionTest::PathExists("/".into()),
            negated: true,
            any: false,
            assert,
        };
        let told = check_conditions(&[condition(false)], false);
        assert_eq!(told, Err(("its ConditionPathExists=!/ does not hold".into(), false)));
        let told = check_conditions(&[condition(true)], false);
        assert_eq!(told, Err(("its AssertPathExists=!/ does not hold".into(), true)));
        assert_eq!(check_conditions(&[], false), Ok(()));
    }

    /// Regression: the condition of a stanza was named as in a systemd unit file.
    #[test]
    fn false_condition_of_a_stanza_has_the_key_of_stanzas() {
        let test = ConditionTest::PathExists("/".into());
        let condition = UnitCondition { test, negated: true, any: false, assert: true };
        let told = check_conditions(&[condition], true);
        assert_eq!(told, Err(("its `assert: !path-exists /` does not hold".into(), true)));
    }
}
