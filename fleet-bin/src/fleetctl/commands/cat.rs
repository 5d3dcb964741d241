//! `cat`: a unit's file, byte for byte as it was submitted.

use serde::Serialize;

use crate::fleetctl::args::Format;
use crate::fleetctl::context::Context;
use crate::fleetctl::error::CliError;
use crate::fleetctl::names::unit_arg;
use crate::fleetctl::output::Record;
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

/// Runs the command.
pub(super) async fn run(context: &mut Context, arg: &str) -> Result<(), CliError> {
    let unit = context.session.known_unit(&unit_arg(arg)?.name).await?;
    let bytes = source(&unit)?;
    if context.output.format() == Format::Table {
        return context.output.raw(&bytes);
    }
    let source = String::from_utf8_lossy(&bytes).into_owned();
    context.output.list(&[UnitSource { unit: unit.name, hash: unit.hash, source }], "")
}
