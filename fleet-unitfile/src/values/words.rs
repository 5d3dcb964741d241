//! Splitting of values into words, with quotes and escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Splits a value into words as systemd does, with quotes and C escapes.
///
/// Blanks separate words, except inside single or double quotes. Quotes may open inside a word, and
/// are removed. An empty pair of quotes makes an empty word.
///
/// A backslash begins an escape, also inside quotes: `\a` `\b` `\f` `\n` `\r` `\t` `\v` `\\` `\"`
/// `\'`, `\s` (a space), `\xHH`, `\NNN` (octal), `\uHHHH` and `\UHHHHHHHH`.
///
/// # Errors
///
/// Returns an error for an unclosed quote, an unknown escape, or a word that is not UTF-8. For
/// command lines and some other values, systemd only warns about an unknown escape. Split such
/// values with [`split_words_relaxed`].
///
/// ```
/// let words = fleet_unitfile::values::split_words(r#"/bin/echo "two words" a\x20b"#)?;
/// assert_eq!(words, ["/bin/echo", "two words", "a b"]);
/// # Ok::<(), fleet_unitfile::values::WordError>(())
/// ```
pub fn split_words(text: &str) -> Result<Vec<String>, WordError> {
    Splitter::new(text, false).collect()
}

/// Splits a value like [`split_words`], but keeps unknown escapes as written.
///
/// systemd does the same, after a warning, for a line such as `ExecStart=sed s/\./,/`.
///
/// # Errors
///
/// Returns an error for an unclosed quote, or for a word that is not UTF-8.
pub fn split_words_relaxed(text: &str) -> Result<Vec<String>, WordError> {
    Splitter::new(text, true).collect()
}

/// Quotes a string as a single word, from which [`split_words`] reads the same string.
///
/// A word without blanks, quotes, backslashes and control characters is returned unchanged. Any
/// other word, an empty word and `;` are put in double quotes, with escapes.
///
/// Some characters need further care:
///
/// - Percent signs are unchanged. Double them for values in which systemd expands specifiers.
/// - Dollar signs are unchanged. Double them for [command lines](crate::CommandLine).
/// - A zero byte is unchanged, because it has no escape. An option that contains one cannot be
///   written.
/// ```
/// use fleet_unitfile::values::quote_word;
///
/// assert_eq!(quote_word("--verbose"), "--verbose");
/// assert_eq!(quote_word(r#"say "hi""#), r#""say \"hi\"""#);
/// ```
pub fn quote_word(word: &str) -> Cow<'_, str> {
    let needs_quotes =
        |c: char| c.is_control() || matches!(c, ' ' | '"' | '\'' | '\\') || c.is_whitespace();
    if !word.is_empty() && word != ";" && !word.contains(needs_quotes) {
        return Cow::Borrowed(word);
    }
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('"');
    cescape_into(word, &mut quoted);
    quoted.push('"');
    Cow::Owned(quoted)
}

/// Escapes a string with the C escapes that systemd reads: `\\`, `\"`, `\'`, `\n` and so on.
///
/// Control characters without a short escape become `\xHH`. All other characters are unchanged.
/// systemd itself writes octal digits, and also escapes the bytes of characters beyond ASCII. So
/// is a zero byte, because systemd has no escape for it.
///
/// ```
/// use fleet_unitfile::values::{cescape, cunescape};
///
/// assert_eq!(cescape("a\tb\\"), r"a\tb\\");
/// assert_eq!(cunescape(r"a\tb\x21")?, "a\tb!");
/// # Ok::<(), fleet_unitfile::values::WordError>(())
/// ```
pub fn cescape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    cescape_into(text, &mut escaped);
    escaped
}

/// Decodes the same escapes as [`split_words`], without splitting the text into words.
///
/// # Errors
///
/// Returns an error for an unknown escape, or if the result is not UTF-8.
pub fn cunescape(text: &str) -> Result<String, WordError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut splitter = Splitter::new(text, false);
    while let Some(&byte) = text.as_bytes().get(splitter.at) {
        match byte {
            b'\\' => splitter.escape(&mut bytes)?,
            _ => bytes.push(byte),
        }
        splitter.at += 1;
    }
    String::from_utf8(bytes).map_err(|_| WordError::NotUtf8 { at: 0 })
}

fn cescape_into(text: &str, escaped: &mut String) {
    for character in text.chars() {
        let name = match character {
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\\' | '"' | '\'' => character,
            '\u{1}'..='\u{1f}' | '\u{7f}' => {
                let code = u32::from(character);
                write!(escaped, "\\x{code:02x}").expect("writing to a String cannot fail");
                continue;
            }
            _ => {
                escaped.push(character);
                continue;
            }
        };
        escaped.extend(['\\', name]);
    }
}

/// Error for a value that cannot be split into words. Its offsets are byte offsets in the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// An unclosed quote.
    #[error("quote at byte {at} is not closed: add the same quote where the word ends")]
    OpenQuote {
        /// Offset of the quote.
        at: usize,
    },
    /// A backslash that does not begin a known escape.
    #[error("unknown escape at byte {at}: write \"\\\\\" for a backslash")]
    Escape {
        /// Offset of the backslash.
        at: usize,
    },
    /// The escapes of a word produce bytes that are not UTF-8.
    #[error("the escapes of the word at byte {at} do not form UTF-8: write characters as \\uXXXX")]
    NotUtf8 {
        /// Offset of the word.
        at: usize,
    },
}

/// An iterator that splits words off the front of a string.
pub(crate) struct Splitter<'a> {
    text: &'a str,
    at: usize,
    relaxed: bool,
    unknown_escape: Option<usize>,
}

impl Iterator for Splitter<'_> {
    type Item = Result<String, WordError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_blanks();
        (self.at < self.text.len()).then(|| self.word())
    }
}

impl<'a> Splitter<'a> {
    pub(crate) fn new(text: &'a str, relaxed: bool) -> Self {
        Self { text, at: 0, relaxed, unknown_escape: None }
    }

    /// Returns the offset of the first unknown escape, if there was one.
    pub(crate) fn unknown_escape(&self) -> Option<usize> {
        self.unknown_escape
    }

    /// Returns the offset of the remaining text.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Returns the remaining text.
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips a number of bytes, which must be whole characters.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Skips blanks.
    pub(crate) fn skip_blanks(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|&&byte| is_separator(byte)).count();
    }

    fn word(&mut self) -> Result<String, WordError> {
        let start = self.at;
        let mut word = Vec::new();
        let mut quote = None;
        while let Some(&byte) = self.text.as_bytes().get(self.at) {
            match (byte, quote) {
                (b'\\', _) => self.escape(&mut word)?,
                (_, Some((open, _))) if byte == open => quote = None,
                (b'"' | b'\'', None) => quote = Some((byte, self.at)),
                (_, None) if is_separator(byte) => break,
                _ => word.push(byte),
            }
            self.at += 1;
        }
        match quote {
            Some((_, at)) => Err(WordError::OpenQuote { at }),
            None => String::from_utf8(word).map_err(|_| WordError::NotUtf8 { at: start }),
        }
    }

    /// Decodes the escape that begins at the current backslash, and appends the result to `word`.
    /// Moves the position to the last byte of the escape.
    fn escape(&mut self, word: &mut Vec<u8>) -> Result<(), WordError> {
        match unescape(&self.text[self.at + 1..]) {
            Some((UnescapedItem::Byte(byte), len)) => {
                word.push(byte);
                self.at += len;
            }
            Some((UnescapedItem::Character(character), len)) => {
                word.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += len;
            }
            None if self.relaxed => self.keep_unknown_escape(word),
            None => return Err(WordError::Escape { at: self.at }),
        }
        Ok(())
    }

    /// Keeps the backslash and the character after it as they are.
    fn keep_unknown_escape(&mut self, word: &mut Vec<u8>) {
        self.unknown_escape.get_or_insert(self.at);
        let len = self.text[self.at + 1..].chars().next().map_or(0, char::len_utf8);
        word.extend_from_slice(&self.text.as_bytes()[self.at..][..1 + len]);
        self.at += len;
    }
}

enum UnescapedItem {
    Byte(u8),
    Character(char),
}

/// Decodes the escape in `text`, which begins after the backslash. Returns the decoded byte or
/// character, and the number of bytes consumed.
fn unescape(text: &str) -> Option<(UnescapedItem, usize)> {
    let byte = match text.bytes().next()? {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b's' => b' ',
        byte @ (b'\\' | b'"' | b'\'') => byte,
        b'x' => return byte_escape(text.get(1..3)?, 16).map(|byte| (byte, 3)),
        b'0'..=b'7' => return byte_escape(text.get(..3)?, 8).map(|byte| (byte, 3)),
        b'u' => return character_escape(text.get(1..5)?).map(|escaped| (escaped, 5)),
        b'U' => return character_escape(text.get(1..9)?).map(|escaped| (escaped, 9)),
        _ => return None,
    };
    Some((UnescapedItem::Byte(byte), 1))
}

/// Decodes the number of a byte. Returns `None` for zero, because the kernel would end a program's
/// argument at a zero byte.
fn byte_escape(digits: &str, radix: u32) -> Option<UnescapedItem> {
    let value = number(digits, radix).filter(|&value| value != 0)?;
    u8::try_from(value).ok().map(UnescapedItem::Byte)
}

/// Decodes the number of a character. Returns `None` for zero.
///
/// For a number that is not a Unicode character (such as a surrogate), returns a byte that makes
/// the word invalid UTF-8. systemd also produces invalid UTF-8 for these numbers.
fn character_escape(digits: &str) -> Option<UnescapedItem> {
    const NOT_UTF8: u8 = 0xff;
    let value = number(digits, 16).filter(|&value| value != 0)?;
    Some(char::from_u32(value).map_or(UnescapedItem::Byte(NOT_UTF8), UnescapedItem::Character))
}

/// Parses digits only, without the sign that the standard library accepts.
fn number(digits: &str, radix: u32) -> Option<u32> {
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}

/// Returns `true` if a byte separates words.
pub(crate) fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
