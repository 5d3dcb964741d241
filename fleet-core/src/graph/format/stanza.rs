//! Reads stanzas from the fields of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use fleet_unitfile::Span;
use fleet_unitfile::spelling::suggest;

use super::diagnostic::{Code, InitDiagnostic, Problems, short};
use super::keys::{Key, of_systemd};
use super::lexer::{Field, Folding};
use super::{finish, keys, lexer};
use crate::graph::model::{
    EdgeKind, ExecOutput, InitUnit, LinePattern, Name, Run, ServiceType, Target, Timeouts,
};

/// Result of reading a file of stanzas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stanzas {
    /// All stanzas in the order of the file, including those with errors.
    pub stanzas: Vec<Stanza>,
    /// All errors and warnings, in the order of the file.
    pub diagnostics: Vec<InitDiagnostic>,
}

/// A stanza with the positions of its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stanza {
    /// Name of the unit, if it is valid.
    pub name: Option<Name>,
    /// Position of the name.
    pub name_span: Span,
    /// Line of the name, counted from 1.
    pub line: usize,
    /// The unit, or `None` if the stanza has errors.
    pub unit: Option<InitUnit>,
    /// Provided targets and their positions.
    pub provides: Vec<(Target, Span)>,
    /// Whether further targets may be provided by values that could not be read.
    pub provides_incomplete: bool,
    /// Dependencies and their positions.
    pub edges: Vec<(EdgeKind, Target, Span)>,
    /// Programs, accounts and paths that the unit needs on its machine, and their positions.
    pub host_resources: Vec<(HostResource, Span)>,
}

/// Reads a file of stanzas.
///
/// The whole file is read even if it has errors. `defaults` are the timeouts of stanzas that set no
/// timeouts.
///
/// ```
/// use fleet_core::graph::Timeouts;
/// use fleet_core::graph::format::read_stanzas;
///
/// let source = b"unit: web\ntype: foreground-notifed\nprovides: http\nexec-start: /bin/web\n";
/// let read = read_stanzas(source, &Timeouts::default());
/// let found = &read.diagnostics[0];
/// assert_eq!(found.code.as_str(), "E07");
/// assert_eq!((found.location.line, found.location.column), (2, 7));
/// assert_eq!(found.help, "did you mean foreground-notified?");
/// ```
#[must_use]
pub fn read_stanzas(source: &[u8], defaults: &Timeouts) -> Stanzas {
    read_stanzas_with(source, defaults, None)
}

/// As [`read_stanzas`], with the output of stanzas that set none.
pub(super) fn read_stanzas_with(
    source: &[u8],
    defaults: &Timeouts,
    output: Option<&ExecOutput>,
) -> Stanzas {
    let mut problems = Problems::default();
    let fields = lexer::read(source, folding, &mut problems);
    let mut reader = Reader { defaults, output, stanza: None, stanzas: Vec::new(), problems };
    fields.iter().for_each(|field| reader.field(field));
    reader.close();
    Stanzas { stanzas: reader.stanzas, diagnostics: reader.problems.locate(source) }
}

fn folding(key: &str) -> Folding {
    match keys::find(key) {
        Some(key) if key.folds() => Folding::Allowed,
        None if !is_start(key) => Folding::Ignored,
        _ => Folding::Refused,
    }
}

/// Returns whether the key begins a stanza.
fn is_start(key: &str) -> bool {
    matches!(key, "unit" | "name")
}

/// Key that lists the provided targets.
const PROVIDES: &str = "provides";

struct Reader<'a> {
    defaults: &'a Timeouts,
    output: Option<&'a ExecOutput>,
    stanza: Option<OpenStanza>,
    stanzas: Vec<Stanza>,
    problems: Problems,
}

/// The stanza that is being read.
struct OpenStanza {
    draft: Draft,
    name: Option<Name>,
    name_span: Span,
    line: usize,
    /// Whether the stanza has no error so far.
    valid: bool,
}

impl Reader<'_> {
    fn field(&mut self, field: &Field) {
        if is_start(&field.key) {
            self.close();
            self.open(field);
            return;
        }
        let before = self.problems.errors();
        let known = keys::find(&field.key);
        match (&mut self.stanza, known) {
            (None, _) if field.valid => {
                let message = format!("{} precedes the first unit", short(&field.key));
                let help = "write `unit: NAME` above it";
                self.problems.add(Code::OutsideStanza, field.key_span, message, help);
            }
            (None, _) => {}
            (Some(open), Some(key)) => take(key, field, &mut open.draft, &mut self.problems),
            (Some(open), None) => unknown(field, &mut open.draft, &mut self.problems),
        }
        if let Some(open) = &mut self.stanza {
            open.valid &= field.valid && self.problems.errors() == before;
        }
    }

    /// Begins a stanza.
    fn open(&mut self, field: &Field) {
        let (span, text) = (field.value.span(), field.value.text());
        if field.key == "name" {
            let message = "`name:` is deprecated";
            self.problems.add(Code::OldUnitKey, field.key_span, message, "write `unit:`");
        }
        let name = if !field.valid {
            None
        } else if text.is_empty() {
            let message = "the unit has no name";
            self.problems.add(Code::Empty, field.key_span, message, "write `unit: NAME`");
            None
        } else {
            keys::name(text, span, &mut self.problems)
        };
        // The placeholder is never visible: a stanza without a name does not become a unit.
        let any = || Name::new("unnamed").expect("letters alone");
        let draft = Draft::new(name.clone().unwrap_or_else(any), *self.defaults);
        let name_span = if text.is_empty() { field.key_span } else { span };
        let line = field.line;
        self.stanza = Some(OpenStanza { draft, valid: name.is_some(), name, name_span, line });
    }

    /// Ends the current stanza, if there is one.
    fn close(&mut self) {
        let Some(open) = self.stanza.take() else { return };
        let OpenStanza { mut draft, name, name_span, line, valid } = open;
        let before = self.problems.errors();
        finish::check(&mut draft, name_span, &mut self.problems);
        let valid = valid && self.problems.errors() == before;
        let provides = draft.unit.provides.iter().cloned().zip(draft.provides.iter().copied());
        self.stanzas.push(Stanza {
            name,
            name_span,
            line,
            provides_incomplete: draft.provides_incomplete || draft.unit.provides.is_empty(),
            provides: provides.collect(),
            edges: draft.edges.clone(),
            host_resources: std::mem::take(&mut draft.host_resources),
            unit: valid.then(|| finish::unit(draft, self.output)).flatten(),
        });
    }
}

/// Reads the value of a known key.
fn take(key: &'static Key, field: &Field, draft: &mut Draft, problems: &mut Problems) {
    let given = draft.given.entry(key.name).or_default();
    let first = given.first().copied();
    given.push(KeyPosition { line: field.line, key: field.key_span, value: field.value.span() });
    let is_read = match first {
        Some(first) if !key.repeats() => {
            repeated(key.name, first, field.key_span, problems);
            false
        }
        _ if !field.valid => false,
        _ if field.value.text().is_empty() => {
            let message = format!("{} has no value", key.name);
            problems.add(Code::Empty, field.key_span, message, "write one, or remove the line");
            false
        }
        _ => {
            (key.read)(&field.value, draft, problems);
            true
        }
    };
    draft.provides_incomplete |= !is_read && key.name == PROVIDES;
}

/// Reports a key that is given a second time.
pub(super) fn repeated(name: &str, first: KeyPosition, span: Span, problems: &mut Problems) {
    let message = format!("{name} is already given in line {}", first.line);
    problems.add(Code::RepeatedKey, span, message, "remove one of the two lines");
}

fn unknown(field: &Field, draft: &mut Draft, problems: &mut Problems) {
    if !field.valid {
        // The line may have been anything, for example the continuation of a list.
        draft.provides_incomplete = true;
        return;
    }
    if field.key.starts_with("x-") {
        let message = format!("{} is ignored", short(&field.key));
        problems.add(
            Code::Extension,
            field.key_span,
            message,
            "if that is not intended, remove the line",
        );
        return;
    }
    let similar = || suggest(&field.key, keys::all().map(|key| key.name));
    let meant = of_systemd(&field.key).or_else(similar).and_then(keys::find);
    let help = match meant {
        Some(key) => format!("did you mean {}?", key.name),
        None => "remove the line, or prefix a key of your own with x-".to_owned(),
    };
    let message = format!("there is no key `{}`", short(&field.key));
    problems.add(Code::UnknownKey, field.key_span, message, help);
    if let Some(key) = meant {
        draft.provides_incomplete |= key.name == PROVIDES;
        draft.meant.insert(key.name);
    }
}

/// A program, an account or a path that a stanza needs on the machine on which its unit runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostResource {
    /// Path of a program.
    Program(String),
    /// Name or number of a user.
    User(String),
    /// Name or number of a group.
    Group(String),
    /// Path of a working directory.
    Directory(String),
    /// Path of a file of variables.
    EnvironmentFile(String),
}

impl HostResource {
    /// Returns the name, number or path.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Program(name)
            | Self::User(name)
            | Self::Group(name)
            | Self::Directory(name)
            | Self::EnvironmentFile(name) => name,
        }
    }

    /// Returns the code, the message and the remedy if it is missing. `name` is its short name.
    pub(super) fn missing(&self, name: &str) -> (Code, String, &'static str) {
        match self {
            Self::Program(_) => (
                Code::NoProgram,
                format!("`{name}` is not an executable file here"),
                "install the program, or correct the path",
            ),
            Self::User(_) => (
                Code::NotHere,
                format!("there is no user `{name}` here"),
                "create the user before the unit starts, or correct the name",
            ),
            Self::Group(_) => (
                Code::NotHere,
                format!("there is no group `{name}` here"),
                "create the group before the unit starts, or correct the name",
            ),
            Self::Directory(_) => (
                Code::NotHere,
                format!("`{name}` is not a directory here"),
                "create it before the unit starts, or put - before the path to use / without it",
            ),
            Self::EnvironmentFile(_) => (
                Code::NotHere,
                format!("`{name}` is not a file here"),
                "create it before the unit starts, or put - before the path to ignore this",
            ),
        }
    }
}

/// Contents of the stanza that is being read.
#[derive(Debug)]
pub(super) struct Draft {
    /// The unit. It is virtual and without edges until all fields are read.
    pub(super) unit: InitUnit,
    /// Type of the unit.
    pub(super) type_word: Option<TypeWord>,
    /// Dependencies as written.
    pub(super) edges: Vec<(EdgeKind, Target, Span)>,
    /// Positions of the provided targets.
    pub(super) provides: Vec<Span>,
    /// Whether part of `provides` could not be read.
    pub(super) provides_incomplete: bool,
    /// Time after which the process counts as ready.
    pub(super) ready_wait: Option<Duration>,
    /// Pattern of the readiness line.
    pub(super) ready_grep: Option<LinePattern>,
    /// Path of the PID file.
    pub(super) pidfile: Option<String>,
    /// Whether a oneshot stays active after its commands.
    pub(super) remain: bool,
    /// Growth factor of the restart delay.
    pub(super) factor: Option<u32>,
    /// Number of steps in which the restart delay grows.
    pub(super) steps: Option<u32>,
    /// Variables used in commands.
    pub(super) variables: Vec<(String, Span)>,
    /// Programs, accounts and paths that the unit needs on its machine.
    pub(super) host_resources: Vec<(HostResource, Span)>,
    /// Positions of all given keys, whether their values could be read or not.
    pub(super) given: BTreeMap<&'static str, Vec<KeyPosition>>,
    /// Keys that unknown keys probably mean. They are not reported as missing.
    pub(super) meant: BTreeSet<&'static str>,
}

/// Position of a given key.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyPosition {
    /// Line, counted from 1.
    pub(super) line: usize,
    /// Position of the key.
    pub(super) key: Span,
    /// Position of the key's value.
    pub(super) value: Span,
}

impl Draft {
    /// Creates the draft of a unit without fields.
    pub(super) fn new(name: Name, timeouts: Timeouts) -> Self {
        Self {
            unit: InitUnit { timeouts, ..InitUnit::new_virtual(name, []) },
            type_word: None,
            edges: Vec::new(),
            provides: Vec::new(),
            provides_incomplete: false,
            ready_wait: None,
            ready_grep: None,
            pidfile: None,
            remain: true,
            factor: None,
            steps: None,
            variables: Vec::new(),
            host_resources: Vec::new(),
            given: BTreeMap::new(),
            meant: BTreeSet::new(),
        }
    }

    /// Returns the commands of the unit.
    pub(super) fn run(&mut self) -> &mut Run {
        &mut self.unit.run
    }
}

/// Returns whether a command may use the variable: it is `MAINPID`, the stanza sets it, or an
/// environment file of the stanza may set it.
pub(super) fn sets_variable(run: &Run, name: &str) -> bool {
    let around = &run.exec_environment;
    name == "MAINPID"
        || !around.environment_files.is_empty()
        || around.pass_environment.iter().any(|known| known == name)
        || around.environment.iter().any(|(known, _)| known == name)
}

/// A unit type as written in a stanza.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeWord {
    Notified,
    Supervised,
    Pidfile,
    Forking,
    Scripted,
    Oneshot,
    Virtual,
}

impl TypeWord {
    /// All types.
    pub(super) const ALL: [Self; 7] = [
        Self::Notified,
        Self::Supervised,
        Self::Pidfile,
        Self::Forking,
        Self::Scripted,
        Self::Oneshot,
        Self::Virtual,
    ];

    /// Returns the type of a unit.
    pub(super) fn of(unit: &InitUnit) -> Self {
        Self::of_kind(&unit.kind)
    }

    fn of_kind(kind: &ServiceType) -> Self {
        match kind {
            ServiceType::ForegroundNotified => Self::Notified,
            ServiceType::ForegroundSupervised(_) => Self::Supervised,
            ServiceType::BackgroundPidfile { .. } => Self::Pidfile,
            ServiceType::BackgroundForking => Self::Forking,
            ServiceType::BackgroundScripted => Self::Scripted,
            ServiceType::Oneshot { .. } => Self::Oneshot,
            ServiceType::Virtual => Self::Virtual,
        }
    }

    /// Returns the type as written.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Notified => "foreground-notified",
            Self::Supervised => "foreground-supervised",
            Self::Pidfile => "background-pidfile",
            Self::Forking => "background-forking",
            Self::Scripted => "background-scripted",
            Self::Oneshot => "oneshot",
            Self::Virtual => "virtual",
        }
    }

    /// Returns the set that contains only this type.
    pub(super) const fn alone(self) -> Types {
        Types(1 << self as u8)
    }
}

impl ServiceType {
    /// Returns the type's name in a stanza, such as `oneshot`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        TypeWord::of_kind(self).as_str()
    }
}

/// A set of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    /// All types.
    pub(super) const ALL: Self = Self((1 << TypeWord::ALL.len()) - 1);
    /// All types that execute something.
    pub(super) const RUNNING: Self = Self::ALL.without(TypeWord::Virtual);

    /// Returns the set without one type.
    pub(super) const fn without(self, word: TypeWord) -> Self {
        Self(self.0 & !word.alone().0)
    }

    /// Returns whether the set contains a type.
    pub(super) fn contains(self, word: TypeWord) -> bool {
        self.0 & word.alone().0 != 0
    }

    /// Formats the set as in `oneshot, virtual`.
    pub(super) fn names(self) -> String {
        let words = TypeWord::ALL.into_iter().filter(|word| self.contains(*word));
        words.map(TypeWord::as_str).collect::<Vec<_>>().join(", ")
    }
}
