//! A minimal reader of Rust source: finds code, functions and test modules.

mod mask;
mod spans;

use std::ops::RangeInclusive;

pub(crate) use spans::Function;

/// A Rust file, split into code and everything else.
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
        Self { text: text.to_owned(), code, functions, test_modules }
    }

    /// The whole text of the file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The file with comments, strings and character literals blanked out, so that a search finds
    /// code alone. Lines and columns match the file.
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
        let around = self.functions.iter().filter(|function| function.lines.contains(&line));
        around.max_by_key(|function| *function.lines.start())
    }

    /// Whether a line belongs to an item under `cfg(test)`.
    pub(crate) fn in_test_module(&self, line: usize) -> bool {
        self.test_modules.iter().any(|lines| lines.contains(&line))
    }
}

/// Whether `path`, such as `Instant::now`, occurs in `line` as whole words.
pub(crate) fn mentions(line: &str, path: &str) -> bool {
    positions(line, path).next().is_some()
}

/// Byte offsets of `path` in `code`, as whole words.
pub(crate) fn positions<'a>(code: &'a str, path: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(path).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back();
        let after = code[at + path.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Every name that the code uses directly under `parent`, with its line. `parent::name` gives
/// `name`; `parent::{name, other::{…}}` gives `name` and `other`.
pub(crate) fn names_under(code: &str, parent: &str) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    for at in positions(code, parent) {
        if let Some(path) = code[at + parent.len()..].strip_prefix("::") {
            let line = line_of(code, at);
            names.extend(first_segments(path).into_iter().map(|name| (line, name)));
        }
    }
    names
}

/// The first name of a path, or of each path in a braced group.
fn first_segments(path: &str) -> Vec<String> {
    let word = |text: &str| {
        let text = text.trim_start().chars();
        text.take_while(|&c| is_word(c)).collect::<String>()
    };
    let Some(group) = path.strip_prefix('{') else {
        return vec![word(path)];
    };
    let outermost = group.chars().scan(1_u32, |depth, c| {
        *depth = match c {
            '{' => *depth + 1,
            '}' => *depth - 1,
            _ => *depth,
        };
        (*depth > 0).then_some((*depth, c))
    });
    let outermost = outermost.filter(|(depth, _)| *depth == 1).map(|(_, c)| c);
    outermost.collect::<String>().split(',').map(word).collect()
}

/// The 1-based line of a byte offset.
pub(crate) fn line_of(code: &str, at: usize) -> usize {
    1 + code[..at].matches('\n').count()
}

/// Whether a character may occur inside an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[test]
fn a_path_is_found_as_whole_words_only() {
    assert!(mentions("let t = std::time::Instant::now();", "Instant::now"));
    assert!(!mentions("let t = MyInstant::now();", "Instant::now"));
    assert!(!mentions("let t = Instant::nowhere();", "Instant::now"));
}

#[test]
fn names_are_found_in_paths_and_groups() {
    let code = "use std::{\n    fmt::{self, Debug}, fs,\n};\nfn f() { std::env::args() }";
    let found = names_under(code, "std");
    let expected = [(1, "fmt"), (1, "fs"), (1, ""), (4, "env")];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
}
