//! `completions`, `man`, `reference` and `version`: what the program knows about itself.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use clap_complete::Shell;
use serde::Serialize;

use crate::fleetctl::args::Cli;
use crate::fleetctl::{Context, completion, help};
use crate::ui::error::{CliError, Exit};
use crate::ui::output::Record;

/// Runs `completions`.
pub(super) fn completions(context: &mut Context, shell: Shell) -> Result<(), CliError> {
    if let Some(script) = completion::script(shell) {
        return context.output.raw(script.as_bytes());
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fleetctl", &mut script);
    context.output.raw(&script)
}

/// Runs `man`: a page for the program and one for each command.
pub(super) fn man(context: &mut Context, folder: &Path) -> Result<(), CliError> {
    let cannot = |error| {
        CliError::failed(format!("cannot write manual pages to {}", folder.display()))
            .because(error)
            .help("give an existing folder, such as /usr/local/share/man/man1")
    };
    clap_mangen::generate_to(help::command(), folder).map_err(cannot)?;
    context.progress.note(&format!("see \"man {}/fleetctl.1\"", folder.display()));
    Ok(())
}

/// Runs `reference`.
pub(super) fn print_reference(context: &mut Context) -> Result<(), CliError> {
    context.output.raw(reference(help::command()).as_bytes())
}

/// Widest line of text, in columns.
const MAX_COLUMNS: usize = 100;

/// Returns the section: exit codes, global options, then each command.
pub(crate) fn reference(mut command: Command) -> String {
    command.build();
    let mut text = "## Reference\n\n### Exit codes\n\n| code | meaning |\n|---|---|\n".to_owned();
    for (exit, meaning) in Exit::MEANINGS {
        line(&mut text, &format!("| {} | {meaning} |", exit.code()));
    }
    line(&mut text, "| any | `ssh`: that of the remote command; 255 if ssh fails |");
    line(&mut text, "\n### Global options\n");
    arguments(&mut text, command.get_arguments());
    for command in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        command_section(&mut text, command);
    }
    text
}

fn command_section(text: &mut String, command: &Command) {
    if command.get_name() == "help" {
        return;
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let about = command.get_long_about().or(command.get_about());
    let about = wrapped(&about.map(ToString::to_string).unwrap_or_default());
    let name = command.get_display_name().unwrap_or_default().replace('-', " ");
    let name = command.get_bin_name().map_or(name, str::to_owned);
    line(text, &format!("\n### `{name}`\n\n{about}\n\n```text\n{usage}\n```"));
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_global_set()).collect();
    if own.iter().any(|arg| is_shown(arg)) {
        text.push('\n');
        arguments(text, own.into_iter());
    }
    command.get_subcommands().for_each(|command| command_section(text, command));
}

/// Wraps the lines of a text.
fn wrapped(text: &str) -> String {
    let mut wrapped = String::new();
    for (number, line) in text.lines().enumerate() {
        wrapped.push_str(if number > 0 { "\n" } else { "" });
        let mut width = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            match width {
                0 => {}
                _ if width + 1 + length > MAX_COLUMNS => {
                    wrapped.push('\n');
                    width = 0;
                }
                _ => {
                    wrapped.push(' ');
                    width += 1;
                }
            }
            wrapped.push_str(word);
            width += length;
        }
    }
    wrapped
}

/// Returns whether the argument has a row in the tables. Hidden arguments and `--help` have none.
fn is_shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && arg.get_id() != "help"
}

fn arguments<'a>(text: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    line(text, "| argument | meaning |\n|---|---|");
    for arg in arguments.filter(|arg| is_shown(arg)) {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let mut help = help.replace('|', "\\|").replace('\n', " ");
        let defaults = arg.get_default_values();
        if let [default] = defaults
            && takes_value(arg)
        {
            let _infallible = write!(help, " [default: {}]", default.to_string_lossy());
        }
        let values: Vec<String> =
            arg.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
        if takes_value(arg) && !values.is_empty() && !arg.is_hide_possible_values_set() {
            let _infallible = write!(help, " [one of: {}]", values.join(", "));
        }
        line(text, &format!("| `{}` | {help} |", spelling(arg).replace('|', "\\|")));
    }
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn spelling(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let value = arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
    match (names.is_empty(), takes_value(arg)) {
        (true, _) => value,
        (false, true) => format!("{} {value}", names.join(", ")),
        (false, false) => names.join(", "),
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// A program and its version.
#[derive(Debug, Serialize)]
struct Version {
    program: &'static str,
    version: String,
}

impl Record for Version {
    fn name(&self) -> &str {
        &self.version
    }
}

/// Runs the command.
pub(super) async fn version(context: &mut Context, server: bool) -> Result<(), CliError> {
    let own = env!("CARGO_PKG_VERSION").to_owned();
    let mut versions = vec![Version { program: "fleetctl", version: own }];
    if server {
        let version = context.session.daemon().await?.version;
        versions.push(Version { program: "fleetd", version });
    }
    let line = |it: &Version| format!("{} version {}\n", it.program, it.version);
    let text: String = versions.iter().map(line).collect();
    context.output.list(&versions, &text)
}
