#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod aliases;
mod assignment;
mod calendar;
mod check;
mod command;
mod continuation;
#[cfg(feature = "serde")]
mod data;
mod diagnostic;
mod directory;
mod edit;
mod escape;
mod excerpt;
mod file;
mod grammar;
mod hash;
mod index;
mod lines;
mod list_semantics;
mod locate;
mod merge;
mod name;
mod option;
mod options;
mod parse;
mod prefixes;
mod quoting;
mod reader;
mod section;
mod size;
mod specifier;
mod specifier_context;
pub mod spelling;
#[cfg(feature = "proptest")]
pub mod strategies;
mod text;
mod timespan;
mod tree;
mod unit_type;
mod value;
mod variables;
mod write;

pub use calendar::{Calendar, CalendarError, OffsetPeriod, Utc, Zone};
pub use check::{
    Directive, Finding, FindingCode, SystemdVersion, SystemdVersionError, directives,
    directives_version,
};
pub use command::{CommandError, CommandLine};
pub use diagnostic::{Diagnostic, DiagnosticKind, Location, ParseError, Severity, Span};
pub use directory::Place;
pub use edit::Editor;
pub use escape::{EscapeError, escape, escape_path, unescape, unescape_path};
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
pub use quoting::{WordError, cescape, cunescape, quote_word, split_words, split_words_relaxed};
pub use reader::{Event, OptionRef, Reader};
pub use section::SectionInstance;
pub use size::{Size, SizeError, parse_permyriad, parse_size};
pub use specifier::{SpecifierError, expand_fleet_specifiers};
pub use specifier_context::{PathNameError, Specifier, SpecifierContext};
pub use timespan::{Timespan, TimespanError, parse_timespan};
pub use tree::{UnitEntry, UnitTree};
pub use unit_type::{UnitType, UnitTypeError};
pub use value::{is_calendar, parse_bool};
pub use variables::expand_variables;
pub use write::{OptionError, OptionErrorKind};
