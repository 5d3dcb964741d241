//! Adapters that give all compared crates the same interface.
//!
//! Each crate is configured as closely as possible to the syntax of unit files.

use std::str::FromStr;

use configparser::ini::Ini;
use ini_core::Item;

/// Section, name and value of every option.
type List = Vec<(String, String, String)>;

pub(crate) struct Reader {
    pub(crate) name: &'static str,
    /// Reads a text and adds up the lengths of all names and values.
    pub(crate) look: fn(&str) -> Option<usize>,
    /// Reads a text and lists its options.
    pub(crate) list: fn(&str) -> Option<List>,
}

/// Makes a reader with a name and a function. The function takes a text and a callback, and calls
/// the callback with each option of the text.
macro_rules! reader {
    ($name:literal, $each:expr) => {
        Reader {
            name: $name,
            look: |text| {
                let mut sum = 0;
                $each(text, &mut |_: &str, name: &str, value: &str| {
                    sum += name.len() + value.len()
                })?;
                Some(sum)
            },
            list: |text| {
                let mut list = List::new();
                $each(text, &mut |section: &str, name: &str, value: &str| {
                    list.push((section.to_owned(), name.to_owned(), value.to_owned()));
                })?;
                Some(list)
            },
        }
    };
}

pub(crate) const READERS: &[Reader] = &[
    reader!("`fleet_unitfile::Reader`", borrowed),
    reader!("`fleet_unitfile::UnitFile`", owned),
    reader!("`ini_core` 0.2", ini_core_items),
    reader!("`freedesktop_entry_parser` 2.0", freedesktop),
    reader!("`configparser` 3", configparser_map),
    reader!("`rust-ini` 0.21", rust_ini),
    reader!("`systemd-parser` 0.1", systemd_parser_items),
    reader!("`systemd_service_parser` 0.1", systemd_service_parser_sections),
    reader!("`systemd-unit-edit` 0.1", systemd_unit_edit_tree),
];

fn borrowed(text: &str, each: &mut impl FnMut(&str, &str, &str)) -> Option<()> {
    for option in fleet_unitfile::Reader::new(text).options() {
        each(option.section(), &option.name(), &option.value());
    }
    Some(())
}

fn owned(text: &str, each: &mut impl FnMut(&str, &str, &str)) -> Option<()> {
    let (unit, _) = fleet_unitfile::UnitFile::parse_collecting(text);
    for option in unit.options() {
        each(option.section(), option.name(), option.value());
    }
    Some(())
}

fn ini_core_items(text: &str, each: &mut impl FnMut(&str, &str, &str)) -> Option<()> {
    let mut section = "";
    for item in ini_core::Parser::new(text) {
        match item {
            Item::Section(name) => section = name,
            Item::Property(name, value) => each(section, name, value.unwrap_or_default()),
            _ => {}
        }
    }
    Some(())
}

fn freedesktop(text: &str, each: &mut impl FnMut(&str, &str, &str)) -> Option<()> {
    let entry = freedesktop_entry_parser::Entry::parse(text).ok()?;
    for (section, options) in entry.sections() {
        for (key, values) in options.attrs() {
            values.iter().for_each(|value| each(section, &key.key, value));
        }
    }
    Some(())
}

fn configparser_map(text: &str, each: &mut impl FnMut(&str, &str, &str)) -> Option<()> {
    let mut ini = Ini::new_cs();
    ini.set_multiline(true);
    ini.set_comment_symbols(&['#', ';']);
    ini.set_inline_comment_symbols(Some(&[]));
    for (section, options) in ini.read(text.to_owned()).ok()? {
        for (name, value) in options {
            each(&section, &name, value.as_deref().unwrap_or_default());
        }
    }
    Some(())
}

fn rust_ini(text: &str, each: &mut impl FnMut(&str, &str, &str)) -> Option<()> {
    let options =
        ini::ParseOption { enabled_quote: false, enabled_escape: false, ..Default::default() };
    let ini = ini::Ini::load_from_str_opt(text, options).ok()?;
    for (section, properties) in ini.iter() {
        properties.iter().for_each(|(name, value)| each(section.unwrap_or_default(), name, value));
    }
    Some(())
}

/// Only the items: its map refuses a name that occurs in two sections.
fn systemd_parser_items(text: &str, each: &mut impl FnMut(&str, &str, &str)) -> Option<()> {
    use systemd_parser::items::SystemdItem;

    let joined = text.replace("\\\n", "");
    let mut section = "";
    for item in systemd_parser::parser::parse_unit(&joined).ok()? {
        match item {
            SystemdItem::Category(name) => section = name,
            SystemdItem::Directive(name, value) => each(section, name, value.unwrap_or_default()),
            SystemdItem::Comment(_) => {}
        }
    }
    Some(())
}

fn systemd_service_parser_sections(
    text: &str,
    each: &mut impl FnMut(&str, &str, &str),
) -> Option<()> {
    for section in systemd_service_parser::parse_service_file(text).ok()?.sections {
        section.key_values.iter().for_each(|it| each(&section.header, &it.key, &it.value));
    }
    Some(())
}

fn systemd_unit_edit_tree(text: &str, each: &mut impl FnMut(&str, &str, &str)) -> Option<()> {
    let unit = systemd_unit_edit::SystemdUnit::from_str(text).ok()?;
    for section in unit.sections() {
        let name = section.name().unwrap_or_default();
        for entry in section.entries() {
            let (key, value) = (entry.key().unwrap_or_default(), entry.value().unwrap_or_default());
            each(&name, &key, &value);
        }
    }
    Some(())
}
