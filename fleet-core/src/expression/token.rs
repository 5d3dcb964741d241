//! The lexer of expressions.

use fleet_unitfile::Span;
use fleet_unitfile::specifier::SpecifierError;

use super::error::{ExpressionError, ExpressionProblem as Problem};
use super::node::Comparison;

/// A token with its span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) span: Span,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A key or a value, expanded and without its quotation marks.
    Word(String),
    Keyword(Keyword),
    Open,
    Close,
    Comma,
    Equal,
    Differs,
    Comparison(Comparison),
    /// The end of the text.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    And,
    Or,
    Not,
    In,
    Exists,
}

/// Symbols; a longer one precedes its prefixes.
const SIGNS: [(&str, Kind); 9] = [
    ("!=", Kind::Differs),
    ("<=", Kind::Comparison(Comparison::AtMost)),
    (">=", Kind::Comparison(Comparison::AtLeast)),
    ("<", Kind::Comparison(Comparison::Less)),
    (">", Kind::Comparison(Comparison::Greater)),
    ("=", Kind::Equal),
    ("(", Kind::Open),
    (")", Kind::Close),
    (",", Kind::Comma),
];

/// Symbols of other languages, longer ones first, with the equivalent in this language.
const FOREIGN_SIGNS: [(&str, &str); 8] = [
    ("&&", "and"),
    ("||", "or"),
    ("==", "="),
    ("=~", "in (a, b)"),
    ("&", "and"),
    ("|", "or"),
    ("!", "not"),
    ("'", "\""),
];

impl Keyword {
    const ALL: [Self; 5] = [Self::And, Self::Or, Self::Not, Self::In, Self::Exists];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::And => "and",
            Self::Or => "or",
            Self::Not => "not",
            Self::In => "in",
            Self::Exists => "exists",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|keyword| keyword.as_str() == name)
    }

    /// Returns the keyword that a word in capitals stands for.
    pub(super) fn nearest(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|keyword| keyword.as_str().eq_ignore_ascii_case(word))
    }
}

/// Returns `true` if a key or a value needs no quotation marks.
pub(super) fn is_bare(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_bare_character) && Keyword::from_name(text).is_none()
}

fn is_bare_character(c: char) -> bool {
    !(c.is_whitespace() || c.is_control() || "()=!<>,\"'&|".contains(c))
}

/// Expands the specifiers of a key or a value.
pub(super) type Expand<'a> = &'a dyn Fn(&str) -> Result<String, SpecifierError>;

/// Splits a text into tokens; the last one is the end.
pub(super) fn tokens(text: &str, expand: Expand<'_>) -> Result<Vec<Token>, ExpressionError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        at += text[at..].len() - text[at..].trim_start_matches([' ', '\t']).len();
        let (kind, length) = next(&text[at..], at, expand)?;
        let span = Span { start: at, end: at + length };
        at = span.end;
        let is_last = kind == Kind::End;
        tokens.push(Token { kind, span });
        if is_last {
            return Ok(tokens);
        }
    }
}

/// Returns the token at the start of a text, and the token's length in bytes.
fn next(rest: &str, at: usize, expand: Expand<'_>) -> Result<(Kind, usize), ExpressionError> {
    let refuse =
        |length, problem| Err(ExpressionError::new(Span { start: at, end: at + length }, problem));
    let Some(first) = rest.chars().next() else {
        return Ok((Kind::End, 0));
    };
    if first == '"' {
        return quoted(rest, at, expand);
    }
    // "!=" is a symbol here that begins with a foreign one, and "==" is a foreign one that begins
    // with a symbol here. The longer one takes precedence.
    let ours = SIGNS.into_iter().find(|(sign, _)| rest.starts_with(sign));
    let foreign = FOREIGN_SIGNS.into_iter().find(|(sign, _)| rest.starts_with(sign));
    match (ours, foreign) {
        (Some((sign, kind)), other) if other.is_none_or(|(o, _)| o.len() < sign.len()) => {
            return Ok((kind, sign.len()));
        }
        (_, Some((sign, instead))) => {
            return refuse(sign.len(), Problem::ForeignSign { sign, instead });
        }
        _ => {}
    }
    let length = rest.find(|c| !is_bare_character(c)).unwrap_or(rest.len());
    if length == 0 {
        return refuse(first.len_utf8(), Problem::Control);
    }
    let word = &rest[..length];
    if let Some(keyword) = Keyword::from_name(word) {
        return Ok((Kind::Keyword(keyword), length));
    }
    let span = Span { start: at, end: at + length };
    Ok((Kind::Word(expanded(word, span, expand)?), length))
}

/// Reads a text in quotation marks. Inside it, `\"` stands for a quotation mark and `\\` for a
/// backslash.
fn quoted(rest: &str, at: usize, expand: Expand<'_>) -> Result<(Kind, usize), ExpressionError> {
    let mut inside = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((offset, c)) = characters.next() {
        let span = |length| Span { start: at + offset, end: at + offset + length };
        match c {
            '"' => {
                let whole = Span { start: at, end: at + offset + 1 };
                return Ok((Kind::Word(expanded(&inside, whole, expand)?), offset + 1));
            }
            '\\' => match characters.next() {
                Some((_, escaped @ ('"' | '\\'))) => inside.push(escaped),
                Some((_, other)) => {
                    let span = span(1 + other.len_utf8());
                    return Err(ExpressionError::new(span, Problem::Escape));
                }
                None => break,
            },
            c => inside.push(c),
        }
    }
    let span = Span { start: at, end: at + rest.len() };
    Err(ExpressionError::new(span, Problem::OpenQuote))
}

/// Expands the specifiers of one word. The result stays one word, so that a unit's name cannot add
/// a condition.
fn expanded(word: &str, span: Span, expand: Expand<'_>) -> Result<String, ExpressionError> {
    let refuse = |problem| Err(ExpressionError::new(span, problem));
    match expand(word) {
        Err(cause) => refuse(Problem::Specifier(cause)),
        Ok(text) if text.is_empty() => refuse(Problem::Empty),
        Ok(text) if text.contains(char::is_control) => refuse(Problem::Control),
        Ok(text) => Ok(text),
    }
}
