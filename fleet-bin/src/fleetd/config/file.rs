//! Reads a configuration file: TOML, or the format of fleet v1.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, Value};

use super::error::ConfigError;
use super::keys::{find, nearest};
use super::v1;
use super::value::{Found, Low, Origin, Raw};

/// Reads `text`, the content of `path`.
///
/// A file that is not TOML, but of which each line is a `key=value` as fleet v1 read it, is read as
/// fleet v1 did.
pub(crate) fn read(path: &Path, text: &str) -> Result<Low, ConfigError> {
    match Document::parse(text) {
        Ok(document) => from_toml(path, text, &document),
        Err(error) => v1::read(path, text).unwrap_or_else(|| {
            let at = error.span().map_or(0, |span| span.start);
            let problem = error.message().to_owned();
            Err(ConfigError::Syntax { origin: place(path, text, at), problem })
        }),
    }
}

/// The place of a byte of `text`.
pub(super) fn place(path: &Path, text: &str, at: usize) -> Origin {
    let before = &text[..at.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Origin::File { path: path.to_owned(), line, column }
}

/// The complaint about a key that does not exist.
pub(super) fn unknown_key(origin: Origin, key: &str) -> ConfigError {
    ConfigError::UnknownKey { origin, key: key.to_owned(), nearest: nearest(key).map(|k| k.name) }
}

fn from_toml(path: &Path, text: &str, document: &Document<&str>) -> Result<Low, ConfigError> {
    let mut low = Low::new();
    for (name, item) in document.iter() {
        let key_span = document.key(name).and_then(toml_edit::Key::span);
        let start = |span: Option<Range<usize>>| span.map_or(0, |span| span.start);
        let origin = place(path, text, start(key_span));
        let key = find(name).ok_or_else(|| unknown_key(origin.clone(), name))?;
        let raw = raw_item(item).ok_or_else(|| ConfigError::Syntax {
            origin: origin.clone(),
            problem: format!("{name} takes a text, a number, a boolean, a list or a table of them"),
        })?;
        low.insert(key.name, Found { raw, origin });
    }
    Ok(low)
}

fn raw_item(item: &Item) -> Option<Raw> {
    if let Some(table) = item.as_table_like() {
        let pair = |(name, item): (&str, &Item)| Some((name.to_owned(), plain(item.as_value()?)?));
        return table.iter().map(pair).collect::<Option<BTreeMap<_, _>>>().map(Raw::Table);
    }
    match item.as_value()? {
        Value::Array(array) => array.iter().map(plain).collect::<Option<Vec<_>>>().map(Raw::List),
        value => plain(value).map(Raw::Text),
    }
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(truth) => Some(truth.value().to_string()),
        _ => None,
    }
}
