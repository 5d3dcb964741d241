//! Compilation of systemd units.

mod activators;
mod edges;
mod files;
mod laws;
mod options;
mod printed;
mod timers;
mod values;

use std::sync::Arc;

use fleet_core::graph::InitUnit;
use fleet_core::graph::systemd::{CompileOptions, CompiledUnit, UnitRefusals, compile};
use fleet_unitfile::specifier::Specifier;
use fleet_unitfile::{SpecifierContext, UnitFile};

/// Options for a typical machine.
fn site() -> CompileOptions {
    let specifiers = SpecifierContext::system_manager()
        .with(Specifier::HostName, "web1.example.com")
        .with(Specifier::MachineId, "148a18ff6e95460fb2dc5b1a4b6b4d21")
        .with(Specifier::BootId, "0123456789abcdef0123456789abcdef")
        .with(Specifier::KernelRelease, "6.1.0");
    CompileOptions { specifiers, ..CompileOptions::default() }
}

fn compiled(name: &str, text: &str) -> Result<CompiledUnit, UnitRefusals> {
    let file = UnitFile::parse(text).expect("the file is well formed");
    compile(&name.parse().expect("the name is well formed"), &file, &site())
}

/// Compiles `web@1.service` with this `[Service]` section, which must be valid.
fn service(settings: &str) -> InitUnit {
    let text = format!("[Service]\n{settings}\n");
    let compiled = compiled("web@1.service", &text);
    Arc::unwrap_or_clone(compiled.unwrap_or_else(|refusals| panic!("{refusals}")).unit)
}

/// Returns the refusals of a `[Service]` section.
fn refused(settings: &str) -> String {
    let text = format!("[Service]\n{settings}\n");
    let refusals = compiled("web@1.service", &text).expect_err("it is refused");
    refusals.all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Wraps a text to the line width of tests; continuation lines are indented.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut column = 0;
        for word in line.split(' ') {
            if column > 0 && column + word.len() > 85 {
                out.truncate(out.trim_end().len());
                out.push_str("\n      ");
                column = 6;
            }
            out.push_str(word);
            out.push(' ');
            column += word.len() + 1;
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}
