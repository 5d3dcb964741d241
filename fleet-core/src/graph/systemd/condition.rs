//! Conditions and assertions.

use super::value::{In, absolute};
use crate::graph::{Condition, Test};

/// Adds a `Condition…=` or `Assert…=`; an empty one takes all of its family away.
pub(super) fn add(
    list: &mut Vec<Condition>,
    option: &str,
    value: &str,
    unit: &In<'_>,
) -> Result<(), String> {
    let assert = option.starts_with("Assert");
    if value.is_empty() {
        list.retain(|condition| condition.assert != assert);
        return Ok(());
    }
    let (any, value) = marked(value, '|');
    let (negated, value) = marked(value, '!');
    let text = unit.expand(value)?;
    if text.is_empty() {
        return Err("asks nothing: write what to look for".to_owned());
    }
    let test = test(option.trim_start_matches("Assert").trim_start_matches("Condition"), text)?;
    list.push(Condition { test, negated, any, assert });
    Ok(())
}

fn marked(value: &str, mark: char) -> (bool, &str) {
    value.strip_prefix(mark).map_or((false, value), |rest| (true, rest.trim_start()))
}

fn test(kind: &str, text: String) -> Result<Test, String> {
    Ok(match kind {
        "PathExists" => Test::PathExists(absolute(&text)?),
        "PathIsDirectory" => Test::PathIsDirectory(absolute(&text)?),
        "FileNotEmpty" => Test::FileNotEmpty(absolute(&text)?),
        "FileIsExecutable" => Test::FileIsExecutable(absolute(&text)?),
        "Host" => Test::Host(text),
        "KernelCommandLine" => Test::KernelCommandLine(text),
        _ => Test::User(text),
    })
}
