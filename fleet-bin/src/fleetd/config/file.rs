//! Reads configuration files, in TOML or the format of fleet v1.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, Value};

use super::error::ConfigError;
use super::keys::{find, nearest};
use super::v1;
use super::value::{RawConfig, RawEntry, RawValue, ValueOrigin};

/// Parses the text of a configuration file. `path` is used in errors.
///
/// The text is TOML. If it is not valid TOML but consists of lines of the form `key=value`, it is
/// parsed as a file of fleet v1.
pub(crate) fn read(path: &Path, text: &str) -> Result<RawConfig, ConfigError> {
    match Document::parse(text) {
        Ok(document) => from_toml(path, text, &document),
        Err(error) => v1::read(path, text).unwrap_or_else(|| {
            let at = error.span().map_or(0, |span| span.start);
            let problem = error.message().to_owned();
            Err(ConfigError::Syntax { origin: place(path, text, at), problem })
        }),
    }
}

/// Returns the position of a byte of `text`.
pub(super) fn place(path: &Path, text: &str, at: usize) -> ValueOrigin {
    let before = &text[..at.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    ValueOrigin::File { path: path.to_owned(), line, column }
}

/// Returns the error of an unknown key.
pub(super) fn unknown_key(origin: ValueOrigin, key: &str) -> ConfigError {
    ConfigError::UnknownKey { origin, key: key.to_owned(), nearest: nearest(key).map(|k| k.name) }
}

fn from_toml(path: &Path, text: &str, document: &Document<&str>) -> Result<RawConfig, ConfigError> {
    let mut entries = RawConfig::new();
    for (name, item) in document.iter() {
        let key_span = document.key(name).and_then(toml_edit::Key::span);
        let start = |span: Option<Range<usize>>| span.map_or(0, |span| span.start);
        let origin = place(path, text, start(key_span));
        let key = find(name).ok_or_else(|| unknown_key(origin.clone(), name))?;
        let raw = raw_item(item).ok_or_else(|| ConfigError::Syntax {
            origin: origin.clone(),
            problem: format!(
                "{name} must be a text, a number, a boolean, or a list or table of these"
            ),
        })?;
        entries.insert(key.name, RawEntry { raw, origin });
    }
    Ok(entries)
}

fn raw_item(item: &Item) -> Option<RawValue> {
    if let Some(table) = item.as_table_like() {
        let pair = |(name, item): (&str, &Item)| Some((name.to_owned(), plain(item.as_value()?)?));
        return table.iter().map(pair).collect::<Option<BTreeMap<_, _>>>().map(RawValue::Table);
    }
    match item.as_value()? {
        Value::Array(array) => {
            array.iter().map(plain).collect::<Option<Vec<_>>>().map(RawValue::List)
        }
        value => plain(value).map(RawValue::Text),
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
