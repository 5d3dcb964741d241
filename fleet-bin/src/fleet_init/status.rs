//! `status`: prints the units of a running fleet-init.

use std::io::{self, Write as _};

use super::args::StatusArgs;
use super::asking::{Asking, NoAnswer, ask, read};
use super::asks::{Ask, Head, Unit};
use super::{fleet, tree};
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::output::Output;

/// Runs the command.
pub(super) fn run(args: &StatusArgs) -> Result<(), CliError> {
    ask(&args.socket, async |init| match of_files(init).await {
        Err(NoAnswer::RunsForFleet) => fleet::status(init, args.output).await,
        Err(NoAnswer::Because(error)) => Err(error),
        Ok((head, units)) if head.fleet => {
            tell(&head);
            fleet::tree(init, args.output, &head, units).await
        }
        Ok((head, units)) => {
            tell(&head);
            let mut output = Output::on_stdout(args.output);
            let tree = match args.output {
                Format::Table => tree::tree(&head, &units, output.colour()),
                _ => String::new(),
            };
            output.list(&units, &tree)
        }
    })
}

async fn of_files(init: &Asking) -> Result<(Head, Vec<Unit>), NoAnswer> {
    let mut answer = init.begin(Ask::Status)?;
    let (mut head, mut units) = (None, Vec::new());
    while let Some(item) = init.next(&mut answer).await? {
        match head {
            None => head = Some(read(item).map_err(NoAnswer::Because)?),
            Some(_) => units.extend(read::<Vec<Unit>>(item).map_err(NoAnswer::Because)?),
        }
    }
    Ok((head.unwrap_or_default(), units))
}

/// Reports on standard error what does not concern a single unit.
fn tell(head: &Head) {
    let mut to = io::stderr();
    let tracking = match &head.weak {
        None => "processes are found by their control groups".to_owned(),
        Some(why) => {
            format!("processes that leave their group, parent and environment are not found: {why}")
        }
    };
    let _unread = writeln!(to, "{tracking}").is_err();
    if head.goal.is_none() && !head.fleet {
        let _unread = writeln!(to, "there is no goal, so nothing is needed").is_err();
    }
}
