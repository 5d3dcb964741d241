//! The walk over a unit file that collects requirements, errors and warnings.

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::{OptionView, Span, UnitFile, UnitName, expand_specifiers, parse_bool};

use super::report::Reports;
use super::{
    FleetOption, MetadataProblem, ParsedRequirements, RequirementErrorKind as Kind,
    RequirementErrors, RequirementWarningKind as WarningKind, Requirements, SECTION, Strictness,
    metadata, rules, values,
};
use crate::{MachineId, Pattern, Peer, PeerError};

/// How many values an option may have. They are compared with each other, and with each other
/// unit's, so their number must not be the sender's choice.
const MAX_VALUES: usize = 256;

/// A value and where it stands.
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// What was read so far.
pub(super) struct Reader<'a> {
    pub(super) name: &'a UnitName,
    file: &'a UnitFile,
    pub(super) reports: Reports<'a>,
    /// Where each option but `Global=` was first given, unless it was taken back since.
    given: BTreeMap<FleetOption, Span>,
    /// How many values each option was given, unless they were taken back since.
    counts: BTreeMap<FleetOption, usize>,
    /// Where `Global=` was said to be true, unless it was taken back since.
    global: Option<Span>,
    machine_id: Option<Placed<MachineId>>,
    pub(super) machine_of: Vec<Placed<Peer>>,
    metadata: BTreeMap<String, BTreeSet<String>>,
    /// What needs no place once it was read.
    pub(super) plain: Requirements,
    pub(super) conflicts: Vec<Placed<Pattern>>,
    pub(super) replaces: Vec<Placed<Pattern>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'a UnitName, file: &'a UnitFile, strictness: Strictness) -> Self {
        Self {
            name,
            file,
            reports: Reports::new(file, strictness),
            given: BTreeMap::new(),
            counts: BTreeMap::new(),
            global: None,
            machine_id: None,
            machine_of: Vec::new(),
            metadata: BTreeMap::new(),
            plain: Requirements::default(),
            conflicts: Vec::new(),
            replaces: Vec::new(),
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
    pub(super) fn finish(self) -> Result<ParsedRequirements, RequirementErrors> {
        let warnings = self.reports.finish()?;
        let requirements = Requirements {
            global: self.global.is_some(),
            machine_id: self.machine_id.map(|id| id.value),
            machine_of: distinct(self.machine_of),
            metadata: self.metadata,
            conflicts: distinct(self.conflicts),
            replaces: distinct(self.replaces),
            ..self.plain
        };
        Ok(ParsedRequirements { requirements, warnings })
    }

    /// Where an option stands that the unit uses.
    pub(super) fn used(&self, option: FleetOption) -> Option<Span> {
        match option {
            FleetOption::Global => self.global,
            _ => self.given.get(&option).copied(),
        }
    }

    fn look_for_misnamed_sections(&mut self) {
        let file = self.file;
        let mut seen = BTreeSet::new();
        for option in file.options() {
            let name = option.section();
            if is_misnamed(name) && seen.insert(name) {
                let kind = WarningKind::SectionName { name: name.to_owned() };
                self.reports.warn(option.span(), kind);
            }
        }
    }

    fn read_option(&mut self, option: OptionView<'_>) {
        let span = option.span();
        let Some(key) = self.key(option.name(), span) else {
            return;
        };
        let values = values::split(key, option.value());
        if values.is_empty() {
            return self.take_back(key);
        }
        if key != FleetOption::Global {
            self.given.entry(key).or_insert(span);
        }
        let Span { start: mut from, end } = option.value_span();
        for value in values {
            if self.may_have_one_more(key, span) {
                let span = self.find(&value, Span { start: from, end }).unwrap_or(span);
                from = from.max(span.end);
                self.read_value(key, &value, span);
            }
        }
    }

    /// Where a value stands in a part of the source, if it can be found there as it is.
    fn find(&self, value: &str, part: Span) -> Option<Span> {
        let text = str::from_utf8(self.file.source().get(part.start..part.end)?).ok()?;
        let start = part.start + text.find(value)?;
        Some(Span { start, end: start + value.len() })
    }

    /// Counts one more value of an option, and says whether it may have it. The first that it may
    /// not have is recorded.
    fn may_have_one_more(&mut self, option: FleetOption, span: Span) -> bool {
        let count = self.counts.entry(option).or_default();
        *count += 1;
        let count = *count;
        if count == MAX_VALUES + 1 {
            let limit = MAX_VALUES;
            self.reports.refuse(span, Kind::TooMany { option, limit });
        }
        count <= MAX_VALUES
    }

    /// The option of that name, new or old.
    fn key(&mut self, name: &str, span: Span) -> Option<FleetOption> {
        if let Some(key) = FleetOption::from_name(name) {
            return Some(key);
        }
        let name = name.to_owned();
        let Some(option) = FleetOption::from_old_spelling(&name) else {
            let suggestion = FleetOption::nearest(&name);
            self.reports.object(span, Kind::UnknownOption { name, suggestion });
            return None;
        };
        self.reports.warn(span, WarningKind::OldSpelling { name, option });
        Some(option)
    }

    /// Forgets all that an option was given.
    fn take_back(&mut self, key: FleetOption) {
        self.given.remove(&key);
        self.counts.remove(&key);
        match key {
            FleetOption::MachineId => self.machine_id = None,
            FleetOption::MachineOf => self.machine_of.clear(),
            FleetOption::MachineMetadata => self.metadata.clear(),
            FleetOption::Conflicts => self.conflicts.clear(),
            FleetOption::Replaces => self.replaces.clear(),
            FleetOption::Global => self.global = None,
            _ => self.take_back_plain(key),
        }
    }

    fn read_value(&mut self, key: FleetOption, value: &str, span: Span) {
        match key {
            FleetOption::MachineMetadata => return self.read_metadata(value, span),
            FleetOption::MachineMetadataExpr => return self.read_demand(value, span),
            FleetOption::Prefer => return self.read_preference(value, span),
            _ => {}
        }
        if let Some(resource) = key.reserves() {
            return self.read_amount(resource, key, value, span);
        }
        let Some(value) = self.expand(key, value, span) else {
            return;
        };
        match key {
            FleetOption::MachineId => self.read_machine_id(value, span),
            FleetOption::MachineOf => self.read_peer(&value, span),
            FleetOption::Conflicts | FleetOption::Replaces => self.read_pattern(key, &value, span),
            FleetOption::Global => self.read_global(value, span),
            _ => self.read_plain(key, value, span),
        }
    }

    /// The value with its specifiers expanded. `None` if that cannot be, which is recorded, or if
    /// the value depends on the instance and there is none yet.
    pub(super) fn expand(
        &mut self,
        option: FleetOption,
        value: &str,
        span: Span,
    ) -> Option<String> {
        match expand_specifiers(value, self.name) {
            Ok(_) if self.name.is_template() && depends_on_instance(value) => None,
            Ok(expanded) => Some(expanded),
            Err(cause) => {
                let value = value.to_owned();
                self.reports.refuse(span, Kind::Specifier { option, value, cause });
                None
            }
        }
    }

    fn read_machine_id(&mut self, value: String, span: Span) {
        if MachineId::looks_short(&value) {
            return self.reports.refuse(span, Kind::ShortMachineId { value });
        }
        let Ok(second) = value.parse::<MachineId>() else {
            return self.reports.refuse(span, Kind::MachineId { value });
        };
        match &self.machine_id {
            None => {
                let value = second;
                self.machine_id = Some(Placed { value, span });
            }
            Some(first) if first.value == second => {}
            Some(first) => {
                let line = self.reports.line(first.span);
                let first = first.value.clone();
                self.reports.refuse(span, Kind::SeveralMachineIds { first, line, second });
            }
        }
    }

    fn read_peer(&mut self, value: &str, span: Span) {
        match value.parse() {
            Err(PeerError::Name(cause)) => {
                let value = value.to_owned();
                self.reports.refuse(span, Kind::UnitName { value, cause });
            }
            Err(PeerError::Pattern(cause)) => {
                let option = FleetOption::MachineOf;
                self.reports.refuse(span, Kind::Pattern { option, cause });
            }
            Ok(Peer::Named(peer)) if peer == *self.name => {
                self.reports.refuse(span, Kind::PeerIsSelf { peer });
            }
            Ok(Peer::Named(peer)) if peer.is_template() => {
                self.reports.refuse(span, Kind::PeerIsTemplate { peer });
            }
            Ok(value) => self.machine_of.push(Placed { value, span }),
        }
    }

    /// Reads a condition. It is taken apart before anything is expanded, so that no unit's name can
    /// add a condition of its own.
    fn read_metadata(&mut self, text: &str, span: Span) {
        let (key, value) = match metadata::split_pair(text) {
            Ok(pair) => pair,
            Err(problem) => return self.object_to_metadata(text, problem, span),
        };
        let option = FleetOption::MachineMetadata;
        if self.expand(option, text, span).is_none() {
            return;
        }
        let expand = |part| expand_specifiers(part, self.name).expect("the whole was expanded");
        let (key, value) = (expand(key), expand(value));
        match metadata::split_pair(&format!("{key}={value}")) {
            Ok(_) => _ = self.metadata.entry(key).or_default().insert(value),
            Err(problem) => self.object_to_metadata(&format!("{key}={value}"), problem, span),
        }
    }

    fn object_to_metadata(&mut self, text: &str, problem: MetadataProblem, span: Span) {
        let value = text.to_owned();
        self.reports.object(span, Kind::Metadata { value, problem });
    }

    fn read_pattern(&mut self, option: FleetOption, value: &str, span: Span) {
        let pattern: Pattern = match value.parse() {
            Ok(pattern) => pattern,
            Err(cause) => {
                return self.reports.object(span, Kind::Pattern { option, cause });
            }
        };
        if pattern.is_exact() && UnitName::parse(value).is_err() {
            let pattern = pattern.clone();
            self.reports.warn(span, WarningKind::MatchesNothing { option, pattern });
        }
        let list = match option {
            FleetOption::Replaces => &mut self.replaces,
            _ => &mut self.conflicts,
        };
        list.push(Placed { value: pattern, span });
    }

    fn read_global(&mut self, value: String, span: Span) {
        match parse_bool(&value) {
            Some(true) => _ = self.global.get_or_insert(span),
            Some(false) => self.global = None,
            None => self.reports.refuse(span, Kind::NotABoolean { value }),
        }
    }
}

/// Whether the value is another one for each instance of a template.
pub(super) fn depends_on_instance(value: &str) -> bool {
    let without_percent_signs = value.replace("%%", "");
    ["%i", "%n", "%N"].iter().any(|specifier| without_percent_signs.contains(specifier))
}

/// Whether the section's name was probably meant to be `X-Fleet`.
fn is_misnamed(section: &str) -> bool {
    let letters: String = section.chars().filter(char::is_ascii_alphanumeric).collect();
    let fleet = ["xfleet", "fleet"].iter().any(|name| letters.eq_ignore_ascii_case(name));
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
