//! `--watch`: prints a list again after each change.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use fleet_agent::Clock as _;
use fleet_http::EventOptions;
use tokio::time::timeout;

use super::events::reconnect;
use crate::fleetctl::session::context::Context;
use crate::ui::error::CliError;
use crate::ui::global_args::Format;

/// Time without further changes after which the list is printed again. If changes continue, the
/// list is printed after [`MAX_DELAY`].
const QUIET_TIME: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Moves the cursor to the upper left corner, and clears the screen.
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
        // The first event arrives at once.
        if !matches!(events.next_event().await, Ok(Some(_))) {
            context
                .progress
                .note("fleetd does not respond, so the list may be out of date; reconnecting");
            events = reconnect(context, &EventOptions::default()).await?;
            continue;
        }
        let deadline = context.clock.now().after(MAX_DELAY);
        while context.clock.now() < deadline
            && matches!(timeout(QUIET_TIME, events.next_event()).await, Ok(Ok(Some(_))))
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
