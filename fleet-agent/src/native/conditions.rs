//! What has to be true of the machine for a unit to start, asked of the machine as it is.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use fleet_core::graph::{Condition, Test, Verdict};
use glob::{MatchOptions, Pattern};
use nix::unistd::{Uid, User};

/// The first number of a user who is no part of the system.
const FIRST_PERSON: u32 = 1000;

/// Whether a unit may start. If not, why, for a person; and whether that is a failure.
pub(crate) fn judge(conditions: &[Condition]) -> Result<(), (String, bool)> {
    match Condition::judge(conditions, holds) {
        Verdict::Start => Ok(()),
        Verdict::Skip(condition) => Err((unmet(condition), false)),
        Verdict::Fail(condition) => Err((unmet(condition), true)),
    }
}

fn unmet(condition: &Condition) -> String {
    let (name, value) = match &condition.test {
        Test::PathExists(path) => ("PathExists", path),
        Test::PathIsDirectory(path) => ("PathIsDirectory", path),
        Test::FileNotEmpty(path) => ("FileNotEmpty", path),
        Test::FileIsExecutable(path) => ("FileIsExecutable", path),
        Test::Host(pattern) => ("Host", pattern),
        Test::KernelCommandLine(word) => ("KernelCommandLine", word),
        Test::User(user) => ("User", user),
    };
    let kind = if condition.assert { "Assert" } else { "Condition" };
    let negated = if condition.negated { "!" } else { "" };
    format!("its {kind}{name}={negated}{value} does not hold")
}

fn holds(test: &Test) -> bool {
    match test {
        Test::PathExists(path) => fs::metadata(path).is_ok(),
        Test::PathIsDirectory(path) => fs::metadata(path).is_ok_and(|it| it.is_dir()),
        Test::FileNotEmpty(path) => fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() > 0),
        Test::FileIsExecutable(path) => {
            fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        }
        Test::Host(pattern) => is_host(pattern),
        Test::KernelCommandLine(word) => has_word(&read("/proc/cmdline"), word),
        Test::User(user) => is_user(user),
    }
}

fn is_host(pattern: &str) -> bool {
    let id = pattern.replace('-', "").to_ascii_lowercase();
    if read("/etc/machine-id").trim() == id {
        return true;
    }
    let name = read("/proc/sys/kernel/hostname");
    // Names of hosts are the same in capital letters.
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
        "@system" => own.as_raw() < FIRST_PERSON,
        _ => user.parse::<u32>().map_or_else(|_| named(), |number| number == own.as_raw()),
    }
}

/// What cannot be read says nothing.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_the_machine() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::write(path("empty"), "").expect("it can be written");
        fs::write(path("full"), "x").expect("it can be written");
        let own = Uid::effective().as_raw();
        for (test, expected) in [
            (Test::PathExists(path("empty")), true),
            (Test::PathExists(path("none")), false),
            (Test::PathIsDirectory(path(".")), true),
            (Test::PathIsDirectory(path("full")), false),
            (Test::FileNotEmpty(path("full")), true),
            (Test::FileNotEmpty(path("empty")), false),
            (Test::FileNotEmpty(path(".")), false),
            (Test::FileIsExecutable("/bin/sh".into()), true),
            (Test::FileIsExecutable(path("full")), false),
            (Test::Host("*".into()), true),
            (Test::Host("no such host".into()), false),
            (Test::Host(read("/proc/sys/kernel/hostname").trim().to_ascii_uppercase()), true),
            (Test::Host(read("/etc/machine-id").trim().to_ascii_uppercase()), true),
            (Test::User(own.to_string()), true),
            (Test::User((own + 1).to_string()), false),
            (Test::User("@system".into()), own < FIRST_PERSON),
        ] {
            assert_eq!(holds(&test), expected, "{test:?}");
        }
        assert!(has_word("quiet root=/dev/x\n", "quiet") && has_word("a root=/dev/x", "root"));
        assert!(has_word("root=/dev/x", "root=/dev/x") && !has_word("roots=1", "root"));
    }

    #[test]
    fn what_does_not_hold_is_named() {
        let condition = |assert| Condition {
            test: Test::PathExists("/".into()),
            negated: true,
            any: false,
            assert,
        };
        let told = judge(&[condition(false)]);
        assert_eq!(told, Err(("its ConditionPathExists=!/ does not hold".into(), false)));
        let told = judge(&[condition(true)]);
        assert_eq!(told, Err(("its AssertPathExists=!/ does not hold".into(), true)));
        assert_eq!(judge(&[]), Ok(()));
    }
}
