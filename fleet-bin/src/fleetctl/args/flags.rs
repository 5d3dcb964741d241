//! Pure: rewrites boolean options that have a value, such as `--full=true`.
//!
//! fleet v1 used Go's flag package, which accepts such values. clap does not accept them.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, Command};

/// Command line without values of boolean options.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Arguments, without the options that are false.
    pub(crate) args: Vec<OsString>,
    /// Environment variables that an option overrides because it is false.
    pub(crate) overridden: BTreeSet<String>,
}

/// Rewrites `--full=true` to `--full`, and removes `--full=false`.
///
/// The last of several occurrences counts, so an option that is false also removes the earlier
/// ones. Arguments after `--`, the remote command of `ssh`, and words that are no boolean stay
/// unchanged.
pub(crate) fn resolve(args: Vec<OsString>, command: &Command) -> Flags {
    let mut path = vec![command];
    let mut words = args.into_iter();
    let mut flags = Flags { args: words.next().into_iter().collect(), ..Flags::default() };
    while let Some(word) = words.next() {
        let meaning = classify(&word.to_string_lossy(), &path);
        match meaning {
            Word::Flag(_, true) => flags.args.push(without_value(&word)),
            Word::Flag(arg, false) => flags.deny(arg),
            Word::Command(command) => {
                path.push(command);
                flags.args.push(word);
            }
            Word::OptionBeforeValue => {
                flags.args.push(word);
                flags.args.extend(words.next());
            }
            Word::Last => {
                flags.args.push(word);
                break;
            }
            Word::Other => flags.args.push(word),
        }
    }
    flags.args.extend(words);
    flags
}

/// Returns the subcommand with this name, or the only one that it abbreviates.
pub(crate) fn subcommand<'a>(command: &'a Command, word: &str) -> Option<&'a Command> {
    let mut near = command.get_subcommands().filter(|it| it.get_name().starts_with(word));
    let only = near.next().filter(|_| near.next().is_none());
    command.find_subcommand(word).or(only)
}

impl Flags {
    /// Removes the option, and hides its environment variable.
    fn deny(&mut self, option: &Arg) {
        let long = option.get_long().map(|long| format!("--{long}"));
        let short = option.get_short().map(|short| format!("-{short}"));
        let is_same = |arg: &OsString| [&long, &short].into_iter().flatten().any(|it| arg == &**it);
        self.args.retain(|arg| !is_same(arg));
        let name = option.get_long().unwrap_or_default().replace('-', "_").to_uppercase();
        self.overridden.insert(format!("FLEETCTL_{name}"));
    }
}

/// Meaning of a word of the command line.
enum Word<'a> {
    /// Boolean option with a value.
    Flag(&'a Arg, bool),
    /// Name of a subcommand.
    Command(&'a Command),
    /// Option whose value is the next word.
    OptionBeforeValue,
    /// End of the options.
    Last,
    /// Any other word.
    Other,
}

/// Returns the meaning of a word. `path` has the program, and the subcommands before the word.
fn classify<'a>(word: &str, path: &[&'a Command]) -> Word<'a> {
    if word == "--" {
        return Word::Last;
    }
    if let Some(option) = word.strip_prefix("--") {
        let (name, value) = with_value(option);
        return option_word(find(path, |arg| arg.get_long() == Some(name)), value);
    }
    if let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) {
        return short_options(letters, path);
    }
    let Some(command) = path.last() else { return Word::Other };
    if command.get_positionals().any(Arg::is_trailing_var_arg_set) {
        return Word::Last;
    }
    subcommand(command, word).map_or(Word::Other, Word::Command)
}

/// Returns the meaning of letters after one dash: several boolean options, or one with a value.
fn short_options<'a>(letters: &str, path: &[&'a Command]) -> Word<'a> {
    let option = |letter: char| find(path, |arg| arg.get_short() == Some(letter));
    let mut rest = letters.chars();
    while let Some(letter) = rest.next() {
        let (found, tail) = (option(letter), rest.as_str());
        let is_flag = found.is_some_and(is_boolean);
        if !is_flag || tail.is_empty() || tail.starts_with('=') {
            let value = (!tail.is_empty()).then(|| tail.strip_prefix('=').unwrap_or(tail));
            // A value after several letters would concern the last one alone.
            let is_single = letters.starts_with(letter);
            return if is_single || !is_flag { option_word(found, value) } else { Word::Other };
        }
    }
    Word::Other
}

fn option_word<'a>(option: Option<&'a Arg>, value: Option<&str>) -> Word<'a> {
    match (option, value) {
        (Some(option), Some(value)) if is_boolean(option) => {
            parse(value).map_or(Word::Other, |value| Word::Flag(option, value))
        }
        (Some(option), None) if takes_next_word(option) => Word::OptionBeforeValue,
        _ => Word::Other,
    }
}

/// Returns the option of the nearest command on the path that has it.
fn find<'a>(path: &[&'a Command], is_meant: impl Fn(&Arg) -> bool) -> Option<&'a Arg> {
    path.iter().rev().find_map(|command| command.get_arguments().find(|arg| is_meant(arg)))
}

fn is_boolean(option: &Arg) -> bool {
    matches!(option.get_action(), ArgAction::SetTrue | ArgAction::Version)
}

fn takes_next_word(option: &Arg) -> bool {
    let takes_value = matches!(option.get_action(), ArgAction::Set | ArgAction::Append);
    takes_value && !option.is_require_equals_set()
}

/// Splits an option at its equals sign.
fn with_value(option: &str) -> (&str, Option<&str>) {
    option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)))
}

fn without_value(word: &OsStr) -> OsString {
    let word = word.to_string_lossy();
    with_value(&word).0.into()
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
fn parse(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleetctl::help;

    fn resolved(line: &str) -> (String, BTreeSet<String>) {
        let args = format!("fleetctl {line}").split(' ').map(OsString::from).collect();
        let Flags { args, overridden } = resolve(args, &help::command());
        let line = args[1..].join(" ".as_ref()).into_string().unwrap();
        (line, overridden)
    }

    #[test]
    fn boolean_options_lose_their_value() {
        for (old, new) in [
            ("list-units --full=true --no-legend=1", "list-units --full --no-legend"),
            ("--debug=TRUE list-m --full=T", "--debug list-m --full"),
            ("list-units --full --watch -l -l=t --full=false", "list-units --watch"),
            ("start --no-block=False --replace=True web", "start --replace web"),
            ("start --replace=0 --replace=t web", "start --replace web"),
            ("journal --follow=F -f=1 web", "journal -f web"),
            ("machine drain --wait=true m1", "machine drain --wait m1"),
            ("--version=true", "--version"),
            ("--endpoint start list-units --full=f", "--endpoint start list-units"),
            ("ssh -A=true web ls --full=true", "ssh -A web ls --full=true"),
            ("journal -fn 5 --raw=t web", "journal -fn 5 --raw web"),
        ] {
            assert_eq!(resolved(old).0, new, "{old}");
        }
    }

    #[test]
    fn words_without_boolean_option_stay_unchanged() {
        for line in [
            "start --wait=true web",
            "start --replace=yes web",
            "start --wrong=true web",
            "submit -- --replace=true",
            "logs --since true --raw web",
            "journal -n=1 web",
            "journal -fl=true web",
            "stop --block-attempts -1 web",
            "--strict-host-key-checking=false list-units",
            "submit - -=true",
        ] {
            assert_eq!(resolved(line), (line.to_owned(), BTreeSet::new()));
        }
    }

    #[test]
    fn false_option_overrides_its_variable() {
        let (line, overridden) = resolved("--insecure-skip-tls-verify=false --debug=f version");
        assert_eq!(line, "version");
        let expected = ["FLEETCTL_DEBUG", "FLEETCTL_INSECURE_SKIP_TLS_VERIFY"];
        assert!(overridden.iter().eq(expected.iter()), "{overridden:?}");
    }
}
