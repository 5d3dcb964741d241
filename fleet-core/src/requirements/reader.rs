//! The walk over a unit file that collects requirements, errors and warnings.

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::{Span, UnitFile, UnitName, UnitOption, expand_specifiers, parse_bool};

use super::{
    FleetOption, Parsed, RequirementError, RequirementErrorKind, RequirementErrors,
    RequirementWarning, RequirementWarningKind, Requirements, SECTION, Strictness, metadata, rules,
    values,
};
use crate::{MachineId, Pattern};

/// A value and where it stands.
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// What was read so far.
pub(super) struct Reader<'a> {
    name: &'a UnitName,
    file: &'a UnitFile,
    strictness: Strictness,
    /// Where each option was first given, unless it was taken back since.
    pub(super) given: BTreeMap<FleetOption, Span>,
    machine_id: Option<Placed<MachineId>>,
    pub(super) machine_of: Vec<Placed<UnitName>>,
    metadata: BTreeMap<String, BTreeSet<String>>,
    pub(super) conflicts: Vec<Placed<Pattern>>,
    pub(super) replaces: Vec<Placed<Pattern>>,
    errors: Vec<RequirementError>,
    warnings: Vec<RequirementWarning>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'a UnitName, file: &'a UnitFile, strictness: Strictness) -> Self {
        Self {
            name,
            file,
            strictness,
            given: BTreeMap::new(),
            machine_id: None,
            machine_of: Vec::new(),
            metadata: BTreeMap::new(),
            conflicts: Vec::new(),
            replaces: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Reads all options of the file, then tests them against each other.
    pub(super) fn read(&mut self) {
        let file = self.file;
        for option in file.options() {
            if option.section() == SECTION {
                self.read_option(option);
            }
        }
        self.look_for_misnamed_sections();
        rules::check(self);
    }

    /// What was read, if nothing is wrong with it.
    pub(super) fn finish(mut self) -> Result<Parsed, RequirementErrors> {
        if let Some(errors) = RequirementErrors::new(self.errors) {
            return Err(errors);
        }
        self.warnings.sort_by_key(|warning| warning.span.start);
        let requirements = Requirements {
            global: self.given.contains_key(&FleetOption::Global),
            machine_id: self.machine_id.map(|id| id.value),
            machine_of: distinct(self.machine_of),
            metadata: self.metadata,
            conflicts: distinct(self.conflicts),
            replaces: distinct(self.replaces),
        };
        Ok(Parsed {
            requirements,
            warnings: self.warnings,
        })
    }

    /// Records something that is wrong under either strictness.
    pub(super) fn refuse(&mut self, span: Span, kind: RequirementErrorKind) {
        let location = self.file.location(span.start);
        self.errors
            .push(RequirementError::new(span, location, kind));
    }

    /// The line of a place, counted from one.
    pub(super) fn line(&self, span: Span) -> usize {
        self.file.location(span.start).line
    }

    /// Records something that the old program ignored.
    fn object(&mut self, span: Span, kind: RequirementErrorKind) {
        match self.strictness {
            Strictness::Refuse => self.refuse(span, kind),
            Strictness::Warn => self.warn(span, RequirementWarningKind::Ignored(kind)),
        }
    }

    fn warn(&mut self, span: Span, kind: RequirementWarningKind) {
        let location = self.file.location(span.start);
        self.warnings
            .push(RequirementWarning::new(span, location, kind));
    }

    fn look_for_misnamed_sections(&mut self) {
        let file = self.file;
        let mut seen = BTreeSet::new();
        for option in file.options() {
            let name = option.section();
            if is_misnamed(name) && seen.insert(name) {
                let kind = RequirementWarningKind::SectionName {
                    name: name.to_owned(),
                };
                self.warn(option.span(), kind);
            }
        }
    }

    fn read_option(&mut self, option: &UnitOption) {
        let span = option.span();
        let Some(key) = self.key(option.name(), span) else {
            return;
        };
        let values = values::split(key, option.value());
        if values.is_empty() {
            return self.take_back(key);
        }
        self.given.entry(key).or_insert(span);
        for value in values {
            self.read_value(key, &value, span);
        }
    }

    /// The option of that name, new or old.
    fn key(&mut self, name: &str, span: Span) -> Option<FleetOption> {
        if let Some(key) = FleetOption::from_name(name) {
            return Some(key);
        }
        let name = name.to_owned();
        let Some(option) = FleetOption::from_old_spelling(&name) else {
            let suggestion = FleetOption::nearest(&name);
            self.object(
                span,
                RequirementErrorKind::UnknownOption { name, suggestion },
            );
            return None;
        };
        self.warn(span, RequirementWarningKind::OldSpelling { name, option });
        Some(option)
    }

    /// Forgets all that an option was given.
    fn take_back(&mut self, key: FleetOption) {
        self.given.remove(&key);
        match key {
            FleetOption::MachineId => self.machine_id = None,
            FleetOption::MachineOf => self.machine_of.clear(),
            FleetOption::MachineMetadata => self.metadata.clear(),
            FleetOption::Conflicts => self.conflicts.clear(),
            FleetOption::Replaces => self.replaces.clear(),
            FleetOption::Global => {}
        }
    }

    fn read_value(&mut self, key: FleetOption, value: &str, span: Span) {
        if key == FleetOption::MachineMetadata {
            return self.read_metadata(value, span);
        }
        let Some(value) = self.expand(key, value, span) else {
            return;
        };
        match key {
            FleetOption::MachineId => self.read_machine_id(value, span),
            FleetOption::MachineOf => self.read_peer(&value, span),
            FleetOption::Conflicts | FleetOption::Replaces => self.read_pattern(key, &value, span),
            FleetOption::Global => self.read_global(value, span),
            FleetOption::MachineMetadata => {}
        }
    }

    /// The value with its specifiers expanded. `None` if that cannot be, which is recorded, or if
    /// the value depends on the instance and there is none yet.
    fn expand(&mut self, option: FleetOption, value: &str, span: Span) -> Option<String> {
        match expand_specifiers(value, self.name) {
            Ok(_) if self.name.is_template() && depends_on_instance(value) => None,
            Ok(expanded) => Some(expanded),
            Err(cause) => {
                let value = value.to_owned();
                self.refuse(
                    span,
                    RequirementErrorKind::Specifier {
                        option,
                        value,
                        cause,
                    },
                );
                None
            }
        }
    }

    fn read_machine_id(&mut self, value: String, span: Span) {
        if MachineId::looks_short(&value) {
            return self.refuse(span, RequirementErrorKind::ShortMachineId { value });
        }
        let second: MachineId = match value.parse() {
            Ok(id) => id,
            Err(cause) => return self.refuse(span, RequirementErrorKind::MachineId { cause }),
        };
        match &self.machine_id {
            None => {
                self.machine_id = Some(Placed {
                    value: second,
                    span,
                })
            }
            Some(first) if first.value == second => {}
            Some(Placed {
                value: first,
                span: at,
            }) => {
                let (first, line) = (first.clone(), self.line(*at));
                let kind = RequirementErrorKind::SeveralMachineIds {
                    first,
                    line,
                    second,
                };
                self.refuse(span, kind);
            }
        }
    }

    fn read_peer(&mut self, value: &str, span: Span) {
        match UnitName::parse(value) {
            Err(cause) => self.refuse(span, RequirementErrorKind::UnitName { cause }),
            Ok(peer) if peer == *self.name => {
                self.refuse(span, RequirementErrorKind::PeerIsSelf { peer });
            }
            Ok(peer) if peer.is_template() => {
                self.refuse(span, RequirementErrorKind::PeerIsTemplate { peer });
            }
            Ok(value) => self.machine_of.push(Placed { value, span }),
        }
    }

    /// Reads a condition. It is taken apart before anything is expanded, so that no unit's name can
    /// add a condition of its own.
    fn read_metadata(&mut self, text: &str, span: Span) {
        let option = FleetOption::MachineMetadata;
        let (key, value) = match metadata::split_pair(text) {
            Ok((key, value)) => (
                self.expand(option, key, span),
                self.expand(option, value, span),
            ),
            Err(problem) => return self.object_to_metadata(text, problem, span),
        };
        let (Some(key), Some(value)) = (key, value) else {
            return;
        };
        match metadata::split_pair(&format!("{key}={value}")) {
            Ok(_) => _ = self.metadata.entry(key).or_default().insert(value),
            Err(problem) => self.object_to_metadata(&format!("{key}={value}"), problem, span),
        }
    }

    fn object_to_metadata(&mut self, text: &str, problem: metadata::MetadataProblem, span: Span) {
        let value = text.to_owned();
        self.object(span, RequirementErrorKind::Metadata { value, problem });
    }

    fn read_pattern(&mut self, option: FleetOption, value: &str, span: Span) {
        let pattern: Pattern = match value.parse() {
            Ok(pattern) => pattern,
            Err(cause) => {
                return self.object(span, RequirementErrorKind::Pattern { option, cause });
            }
        };
        if pattern.is_exact() && UnitName::parse(value).is_err() {
            let pattern = pattern.clone();
            self.warn(
                span,
                RequirementWarningKind::MatchesNothing { option, pattern },
            );
        }
        let list = match option {
            FleetOption::Replaces => &mut self.replaces,
            _ => &mut self.conflicts,
        };
        list.push(Placed {
            value: pattern,
            span,
        });
    }

    fn read_global(&mut self, value: String, span: Span) {
        match parse_bool(&value) {
            Some(true) => {}
            Some(false) => _ = self.given.remove(&FleetOption::Global),
            None => {
                self.given.remove(&FleetOption::Global);
                self.refuse(span, RequirementErrorKind::NotABoolean { value });
            }
        }
    }
}

/// Whether the value is another one for each instance of a template.
fn depends_on_instance(value: &str) -> bool {
    let without_percent_signs = value.replace("%%", "");
    ["%i", "%n", "%N"]
        .iter()
        .any(|specifier| without_percent_signs.contains(specifier))
}

/// Whether the section's name was probably meant to be `X-Fleet`.
fn is_misnamed(section: &str) -> bool {
    let letters: String = section
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let fleet = ["xfleet", "fleet"]
        .iter()
        .any(|name| letters.eq_ignore_ascii_case(name));
    fleet && section != SECTION
}

/// The values in the order given, each once.
fn distinct<T: PartialEq>(placed: Vec<Placed<T>>) -> Vec<T> {
    let mut values = Vec::with_capacity(placed.len());
    for Placed { value, .. } in placed {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}
