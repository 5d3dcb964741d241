//! The configuration format of fleet v1: lines of `key=value` with unquoted strings.

use std::path::Path;

use super::error::ConfigError;
use super::file::{place, unknown_key};
use super::keys::find;
use super::value::{RawConfig, RawEntry, RawValue};

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
pub(crate) fn read(path: &Path, text: &str) -> Option<Result<RawConfig, ConfigError>> {
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
