//! Conditions on the machine for the start of a unit.

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
pub enum ConditionTest {
    /// The path exists.
    PathExists(String),
    /// The path is a directory.
    PathIsDirectory(String),
    /// The path is a file that is not empty.
    FileNotEmpty(String),
    /// The path is an executable file.
    FileIsExecutable(String),
    /// The text equals the machine id, or is a pattern that matches the host name.
    Host(String),
    /// The kernel command line contains this word, or an assignment to this name.
    KernelCommandLine(String),
    /// The supervisor runs as this user, given by name or number. `@system` matches every system
    /// user.
    User(String),
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
    /// evaluates a single test, without its negation.
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
        holds: impl Fn(&ConditionTest) -> bool,
    ) -> ConditionResult<'a> {
        let judge = |assert| Self::first_false(all.iter().filter(|it| it.assert == assert), &holds);
        if let Some(condition) = judge(false) {
            return ConditionResult::Skip(condition);
        }
        judge(true).map_or(ConditionResult::Start, ConditionResult::Fail)
    }

    fn first_false<'a>(
        all: impl Iterator<Item = &'a Self> + Clone,
        holds: &impl Fn(&ConditionTest) -> bool,
    ) -> Option<&'a Self> {
        let is_false = |it: &&Self| holds(&it.test) == it.negated;
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
        UnitCondition {
            test: ConditionTest::PathExists(text.trim_matches(['!', '|', '+']).to_owned()),
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
        ] {
            let all: Vec<_> = texts.iter().map(|text| condition(text)).collect();
            let named = |it: &UnitCondition| match &it.test {
                ConditionTest::PathExists(path) => path.clone(),
                _ => String::new(),
            };
            let holds = |test: &ConditionTest| *test == ConditionTest::PathExists("yes".to_owned());
            let output = match UnitCondition::judge(&all, holds) {
                ConditionResult::Start => "start".to_owned(),
                ConditionResult::Skip(it) => format!("skip {}", named(it)),
                ConditionResult::Fail(it) => format!("fail {}", named(it)),
            };
            assert_eq!(output, expected, "{texts:?}");
        }
    }
}
