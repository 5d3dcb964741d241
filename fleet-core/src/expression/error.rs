//! Errors in an expression.

use std::fmt;

use fleet_unitfile::Span;
use fleet_unitfile::specifier::SpecifierError;

use super::parser::Keyword;

/// The first error in an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExpressionError {
    /// The affected bytes of the text.
    pub span: Span,
    problem: ExpressionProblem,
}

/// The kind of an error, with its data.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpressionProblem {
    /// An unexpected token.
    Unexpected {
        /// The expected token.
        expected: ExpectedToken,
        /// The token found; empty at the end of the text.
        found: String,
    },
    /// A keyword in place of a key or a value.
    Keyword {
        /// The keyword.
        word: &'static str,
    },
    /// A symbol of another language.
    ForeignSign {
        /// The symbol.
        sign: &'static str,
        /// The equivalent in this language.
        instead: &'static str,
    },
    /// The right side of `<`, `>`, `<=` or `>=` is not a decimal number.
    NotANumber {
        /// The text found.
        found: String,
    },
    /// A quotation mark is not closed.
    OpenQuote,
    /// Inside quotation marks, a backslash is followed by a character other than a quotation mark
    /// or a backslash.
    Escape,
    /// A key or a value is empty.
    Empty,
    /// A control character, or a blank other than space and tab.
    Control,
    /// A specifier cannot be expanded.
    Specifier(SpecifierError),
    /// Parentheses and `not` are nested too deeply.
    TooDeep {
        /// The maximum depth.
        limit: usize,
    },
    /// The text, or its canonical form, is too long.
    TooLong {
        /// The maximum length in bytes.
        limit: usize,
    },
}

/// The expected token at a position of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedToken {
    /// A condition.
    Condition,
    /// A key, after `exists`.
    Key,
    /// An operator after a key.
    Operator,
    /// A value to compare with.
    Value,
    /// The parenthesis that opens a list of values.
    List,
    /// A comma, or the parenthesis that closes a list of values.
    ListEnd,
    /// The parenthesis that closes an expression, or `and` or `or`.
    Close,
    /// The end of the text, or `and` or `or`.
    End,
}

impl ExpressionError {
    pub(super) fn new(span: Span, problem: ExpressionProblem) -> Self {
        Self { span, problem }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn problem(&self) -> &ExpressionProblem {
        &self.problem
    }

    /// Returns how to correct the text.
    #[must_use]
    pub fn help(&self) -> String {
        use ExpressionProblem as Problem;
        match &self.problem {
            Problem::Unexpected { expected, found } => expected_help(*expected, found),
            Problem::Keyword { word } => format!("write \"{word}\" in quotation marks"),
            Problem::ForeignSign { instead, .. } => format!("write {instead}"),
            Problem::NotANumber { .. } => {
                "write a decimal number such as 16 or 1.5, or compare by = or !=".into()
            }
            Problem::OpenQuote => "write another \" at its end".into(),
            Problem::Escape => "write \\\" for a quotation mark, \\\\ for a backslash".into(),
            Problem::Empty => "leave it out, or write exists key to ask for any value".into(),
            Problem::Control => "remove it".into(),
            Problem::Specifier(_) => "write %% for a percent sign".into(),
            Problem::TooDeep { .. } => "leave out parentheses that change nothing".into(),
            Problem::TooLong { .. } => "write key in (a, b) instead of a long or".into(),
        }
    }
}

fn expected_help(expected: ExpectedToken, found: &str) -> String {
    let keyword = Keyword::nearest(found).filter(|keyword| keyword.as_str() != found);
    if let Some(keyword) = keyword {
        return format!("write {}, in lower case", keyword.as_str());
    }
    match expected {
        ExpectedToken::End if found == ")" => "remove it, or open a parenthesis before it",
        ExpectedToken::Condition => "write a condition such as disk = ssd",
        ExpectedToken::Key => "write a key, as in exists disk",
        ExpectedToken::Operator => {
            "write key = value, key != value, key in (a, b), key < 5, or exists key"
        }
        ExpectedToken::Value => "write a value, as in disk = ssd",
        ExpectedToken::List => "write a list, as in disk in (ssd, nvme)",
        ExpectedToken::ListEnd => "write commas between the values, as in disk in (ssd, nvme)",
        ExpectedToken::Close => "close the parenthesis, or continue with and or or",
        ExpectedToken::End => "join conditions by and or or, and quote a value that holds blanks",
    }
    .to_owned()
}

impl std::error::Error for ExpressionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            ExpressionProblem::Specifier(cause) => Some(cause),
            _ => None,
        }
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

impl fmt::Display for ExpressionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected { expected, found } if found.is_empty() => {
                write!(f, "expected {expected} at the end")
            }
            Self::Unexpected { expected, found } => {
                write!(f, "expected {expected}, found {found:?}")
            }
            Self::Keyword { word } => write!(f, "{word:?} is a keyword here"),
            Self::ForeignSign { sign, .. } => write!(f, "{sign:?} is not valid here"),
            Self::NotANumber { found } => write!(f, "{found:?} is not a decimal number"),
            Self::OpenQuote => f.write_str("a quotation mark is never closed"),
            Self::Escape => f.write_str("invalid escape in quotation marks"),
            Self::Empty => f.write_str("a key or a value is empty"),
            Self::Control => f.write_str("it holds a control character or an unusual blank"),
            Self::Specifier(_) => f.write_str("a specifier cannot be expanded"),
            Self::TooDeep { limit } => write!(f, "it is nested more than {limit} deep"),
            Self::TooLong { limit } => write!(f, "it is longer than {limit} bytes"),
        }
    }
}

impl fmt::Display for ExpectedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Condition => "a condition",
            Self::Key => "a key",
            Self::Operator => "an operator such as \"=\"",
            Self::Value => "a value",
            Self::List => "a list in parentheses",
            Self::ListEnd => "\",\" or \")\"",
            Self::Close => "\")\"",
            Self::End => "\"and\" or \"or\"",
        })
    }
}
