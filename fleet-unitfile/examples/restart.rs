//! Checks all services of a folder, and makes those without errors restart when they fail.
//!
//! `cargo run -p fleet-unitfile --example restart -- FOLDER`

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "an example is a program")]

use std::error::Error;
use std::fs;

use fleet_unitfile::{Severity, UnitFile, UnitName};

fn main() -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(std::env::args().nth(1).ok_or("usage: restart FOLDER")?)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().parse::<UnitName>();
        let Ok(name) = name else { continue };
        let mut unit: UnitFile = fs::read(&path)?.try_into()?;
        let findings = unit.check(&name);
        for finding in &findings {
            println!("{}", finding.render());
        }
        let is_sound = findings.iter().all(|finding| finding.severity() < Severity::Error);
        if is_sound && unit.has_section("Service") && unit.get("Service", "Restart").is_none() {
            unit.edit().set("Service", "Restart", "on-failure")?.apply();
            fs::write(&path, unit.source())?;
        }
    }
    Ok(())
}
