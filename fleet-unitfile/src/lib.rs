#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod calendar;
pub mod check;
pub mod command;
#[cfg(feature = "serde")]
mod data;
mod edit;
pub mod escape;
mod file;
mod name;
pub mod specifier;
pub mod spelling;
#[cfg(feature = "proptest")]
pub mod strategies;
pub mod syntax;
pub mod tree;
pub mod values;

pub use crate::calendar::Calendar;
pub use crate::check::Finding;
pub use crate::command::CommandLine;
pub use crate::edit::Editor;
pub use crate::file::UnitFile;
pub use crate::file::canonical::{HashError, OptionError, OptionErrorKind, UnitHash};
pub use crate::file::option::{OptionView, UnitOption};
pub use crate::file::options::{Options, SectionInstance};
pub use crate::name::{NameError, NameErrorKind, UnitName, UnitType, UnitTypeError};
pub use crate::specifier::SpecifierContext;
pub use crate::syntax::Reader;
pub use crate::syntax::diagnostic::{
    Diagnostic, DiagnosticKind, Location, ParseError, Severity, Span,
};
pub use crate::tree::{MergedUnit, UnitTree};
