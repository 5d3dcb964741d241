//! Recursive descent parser of bounded depth, from tokens to the syntax tree.

use super::MAX_DEPTH;
use super::error::{ExpectedToken, ExpressionError, ExpressionProblem as Problem};
use super::node::{Comparison, Node};
use super::number::Decimal;
use super::token::{Keyword, Kind, Token};

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
