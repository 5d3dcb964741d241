//! `status`: prints the units of a running fleet-init.

use std::io;
use std::io::Write as _;

use super::args::StatusArgs;
use super::client::{InitClient, NoResponse, read, request};
use super::protocol::{Request, StatusHeader, Unit};
use super::{fleet, tree};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::Output;

/// Runs the command.
pub(super) fn run(args: &StatusArgs) -> Result<(), CliError> {
    request(&args.socket, async |init| match of_files(init).await {
        Err(NoResponse::RunsForFleet) => fleet::status(init, args.output).await,
        Err(NoResponse::Because(error)) => Err(error),
        Ok((head, units)) if head.fleet => {
            print_header(&head);
            fleet::tree(init, args.output, &head, units).await
        }
        Ok((head, units)) => {
            print_header(&head);
            let mut output = Output::on_stdout(args.output);
            let tree = match args.output {
                Format::Table => tree::tree(&head, &units, output.colour()),
                _ => String::new(),
            };
            output.list(&units, &tree)
        }
    })
}

/// Requests the status of all units.
pub(super) async fn of_files(init: &InitClient) -> Result<(StatusHeader, Vec<Unit>), NoResponse> {
    let mut answer = init.begin(Request::Status)?;
    let (mut head, mut units) = (None, Vec::new());
    while let Some(item) = init.next(&mut answer).await? {
        match head {
            None => head = Some(read(item).map_err(NoResponse::Because)?),
            Some(_) => units.extend(read::<Vec<Unit>>(item).map_err(NoResponse::Because)?),
        }
    }
    Ok((head.unwrap_or_default(), units))
}

/// Prints on standard error how processes are tracked, and the goal.
fn print_header(head: &StatusHeader) {
    let mut to = io::stderr();
    let tracking = match &head.tracking_fallback {
        None => "processes are tracked by control groups".to_owned(),
        Some(why) => {
            format!(
                "processes that leave their group, parent and environment are not tracked: {why}"
            )
        }
    };
    let _unread = writeln!(to, "{tracking}").is_err();
    let extra = match head.extra_targets.as_slice() {
        [] => String::new(),
        extra => format!(", extra targets: {}", extra.join(", ")),
    };
    let goal = match &head.goal {
        Some(goal) => format!("goal: {goal}{extra}"),
        None if head.fleet => return,
        None => "no goal is set, so no unit is needed".to_owned(),
    };
    let _unread = writeln!(to, "{goal}").is_err();
}
