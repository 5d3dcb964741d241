//! `--watch`: a list that is printed again whenever something changes.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_http::EventOptions;
use tokio::time::timeout;

use super::events::again;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;

/// For how long nothing must change until the list is printed, and how long changes are gathered
/// at most.
const QUIET: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(1);

/// To the upper left corner, and everything away from there on.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints the list now and after each change, until Ctrl-C.
pub(super) async fn watch(
    context: &mut Context,
    list: impl AsyncFn(&mut Context) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let is_screen = stdout().is_terminal() && context.output.format() == Format::Table;
    let mut events = context.session.events(&EventOptions::default()).await?;
    let mut is_first = true;
    loop {
        // The first event is there at once.
        if !matches!(events.next_event().await, Ok(Some(_))) {
            context.progress.note("the list may be old: fleetd does not answer; going on");
            events = again(context, &EventOptions::default()).await?;
            continue;
        }
        let deadline = context.clock.now().after(MOST);
        while context.clock.now() < deadline
            && matches!(timeout(QUIET, events.next_event()).await, Ok(Ok(Some(_))))
        {}
        match (is_screen, is_first) {
            (true, _) => context.output.raw(CLEAR.as_bytes())?,
            (false, false) => context.output.for_people("\n")?,
            (false, true) => {}
        }
        list(context).await?;
        is_first = false;
    }
}
