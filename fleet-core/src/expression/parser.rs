//! Recursive descent parser of bounded depth, from tokens to the syntax tree.

use fleet_unitfile::Span;
use fleet_unitfile::specifier::SpecifierError;

use super::MAX_DEPTH;
use super::error::{ExpectedToken, ExpressionError, ExpressionProblem as Problem};
use super::node::{Comparison, Decimal, Node};

/// Parses an expression. The last token must be the end.
pub(super) fn parse(text: &str, tokens: Vec<Token>) -> Result<Node, ExpressionError> {
    let mut parser = Parser { text, tokens, at: 0 };
    let node = parser.any(0)?;
    match parser.peek().kind {
        Kind::End => Ok(node),
        _ => Err(parser.expected(ExpectedToken::End)),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
}

impl Parser<'_> {
    /// `all or all or …`
    fn any(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        let mut parts = vec![self.all(depth)?];
        while self.take(&Kind::Keyword(Keyword::Or)) {
            parts.push(self.all(depth)?);
        }
        Ok(Node::any(parts))
    }

    /// `term and term and …`
    fn all(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        let mut parts = vec![self.term(depth)?];
        while self.take(&Kind::Keyword(Keyword::And)) {
            parts.push(self.term(depth)?);
        }
        Ok(Node::all(parts))
    }

    /// `not term`, `(any)`, `exists key`, or a comparison.
    fn term(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        if depth > MAX_DEPTH {
            let limit = MAX_DEPTH;
            return Err(ExpressionError::new(self.peek().span, Problem::TooDeep { limit }));
        }
        if self.take(&Kind::Keyword(Keyword::Not)) {
            return Ok(Node::Not(Box::new(self.term(depth + 1)?)));
        }
        if self.take(&Kind::Open) {
            let inner = self.any(depth + 1)?;
            return if self.take(&Kind::Close) {
                Ok(inner)
            } else {
                Err(self.expected(ExpectedToken::Close))
            };
        }
        if self.take(&Kind::Keyword(Keyword::Exists)) {
            return self.word(ExpectedToken::Key).map(Node::Exists);
        }
        let key = self.word(ExpectedToken::Condition)?;
        self.comparison(key)
    }

    /// Parses the operator and the right side of a comparison.
    fn comparison(&mut self, key: String) -> Result<Node, ExpressionError> {
        let operator = self.peek().kind.clone();
        match operator {
            Kind::Equal | Kind::Differs | Kind::Comparison(_) | Kind::Keyword(Keyword::In) => {
                self.at += 1;
            }
            _ => return Err(self.missing_operator(&key)),
        }
        match operator {
            Kind::Equal => Ok(Node::In(key, vec![self.word(ExpectedToken::Value)?])),
            Kind::Differs => Ok(Node::Differs(key, self.word(ExpectedToken::Value)?)),
            Kind::Comparison(comparison) => self.number(key, comparison),
            _ => Ok(Node::In(key, self.list()?)),
        }
    }

    fn number(&mut self, key: String, comparison: Comparison) -> Result<Node, ExpressionError> {
        let span = self.peek().span;
        let found = self.word(ExpectedToken::Value)?;
        if Decimal::parse(&found).is_none() {
            return Err(ExpressionError::new(span, Problem::NotANumber { found }));
        }
        Ok(Node::Compare(key, comparison, found))
    }

    /// `(a, b)`
    fn list(&mut self) -> Result<Vec<String>, ExpressionError> {
        if !self.take(&Kind::Open) {
            return Err(self.expected(ExpectedToken::List));
        }
        let mut values = vec![self.word(ExpectedToken::Value)?];
        while self.take(&Kind::Comma) {
            values.push(self.word(ExpectedToken::Value)?);
        }
        if self.take(&Kind::Close) {
            Ok(values)
        } else {
            Err(self.expected(ExpectedToken::ListEnd))
        }
    }

    fn word(&mut self, expected: ExpectedToken) -> Result<String, ExpressionError> {
        let token = self.peek();
        match &token.kind {
            Kind::Word(word) => {
                let word = word.clone();
                self.at += 1;
                Ok(word)
            }
            Kind::Keyword(keyword) if expected != ExpectedToken::Condition => {
                let word = keyword.as_str();
                Err(ExpressionError::new(token.span, Problem::Keyword { word }))
            }
            _ => Err(self.expected(expected)),
        }
    }

    /// Returns the next token. A token is always available, because the end token is never
    /// consumed.
    fn peek(&self) -> &Token {
        &self.tokens[self.at]
    }

    /// Consumes the next token if it is of this kind.
    fn take(&mut self, kind: &Kind) -> bool {
        let comes = self.peek().kind == *kind;
        self.at += usize::from(comes);
        comes
    }

    /// Returns the error for a missing operator after a key. If the key is a keyword in capital
    /// letters (`AND`), the error is about that keyword instead.
    fn missing_operator(&mut self, key: &str) -> ExpressionError {
        if Keyword::nearest(key).is_none() {
            return self.expected(ExpectedToken::Operator);
        }
        self.at -= 1;
        self.expected(ExpectedToken::Condition)
    }

    fn expected(&self, expected: ExpectedToken) -> ExpressionError {
        let span = self.peek().span;
        let found = self.text[span.start..span.end].to_owned();
        ExpressionError::new(span, Problem::Unexpected { expected, found })
    }
}

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
