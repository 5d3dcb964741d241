#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod calendar;
mod check;
mod command;
#[cfg(feature = "serde")]
mod data;
mod edit;
mod escape;
mod file;
mod name;
mod specifier;
pub mod spelling;
#[cfg(feature = "proptest")]
pub mod strategies;
mod syntax;
mod tree;
mod values;

pub use crate::calendar::{Calendar, CalendarError, OffsetPeriod, Utc, Zone};
pub use crate::check::{
    Directive, Finding, FindingCode, SystemdVersion, SystemdVersionError, directives,
    directives_version,
};
pub use crate::command::{CommandError, CommandLine, Privileges};
pub use crate::edit::Editor;
pub use crate::escape::{EscapeError, escape, escape_path, unescape, unescape_path};
pub use crate::file::UnitFile;
pub use crate::file::canonical::{HashError, OptionError, OptionErrorKind, UnitHash};
pub use crate::file::option::{OptionView, UnitOption};
pub use crate::file::options::{Options, SectionInstance};
pub use crate::name::{NameError, NameErrorKind, UnitName, UnitType, UnitTypeError};
pub use crate::specifier::{
    PathNameError, Specifier, SpecifierContext, SpecifierError, expand_fleet_specifiers,
};
pub use crate::syntax::diagnostic::{
    Diagnostic, DiagnosticKind, Location, ParseError, Severity, Span,
};
pub use crate::syntax::{Event, OptionRef, Reader};
pub use crate::tree::merge::{
    DependencyKind, ImpliedDependency, MergedOption, MergedUnit, UNIT_DIRECTORIES, UnitPart,
    drop_in_directories,
};
pub use crate::tree::{Place, UnitEntry, UnitTree};
pub use crate::values::size::{Size, SizeError, parse_permyriad, parse_size};
pub use crate::values::timespan::{Timespan, TimespanError, parse_timespan};
pub use crate::values::words::{
    WordError, cescape, cunescape, quote_word, split_words, split_words_relaxed,
};
pub use crate::values::{expand_variables, is_calendar, parse_bool};
