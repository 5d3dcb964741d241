//! What has to be true of the machine for a unit to be started.

/// Something that is asked of the machine at the moment in which a unit is to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What is asked.
    pub test: ConditionTest,
    /// It holds where the test does not (`!`).
    pub negated: bool,
    /// Of all such, one that holds is enough (`|`).
    pub any: bool,
    /// Where it does not hold, the unit has failed, and not merely been left out (`Assert…=`).
    pub assert: bool,
}

/// A question about the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionTest {
    /// Whether there is anything at this path.
    PathExists(String),
    /// Whether a directory is.
    PathIsDirectory(String),
    /// Whether a file is that holds something.
    FileNotEmpty(String),
    /// Whether a file is that may be executed.
    FileIsExecutable(String),
    /// Whether the machine has this id, or a host name that this pattern matches.
    Host(String),
    /// Whether the command line of the kernel has this word, or assigns to a name that is it.
    KernelCommandLine(String),
    /// Whether who runs the units has this name or number; `@system` is each user of the system.
    User(String),
}

/// What conditions make of a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionResult<'a> {
    /// The unit is started.
    Start,
    /// It stays as it is, without having failed.
    Skip(&'a Condition),
    /// It has failed.
    Fail(&'a Condition),
}

impl Condition {
    /// What some conditions make of a start, where `holds` answers a test.
    ///
    /// Assertions are judged last, as systemd does. Each condition has to hold, and of those marked
    /// as `any`, if there are some, one. The verdict names the first that does not.
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

    fn condition(text: &str) -> Condition {
        Condition {
            test: ConditionTest::PathExists(text.trim_matches(['!', '|', '+']).to_owned()),
            negated: text.contains('!'),
            any: text.contains('|'),
            assert: text.contains('+'),
        }
    }

    #[test]
    fn all_have_to_hold_and_one_of_any() {
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
            let named = |it: &Condition| match &it.test {
                ConditionTest::PathExists(path) => path.clone(),
                _ => String::new(),
            };
            let holds = |test: &ConditionTest| *test == ConditionTest::PathExists("yes".to_owned());
            let told = match Condition::judge(&all, holds) {
                ConditionResult::Start => "start".to_owned(),
                ConditionResult::Skip(it) => format!("skip {}", named(it)),
                ConditionResult::Fail(it) => format!("fail {}", named(it)),
            };
            assert_eq!(told, expected, "{texts:?}");
        }
    }
}
