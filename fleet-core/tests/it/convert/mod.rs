//! Conversion of units of other inits, and its losses.

mod dinit;
mod laws;
mod openrc;
mod systemd;
mod sysv;

use fleet_core::graph::Graph;
use fleet_core::graph::convert::{
    Conversion, ConvertOptions, InitSystem, NoteSeverity, SourceFile, convert_with,
};
use fleet_core::graph::format::{FileRole, FileSet, InitFile};

fn sources(files: &[(&str, &str)]) -> Vec<SourceFile> {
    let source = |(path, text): &(&str, &str)| SourceFile {
        path: (*path).to_owned(),
        source: (*text).into(),
        ..SourceFile::default()
    };
    files.iter().map(source).collect()
}

/// Converts files of enabled units. Checks that the stanzas form a graph and read back unchanged.
fn converted(origin: InitSystem, files: Vec<SourceFile>) -> Conversion {
    let options = ConvertOptions { enabled: true, ..ConvertOptions::default() };
    let converted = convert_with(origin, files, &options);
    let graph = graph(&converted.text());
    let units: Vec<_> = graph.units().map(|unit| (**unit).clone()).collect();
    let expected: Vec<_> = converted.units.iter().map(|stanza| stanza.unit.clone()).collect();
    assert_eq!(units, expected, "{}", converted.text());
    converted
}

fn graph(text: &str) -> Graph {
    let file = InitFile { name: "a.unit".to_owned(), role: FileRole::Units, source: text.into() };
    let mut sources = FileSet::read(vec![file]);
    let graph = sources.graph();
    graph.unwrap_or_else(|| panic!("{:#?}\n{text}", sources.diagnostics))
}

/// Formats the stanzas, and a line for each loss (`-`) and remark (`+`).
fn output(origin: InitSystem, files: &[(&str, &str)]) -> String {
    words(&converted(origin, sources(files)))
}

fn words(converted: &Conversion) -> String {
    let losses = converted.notes.iter().map(|loss| {
        let mark = if loss.severity == NoteSeverity::Loss { '-' } else { '+' };
        let line = format!("{}:{}:{} {}", loss.file, loss.line, loss.column, loss.message);
        format!("{mark} {}\n", folded(&line))
    });
    converted.text() + "---\n" + &losses.collect::<String>()
}

/// Wraps a text for snapshots.
fn folded(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.len() + word.len() > 80 {
            lines.push(word.to_owned());
        } else {
            let blank = if line.is_empty() { "" } else { " " };
            line.push_str(&format!("{blank}{word}"));
        }
    }
    lines.join("\n    ")
}
