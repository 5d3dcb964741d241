//! Command lines of a service.

use fleet_unitfile::{CommandError, CommandLine, Privileges};

use super::value::{ValueContext, unreadable};
use crate::graph::Command;

/// Adds the commands of one `Exec…=` line; an empty value resets the list.
pub(super) fn add(
    list: &mut Vec<Command>,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    if value.is_empty() {
        list.clear();
    }
    let lines = CommandLine::parse(value).map_err(read)?;
    let commands = lines.iter().map(|line| command(line, unit)).collect::<Result<Vec<_>, _>>()?;
    list.extend(commands);
    Ok(())
}

fn command(line: &CommandLine, unit: &ValueContext<'_>) -> Result<Command, String> {
    let line = unit.expand_command(line).map_err(read)?;
    let program = line.path().to_owned();
    if program.starts_with('$') {
        return Err(format!(
            "has a variable as its program: write the path itself, or \"/bin/sh -c 'exec \
             {program}'\""
        ));
    }
    let mut words = line.argv().map(str::to_owned);
    let name = words.next().filter(|name| *name != program);
    Ok(Command {
        name,
        arguments: words.collect(),
        ignore_failure: line.ignores_failure(),
        verbatim: !line.expands_variables(),
        privileged: line.privileges() != Privileges::Unit,
        program,
    })
}

fn read(error: CommandError) -> String {
    match error {
        CommandError::Specifier { source, .. } => unreadable(source),
        other => unreadable(other),
    }
}
