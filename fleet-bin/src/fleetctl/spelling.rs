//! Pure: rewrites command lines in the spelling of fleet v1.
//!
//! fleet v1 used Go's flag package, which accepts long options with one dash (`-endpoint=URL`) and
//! short options with two (`--l`). Scripts for fleet v1 use both.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::names::nearest;

/// Rewrites options to the spelling that clap expects: `-endpoint` to `--endpoint`, and `--l` to
/// `-l`.
///
/// `command` defines the long options. Arguments after `--`, the remote command of `ssh`, and
/// everything that is not such an option stay unchanged.
pub(crate) fn normalize(args: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    let mut known = BTreeSet::from(["help".to_owned(), "version".to_owned()]);
    collect_long_options(command, &mut known);
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let end = end.min(remote_command(&args));
    let rewrite_arg = |(at, arg): (usize, OsString)| match arg.to_str() {
        Some(text) if at < end => rewrite(text, &known).map_or(arg.clone(), OsString::from),
        _ => arg,
    };
    args.into_iter().enumerate().map(rewrite_arg).collect()
}

/// Returns the index of the argument at which the remote command of `ssh` may begin: the first
/// argument after `ssh` that is not an option. It and all later arguments stay unchanged.
fn remote_command(args: &[OsString]) -> usize {
    let ssh = args.iter().position(|arg| arg == "ssh").unwrap_or(args.len());
    let is_word = |arg: &OsString| !arg.to_string_lossy().starts_with('-');
    let first = args.iter().skip(ssh + 1).position(is_word);
    first.map_or(args.len(), |first| ssh + 1 + first)
}

fn collect_long_options(command: &clap::Command, known: &mut BTreeSet<String>) {
    known.extend(command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)));
    for subcommand in command.get_subcommands() {
        collect_long_options(subcommand, known);
    }
}

/// Adds the most similar command name to an error about an unknown command in `fleetctl help
/// COMMAND`. clap itself makes this suggestion only for the command line without `help`.
pub(crate) fn with_suggestion(
    mut error: clap::Error,
    args: &[OsString],
    command: &clap::Command,
) -> clap::Error {
    let has_suggestion = error.get(ContextKind::SuggestedSubcommand).is_some();
    if error.kind() != ErrorKind::InvalidSubcommand || has_suggestion {
        return error;
    }
    let mut words = args.iter().skip_while(|arg| *arg != "help").skip(1);
    let (mut at, mut wrong) = (command, words.next());
    while let Some(next) = wrong.and_then(|word| at.find_subcommand(word)) {
        (at, wrong) = (next, words.next());
    }
    let wrong = wrong.map(|word| word.to_string_lossy());
    let names = at.get_subcommands().filter(|it| !it.is_hide_set()).map(clap::Command::get_name);
    if let Some(near) = wrong.and_then(|word| nearest(&word, names)) {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, near);
    }
    error
}

/// Adds the usage of the command to an error about an invalid value. clap prints the usage for
/// other errors, but not for these.
pub(crate) fn with_usage(
    mut error: clap::Error,
    args: &[OsString],
    mut command: clap::Command,
) -> clap::Error {
    let is_word = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
    if !is_word || error.get(ContextKind::Usage).is_some() {
        return error;
    }
    command.build();
    let mut at = &mut command;
    for word in args.iter().skip(1) {
        let Some(name) = at.find_subcommand(word).map(|it| it.get_name().to_owned()) else {
            continue;
        };
        at = at.find_subcommand_mut(&name).expect("it was found");
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(at.render_usage()));
    error
}

fn rewrite(arg: &str, known: &BTreeSet<String>) -> Option<String> {
    if let Some(letter) = arg.strip_prefix("--").filter(|letter| is_one_letter(letter)) {
        return Some(format!("-{letter}"));
    }
    let option = arg.strip_prefix('-').filter(|option| !option.starts_with('-'))?;
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    known.contains(name).then(|| format!("--{option}"))
}

fn is_one_letter(text: &str) -> bool {
    text.len() == 1 && text.bytes().all(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::fleetctl::args::Cli;

    fn modern_line(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let normalize = normalize(args, &Cli::command());
        normalize.join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn v1_spellings_are_rewritten() {
        for (old, new) in [
            ("-endpoint=http://a:1 list-units", "--endpoint=http://a:1 list-units"),
            ("-endpoint http://a:1 list-units", "--endpoint http://a:1 list-units"),
            ("list-machines -full -no-legend", "list-machines --full --no-legend"),
            ("start -block-attempts=3 a.service", "start --block-attempts=3 a.service"),
            ("list-units --l", "list-units -l"),
            ("journal --f a", "journal -f a"),
            ("ssh -machine=m1 ls --l", "ssh --machine=m1 ls --l"),
            ("-help", "--help"),
            ("-version", "--version"),
        ] {
            assert_eq!(modern_line(old), new);
        }
    }

    #[test]
    fn help_suggests_the_nearest_command() {
        for (line, near) in [
            ("help strat", Some("'start'")),
            ("help machine drian", Some("'drain'")),
            ("help machin", Some("'machine'")),
            ("-o json help list-unts", Some("'list-units'")),
            ("help quite-another", None),
            ("strat", Some("'start'")),
        ] {
            let args = ["fleetctl"].into_iter().chain(line.split(' ')).map(OsString::from);
            let args: Vec<_> = args.collect();
            let error = Cli::command().try_get_matches_from(&args).unwrap_err();
            let text = with_suggestion(error, &args, &Cli::command()).to_string();
            let tip = text.lines().find(|line| line.contains("tip:"));
            assert_eq!(tip.is_some(), near.is_some(), "{line}: {text}");
            assert!(tip.is_none_or(|tip| tip.contains(near.unwrap())), "{line}: {text}");
        }
    }

    #[test]
    fn invalid_value_error_has_help_and_usage() {
        for (line, help, usage) in [
            ("scale web@ x", "from 0 to 10000", "scale [OPTIONS] <TEMPLATE@> <N>"),
            ("-o json machine drain m1 --keep-up=-1", "from 0 to", "machine drain [OPTIONS] <ID>"),
            ("start --wait=up web", "loaded, active, finished", "start [OPTIONS] <UNIT>..."),
            ("-o yaml list-units", "table, json", "list-units [OPTIONS]"),
        ] {
            let args = ["fleetctl"].into_iter().chain(line.split(' ')).map(OsString::from);
            let args: Vec<_> = args.collect();
            let error = Cli::command().try_get_matches_from(&args).unwrap_err();
            let text = with_usage(error, &args, Cli::command()).to_string();
            let usage = format!("Usage: fleetctl {usage}");
            assert!(text.contains(help) && text.contains(&usage), "{line}: {text}");
        }
    }

    #[test]
    fn other_arguments_stay_unchanged() {
        for line in [
            "list-units -l --full",
            "journal -fn 5 a",
            "-o json list-units",
            "submit -- -endpoint --l",
            "ssh web ls -full --l",
            "submit - -unknown --wrong=1 -=",
        ] {
            assert_eq!(modern_line(line), line);
        }
    }
}
