//! Pure: the definition of the command line, with the layout of its help.
//!
//! The help of the program lists the commands in groups, and the global options. The help of a
//! command has neither, but a line that refers to the help of the program.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use super::args::Cli;

/// Widest line of any help, in columns.
const MAX_COLUMNS: usize = 80;

/// Headings of the command list, each with its commands.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Units",
        &[
            "submit",
            "load",
            "start",
            "restart",
            "stop",
            "unload",
            "destroy",
            "apply",
            "scale",
            "diff",
            "plan",
            "verify",
            "revisions",
            "rollback",
            "rollout",
        ],
    ),
    ("Jobs", &["run", "job", "schedule"]),
    ("Machines", &["list-machines", "machine", "rebalance", "ssh"]),
    (
        "Inspection",
        &[
            "top",
            "list-units",
            "list-unit-files",
            "history",
            "status",
            "cat",
            "logs",
            "journal",
            "events",
            "explain",
            "doctor",
            "ui",
        ],
    ),
    ("Moving data", &["export", "import"]),
    ("Other", &["completions", "man", "version", "help"]),
];

/// Last line of a command's help.
const REFERENCE: &str = "Global options: see `fleetctl --help`.";

/// Description of `help`, which clap adds only while it parses.
const ABOUT_HELP: &str = "Print this help, or that of a command";

/// Returns the definition of the command line, for parsing and for printing help.
///
/// clap adds visible copies of the global options to each command that does not have them. So this
/// function first adds hidden copies, to keep the global options out of the help of commands.
pub(crate) fn command() -> Command {
    let command = Cli::command().max_term_width(MAX_COLUMNS);
    let is_global = |arg: &&Arg| arg.is_global_set();
    let hidden: Vec<Arg> =
        command.get_arguments().filter(is_global).map(|arg| arg.clone().hide(true)).collect();
    let template = program_template(&command);
    command.mut_subcommands(|it| with_reference(it.args(&hidden))).help_template(template)
}

/// Adds the line [`REFERENCE`] to the end of a command's help, and to that of each subcommand.
fn with_reference(command: Command) -> Command {
    let text = match command.get_after_help() {
        Some(text) => format!("{text}\n\n{REFERENCE}"),
        None => REFERENCE.to_owned(),
    };
    command.mut_subcommands(with_reference).after_help(text)
}

/// Returns the template of the program's help.
fn program_template(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        let _infallible = writeln!(text, "\n{header}{heading}:{header:#}");
        for name in names {
            write_command(&mut text, command, name);
        }
    }
    let _infallible =
        write!(text, "\n{header}Global options:{header:#}\n{{options}}{{after-help}}");
    text
}

/// Writes one line of the command list.
fn write_command(text: &mut String, command: &Command, name: &str) {
    let literal = command.get_styles().get_literal();
    let about = command.find_subcommand(name).and_then(Command::get_about);
    let about = about.map_or_else(|| ABOUT_HELP.to_owned(), ToString::to_string);
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|it| it.len()).max().unwrap_or(0);
    let padding = " ".repeat(width - name.len());
    let _infallible = writeln!(text, "  {literal}{name}{literal:#}{padding}  {about}");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the long and the short help of a command, and of all its subcommands.
    fn helps(command: &Command) -> Vec<String> {
        let mut own = command.clone();
        let (long, short) = (own.render_long_help(), own.render_help());
        // `help` repeats the other commands.
        let is_shown = |it: &&Command| !it.is_hide_set() && it.get_name() != "help";
        let below = command.get_subcommands().filter(is_shown).flat_map(helps);
        [long.to_string(), short.to_string()].into_iter().chain(below).collect()
    }

    #[test]
    fn command_list_has_every_command_once() {
        let mut command = command();
        command.build();
        let visible = command.get_subcommands().filter(|it| !it.is_hide_set());
        let visible: BTreeSet<&str> = visible.map(Command::get_name).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), visible);
        assert_eq!(listed.len(), visible.len(), "a command is listed twice");
    }

    #[test]
    fn help_fits_80_columns() {
        let mut command = command();
        command.build();
        for help in helps(&command) {
            let wide = help.lines().find(|line| line.chars().count() > MAX_COLUMNS);
            assert_eq!(wide, None, "a line is too wide in:\n{help}");
        }
    }

    #[test]
    fn global_options_are_listed_by_the_program_alone() {
        let mut command = command();
        command.build();
        let helps = helps(&command);
        for option in ["--endpoint", "--output", "--debug", "--token-file"] {
            let count = helps.iter().filter(|help| help.contains(option)).count();
            assert_eq!(count, 2, "{option}: the long and the short help of the program");
        }
        let refers = helps.iter().filter(|it| it.trim_end().ends_with(REFERENCE)).count();
        assert_eq!(refers, helps.len() - 2);
    }
}
