//! Text format of stanzas and central settings.

mod broken;
mod codes;
mod file_sets;
mod golden;
mod hostile;
mod laws;
mod system_check;
mod values;

use fleet_core::graph::format::{InitDiagnostic, read_stanzas};
use fleet_core::graph::{InitUnit, Timeouts};

/// Returns the units of a text without errors.
fn units(text: &str) -> Vec<InitUnit> {
    let read = read_stanzas(text.as_bytes(), &Timeouts::default());
    let units: Option<Vec<InitUnit>> = read.stanzas.into_iter().map(|stanza| stanza.unit).collect();
    units.unwrap_or_else(|| panic!("{text}\n{:#?}", read.diagnostics))
}

/// Formats the diagnostics of a text as for a user.
fn output(source: &[u8], diagnostics: &[InitDiagnostic]) -> String {
    let lines = diagnostics.iter().map(|it| {
        let excerpt = it.excerpt(source);
        format!("{} {}: {}\n{excerpt}\nhelp: {}\n", it.code, it.location, it.message, it.help)
    });
    lines.collect()
}
