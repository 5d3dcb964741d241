//! Stanzas and central settings as text.

mod broken;
mod codes;
mod file_sets;
mod golden;
mod hostile;
mod laws;
mod system_check;
mod values;

use fleet_core::graph::text::{InitDiagnostic, read_stanzas};
use fleet_core::graph::{InitUnit, Timeouts};

/// The units of a text in which nothing is an error.
fn units(text: &str) -> Vec<InitUnit> {
    let read = read_stanzas(text.as_bytes(), &Timeouts::default());
    let units: Option<Vec<InitUnit>> = read.stanzas.into_iter().map(|stanza| stanza.unit).collect();
    units.unwrap_or_else(|| panic!("{text}\n{:#?}", read.diagnostics))
}

/// What is wrong with a text, as a person is told.
fn told(source: &[u8], diagnostics: &[InitDiagnostic]) -> String {
    let lines = diagnostics.iter().map(|it| {
        let excerpt = it.excerpt(source);
        format!("{} {}: {}\n{excerpt}\nhelp: {}\n", it.code, it.location, it.message, it.help)
    });
    lines.collect()
}
