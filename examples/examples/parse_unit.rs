//! Reads, checks, edits and writes systemd unit files.
//!
//! ```text
//! cargo run -p fleet-examples --example parse_unit              a tour with a unit of its own
//! cargo run -p fleet-examples --example parse_unit -- FILE...   what is in your unit files
//! ```
//!
//! Each function below shows one feature of `fleet-unitfile`. You can read them in any order. The
//! last function, `explain`, is worth copying: it formats a diagnostic with a mark below the
//! affected text, as compilers do.
//!
//! With file names as arguments, the program prints the options and errors of these files. It exits
//! with status 1 if a file has an error.
#![expect(clippy::print_stdout, reason = "the program demonstrates its results on standard output")]

use std::error::Error;
use std::process::ExitCode;

use fleet_unitfile::{
    CommandLine, Diagnostic, OptionErrorKind, OptionView, Severity, SpecifierContext, UnitFile,
    UnitName, UnitOption,
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
    an_edit(&unit)?;
    a_value_cannot_smuggle();
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
    assert_eq!(unit.last("Service", "Restart"), Some("on-failure"));
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
    let command = unit.last("Service", "ExecStart").ok_or("the unit starts nothing")?;
    let commands = CommandLine::parse(command)?;
    let command = commands[0].expand(&SpecifierContext::system_manager(), name)?;
    let words: Vec<&str> = command.argv().collect();
    println!("\n== What is started as {name}\n\n{words:?}");
    assert_eq!(words, ["/usr/bin/worker", "--queue", "blue", "--title", "100% of worker"]);
    Ok(())
}

/// Edits options one by one. Every other byte stays unchanged, including comments.
fn an_edit(unit: &UnitFile) -> Result<(), Box<dyn Error>> {
    let edited = unit
        .with(UnitOption::new("Service", "Restart", "always"))?
        .with(UnitOption::new("Install", "WantedBy", "multi-user.target"))?
        .without("Service", "Environment");
    let text = edited.source_str().ok_or("an edit of text made it something else")?;
    println!("\n== After an edit\n\n{text}");
    assert!(text.contains("# Comments may stand") && !text.contains("Environment"));
    Ok(())
}

/// Tries to write an option with a value that contains further options. Such a value is refused,
/// because it would not be read back as one option.
fn a_value_cannot_smuggle() {
    let smuggled = UnitOption::new("Unit", "Description", "Harmless\n[Service]\nUser=root");
    let error = UnitFile::from_options([smuggled]).expect_err("one option would become three");
    println!("== Refused in writing\n\n{error}");
    assert_eq!(error.kind(), OptionErrorKind::LineEnd);
}

/// Parses a file with errors in two ways. Strict parsing stops at the first error. Collecting skips
/// invalid lines and returns all errors.
fn a_broken_file() {
    println!("\n== A broken file, read strictly\n");
    let error = UnitFile::parse(BROKEN).expect_err("the third line has no \"=\"");
    println!("{error}");
    println!("\n== The same, collecting");
    let (unit, diagnostics) = UnitFile::parse_collecting(BROKEN);
    for diagnostic in &diagnostics {
        println!("\n{}", explain("broken.service", &unit, diagnostic));
    }
    assert_eq!(diagnostics.len(), 3);
    // The valid lines were parsed: a tool may continue with them, as systemd would.
    assert_eq!(unit.last("Service", "ExecStart"), Some("/usr/bin/worker"));
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
            println!("\n{}", explain(path, &unit, diagnostic));
        }
        println!();
        all_good &= diagnostics.iter().all(|it| it.severity() < Severity::Error);
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_options(unit: &UnitFile) {
    for option in unit.options() {
        let place = unit.location(option.span().start);
        let (section, name, value) = (option.section(), option.name(), option.value());
        println!("{:>3}:{:<2} [{section}] {name} = {value:?}", place.line, place.column);
    }
}

/// Formats a diagnostic with its source line and carets below the affected text.
fn explain(path: &str, unit: &UnitFile, diagnostic: &Diagnostic) -> String {
    let (place, span) = (diagnostic.location(), diagnostic.span());
    let line = unit.line_text(span.start);
    let blank = |character| if character == '\t' { '\t' } else { ' ' };
    let before: String = line.chars().take(place.column - 1).map(blank).collect();
    // The span may continue on the next lines; the carets stay on this one.
    let length = String::from_utf8_lossy(&unit.source()[span.start..span.end]).chars().count();
    let left = (line.chars().count() + 1).saturating_sub(place.column);
    let carets = "^".repeat(length.min(left).max(1));
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    format!(
        "{severity}: {message}\n\
         {margin}--> {path}:{number}:{column}\n\
         {margin} |\n\
         {number} | {line}\n\
         {margin} | {before}{carets}\n\
         {margin} = help: {help}",
        severity = diagnostic.severity(),
        message = diagnostic.message(),
        column = place.column,
        help = diagnostic.help(),
    )
}
