//! Expressions over metadata, for `MachineMetadataExpr=` and `Prefer=`.

mod error;
mod node;
mod parser;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use fleet_unitfile::specifier::{SpecifierError, expand_fleet_specifiers};
use fleet_unitfile::{Span, UnitName};

use crate::Metadata;
use node::Node;

pub use error::{ExpectedToken, ExpressionError, ExpressionProblem};

/// Maximum nesting depth of parentheses and `not`.
const MAX_DEPTH: usize = 64;

/// Maximum length of an expression in bytes, both as written and in canonical form. The length must
/// be bounded because every part is evaluated for every machine.
const MAX_BYTES: usize = 4096;

/// A boolean expression over a machine's metadata.
///
/// | written | true if |
/// |---|---|
/// | `disk = ssd` | the key has this value |
/// | `disk != hdd` | the key has another value, or is missing |
/// | `disk in (ssd, nvme)` | the key has one of these values |
/// | `cores < 16` (also `>`, `<=`, `>=`) | the value is a number for which the comparison holds |
/// | `exists gpu` | the key exists |
/// | `a and b`, `a or b`, `not a`, `(a)` | as in logic |
///
/// `not` binds tighter than `and`, and `and` tighter than `or`. If the machine lacks the key, every
/// comparison except `!=` is false. `<`, `>`, `<=` and `>=` compare decimal numbers exactly, and
/// are false if the value is not a number. `=` compares texts, so `1.0` does not equal `1`.
///
/// A key or value needs quotation marks if it contains a blank or one of `( ) = ! < > , " ' & |`.
/// The words `and`, `or`, `not`, `in` and `exists` need them too. Inside quotation marks, `\"`
/// stands for a quotation mark and `\\` for a backslash.
///
/// `Display` writes canonical text, which parses to the same expression. Two expressions are equal
/// if their canonical texts are equal. An expression is limited to 64 levels of nesting and 4096
/// bytes. Cloning is cheap.
///
/// ```
/// use fleet_core::{Expression, Metadata};
///
/// let expression: Expression = "(disk in (ssd,nvme)) and not cores<16".parse()?;
/// assert_eq!(expression.to_string(), "disk in (ssd, nvme) and not cores < 16");
///
/// let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
/// let mut metadata = Metadata::from([pair("disk", "ssd"), pair("cores", "8")]);
/// let part = expression.first_false(&metadata).expect("there are too few cores");
/// assert_eq!((part.part.as_str(), part.found.as_str()), ("not cores < 16", "cores=8"));
///
/// metadata.insert("cores".to_owned(), "32".to_owned());
/// assert!(expression.eval(&metadata));
/// # Ok::<(), fleet_core::expression::ExpressionError>(())
/// ```
#[derive(Clone)]
pub struct Expression(Arc<Inner>);

struct Inner {
    /// The canonical text.
    text: String,
    node: Node,
}

/// The part of an expression that is false for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FalsePart {
    /// The part, as canonical text.
    pub part: String,
    /// The machine's values of the keys in the part: `disk=hdd, no cores`.
    pub found: String,
}

impl Expression {
    /// Evaluates the expression for a machine's metadata.
    #[must_use]
    pub fn eval(&self, metadata: &Metadata) -> bool {
        self.0.node.eval(metadata)
    }

    /// Returns the part that makes the expression false, with the machine's values. In a
    /// conjunction (`a and b`) this is the first false operand; otherwise it is the whole
    /// expression. Returns `None` if the expression is true.
    #[must_use]
    pub fn first_false(&self, metadata: &Metadata) -> Option<FalsePart> {
        let part = self.0.node.first_false(metadata)?;
        let mut keys = Vec::new();
        part.collect_keys(&mut keys);
        let found = keys.iter().map(|key| match metadata.get(*key) {
            Some(value) => format!("{key}={value}"),
            None => format!("no {key}"),
        });
        Some(FalsePart { part: part.to_string(), found: found.collect::<Vec<_>>().join(", ") })
    }

    /// Returns the keys in the expression, in order of first occurrence.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        let mut keys = Vec::new();
        self.0.node.collect_keys(&mut keys);
        keys
    }

    /// Returns the canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Returns the conjunction of two expressions.
    pub(crate) fn and(&self, other: &Self) -> Result<Self, ExpressionError> {
        read(&format!("({self}) and ({other})"), &|word| Ok(word.to_owned()))
    }

    /// Parses an expression of the unit with the given name, and expands its specifiers. Each key
    /// and value is expanded on its own, after the text was split into tokens. The unit's name
    /// therefore cannot change the structure of the expression.
    pub(crate) fn parse_of(text: &str, name: &UnitName) -> Result<Self, ExpressionError> {
        read(text, &|word| expand_fleet_specifiers(word, name))
    }
}

impl FromStr for Expression {
    type Err = ExpressionError;

    fn from_str(text: &str) -> Result<Self, ExpressionError> {
        read(text, &|word| Ok(word.to_owned()))
    }
}

fn read(
    text: &str,
    expand: &dyn Fn(&str) -> Result<String, SpecifierError>,
) -> Result<Expression, ExpressionError> {
    check_length(text, text)?;
    let node = parser::parse(text, parser::tokens(text, expand)?)?;
    let canonical = node.to_string();
    check_length(&canonical, text)?;
    Ok(Expression(Arc::new(Inner { text: canonical, node })))
}

/// Refuses a text that is too long.
fn check_length(text: &str, given: &str) -> Result<(), ExpressionError> {
    if text.len() <= MAX_BYTES {
        return Ok(());
    }
    let span = Span { start: 0, end: given.len() };
    Err(ExpressionError::new(span, ExpressionProblem::TooLong { limit: MAX_BYTES }))
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.text)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.0.text).finish()
    }
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for Expression {}

impl PartialOrd for Expression {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Expression {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.text.cmp(&other.0.text)
    }
}

impl Hash for Expression {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}
