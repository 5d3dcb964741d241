//! Pure: text from elsewhere, made harmless for terminals.
//!
//! What units write, what machines say and what files hold may have characters in it that a
//! terminal obeys: to clear the screen, to hide what stands before, to type an answer. People see
//! such characters as escapes, in the way of `journalctl`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The colours and weights that this program paints words in, by their numbers.
const PAINT: [&str; 6] = ["0", "1", "31", "32", "33", "36"];

/// The text with an escape in the place of each character that a terminal might obey. Ends of line
/// and tabs stay what they are.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, |_| 0)
}

/// The same, and what paints words stays: colours are the most that it can do.
pub(crate) fn harmless_painted(text: &str) -> Cow<'_, str> {
    escaped(text, paint)
}

/// The same for a line that was written elsewhere, without what may be left of its end.
pub(crate) fn harmless_line(line: &str) -> Cow<'_, str> {
    harmless(line.trim_end_matches('\r'))
}

/// A JSON text with JSON's own escapes in the place of what terminals might obey, so that it still
/// means the same.
pub(crate) fn harmless_json(text: String) -> String {
    let orders = |c: char| is_order(c) && c != '\r';
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

/// Escapes what is an order, except where `kept` says how many of the next bytes are to stay.
fn escaped(text: &str, kept: impl Fn(&str) -> usize) -> Cow<'_, str> {
    if !text.contains(is_order) {
        return Cow::Borrowed(text);
    }
    let (mut all, mut rest) = (String::with_capacity(text.len() + 16), text);
    while let Some(c) = rest.chars().next() {
        let (this, after) = rest.split_at(kept(rest).max(c.len_utf8()));
        match c {
            '\r' => all.push_str("\\r"),
            c if is_order(c) && kept(rest) == 0 => match u32::from(c) {
                code @ ..=0xff => _ = write!(all, "\\x{code:02x}"),
                code => _ = write!(all, "\\u{code:04x}"),
            },
            _ => all.push_str(this),
        }
        rest = after;
    }
    Cow::Owned(all)
}

/// Control characters, and those that turn the direction of writing, by which text can be made to
/// look like another.
fn is_order(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && !matches!(c, '\n' | '\t'))
}

/// How many bytes at the start of the text are paint.
fn paint(text: &str) -> usize {
    let numbers = text.strip_prefix("\u{1b}[").and_then(|rest| rest.split_once('m'));
    let number = numbers.map(|(number, _)| number).filter(|number| PAINT.contains(number));
    number.map_or(0, |number| "\u{1b}[m".len() + number.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleetctl::colour::{BAD, Colour, HELP, ODD};

    #[test]
    fn what_a_terminal_obeys_is_shown_as_an_escape() {
        for (text, expected) in [
            ("plain, é and 日本\n\ttoo", "plain, é and 日本\n\ttoo"),
            ("\u{1b}[2J\u{1b}]0;title\u{7}", r"\x1b[2J\x1b]0;title\x07"),
            ("gone\rhere\u{8}", r"gone\rhere\x08"),
            ("\u{9b}31m\u{7f}\0", r"\x9b31m\x7f\x00"),
            ("user\u{202e}txt", r"user\u202etxt"),
        ] {
            assert_eq!(harmless(text), expected);
        }
        assert!(matches!(harmless("plain"), Cow::Borrowed(_)));
        assert_eq!(harmless_line("by DOS\r"), "by DOS");
    }

    #[test]
    fn nothing_but_paint_gets_through_where_words_are_painted() {
        let words = [BAD, ODD, HELP].map(|style| Colour::On.paint(style, "word"));
        let words = words.into_iter().chain([Colour::On.state("active")]).collect::<String>();
        assert_eq!(harmless_painted(&words), words);
        assert_eq!(harmless_painted("\u{1b}[8mhidden\u{1b}[0m"), "\\x1b[8mhidden\u{1b}[0m");
        for order in ["\u{1b}[2J", "\u{1b}[31", "\u{1b}[31;5m", "\u{1b}c", "\u{1b}[m"] {
            assert!(!harmless_painted(order).contains('\u{1b}'), "{order:?}");
        }
    }

    #[test]
    fn json_that_is_made_harmless_means_the_same() {
        let value = serde_json::json!({ "line": "a\u{9b}31m\u{1b}\r\u{202e}b\u{7f}é" });
        for text in [value.to_string(), format!("{value:#}")] {
            let made = harmless_json(text);
            assert!(!made.contains(is_order), "{made:?}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&made).unwrap(), value);
        }
    }
}
