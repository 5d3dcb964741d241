//! `cat`: prints unit files as submitted; on a terminal, sanitized.

use serde::Serialize;

use crate::fleetctl::concurrent::buffered;
use crate::fleetctl::select::{DesiredFilter, select};
use crate::fleetctl::session::context::Context;
use crate::fleetctl::session::source;
use crate::ui::error::CliError;
use crate::ui::global_args::Format;
use crate::ui::output::Record;

/// A unit and its file, as JSON. Bytes that are not UTF-8 are replaced, because JSON cannot contain
/// them; the plain output keeps them.
#[derive(Debug, Serialize)]
struct UnitSource {
    unit: String,
    hash: String,
    source: String,
}

impl Record for UnitSource {
    fn name(&self) -> &str {
        &self.unit
    }
}

/// Runs the command. Files are concatenated without separators.
pub(super) async fn run(context: &mut Context, args: &[String]) -> Result<(), CliError> {
    let units = select(&context.session, args, DesiredFilter::All).await?;
    let session = &context.session;
    let known = buffered(units.iter().map(|unit| session.known_unit(&unit.name))).await;
    for unit in CliError::all_or_none(known)? {
        let bytes = source(&unit)?;
        if context.output.format() == Format::Table {
            context.output.document(&bytes)?;
            continue;
        }
        let source = String::from_utf8_lossy(&bytes).into_owned();
        context.output.record(&UnitSource { unit: unit.name, hash: unit.hash, source }, "")?;
    }
    context.output.finish()
}
