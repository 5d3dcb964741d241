//! `status`: prints the units of a running fleet-init.

use std::io;
use std::io::Write as _;

use fleet_agent::remote::{Connection, InitRequest, RequestError};

use super::args::StatusArgs;
use super::client::request;
use super::protocol::{StatusHeader, Unit};
use super::{fleet, tree};
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::Output;

/// Runs the command.
pub(super) fn run(args: &StatusArgs) -> Result<(), CliError> {
    request(&args.socket, async |init| {
        let (head, units) = all(init).await?;
        print_header(&head);
        if head.fleet {
            return fleet::tree(init, args.output, &head, units).await;
        }
        let mut output = Output::on_stdout(args.output);
        let tree = match args.output {
            Format::Table => tree::tree(&head, &units, output.colour()),
            _ => String::new(),
        };
        output.list(&units, &tree)
    })
}

/// Requests the status of all units.
pub(super) async fn all(init: &Connection) -> Result<(StatusHeader, Vec<Unit>), RequestError> {
    init.call(InitRequest::Status).await
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
