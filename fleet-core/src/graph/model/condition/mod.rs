//! Conditions on the machine for the start of a unit.
//!
//! | module | topic |
//! |---|---|
//! | `kind` | the kinds of conditions, with their names and the form of their arguments |
//! | `argument` | arguments that have parts: limits and comparisons |
//! | `version` | the order of versions |
//! | `fnmatch` | patterns of the shell |

mod argument;
mod fnmatch;
mod kind;
mod version;

pub use argument::{
    Comparison, CountLimit, FieldComparison, Operator, PressureLimit, SizeLimit, VersionComparison,
};
pub use fnmatch::{expand_braces, fnmatch};
pub use kind::ConditionKind;
pub use version::compare_versions;

/// A check of the machine, made when a unit is about to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitCondition {
    /// The check.
    pub test: ConditionTest,
    /// Whether the result is inverted (`!`).
    pub negated: bool,
    /// Whether the condition is an alternative (`|`): of all alternatives of a unit, at least one
    /// has to hold.
    pub any: bool,
    /// Whether the unit fails if the condition does not hold (`Assert…=`). Otherwise, its start is
    /// only skipped.
    pub assert: bool,
}

/// A property of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConditionTest {
    /// What is checked.
    pub kind: ConditionKind,
    /// The value to compare with, such as a path. It has the form that the kind needs.
    pub argument: String,
}

impl ConditionTest {
    /// Creates a test.
    ///
    /// # Errors
    ///
    /// Returns a remedy, such as "write an absolute path", if the argument does not have the form
    /// that the kind needs.
    pub fn new(kind: ConditionKind, argument: impl Into<String>) -> Result<Self, &'static str> {
        let argument = argument.into();
        kind.check(&argument)?;
        Ok(Self { kind, argument })
    }
}

/// Result of the conditions of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionResult<'a> {
    /// The unit starts.
    Start,
    /// The start is skipped without a failure, because of this condition.
    Skip(&'a UnitCondition),
    /// The unit fails because of this assertion.
    Fail(&'a UnitCondition),
}

impl UnitCondition {
    /// Decides by the conditions of a unit whether it starts, is skipped or fails. `holds`
    /// evaluates a single test, without its negation. A test without a result does not hold,
    /// negated or not.
    ///
    /// 1. If the conditions (`Condition…=`) do not hold, the result is `Skip`.
    /// 2. Otherwise, if the assertions (`Assert…=`) do not hold, the result is `Fail`.
    /// 3. Otherwise, the result is `Start`.
    ///
    /// Conditions hold together if each one that is not marked `any` holds and, if some are marked
    /// `any`, at least one of those holds. The same is true of assertions. The result contains the
    /// first condition that does not hold.
    pub fn judge<'a>(
        all: &'a [Self],
        holds: impl Fn(&ConditionTest) -> Option<bool>,
    ) -> ConditionResult<'a> {
        let judge = |assert| Self::first_false(all.iter().filter(|it| it.assert == assert), &holds);
        if let Some(condition) = judge(false) {
            return ConditionResult::Skip(condition);
        }
        judge(true).map_or(ConditionResult::Start, ConditionResult::Fail)
    }

    fn first_false<'a>(
        all: impl Iterator<Item = &'a Self> + Clone,
        holds: &impl Fn(&ConditionTest) -> Option<bool>,
    ) -> Option<&'a Self> {
        let is_false = |it: &&Self| holds(&it.test) != Some(!it.negated);
        let each = all.clone().filter(|it| !it.any).find(is_false);
        let mut any = all.filter(|it| it.any);
        each.or_else(|| {
            let first = any.next()?;
            let all_false = is_false(&first) && any.all(|it| is_false(&it));
            all_false.then_some(first)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str) -> UnitCondition {
        let argument = text.trim_matches(['!', '|', '+']);
        UnitCondition {
            test: ConditionTest::new(ConditionKind::Host, argument).unwrap(),
            negated: text.contains('!'),
            any: text.contains('|'),
            assert: text.contains('+'),
        }
    }

    #[test]
    fn all_conditions_and_one_of_any_must_hold() {
        for (texts, expected) in [
            (&[][..], "start"),
            (&["yes", "!no"], "start"),
            (&["yes", "no"], "skip no"),
            (&["!yes"], "skip yes"),
            (&["|no", "|yes"], "start"),
            (&["|no", "|!yes"], "skip no"),
            (&["|yes", "no"], "skip no"),
            (&["no", "+yes"], "skip no"),
            (&["no", "+no"], "skip no"),
            (&["yes", "+no"], "fail no"),
            (&["yes", "+|no", "+|yes"], "start"),
            (&["|yes", "+|no"], "fail no"),
            (&["unknown"], "skip unknown"),
            (&["!unknown"], "skip unknown"),
            (&["|!unknown", "|yes"], "start"),
        ] {
            let all: Vec<_> = texts.iter().map(|text| condition(text)).collect();
            let holds = |test: &ConditionTest| match test.argument.as_str() {
                "unknown" => None,
                argument => Some(argument == "yes"),
            };
            let output = match UnitCondition::judge(&all, holds) {
                ConditionResult::Start => "start".to_owned(),
                ConditionResult::Skip(it) => format!("skip {}", it.test.argument),
                ConditionResult::Fail(it) => format!("fail {}", it.test.argument),
            };
            assert_eq!(output, expected, "{texts:?}");
        }
    }
}
