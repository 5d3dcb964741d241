//! Reads, checks, edits and writes systemd unit files.
//!
//! ```text
//! cargo run -p fleet-examples --example parse_unit              a tour with a unit of its own
//! cargo run -p fleet-examples --example parse_unit -- FILE...   what is in your unit files
//! ```
//!
//! Each function below shows one feature of `fleet-unitfile`. You can read them in any order.
//!
//! With file names as arguments, the program prints the options and errors of these files. It exits
//! with status 1 if a file has an error.
#![expect(clippy::print_stdout, reason = "the program demonstrates its results on standard output")]

use std::error::Error;
use std::process::ExitCode;

use fleet_unitfile::{
    CommandLine, Finding, OptionErrorKind, OptionView, Severity, SpecifierContext, UnitFile,
    UnitName,
};

const WORKER: &str = r#"# One worker for each queue.
[Unit]
Description=Worker for queue %i

[Service]
ExecStart=/usr/bin/worker --queue "%i" \
    # Comments may stand between the lines of a value.
    --title "100%% of %p"
Restart=on-failure
Environment=LEVEL=2
Environment=MODE=fast
"#;

const BROKEN: &str = r#"[Service]
ExecStart=/usr/bin/worker
Restart on-failure
=always

[Install
WantedBy=multi-user.target
"#;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if !paths.is_empty() {
        return check_files(&paths);
    }
    let name = UnitName::parse("worker@blue.service")?;
    let unit = UnitFile::parse(WORKER)?;
    the_options(&unit);
    what_counts_as_the_same(&unit)?;
    the_parts_of_a_name(&name)?;
    a_command_line(&unit, &name)?;
    an_edit(unit, &name)?;
    a_broken_file();
    Ok(ExitCode::SUCCESS)
}

/// Prints the options of a unit file. Each option has its section, its value as systemd reads it,
/// and its position.
fn the_options(unit: &UnitFile) {
    println!("== Options, with the places where they stand\n");
    print_options(unit);
    // All values of a list option are kept; for other options the last one counts.
    let environment: Vec<&str> =
        unit.values("Service", "Environment").map(OptionView::value).collect();
    assert_eq!(environment, ["LEVEL=2", "MODE=fast"]);
    assert_eq!(unit.get("Service", "Restart"), Some("on-failure"));
}

/// Shows that two files with the same options have the same hash, even if their layout differs. The
/// source itself is kept byte for byte.
fn what_counts_as_the_same(unit: &UnitFile) -> Result<(), Box<dyn Error>> {
    println!("\n== Canonical text, with the hash {}\n\n{}", unit.hash(), unit.canonical());
    assert_eq!(unit.source(), WORKER.as_bytes());

    let other_layout = UnitFile::parse(WORKER.replace('\n', "\r\n"))?;
    assert_ne!(other_layout, *unit, "another source");
    assert_eq!(other_layout.hash(), unit.hash(), "and the same options");
    Ok(())
}

/// Prints the parts of a unit name. A `UnitName` is always valid, because parsing refuses any other
/// text.
fn the_parts_of_a_name(name: &UnitName) -> Result<(), Box<dyn Error>> {
    println!("== The parts of {name}\n");
    println!("type {}, stem {}, prefix {}", name.unit_type(), name.stem(), name.prefix());
    let template = name.template().ok_or("an instance without a template")?;
    println!("instance {:?} of {template}", name.instance().unwrap_or_default());
    println!("beside it, for example, {}", template.instantiate("green")?);
    let error = UnitName::parse("worker blue.service").expect_err("a name holds no blank");
    println!("refused: {error}");
    Ok(())
}

/// Splits a command line into words, and expands the specifiers of each word by the unit's name, as
/// systemd does.
fn a_command_line(unit: &UnitFile, name: &UnitName) -> Result<(), Box<dyn Error>> {
    let command = unit.get("Service", "ExecStart").ok_or("the unit starts nothing")?;
    let commands = CommandLine::parse(command)?;
    let command = commands[0].expand(&SpecifierContext::system_manager(), name)?;
    let words: Vec<&str> = command.argv().collect();
    println!("\n== What is started as {name}\n\n{words:?}");
    assert_eq!(words, ["/usr/bin/worker", "--queue", "blue", "--title", "100% of worker"]);
    Ok(())
}

/// Edits options and checks the result. Every other byte stays unchanged, including comments.
fn an_edit(mut unit: UnitFile, name: &UnitName) -> Result<(), Box<dyn Error>> {
    unit.edit()
        .set("Service", "Restart", "allways")?
        .add("Install", "WantedBy", "multi-user.target")?
        .remove("Service", "Environment")
        .apply();
    println!("\n== After an edit\n\n{unit}");
    for finding in unit.check(name) {
        println!("{}", finding.render());
    }
    // A value that contains further lines is refused: it would not read back as one option.
    let smuggled = unit.edit().set("Unit", "Description", "Harmless\n[Service]\nUser=root").err();
    assert_eq!(smuggled.map(|error| error.kind()), Some(OptionErrorKind::LineEnd));
    Ok(())
}

/// Parses a file with errors in two ways. Strict parsing stops at the first error. Collecting skips
/// invalid lines and returns all errors.
fn a_broken_file() {
    println!("== A broken file, read strictly\n");
    let error = UnitFile::parse(BROKEN).expect_err("the third line has no \"=\"");
    println!("{error}");
    println!("\n== The same, collecting");
    let (unit, diagnostics) = UnitFile::parse_collecting(BROKEN);
    for diagnostic in &diagnostics {
        println!("\n{}", Finding::from(diagnostic).in_file("broken.service").render());
    }
    assert_eq!(diagnostics.len(), 3);
    // The valid lines were parsed: a tool may continue with them, as systemd would.
    assert_eq!(unit.get("Service", "ExecStart"), Some("/usr/bin/worker"));
}

/// Prints the options and errors of some files.
fn check_files(paths: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    let mut all_good = true;
    for path in paths {
        let source = std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        let (unit, diagnostics) = UnitFile::parse_collecting(source);
        println!("== {path}, with the hash {}\n", unit.hash());
        print_options(&unit);
        for diagnostic in &diagnostics {
            println!("\n{}", Finding::from(diagnostic).in_file(path).render());
        }
        println!();
        all_good &= diagnostics.iter().all(|it| it.severity() < Severity::Error);
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_options(unit: &UnitFile) {
    for option in unit.options() {
        let (line, column) = (option.line(), option.column());
        println!(
            "{line:>3}:{column:<2} [{}] {} = {:?}",
            option.section(),
            option.name(),
            option.value()
        );
    }
}
