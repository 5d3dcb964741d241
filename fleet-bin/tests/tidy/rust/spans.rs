//! Finds functions and test modules by matching brackets in code cleaned by [`super::mask`].

use std::ops::RangeInclusive;

use super::{is_word, line_of, positions};

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: String,
    /// From the line of `fn` to the line of the closing brace.
    pub(crate) lines: RangeInclusive<usize>,
}

/// Every function with a body, in file order.
pub(super) fn functions(code: &str) -> Vec<Function> {
    positions(code, "fn").filter_map(|at| function(code, at)).collect()
}

/// The lines of each item under a `#[cfg(…)]` that mentions `test`.
pub(super) fn test_modules(code: &str) -> Vec<RangeInclusive<usize>> {
    let found = code.match_indices("#[cfg(").filter_map(|(at, open)| {
        let inside = at + open.len();
        let end = inside + code[inside..].find(']')?;
        let condition = &code[inside..end];
        if condition.contains("not(") || positions(condition, "test").next().is_none() {
            return None;
        }
        Some(line_of(code, at)..=line_of(code, item_end(code, end + 1)))
    });
    found.collect()
}

fn function(code: &str, at: usize) -> Option<Function> {
    let signature = &code[at + "fn".len()..];
    let name: String = signature.trim_start().chars().take_while(|&c| is_word(c)).collect();
    let end = item_end(code, at);
    let is_item = !name.is_empty() && code[end..].starts_with('}');
    is_item.then(|| Function { name, lines: line_of(code, at)..=line_of(code, end) })
}

/// The offset of the end of the item that starts at `from`: its closing brace or semicolon.
fn item_end(code: &str, from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, b) in code.bytes().enumerate().skip(from) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 && matches!(b, b'}' | b';') {
            return at;
        }
    }
    code.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "\
trait T { fn a(&self) -> [u8; 2]; }
fn b<F: Fn(u8)>(f: F) -> [u8; 2]
{
    fn c() {}
    let p: fn(u8) = |_| {};
    if x { y }
}

#[cfg(all(test, unix))]
mod tests {
    fn d() {}
}
#[cfg(test)]
mod more;
#[cfg(not(test))]
fn e() {}
";

    #[test]
    fn functions_are_found_with_their_lines() {
        let found: Vec<_> =
            functions(CODE).into_iter().map(|f| (f.name, f.lines.into_inner())).collect();
        let expected = [("b", (2, 7)), ("c", (4, 4)), ("d", (11, 11)), ("e", (16, 16))];
        assert_eq!(found, expected.map(|(name, lines)| (name.to_owned(), lines)));
    }

    #[test]
    fn test_modules_are_found_with_their_lines() {
        assert_eq!(test_modules(CODE), [9..=12, 13..=14]);
    }
}
