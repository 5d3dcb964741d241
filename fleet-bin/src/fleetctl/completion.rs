//! Completion of command lines, with names from the running cluster.
//!
//! The scripts for bash, zsh and fish call the hidden command `complete-words` after each Tab. It
//! has a short time limit, and prints nothing on errors.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, FromArgMatches as _};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _, complete,
};
use fleet_http::wire;

use super::args::subcommands::CompleteWordsArgs;
use super::commands::column_names;
use super::format::given_name;
use super::help;
use super::session::Session;
use super::session::settings::{Environment, Settings};
use super::unit_filter::STATES;
use crate::ui::error::CliError;
use crate::ui::global_args::GlobalArgs;
use crate::ui::table::clean;

/// Time limit for the names of the cluster.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Script for bash. It passes the line as typed, because bash splits words at `@` and `=`, too.
const BASH: &str = r#"_fleetctl() {
    local IFS=$'\n'
    COMPREPLY=($(fleetctl complete-words --line "${COMP_LINE:0:COMP_POINT}" --current "$2" \
        2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/,] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -o bashdefault -F _fleetctl fleetctl
"#;

const ZSH: &str = r#"#compdef fleetctl
_fleetctl() {
    local line
    local -a values texts
    for line in "${(@f)$(fleetctl complete-words -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        values+=("${line%%$'\t'*}")
        texts+=("${line//$'\t'/  }")
    done
    if (( $#values == 1 )) && [[ $values[1] == *[/,] ]]; then
        compadd -S '' -a values
    else
        compadd -l -d texts -a values
    fi
}
if [[ $funcstack[1] == _fleetctl ]]; then
    _fleetctl "$@"
else
    compdef _fleetctl fleetctl
fi
"#;

const FISH: &str = r"complete -c fleetctl -f -a '(fleetctl complete-words -- \
    (commandline -opc) (commandline -ct) 2>/dev/null)'
";

/// Returns the script of a shell, if the program completes words for it.
pub(super) fn script(shell: Shell) -> Option<&'static str> {
    match shell {
        Shell::Bash => Some(BASH),
        Shell::Zsh => Some(ZSH),
        Shell::Fish => Some(FISH),
        _ => None,
    }
}

/// Runs `complete-words`: returns the candidates for the last word, one a line. A tab separates a
/// candidate from its description.
pub(super) fn candidates(args: &CompleteWordsArgs, environment: Environment<'_>) -> String {
    let (words, has_help) = match &args.line {
        Some(line) => (split(line), false),
        None => (args.words.clone(), true),
    };
    let Some(last) = words.last().cloned() else { return String::new() };
    let mut command = with_completers(help::command(), &Source::new(&words, environment));
    let folder = std::env::current_dir().ok();
    let at = words.len() - 1;
    let words = words.into_iter().map(OsString::from).collect();
    let found = complete(&mut command, words, at, folder.as_deref()).unwrap_or_default();
    // The part of the word that bash does not replace.
    let current = args.current.as_deref().unwrap_or(&last);
    let before = last.strip_suffix(current).unwrap_or_default();
    let mut text = String::new();
    for candidate in found.iter().filter(|candidate| !candidate.is_hide_set()) {
        let Some(value) = candidate.get_value().to_str() else { continue };
        let help = candidate.get_help().filter(|_| has_help).map(ToString::to_string);
        text.push_str(&clean(value.strip_prefix(before).unwrap_or(value)));
        if let Some(help) = help.as_deref().and_then(|help| help.lines().next()) {
            text.push('\t');
            text.push_str(&clean(help));
        }
        text.push('\n');
    }
    text
}

/// Splits a line into words as a shell does: at blanks that are neither quoted nor escaped. The
/// last word is the one to complete, and may be empty.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    let mut characters = line.trim_start().chars();
    while let Some(character) = characters.next() {
        let is_new = words.last().is_none_or(String::is_empty);
        let mut push = |character| words.last_mut().into_iter().for_each(|it| it.push(character));
        match (character, quote) {
            (_, Some(open)) if character == open => quote = None,
            ('\\', None | Some('"')) => characters.next().into_iter().for_each(push),
            (_, Some(_)) => push(character),
            ('\'' | '"', None) => quote = Some(character),
            (_, None) if !character.is_whitespace() => push(character),
            (_, None) if !is_new => words.push(String::new()),
            (_, None) => {}
        }
    }
    words
}

/// Source of the names of the cluster.
#[derive(Clone)]
struct Source(Option<Arc<Settings>>);

impl Source {
    /// Creates a source from the options in the words, and the environment. Through a tunnel, there
    /// are no names, because ssh could ask for a password.
    fn new(words: &[String], environment: Environment<'_>) -> Self {
        let matches = help::command().ignore_errors(true).try_get_matches_from(words);
        let settings = matches.ok().and_then(|matches| settings(&matches, environment));
        Self(settings.filter(|settings| settings.ssh.tunnel().is_none()).map(Arc::new))
    }

    /// Requests names with a short time limit. Returns none on errors.
    fn ask<T>(&self, request: impl AsyncFn(Session) -> Result<Vec<T>, CliError>) -> Vec<T> {
        let Some(settings) = &self.0 else { return Vec::new() };
        let builder = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = builder else { return Vec::new() };
        let found = runtime.block_on(async {
            let session = Session::new(&settings.endpoint, &settings.credentials).ok()?;
            tokio::time::timeout(TIMEOUT, request(session)).await.ok()?.ok()
        });
        runtime.shutdown_background();
        found.unwrap_or_default()
    }

    fn units(&self) -> Vec<wire::UnitEntity> {
        self.ask(async |session| session.units().await)
    }

    fn machines(&self) -> Vec<wire::MachineEntity> {
        self.ask(async |session| session.machines().await)
    }
}

fn settings(matches: &ArgMatches, environment: Environment<'_>) -> Option<Settings> {
    let args = GlobalArgs::from_arg_matches(matches).ok()?;
    Settings::new(&args, environment).ok()
}

/// Adds completers to the arguments, by the names of their values.
fn with_completers(command: Command, source: &Source) -> Command {
    let name = command.get_name().to_owned();
    command
        .mut_args(|arg| with_completer(arg, &name, source))
        .mut_subcommands(|command| with_completers(command, source))
}

fn with_completer(arg: Arg, command: &str, source: &Source) -> Arg {
    let value = arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string);
    let source = source.clone();
    match value.as_deref().unwrap_or_default() {
        "UNIT" if reads_files(command) => arg.add(ArgValueCompleter::new(move |word: &OsStr| {
            [units(&source, word, |_| true), PathCompleter::any().complete(word)]
                .into_iter()
                .flatten()
                .collect()
        })),
        "UNIT" => {
            arg.add(ArgValueCompleter::new(move |word: &OsStr| units(&source, word, |_| true)))
        }
        "TEMPLATE@" => arg.add(ArgValueCompleter::new(move |word: &OsStr| {
            units(&source, word, |unit| unit.name.contains("@."))
        })),
        "MACHINE" => arg.add(ArgValueCompleter::new(move |word: &OsStr| machines(&source, word))),
        "MACHINE|UNIT|COMMAND" => arg.add(ArgValueCompleter::new(move |word: &OsStr| {
            [machines(&source, word), units(&source, word, |_| true)]
                .into_iter()
                .flatten()
                .collect()
        })),
        "FIELDS" => {
            let names = column_names(command);
            arg.add(ArgValueCompleter::new(move |word: &OsStr| list(names.iter().copied(), word)))
        }
        "STATE,…" => {
            arg.add(ArgValueCompleter::new(|word: &OsStr| list(STATES.into_iter(), word)))
        }
        "FILE" | "FILE|DIR" | "DIR" | "SOCKET" => {
            arg.add(ArgValueCompleter::new(PathCompleter::any()))
        }
        _ => arg,
    }
}

/// Whether the unit arguments of a command may be paths of files.
fn reads_files(command: &str) -> bool {
    matches!(command, "submit" | "load" | "start" | "run")
}

fn units(
    source: &Source,
    word: &OsStr,
    is_wanted: impl Fn(&wire::UnitEntity) -> bool,
) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else { return Vec::new() };
    let units = source.units().into_iter();
    let fitting = units.filter(|unit| unit.name.starts_with(word) && is_wanted(unit));
    fitting.map(|unit| candidate(unit.name, &unit.desired_state)).collect()
}

/// Returns the names of machines. A machine without a name, and one whose ID was begun, is offered
/// by its ID.
fn machines(source: &Source, word: &OsStr) -> Vec<CompletionCandidate> {
    let Some(word) = word.to_str() else { return Vec::new() };
    let mut found = Vec::new();
    for machine in source.machines() {
        let name = given_name(&machine).filter(|name| name.starts_with(word));
        if let Some(name) = name {
            found.push(candidate(name.to_owned(), &machine.primary_ip));
        }
        let has_name = given_name(&machine).is_some();
        if machine.id.starts_with(word) && !(has_name && word.is_empty()) {
            found.push(candidate(machine.id, &machine.primary_ip));
        }
    }
    found
}

/// Returns the words that may follow in a list with commas. Words that the list has are left out.
fn list<'a>(words: impl Iterator<Item = &'a str>, typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let (before, last) = typed
        .rsplit_once(',')
        .map_or(("", typed), |(_, last)| (&typed[..typed.len() - last.len()], last));
    let is_new = |word: &&str| !before.split(',').any(|it| it == *word);
    let fitting = words.filter(|word| word.starts_with(last)).filter(is_new);
    fitting.map(|word| CompletionCandidate::new(format!("{before}{word}"))).collect()
}

fn candidate(value: String, help: &str) -> CompletionCandidate {
    let help = (!help.is_empty()).then(|| help.to_owned().into());
    CompletionCandidate::new(value).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_split_like_a_shell_does() {
        for (line, expected) in [
            ("fleetctl ", &["fleetctl", ""] as &[_]),
            ("fleetctl start  web@", &["fleetctl", "start", "web@"]),
            ("fleetctl start 'web@", &["fleetctl", "start", "web@"]),
            ("fleetctl start \"a b\" c\\ d", &["fleetctl", "start", "a b", "c d"]),
            ("  x --a=b", &["x", "--a=b"]),
            ("", &[""]),
        ] {
            assert_eq!(split(line), expected, "{line}");
        }
    }

    #[test]
    fn words_are_completed_without_a_cluster() {
        let complete = |line: &str, current: Option<&str>| {
            let args = CompleteWordsArgs {
                line: Some(line.to_owned()),
                current: current.map(str::to_owned),
                words: Vec::new(),
            };
            let socket =
                |name: &str| (name == "FLEETCTL_ENDPOINT").then(|| "unix:///none/f.sock".into());
            candidates(&args, &socket).lines().collect::<Vec<_>>().join(" ")
        };
        for (line, current, expected) in [
            ("fleetctl list-u", None, "list-units list-unit-files"),
            ("fleetctl -o js", None, "json jsonl"),
            ("fleetctl start --wait ", None, "loaded active finished"),
            ("fleetctl list-units --no", None, "--no-legend"),
            ("fleetctl list-machines --fields ip,meta", None, "ip,metadata"),
            ("fleetctl list-units --fields unit,load,u", None, ""),
            ("fleetctl list-units --state unh", None, "unhealthy"),
            // bash replaces only what follows the equals sign.
            ("fleetctl list-units --state=unh", Some("unh"), "unhealthy"),
            ("fleetctl status w", None, ""),
            ("fleetctl comp", None, "completions"),
        ] {
            assert_eq!(complete(line, current), expected, "{line}");
        }
    }
}
