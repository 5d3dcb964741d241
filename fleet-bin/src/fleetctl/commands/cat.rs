//! `cat`: units' files, byte for byte as they were submitted where no terminal shows them.

use serde::Serialize;

use crate::fleetctl::at_once::at_once;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::global_args::Format;
use crate::fleetctl::output::Record;
use crate::fleetctl::select::{Fits, select};
use crate::fleetctl::session::source;

/// A unit and its file. Bytes that are not UTF-8 are replaced here; the plain output has them.
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

/// Runs the command. The files are printed one after the other, with nothing between them.
pub(super) async fn run(context: &mut Context, args: &[String]) -> Result<(), CliError> {
    let units = select(&context.session, args, Fits::All).await?;
    let session = &context.session;
    let known = at_once(units.iter().map(|unit| session.known_unit(&unit.name))).await;
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
