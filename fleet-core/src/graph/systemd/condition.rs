//! Conditions and assertions of a unit.

use super::value::{ValueContext, absolute};
use crate::graph::{ConditionTest, UnitCondition};

/// Adds a condition from `Condition…=` or an assertion from `Assert…=`. An empty value removes all
/// earlier conditions or, if the option is `Assert…=`, all earlier assertions.
pub(super) fn add(
    list: &mut Vec<UnitCondition>,
    option: &str,
    value: &str,
    unit: &ValueContext<'_>,
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
        return Err("is empty: write what to check".to_owned());
    }
    let test = test(option.trim_start_matches("Assert").trim_start_matches("Condition"), text)?;
    list.push(UnitCondition { test, negated, any, assert });
    Ok(())
}

fn marked(value: &str, mark: char) -> (bool, &str) {
    value.strip_prefix(mark).map_or((false, value), |rest| (true, rest.trim_start()))
}

fn test(kind: &str, text: String) -> Result<ConditionTest, String> {
    Ok(match kind {
        "PathExists" => ConditionTest::PathExists(absolute(&text)?),
        "PathIsDirectory" => ConditionTest::PathIsDirectory(absolute(&text)?),
        "FileNotEmpty" => ConditionTest::FileNotEmpty(absolute(&text)?),
        "FileIsExecutable" => ConditionTest::FileIsExecutable(absolute(&text)?),
        "Host" => ConditionTest::Host(text),
        "KernelCommandLine" => ConditionTest::KernelCommandLine(text),
        _ => ConditionTest::User(text),
    })
}
