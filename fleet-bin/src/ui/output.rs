//! Prints results on standard output in the selected format.

use std::io;
use std::io::{IsTerminal as _, Write};

use serde::Serialize;
use serde_json::Value;

use super::error::CliError;
use super::global_args::Format;
use super::sanitize::{sanitize_for_terminal, sanitize_json, sanitize_line, sanitize_painted};
use super::table::{Colour, Spacing, TableStyle, clean};

/// Assumed width of a terminal of unknown size.
const DEFAULT_COLUMNS: usize = 80;

/// A result with a name.
pub(crate) trait Record: Serialize {
    /// Name for `-o name`.
    fn name(&self) -> &str;
}

/// Printer of results. It sanitizes text for people, because units and machines could otherwise
/// control the terminal through their output.
pub(crate) struct Output<W: Write> {
    to: W,
    format: Format,
    colour: Colour,
    /// Records for the JSON document that [`finish`](Self::finish) prints.
    collected: Vec<Value>,
    last_name: String,
    is_terminal: bool,
    /// Whether [`finish`](Self::finish) is deferred until [`release`](Self::release).
    is_deferred: bool,
}

impl Output<io::Stdout> {
    /// Creates an output on standard output.
    pub(crate) fn on_stdout(format: Format) -> Self {
        let stdout = io::stdout();
        let colour = Colour::for_stream(&stdout);
        let is_terminal = stdout.is_terminal();
        Self { colour, is_terminal, ..Self::new(stdout, format) }
    }
}

impl<W: Write> Output<W> {
    fn new(to: W, format: Format) -> Self {
        let (collected, last_name) = (Vec::new(), String::new());
        let (colour, is_terminal, is_deferred) = (Colour::Off, false, false);
        Self { to, format, colour, collected, last_name, is_terminal, is_deferred }
    }

    /// Returns the selected format.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Returns how to print a table. On a terminal, it depends on the present width.
    pub(crate) fn table_style(&self) -> TableStyle {
        let spacing = match self.is_terminal {
            true => Spacing::Blanks(terminal_columns()),
            false => Spacing::Tabs,
        };
        TableStyle { colour: self.colour, spacing }
    }

    /// Returns whether text for people is coloured.
    pub(crate) fn colour(&self) -> Colour {
        self.colour
    }

    /// Prints a document: byte for byte, but sanitized on a terminal.
    pub(crate) fn document(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        match self.is_terminal {
            true => self.raw(sanitize_for_terminal(&String::from_utf8_lossy(bytes)).as_bytes()),
            false => self.raw(bytes),
        }
    }

    /// Prints whole lines of JSON: byte for byte, but sanitized on a terminal, where their values
    /// stay the same.
    pub(crate) fn json_lines(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        match self.is_terminal {
            true => self.raw(sanitize_json(String::from_utf8_lossy(bytes).into_owned()).as_bytes()),
            false => self.raw(bytes),
        }
    }

    /// Prints bytes unchanged.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.to.write_all(bytes)?;
        Ok(self.to.flush()?)
    }

    /// Prints text for people: whole lines, or nothing. Other formats ignore it.
    pub(crate) fn for_people(&mut self, text: &str) -> Result<(), CliError> {
        match self.format {
            Format::Table => self.print_text(text),
            Format::Json | Format::Jsonl | Format::Name => Ok(()),
        }
    }

    /// Prints one result. `text` is the result as text for people, and consists of whole lines.
    ///
    /// With the JSON format, the result is only stored until [`finish`](Self::finish) prints all of
    /// them as one document.
    pub(crate) fn record<R: Record>(&mut self, record: &R, text: &str) -> Result<(), CliError> {
        match self.format {
            Format::Table => self.print_text(text),
            Format::Json => {
                self.collected.push(to_json(record)?);
                Ok(())
            }
            Format::Jsonl => self.json(to_json(record)?.to_string()),
            Format::Name => self.name(record.name()),
        }
    }

    /// Prints a journal line: with a label for people, or unchanged if `raw`.
    pub(crate) fn journal_line<R: Record>(
        &mut self,
        label: &str,
        line: &str,
        raw: bool,
        record: &R,
    ) -> Result<(), CliError> {
        match raw && self.format == Format::Table {
            true => self.raw(format!("{line}\n").as_bytes()),
            false => self.record(record, &format!("{label}{}\n", sanitize_line(line))),
        }
    }

    /// Prints a list of results; `table` is their form for people.
    pub(crate) fn list<R: Record>(&mut self, records: &[R], table: &str) -> Result<(), CliError> {
        if self.format == Format::Table {
            return self.print_text(table);
        }
        records.iter().try_for_each(|record| self.record(record, ""))?;
        self.finish()
    }

    /// Prints the JSON document of all collected records.
    pub(crate) fn finish(&mut self) -> Result<(), CliError> {
        if self.format != Format::Json || self.is_deferred {
            return Ok(());
        }
        let all = Value::Array(std::mem::take(&mut self.collected));
        self.json(format!("{all:#}"))
    }

    /// Prints the collected records after an error, if there are any.
    pub(crate) fn finish_partial(&mut self) -> Result<(), CliError> {
        match self.collected.is_empty() {
            true => Ok(()),
            false => self.release(),
        }
    }

    /// Defers the JSON document, so that several parts of a command share one.
    pub(crate) fn defer(&mut self) {
        self.is_deferred = true;
    }

    /// Prints the deferred document.
    pub(crate) fn release(&mut self) -> Result<(), CliError> {
        self.is_deferred = false;
        self.finish()
    }

    /// Prints a name, unless it equals the previous one.
    fn name(&mut self, name: &str) -> Result<(), CliError> {
        if name == self.last_name {
            return Ok(());
        }
        name.clone_into(&mut self.last_name);
        self.raw(format!("{}\n", clean(name)).as_bytes())
    }

    fn json(&mut self, text: String) -> Result<(), CliError> {
        self.raw((sanitize_json(text) + "\n").as_bytes())
    }

    fn print_text(&mut self, text: &str) -> Result<(), CliError> {
        let text = match self.colour {
            Colour::On => sanitize_painted(text),
            Colour::Off => sanitize_for_terminal(text),
        };
        self.raw(text.as_bytes())
    }
}

/// Returns the width of standard output: that of the variable `COLUMNS`, or else of the terminal.
fn terminal_columns() -> usize {
    let is_width = |columns: &usize| *columns > 0;
    let variable = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let of_terminal =
        || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|it| it.ws_col.into());
    variable.filter(is_width).or_else(|| of_terminal().filter(is_width)).unwrap_or(DEFAULT_COLUMNS)
}

fn to_json<R: Serialize>(record: &R) -> Result<Value, CliError> {
    serde_json::to_value(record)
        .map_err(|error| CliError::failed("cannot write the output").because(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Pet {
        name: &'static str,
        legs: u8,
    }

    impl Record for Pet {
        fn name(&self) -> &str {
            self.name
        }
    }

    const PETS: [Pet; 3] =
        [Pet { name: "cat", legs: 4 }, Pet { name: "cat", legs: 3 }, Pet { name: "bird", legs: 2 }];

    fn printed(format: Format, print: impl Fn(&mut Output<&mut Vec<u8>>)) -> String {
        let mut bytes = Vec::new();
        print(&mut Output::new(&mut bytes, format));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn list_prints_in_every_format() {
        let list = |format| printed(format, |out| out.list(&PETS, "NAME\tLEGS\n").unwrap());
        assert_eq!(list(Format::Table), "NAME\tLEGS\n");
        assert_eq!(list(Format::Name), "cat\nbird\n");
        let lines = "{\"legs\":4,\"name\":\"cat\"}\n{\"legs\":3,\"name\":\"cat\"}\n\
                     {\"legs\":2,\"name\":\"bird\"}\n";
        assert_eq!(list(Format::Jsonl), lines);
        let document: Value = serde_json::from_str(&list(Format::Json)).unwrap();
        assert_eq!(document[2]["name"], "bird");
        assert_eq!(printed(Format::Json, |out| out.list::<Pet>(&[], "").unwrap()), "[]\n");
    }

    #[test]
    fn single_records_form_one_json_document() {
        let print = |out: &mut Output<&mut Vec<u8>>| {
            PETS.iter().for_each(|pet| out.record(pet, "a pet\n").unwrap());
            out.finish().unwrap();
        };
        assert_eq!(printed(Format::Table, print), "a pet\na pet\na pet\n");
        assert_eq!(printed(Format::Json, print).matches("legs").count(), 3);
        let twice = |out: &mut Output<&mut Vec<u8>>| {
            out.defer();
            print(out);
            print(out);
            out.release().unwrap();
        };
        let document: Value = serde_json::from_str(&printed(Format::Json, twice)).unwrap();
        assert_eq!(document.as_array().unwrap().len(), 6);
        assert_eq!(printed(Format::Name, print), "cat\nbird\n");
    }
}
