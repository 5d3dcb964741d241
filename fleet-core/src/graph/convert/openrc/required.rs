//! What has to be there before a service of OpenRC starts.

use super::service::{Own, Why};
use super::tokens::{Piece, plain};
use crate::graph::{Condition, ConditionTest};

impl Own<'_, '_> {
    /// What has to be there before it starts.
    pub(super) fn required(&mut self) -> Result<(), Why> {
        type Make = fn(String) -> ConditionTest;
        let tests: [(&str, Make); 2] = [
            ("required_dirs", ConditionTest::PathIsDirectory),
            ("required_files", ConditionTest::PathExists),
        ];
        for (name, test) in tests {
            let Some((line, words)) = self.parted(name)? else { continue };
            for word in words {
                let Some(path) = plain(&word) else {
                    self.required_unknown(name, line, &word);
                    continue;
                };
                let condition =
                    Condition { test: test(path), negated: false, any: false, assert: true };
                self.unit.run.conditions.push(condition);
            }
        }
        Ok(())
    }

    /// Tells of a path with a variable in it, which stands for nothing in an assertion.
    fn required_unknown(&mut self, name: &str, line: usize, word: &[Piece]) {
        let spelt = word.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Variable { name, .. } => format!("${{{name}}}"),
            Piece::Unknown => "…".to_owned(),
        });
        let path: String = spelt.collect();
        let message =
            format!("`{name}` has `{path}`, which is not looked at: only a shell can tell");
        let help = "write `assert: path-exists PATH` into the stanza, or path-is-directory";
        self.report.loss((self.file, line), message, help);
    }

    /// Tells that nothing has to be there before a unit is up that runs nothing.
    pub(super) fn required_of_none(&mut self) {
        for name in ["required_dirs", "required_files"] {
            if let Some((line, _)) = self.script.value(name) {
                let message = format!("`{name}` is not looked at, because the unit is virtual");
                let help = "make it a oneshot that runs /bin/true, with `assert: path-exists PATH`";
                self.report.loss((self.file, line), message, help);
            }
        }
    }
}
