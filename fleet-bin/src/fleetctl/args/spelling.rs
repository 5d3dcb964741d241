//! Pure: rewrites command lines in the spelling of fleet v1.
//!
//! fleet v1 used Go's flag package, which accepts long options with one dash (`-endpoint=URL`) and
//! short options with two (`--l`). Scripts for fleet v1 use both.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use fleet_unitfile::spelling::edit_distance;

use super::flags::subcommand;
use crate::ui::names::nearest;

/// Commands that change units: their files, their desired states, or their machines.
const CHANGING: [&str; 13] = [
    "apply",
    "destroy",
    "drain",
    "import",
    "load",
    "rebalance",
    "restart",
    "run",
    "scale",
    "start",
    "stop",
    "submit",
    "unload",
];

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

/// Replaces the suggestions of clap, whose measure of similarity suggests `stop` for `top`.
///
/// For an unknown command, suggests the commands that it abbreviates, or else the nearest one. For
/// an unknown option, keeps a suggestion that is near.
pub(crate) fn with_suggestion(
    mut error: clap::Error,
    args: &[OsString],
    command: clap::Command,
) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand {
        let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else {
            return error;
        };
        let names = similar_commands(command_before(wrong, args, &command), wrong);
        error.remove(ContextKind::SuggestedSubcommand);
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
        return error;
    }
    let suggested = (error.get(ContextKind::InvalidArg), error.get(ContextKind::SuggestedArg));
    if let (Some(ContextValue::String(wrong)), Some(ContextValue::String(near))) = suggested
        && nearest(wrong.trim_start_matches('-'), [near.trim_start_matches('-')]).is_none()
    {
        error.remove(ContextKind::SuggestedArg);
        // The usage of clap contains the suggested option.
        error.remove(ContextKind::Usage);
        return insert_usage(error, args, command);
    }
    error
}

/// Returns the last command that the arguments name before the wrong word.
fn command_before<'a>(
    wrong: &str,
    args: &[OsString],
    command: &'a clap::Command,
) -> &'a clap::Command {
    let words = args.iter().skip(1).map(|arg| arg.to_string_lossy());
    words
        .take_while(|word| word != wrong)
        .fold(command, |at, word| subcommand(at, &word).unwrap_or(at))
}

/// Returns the commands that a wrong name abbreviates, or else the nearest command.
///
/// A command that changes units is suggested for one typing error only: `show` must not suggest
/// `stop`.
fn similar_commands(command: &clap::Command, wrong: &str) -> Vec<String> {
    let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
    let names: Vec<&str> = visible.map(clap::Command::get_name).collect();
    let longer: Vec<&str> = names.iter().filter(|it| it.starts_with(wrong)).copied().collect();
    let is_typo =
        |name: &str| name.chars().next() == wrong.chars().next() && edit_distance(name, wrong) == 1;
    let harmless = names.into_iter().filter(|name| !CHANGING.contains(name) || is_typo(name));
    let near = || nearest(wrong, harmless).into_iter().collect();
    let found = if longer.is_empty() { near() } else { longer };
    found.into_iter().map(str::to_owned).collect()
}

/// Adds the usage of the command to an error about an invalid value. clap prints the usage for
/// other errors, but not for these.
pub(crate) fn with_usage(
    error: clap::Error,
    args: &[OsString],
    command: clap::Command,
) -> clap::Error {
    let is_word = matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue);
    if !is_word || error.get(ContextKind::Usage).is_some() {
        return error;
    }
    insert_usage(error, args, command)
}

fn insert_usage(
    mut error: clap::Error,
    args: &[OsString],
    mut command: clap::Command,
) -> clap::Error {
    command.build();
    let mut at = &mut command;
    for word in args.iter().skip(1) {
        let found = subcommand(at, &word.to_string_lossy());
        let Some(name) = found.map(|it| it.get_name().to_owned()) else { continue };
        at = at.find_subcommand_mut(&name).expect("it was found");
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(at.render_usage()));
    error
}

fn rewrite(arg: &str, known: &BTreeSet<String>) -> Option<String> {
    if let Some(option) = arg.strip_prefix("--").filter(|it| is_one_letter(option_name(it))) {
        return Some(format!("-{option}"));
    }
    let option = arg.strip_prefix('-').filter(|option| !option.starts_with('-'))?;
    let name = option_name(option);
    known.contains(name).then(|| format!("--{option}"))
}

/// Returns the option without its value.
fn option_name(option: &str) -> &str {
    option.split_once('=').map_or(option, |(name, _)| name)
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
            ("journal --f=false -follow=t a", "journal -f=false --follow=t a"),
            ("ssh -machine=m1 ls --l", "ssh --machine=m1 ls --l"),
            ("-help", "--help"),
            ("-version", "--version"),
        ] {
            assert_eq!(modern_line(old), new);
        }
    }

    #[test]
    fn unknown_command_suggests_the_nearest_one() {
        for (line, near) in [
            ("help strat", "'start'"),
            ("help machine drian", "'drain'"),
            ("help machin", "'machine'"),
            ("mach drian m1", "'drain'"),
            ("-o json help list-unts", "'list-units'"),
            ("help quite-another", ""),
            ("strat", "'start'"),
            ("destory", "'destroy'"),
            ("list", "'list-units', 'list-unit-files', 'list-machines'"),
            ("halt", ""),
            ("undo", ""),
            ("show", ""),
            ("enable", ""),
            ("reload", ""),
            ("aplly", "'apply'"),
            ("appyl", "'apply'"),
            ("imprt", "'import'"),
            ("export-all", ""),
            ("sbmitt", ""),
            ("statsu", "'status'"),
        ] {
            let text = suggested(line);
            let tip = text.lines().find(|line| line.contains("tip:")).unwrap_or_default();
            assert_eq!(tip.rsplit(": ").next(), Some(near), "{line}: {text}");
        }
    }

    #[test]
    fn unknown_option_suggests_only_similar_ones() {
        assert!(suggested("start --no-blok web").contains("'--no-block'"));
        let text = suggested("apply --prune web");
        assert!(!text.contains("tip:") && !text.contains("--tunnel"), "{text}");
        assert!(text.contains("Usage: fleetctl apply [OPTIONS] <FILE|DIR>..."), "{text}");
    }

    fn suggested(line: &str) -> String {
        let args = ["fleetctl"].into_iter().chain(line.split(' ')).map(OsString::from);
        let args: Vec<_> = args.collect();
        let error = Cli::command().try_get_matches_from(&args).unwrap_err();
        with_suggestion(error, &args, Cli::command()).to_string()
    }

    #[test]
    fn invalid_value_error_has_help_and_usage() {
        for (line, help, usage) in [
            ("scale web@ x", "from 0 to 10000", "scale [OPTIONS] <TEMPLATE@> <N>"),
            (
                "-o json machine drain m1 --keep-up=-1",
                "from 0 to",
                "machine drain [OPTIONS] <MACHINE>",
            ),
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
