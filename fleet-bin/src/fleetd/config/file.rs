//! Reads configuration files, in TOML or the format of fleet v1.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use toml_edit::{Document, Item, Value};

use super::keys::{find, nearest};
use super::{ConfigError, RawConfig, RawEntry, RawValue, ValueOrigin};

/// Parses the text of a configuration file. `path` is used in errors.
///
/// The text is TOML. If it is not valid TOML but consists of lines of the form `key=value`, it is
/// parsed as a file of fleet v1.
pub(crate) fn read(path: &Path, text: &str) -> Result<RawConfig, ConfigError> {
    match Document::parse(text) {
        Ok(document) => from_toml(path, text, &document),
        Err(error) => read_v1(path, text).unwrap_or_else(|| {
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

/// Parses `text` in the format of fleet v1: lines of the form `key=value`. The caller has already
/// found that `text` is not valid TOML.
///
/// - Lines that begin with `#` or `;` are comments.
/// - A line that ends with a backslash continues on the next line.
/// - Keys after the first `[section]` are ignored.
/// - An unquoted value ends at `#` or `;`.
///
/// Returns `None` in two cases, in which the caller reports the TOML error:
///
/// - A line before the first `[section]` is not of the form `key=value`.
/// - A section has the name of a key, such as `[metadata]`. In TOML, this is a table, so the file
///   is probably meant as TOML.
///
/// # Errors
///
/// A key is unknown.
pub(crate) fn read_v1(path: &Path, text: &str) -> Option<Result<RawConfig, ConfigError>> {
    if text.lines().any(is_our_table) {
        return None;
    }
    let lines = logical_lines(text);
    let is_pair = |line: &str| line.split_once('=').is_some_and(|(key, _)| is_key(key));
    if !lines.iter().all(|(_, line)| is_pair(line)) {
        return None;
    }
    Some(lines.iter().map(|(at, line)| pair(path, text, *at, line)).collect())
}

fn is_our_table(line: &str) -> bool {
    let name = line.trim().strip_prefix('[').and_then(|rest| rest.split(']').next());
    name.is_some_and(|name| find(name.trim()).is_some())
}

fn is_key(text: &str) -> bool {
    let key = text.trim();
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn pair(
    path: &Path,
    text: &str,
    at: usize,
    line: &str,
) -> Result<(&'static str, RawEntry), ConfigError> {
    let (name, value) = line.split_once('=').unwrap_or((line, ""));
    let name = name.trim().to_ascii_lowercase();
    let origin = place(path, text, at);
    let key = find(&name).ok_or_else(|| unknown_key(origin.clone(), &name))?;
    Ok((key.name, RawEntry { raw: RawValue::Text(unquoted(value)), origin }))
}

/// Removes the quotes of a quoted value, or the comment after an unquoted one.
fn unquoted(value: &str) -> String {
    let value = value.trim();
    for quote in ['"', '\''] {
        let inner = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner.to_owned();
        }
    }
    value.split(['#', ';']).next().unwrap_or_default().trim().to_owned()
}

/// Returns the logical lines before the first section, each with its byte offset.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let (mut at, mut goes_on) = (0, false);
    for physical in text.split_inclusive('\n') {
        let line = physical.trim();
        let start = at + (physical.len() - physical.trim_start().len());
        at += physical.len();
        let comment = line.is_empty() || line.starts_with(['#', ';']);
        match lines.last_mut() {
            Some((_, last)) if goes_on => last.push_str(line.trim_end_matches('\\')),
            _ if comment => continue,
            _ if line.starts_with('[') => break,
            _ => lines.push((start, line.trim_end_matches('\\').to_owned())),
        }
        goes_on = line.ends_with('\\');
    }
    lines
}
