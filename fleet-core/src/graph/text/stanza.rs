//! Files of stanzas: from fields to units.

use fleet_unitfile::Span;

use super::diagnostic::{InitDiagnostic, Problems, short};
use super::draft::{Draft, Given};
use super::fields::{self, Field, Folding};
use super::keys::{self, Key, nearest};
use super::{Code, finish};
use crate::graph::{EdgeKind, InitUnit, Name, Target, Timeouts};

/// What was read of a file of stanzas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stanzas {
    /// All stanzas, in the order of the file, those with errors too.
    pub stanzas: Vec<Stanza>,
    /// All that is wrong or odd, in the order of the file.
    pub diagnostics: Vec<InitDiagnostic>,
}

/// A stanza, and where it says what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stanza {
    /// Its name, if it can be read.
    pub name: Option<Name>,
    /// Where it is named.
    pub name_span: Span,
    /// In which line, counted from 1.
    pub line: usize,
    /// The unit that it describes; nothing if there are errors in it.
    pub unit: Option<InitUnit>,
    /// What it provides, and where it says so.
    pub provides: Vec<(Target, Span)>,
    /// Whether it may provide more than that, which could not be read.
    pub provides_more: bool,
    /// What it depends on, and where it says so.
    pub edges: Vec<(EdgeKind, Target, Span)>,
    /// What it executes, and where it says so.
    pub programs: Vec<(String, Span)>,
}

/// Reads a file of stanzas.
///
/// Whatever is wrong with it, all of it is read. `defaults` are the time-outs of stanzas that say
/// nothing.
///
/// ```
/// use fleet_core::graph::Timeouts;
/// use fleet_core::graph::text::read_stanzas;
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
    let mut problems = Problems::default();
    let fields = fields::read(source, folding, &mut problems);
    let mut reader = Reader { defaults, stanza: None, stanzas: Vec::new(), problems };
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

/// Whether a key begins a stanza.
fn is_start(key: &str) -> bool {
    matches!(key, "unit" | "name")
}

/// The key of what a unit provides.
const PROVIDES: &str = "provides";

struct Reader<'a> {
    defaults: &'a Timeouts,
    stanza: Option<Open>,
    stanzas: Vec<Stanza>,
    problems: Problems,
}

/// The stanza that is being read.
struct Open {
    draft: Draft,
    name: Option<Name>,
    name_span: Span,
    line: usize,
    /// Whether nothing is wrong with it yet.
    sound: bool,
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
            (None, _) if field.sound => {
                let message = format!("{} stands before the first unit", short(&field.key));
                let help = "write `unit: NAME` above it";
                self.problems.add(Code::OutsideStanza, field.key_span, message, help);
            }
            (None, _) => {}
            (Some(open), Some(key)) => take(key, field, &mut open.draft, &mut self.problems),
            (Some(open), None) => unknown(field, &mut open.draft, &mut self.problems),
        }
        if let Some(open) = &mut self.stanza {
            open.sound &= field.sound && self.problems.errors() == before;
        }
    }

    /// Begins a stanza.
    fn open(&mut self, field: &Field) {
        let (span, text) = (field.value.span(), field.value.text());
        if field.key == "name" {
            let message = "`name:` is an old way to begin a stanza";
            self.problems.add(Code::OldUnitKey, field.key_span, message, "write `unit:`");
        }
        let name = if !field.sound {
            None
        } else if text.is_empty() {
            let message = "the unit has no name";
            self.problems.add(Code::Empty, field.key_span, message, "write `unit: NAME`");
            None
        } else {
            keys::name(text, span, &mut self.problems)
        };
        // Nobody sees this name: a stanza without one never becomes a unit.
        let any = || Name::new("unnamed").expect("letters alone");
        let draft = Draft::new(name.clone().unwrap_or_else(any), *self.defaults);
        let name_span = if text.is_empty() { field.key_span } else { span };
        let line = field.line;
        self.stanza = Some(Open { draft, sound: name.is_some(), name, name_span, line });
    }

    /// Ends the stanza that is being read, if there is one.
    fn close(&mut self) {
        let Some(open) = self.stanza.take() else { return };
        let Open { mut draft, name, name_span, line, sound } = open;
        let before = self.problems.errors();
        finish::check(&mut draft, name_span, &mut self.problems);
        let sound = sound && self.problems.errors() == before;
        let provides = draft.unit.provides.iter().cloned().zip(draft.provides.iter().copied());
        self.stanzas.push(Stanza {
            name,
            name_span,
            line,
            provides_more: draft.provides_more || draft.unit.provides.is_empty(),
            provides: provides.collect(),
            edges: draft.edges.clone(),
            programs: std::mem::take(&mut draft.programs),
            unit: sound.then(|| finish::unit(draft)).flatten(),
        });
    }
}

/// Takes the value of a known key.
fn take(key: &'static Key, field: &Field, draft: &mut Draft, problems: &mut Problems) {
    let given = draft.given.entry(key.name).or_default();
    let first = given.first().copied();
    given.push(Given { line: field.line, key: field.key_span, value: field.value.span() });
    let is_read = match first {
        Some(first) if !key.repeats() => {
            repeated(key.name, first, field.key_span, problems);
            false
        }
        _ if !field.sound => false,
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
    draft.provides_more |= !is_read && key.name == PROVIDES;
}

/// Says that a key is given a second time.
pub(super) fn repeated(name: &str, first: Given, span: Span, problems: &mut Problems) {
    let message = format!("{name} is given in line {} before", first.line);
    problems.add(Code::RepeatedKey, span, message, "remove one of the two lines");
}

fn unknown(field: &Field, draft: &mut Draft, problems: &mut Problems) {
    if !field.sound {
        // It may have been anything, such as the rest of a list.
        draft.provides_more = true;
        return;
    }
    if field.key.starts_with("x-") {
        let message = format!("{} is passed over", short(&field.key));
        problems.add(Code::Extension, field.key_span, message, "remove it if that is not meant");
        return;
    }
    let meant = nearest(&field.key, keys::all().map(|key| key.name)).and_then(keys::find);
    let help = match meant {
        Some(key) => format!("did you mean {}?", key.name),
        None => "remove the line, or write x- before a key of your own".to_owned(),
    };
    let message = format!("there is no key `{}`", short(&field.key));
    problems.add(Code::UnknownKey, field.key_span, message, help);
    if let Some(key) = meant {
        draft.provides_more |= key.name == PROVIDES;
        // So that the key is not said to be missing, too.
        let given = Given { line: field.line, key: field.key_span, value: field.value.span() };
        draft.given.entry(key.name).or_insert_with(|| vec![given]);
    }
}
