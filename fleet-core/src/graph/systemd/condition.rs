//! Compiles `Condition…=` and `Assert…=`.

use super::value::{ValueContext, absolute};
use crate::graph::model::{ConditionKind, ConditionTest, UnitCondition};

/// Adds a condition from `Condition…=` or an assertion from `Assert…=`. An empty value removes all
/// earlier conditions or, if the option is `Assert…=`, all earlier assertions.
pub(super) fn add_condition(
    list: &mut Vec<UnitCondition>,
    option: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    let assert = option.starts_with("Assert");
    let name = option.trim_start_matches("Assert").trim_start_matches("Condition");
    let kind = ConditionKind::of_option(name).ok_or("is not a known condition: remove it")?;
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
    let argument = if kind.takes_path() { absolute(&text)? } else { text };
    let test = ConditionTest::new(kind, argument.as_str())
        .map_err(|remedy| format!("is {argument:?}: {remedy}"))?;
    list.push(UnitCondition { test, negated, any, assert });
    Ok(())
}

fn marked(value: &str, mark: char) -> (bool, &str) {
    value.strip_prefix(mark).map_or((false, value), |rest| (true, rest.trim_start()))
}
