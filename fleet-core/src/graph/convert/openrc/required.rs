//! Converts required directories and files to assertions.

use super::service::{ServiceConverter, UnknownReason};
use super::tokens::{Piece, plain};
use crate::graph::{ConditionTest, UnitCondition};

impl ServiceConverter<'_, '_> {
    /// Adds assertions for required directories and files.
    pub(super) fn required(&mut self) -> Result<(), UnknownReason> {
        type MakeTest = fn(String) -> ConditionTest;
        let tests: [(&str, MakeTest); 2] = [
            ("required_dirs", ConditionTest::PathIsDirectory),
            ("required_files", ConditionTest::PathExists),
        ];
        for (name, test) in tests {
            let Some((line, words)) = self.split_words(name)? else { continue };
            for word in words {
                let Some(path) = plain(&word) else {
                    self.report_unknown_path(name, line, &word);
                    continue;
                };
                let condition =
                    UnitCondition { test: test(path), negated: false, any: false, assert: true };
                self.unit.run.conditions.push(condition);
            }
        }
        Ok(())
    }

    /// Reports a path with a variable, which an assertion cannot contain.
    fn report_unknown_path(&mut self, name: &str, line: usize, word: &[Piece]) {
        let written = word.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Variable { name, .. } => format!("${{{name}}}"),
            Piece::Unknown => "…".to_owned(),
        });
        let path: String = written.collect();
        let message =
            format!("`{name}` has `{path}`, which is not checked: only a shell can evaluate it");
        let help = "write `assert: path-exists PATH` into the stanza, or path-is-directory";
        self.report.loss((self.file, line), message, help);
    }

    /// Reports requirements of a virtual unit, which has no assertions.
    pub(super) fn report_unused_requirements(&mut self) {
        for name in ["required_dirs", "required_files"] {
            if let Some((line, _)) = self.script.value(name) {
                let message = format!("`{name}` is not checked, because the unit is virtual");
                let help =
                    "make the unit a oneshot that runs /bin/true, with `assert: path-exists PATH`";
                self.report.loss((self.file, line), message, help);
            }
        }
    }
}
