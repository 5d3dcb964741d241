//! Words: how a value such as a command line falls apart, with quotes and escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Splits a value into words as systemd does, with quotes and escapes of C.
///
/// Blanks part words. Single and double quotes keep blanks together, may open inside a word,
/// and are removed; an empty pair makes an empty word. A backslash begins an escape, in quotes
/// too: `\a` `\b` `\f` `\n` `\r` `\t` `\v` `\\` `\"` `\'`, `\s` (a space), `\xHH`, `\NNN` (octal),
/// `\uHHHH` and `\UHHHHHHHH`.
///
/// # Errors
///
/// A quote that is not closed, an escape that is none of these, or a word that is not UTF-8.
/// For command lines and the like systemd only warns of an unknown escape; see
/// [`split_words_relaxed`] for that.
///
/// ```
/// let words = fleet_unitfile::split_words(r#"/bin/echo "two words" a\x20b"#)?;
/// assert_eq!(words, ["/bin/echo", "two words", "a b"]);
/// # Ok::<(), fleet_unitfile::WordError>(())
/// ```
pub fn split_words(text: &str) -> Result<Vec<String>, WordError> {
    Splitter::new(text, false).collect()
}

/// Splits like [`split_words`], but keeps an escape that it does not know as it is written.
///
/// This is how systemd goes on after its warning about a line such as `ExecStart=sed s/\./,/`.
///
/// # Errors
///
/// A quote that is not closed, or a word that is not UTF-8.
pub fn split_words_relaxed(text: &str) -> Result<Vec<String>, WordError> {
    Splitter::new(text, true).collect()
}

/// Writes a text as one word that [`split_words`] reads as the same.
///
/// A word without blanks, quotes, backslashes and control characters is written as it is, any
/// other in double quotes with escapes. A percent sign is left as it is: double it where
/// specifiers are expanded. So is a dollar sign, for [command lines](crate::CommandLine), and a
/// zero byte, for which there is no escape: an option with one is refused when it is written.
///
/// ```
/// use fleet_unitfile::quote_word;
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

/// Writes a text with the escapes of C, as systemd shows texts: `\\`, `\"`, `\'`, `\n` and so on.
///
/// Control characters without a name become `\xHH`; every other character stays, and so does a
/// zero byte, which the grammar has no escape for.
///
/// ```
/// use fleet_unitfile::{cescape, cunescape};
///
/// assert_eq!(cescape("a\tb\\"), r"a\tb\\");
/// assert_eq!(cunescape(r"a\tb\x21")?, "a\tb!");
/// # Ok::<(), fleet_unitfile::WordError>(())
/// ```
pub fn cescape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    cescape_into(text, &mut escaped);
    escaped
}

/// Reads the escapes that [`split_words`] knows, in a text that is not split.
///
/// # Errors
///
/// An escape that is unknown, or a text that is not UTF-8 once it is read.
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

/// Why a value cannot be split into words; offsets are in bytes of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// A quote that is not closed.
    #[error("quote at byte {at} is not closed: add the same quote where the word ends")]
    OpenQuote {
        /// The offset of the quote.
        at: usize,
    },
    /// A backslash that begins no escape.
    #[error("unknown escape at byte {at}: write \"\\\\\" for a backslash")]
    Escape {
        /// The offset of the backslash.
        at: usize,
    },
    /// The escapes of a word stand for bytes that are not UTF-8.
    #[error("word at byte {at} is not UTF-8 once its escapes are read: use \\u for characters")]
    NotUtf8 {
        /// The offset of the word.
        at: usize,
    },
}

/// Takes words off the front of a text.
pub(crate) struct Splitter<'a> {
    text: &'a str,
    at: usize,
    relaxed: bool,
    kept_escape: Option<usize>,
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
        Self { text, at: 0, relaxed, kept_escape: None }
    }

    /// The offset of the first backslash that began no escape, if there was one.
    pub(crate) fn kept_escape(&self) -> Option<usize> {
        self.kept_escape
    }

    /// The offset of what was not taken yet.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// What was not taken yet.
    pub(crate) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Goes on after so many bytes, which are whole characters.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Goes on at what is no blank.
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

    /// Reads the escape whose backslash is next, and stays on the last byte of it.
    fn escape(&mut self, word: &mut Vec<u8>) -> Result<(), WordError> {
        match unescape(&self.text[self.at + 1..]) {
            Some((Escaped::Byte(byte), len)) => {
                word.push(byte);
                self.at += len;
            }
            Some((Escaped::Character(character), len)) => {
                word.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                self.at += len;
            }
            None if self.relaxed => self.keep_escape(word),
            None => return Err(WordError::Escape { at: self.at }),
        }
        Ok(())
    }

    /// Takes the backslash and the character after it as they are, whatever that one is.
    fn keep_escape(&mut self, word: &mut Vec<u8>) {
        self.kept_escape.get_or_insert(self.at);
        let len = self.text[self.at + 1..].chars().next().map_or(0, char::len_utf8);
        word.extend_from_slice(&self.text.as_bytes()[self.at..][..1 + len]);
        self.at += len;
    }
}

enum Escaped {
    Byte(u8),
    Character(char),
}

/// What the text after a backslash stands for, and how many bytes of it do.
fn unescape(text: &str) -> Option<(Escaped, usize)> {
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
    Some((Escaped::Byte(byte), 1))
}

/// A byte by its number; zero would end a word early in the hands of the kernel, so is none.
fn byte_escape(digits: &str, radix: u32) -> Option<Escaped> {
    let value = number(digits, radix).filter(|&value| value != 0)?;
    u8::try_from(value).ok().map(Escaped::Byte)
}

/// A character by its number. systemd takes the number of none, too, and makes bytes of it that
/// are not UTF-8.
fn character_escape(digits: &str) -> Option<Escaped> {
    const NOT_UTF8: u8 = 0xff;
    let value = number(digits, 16).filter(|&value| value != 0)?;
    Some(char::from_u32(value).map_or(Escaped::Byte(NOT_UTF8), Escaped::Character))
}

/// A number of digits alone, without the sign that the standard library would accept.
fn number(digits: &str, radix: u32) -> Option<u32> {
    let plain = digits.chars().all(|digit| digit.is_digit(radix));
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}

/// Whether a byte parts words.
pub(crate) fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
