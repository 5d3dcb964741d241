//! Expressions over metadata, for `MachineMetadataExpr=` and `Prefer=`.

mod error;
mod node;
mod number;
mod parser;
mod token;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use fleet_unitfile::{Span, SpecifierError, UnitName, expand_specifiers};

use crate::Metadata;
use node::Node;

pub use error::{ExpectedToken, ExpressionError, ExpressionProblem};

/// How deeply parentheses and `not` may be nested.
const MAX_DEPTH: usize = 64;

/// How many bytes an expression may have, as it is given and as it prints. Every machine is asked
/// every part of it, so that must not be the sender's choice.
const MAX_BYTES: usize = 4096;

/// A question to a machine's metadata that is true or false.
///
/// | written | true if |
/// |---|---|
/// | `disk = ssd` | the machine has this value of the key |
/// | `disk != hdd` | it has another value, or the key not at all |
/// | `disk in (ssd, nvme)` | it has one of these values |
/// | `cores < 16`, `>`, `<=`, `>=` | it has a decimal number of that size |
/// | `exists gpu` | it has the key |
/// | `a and b`, `a or b`, `not a`, `(a)` | as one reads them |
///
/// `not` binds before `and`, and `and` before `or`. A key that the machine lacks makes every
/// comparison false but `!=`, and so does, for `<` and its like, a value that is no number.
/// Numbers are compared exactly; `=` compares texts, so `1.0` is not `1`.
///
/// Keys and values stand as they are, or in quotation marks if they hold blanks, one of
/// `( ) = ! < > , " ' & |`, or are one of the words `and`, `or`, `not`, `in` and `exists`. In
/// quotation marks `\"` and `\\` stand for the mark and the backslash.
///
/// It prints as canonical text, which reads as the same expression. Two expressions are equal if
/// they print alike. At most 64 levels deep and 4096 bytes long; cloning is cheap.
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
/// # Ok::<(), fleet_core::ExpressionError>(())
/// ```
#[derive(Clone)]
pub struct Expression(Arc<Inner>);

struct Inner {
    /// The canonical text.
    text: String,
    node: Node,
}

/// The part of an expression by which a machine fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FalsePart {
    /// The part, as canonical text.
    pub part: String,
    /// What the machine has of the keys that the part names: `disk=hdd, no cores`.
    pub found: String,
}

impl Expression {
    /// Whether it is true of a machine.
    #[must_use]
    pub fn eval(&self, metadata: &Metadata) -> bool {
        self.0.node.eval(metadata)
    }

    /// The smallest part whose falseness alone makes the whole false, the first of several, with
    /// what the machine has; `None` if the expression is true of it.
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

    /// The keys that it asks for, in the order in which they first occur.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        let mut keys = Vec::new();
        self.0.node.collect_keys(&mut keys);
        keys
    }

    /// The canonical text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Both.
    pub(crate) fn and(&self, other: &Self) -> Result<Self, ExpressionError> {
        read(&format!("({self}) and ({other})"), &|word| Ok(word.to_owned()))
    }

    /// Reads an expression of the unit of that name. Specifiers are expanded in each key and value
    /// by itself, so that no unit's name can add a condition of its own.
    pub(crate) fn parse_of(text: &str, name: &UnitName) -> Result<Self, ExpressionError> {
        read(text, &|word| expand_specifiers(word, name))
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
    bound(text, text)?;
    let node = parser::parse(text, token::tokens(text, expand)?)?;
    let canonical = node.to_string();
    bound(&canonical, text)?;
    Ok(Expression(Arc::new(Inner { text: canonical, node })))
}

/// Refuses what is too long.
fn bound(text: &str, given: &str) -> Result<(), ExpressionError> {
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
