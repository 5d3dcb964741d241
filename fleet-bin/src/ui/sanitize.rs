//! Pure: sanitizes text from other sources before it is printed on a terminal.
//!
//! The output of units, the reports of machines and the contents of files can contain control
//! characters. A terminal would obey them: it would clear the screen, hide text, or act as if the
//! user had typed something. Sanitized text contains escapes such as `\x1b` instead, as in
//! `journalctl`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Parameters of the colour sequences (SGR) that this program itself prints.
const ALLOWED_SGR: [&str; 6] = ["0", "1", "31", "32", "33", "36"];

/// Replaces characters that could control a terminal by escapes. Newlines and tabs stay.
pub(crate) fn sanitize_for_terminal(text: &str) -> Cow<'_, str> {
    escaped(text, |_| 0)
}

/// Like [`sanitize_for_terminal`], but keeps this program's own colour sequences.
pub(crate) fn sanitize_painted(text: &str) -> Cow<'_, str> {
    escaped(text, paint)
}

/// Like [`sanitize_for_terminal`], for one foreign line; drops trailing carriage returns.
pub(crate) fn sanitize_line(line: &str) -> Cow<'_, str> {
    sanitize_for_terminal(line.trim_end_matches('\r'))
}

/// Replaces characters of a JSON document that could control a terminal by JSON escapes. The value
/// of the document stays the same.
pub(crate) fn sanitize_json(text: String) -> String {
    let orders = |c: char| is_unsafe(c) && c != '\r';
    if !text.contains(orders) {
        return text;
    }
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        match orders(c) {
            true => _ = write!(all, "\\u{:04x}", u32::from(c)),
            false => all.push(c),
        }
    }
    all
}

/// Escapes unsafe characters. `kept_len` gets the rest of the text, and returns the length in bytes
/// of a sequence at its start that stays unescaped, or 0.
fn escaped(text: &str, kept_len: impl Fn(&str) -> usize) -> Cow<'_, str> {
    if !text.contains(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let (mut all, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(c) = rest.chars().next() {
        let (this, after) = rest.split_at(kept_len(rest).max(c.len_utf8()));
        match c {
            '\r' => all.push_str("\\r"),
            c if is_unsafe(c) && kept_len(rest) == 0 => match u32::from(c) {
                code @ ..=0xff => _ = write!(all, "\\x{code:02x}"),
                code => _ = write!(all, "\\u{code:04x}"),
            },
            _ => all.push_str(this),
        }
        rest = after;
    }
    Cow::Owned(all)
}

/// Returns whether the character is a control character or changes the direction of text. A changed
/// direction can make a name look like another one.
fn is_unsafe(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// Returns the length in bytes of this program's own colour sequence at the start of the text, or
/// 0.
fn paint(text: &str) -> usize {
    let numbers = text.strip_prefix("\u{1b}[").and_then(|rest| rest.split_once('m'));
    let number = numbers.map(|(number, _)| number).filter(|number| ALLOWED_SGR.contains(number));
    number.map_or(0, |number| "\u{1b}[m".len() + number.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::table::{BAD, Colour, HELP, ODD};

    #[test]
    fn control_characters_become_escapes() {
        for (text, expected) in [
            ("plain, é and 日本\n\ttoo", "plain, é and 日本\n\ttoo"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", r"\x1b[2J\x1b]0;title\x07"),
            ("gone\rhere\u{8}", r"gone\rhere\x08"),
            ("\u{9b}31m\u{7f}\0", r"\x9b31m\x7f\x00"),
            ("user\u{202e}txt", r"user\u202etxt"),
        ] {
            assert_eq!(sanitize_for_terminal(text), expected);
        }
        assert!(matches!(sanitize_for_terminal("plain"), Cow::Borrowed(_)));
        assert_eq!(sanitize_line("by DOS\r"), "by DOS");
    }

    #[test]
    fn only_own_colour_sequences_stay() {
        let words = [BAD, ODD, HELP].map(|style| Colour::On.paint(style, "word"));
        let words = words.into_iter().chain([Colour::On.state("active")]).collect::<String>();
        assert_eq!(sanitize_painted(&words), words);
        assert_eq!(sanitize_painted("\u{1b}[8mhidden\u{1b}[0m"), "\\x1b[8mhidden\u{1b}[0m");
        for order in ["\u{1b}[2J", "\u{1b}[31", "\u{1b}[31;5m", "\u{1b}c", "\u{1b}[m"] {
            assert!(!sanitize_painted(order).contains('\u{1b}'), "{order:?}");
        }
    }

    #[test]
    fn sanitized_json_keeps_its_value() {
        let value = serde_json::json!({ "line": "a\u{9b}31m\u{1b}\r\u{202e}b\u{7f}é" });
        for text in [value.to_string(), format!("{value:#}")] {
            let made = sanitize_json(text);
            assert!(!made.contains(is_unsafe), "{made:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&made).unwrap(), value);
        }
    }
}
