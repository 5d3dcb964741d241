//! Just enough of Rust's grammar to ask where code, functions and test modules are.

mod mask;
mod spans;

use std::ops::RangeInclusive;

pub(crate) use spans::Function;

/// The text of a Rust file, taken apart.
pub(crate) struct Source {
    text: String,
    code: String,
    functions: Vec<Function>,
    test_modules: Vec<RangeInclusive<usize>>,
}

impl Source {
    pub(crate) fn new(text: &str) -> Self {
        let code = mask::code_only(text);
        let functions = spans::functions(&code);
        let test_modules = spans::test_modules(&code);
        Self {
            text: text.to_owned(),
            code,
            functions,
            test_modules,
        }
    }

    /// The file as it stands.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The file with every comment, string and character literal blanked out, so that a search
    /// finds code alone. Lines and columns are those of the file.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// The lines of [`Source::code`], counted from 1.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.code.lines())
    }

    /// Every function that has a body.
    pub(crate) fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The innermost function around a line.
    pub(crate) fn function_at(&self, line: usize) -> Option<&Function> {
        let around = self
            .functions
            .iter()
            .filter(|function| function.lines.contains(&line));
        around.max_by_key(|function| *function.lines.start())
    }

    /// Whether a line belongs to an item that exists under `cfg(test)` alone.
    pub(crate) fn in_test_module(&self, line: usize) -> bool {
        self.test_modules.iter().any(|lines| lines.contains(&line))
    }
}

/// Whether `path`, such as `Instant::now`, occurs in `line` as whole words.
pub(crate) fn mentions(line: &str, path: &str) -> bool {
    positions(line, path).next().is_some()
}

/// Where `path` occurs in `code` as whole words, in bytes.
pub(crate) fn positions<'a>(code: &'a str, path: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(path)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let before = code[..at].chars().next_back();
            let after = code[at + path.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
}

/// The 1-based line of a byte offset.
pub(crate) fn line_of(code: &str, at: usize) -> usize {
    1 + code[..at].matches('\n').count()
}

/// Whether a character may stand inside an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[test]
fn a_path_is_found_as_whole_words_only() {
    assert!(mentions(
        "let t = std::time::Instant::now();",
        "Instant::now"
    ));
    assert!(!mentions("let t = MyInstant::now();", "Instant::now"));
    assert!(!mentions("let t = Instant::nowhere();", "Instant::now"));
}
