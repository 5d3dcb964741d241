#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod aliases;
mod assignment;
mod calendar;
mod check;
mod command;
#[cfg(feature = "serde")]
mod data;
mod diagnostic;
mod document;
mod edit;
mod escape;
mod facts;
mod file;
mod format;
mod grammar;
mod hash;
mod index;
mod join;
mod lines;
mod locate;
mod merge;
mod name;
mod option;
mod options;
mod parse;
mod prefixes;
mod reader;
mod reset;
mod size;
mod specifier;
#[cfg(feature = "proptest")]
pub mod strategies;
mod text;
mod timespan;
mod tree;
mod unit_type;
mod value;
mod variables;
mod words;
mod write;

pub use calendar::{Calendar, CalendarError, Era, Utc, Zone};
pub use check::{
    Directive, Finding, FindingCode, MergedFinding, check, check_merged, directives,
    directives_version,
};
pub use command::{CommandError, CommandLine};
pub use diagnostic::{Diagnostic, DiagnosticKind, Location, ParseError, Severity, Span};
pub use escape::{EscapeError, escape, escape_path, unescape, unescape_path};
pub use facts::{Fact, Facts, PathNameError};
pub use file::UnitFile;
pub use hash::{HashError, UnitHash};
pub use merge::{
    DependencyKind, ImpliedDependency, MergedOption, MergedUnit, UNIT_DIRECTORIES, UnitPart,
    drop_in_directories,
};
pub use name::{NameError, NameErrorKind, UnitName};
pub use option::{OptionView, UnitOption};
pub use options::Options;
pub use prefixes::Privileges;
pub use reader::{Event, OptionRef, Reader};
pub use size::{Size, SizeError, parse_permyriad, parse_size};
pub use specifier::{SpecifierError, expand_specifiers};
pub use timespan::{Timespan, TimespanError, parse_timespan};
pub use tree::{UnitEntry, UnitTree};
pub use unit_type::{UnitType, UnitTypeError};
pub use value::{is_calendar, parse_bool};
pub use variables::expand_variables;
pub use words::{WordError, cescape, cunescape, quote_word, split_words, split_words_relaxed};
pub use write::{OptionError, OptionErrorKind};
