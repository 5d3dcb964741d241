//! Parsing of the `[X-Fleet]` section of a unit file.

use std::collections::{BTreeMap, BTreeSet};

use fleet_unitfile::specifier::expand_fleet_specifiers;
use fleet_unitfile::values::parse_bool;
use fleet_unitfile::{OptionView, Span, UnitFile, UnitName};

use super::errors::Reports;
use super::health::HealthOptions;
use super::job::JobOptions;
use super::{
    FleetOption, MetadataProblem, ParsedRequirements, RequirementErrorKind as Kind,
    RequirementErrors, RequirementWarningKind as WarningKind, Requirements, SECTION, Strictness,
    values,
};
use crate::pattern::{Peer, PeerError};
use crate::requirements::validate;
use crate::{MachineId, Pattern};

/// Maximum number of values of an option. The number is limited because values are compared in
/// pairs, with each other and with those of other units.
pub(super) const MAX_VALUES: usize = 256;

/// A value with its span.
pub(super) struct Spanned<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// State of parsing a section.
pub(super) struct SectionReader<'a> {
    pub(super) name: &'a UnitName,
    pub(super) file: &'a UnitFile,
    pub(super) reports: Reports<'a>,
    /// Position of the first occurrence of each option except `Global=` and `RunOnce=`. An option
    /// that a later empty assignment reset has no entry.
    first_spans: BTreeMap<FleetOption, Span>,
    /// Number of values of each option since its last reset.
    value_counts: BTreeMap<FleetOption, usize>,
    /// Position of a true `Global=`, if it is still in effect.
    global: Option<Span>,
    machine_id: Option<Spanned<MachineId>>,
    pub(super) machine_of: Vec<Spanned<Peer>>,
    metadata: BTreeMap<String, BTreeSet<String>>,
    /// Requirements that need no spans after parsing.
    pub(super) scalars: Requirements,
    pub(super) conflicts: Vec<Spanned<Pattern>>,
    pub(super) replaces: Vec<Spanned<Pattern>>,
    start_after: Vec<Spanned<UnitName>>,
    pub(super) health: HealthOptions,
    pub(super) job: JobOptions,
}

impl<'a> SectionReader<'a> {
    pub(super) fn new(name: &'a UnitName, file: &'a UnitFile, strictness: Strictness) -> Self {
        Self {
            name,
            file,
            reports: Reports::new(file, strictness),
            first_spans: BTreeMap::new(),
            value_counts: BTreeMap::new(),
            global: None,
            machine_id: None,
            machine_of: Vec::new(),
            metadata: BTreeMap::new(),
            scalars: Requirements::default(),
            conflicts: Vec::new(),
            replaces: Vec::new(),
            start_after: Vec::new(),
            health: HealthOptions::default(),
            job: JobOptions::default(),
        }
    }

    /// Parses all options of the section, then checks them against each other.
    pub(super) fn read(&mut self) {
        let file = self.file;
        for option in file.options() {
            if option.section() == SECTION {
                self.read_option(option);
            }
        }
        self.warn_about_misnamed_sections();
        self.read_job();
        validate::check(self);
    }

    /// Returns the requirements and warnings, or the errors if there are any.
    pub(super) fn finish(self) -> Result<ParsedRequirements, RequirementErrors> {
        let warnings = self.reports.finish()?;
        let requirements = Requirements {
            global: self.global.is_some(),
            machine_id: self.machine_id.map(|id| id.value),
            machine_of: distinct(self.machine_of),
            metadata: self.metadata,
            conflicts: distinct(self.conflicts),
            replaces: distinct(self.replaces),
            start_after: distinct(self.start_after),
            health_check: self.health.finish(),
            ..self.scalars
        };
        Ok(ParsedRequirements { requirements, warnings })
    }

    /// Returns the span of an option that the unit uses.
    pub(super) fn used(&self, option: FleetOption) -> Option<Span> {
        match option {
            FleetOption::Global => self.global,
            FleetOption::RunOnce => self.job.run_once,
            _ => self.first_spans.get(&option).copied(),
        }
    }

    fn warn_about_misnamed_sections(&mut self) {
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
            return self.reset(key, span);
        }
        if !matches!(key, FleetOption::Global | FleetOption::RunOnce) {
            self.first_spans.entry(key).or_insert(span);
        }
        let Span { start: mut from, end } = option.value_span();
        for value in values {
            if self.count_value(key, span) {
                let span = self.find(&value, Span { start: from, end }).unwrap_or(span);
                from = from.max(span.end);
                self.read_value(key, &value, span);
            }
        }
    }

    /// Returns the position of a value within a part of the source, or `None` if the value does not
    /// appear there literally.
    fn find(&self, value: &str, part: Span) -> Option<Span> {
        let text = str::from_utf8(self.file.source().get(part.start..part.end)?).ok()?;
        let start = part.start + text.find(value)?;
        Some(Span { start, end: start + value.len() })
    }

    /// Counts one more value of an option. Returns `false` if the option then has too many values,
    /// and records an error for the first excess value.
    fn count_value(&mut self, option: FleetOption, span: Span) -> bool {
        let count = self.value_counts.entry(option).or_default();
        *count += 1;
        let count = *count;
        if count == MAX_VALUES + 1 {
            let limit = MAX_VALUES;
            self.reports.refuse(span, Kind::TooMany { option, limit });
        }
        count <= MAX_VALUES
    }

    /// Returns the option with this current or deprecated name.
    fn key(&mut self, name: &str, span: Span) -> Option<FleetOption> {
        if let Some(key) = FleetOption::from_name(name) {
            return Some(key);
        }
        let name = name.to_owned();
        let Some(option) = FleetOption::from_deprecated_name(&name) else {
            let suggestion = FleetOption::nearest(&name);
            self.reports.report_lenient(span, Kind::UnknownOption { name, suggestion });
            return None;
        };
        self.reports.warn(span, WarningKind::DeprecatedName { name, option });
        Some(option)
    }

    /// Resets an option.
    fn reset(&mut self, key: FleetOption, span: Span) {
        self.first_spans.remove(&key);
        self.value_counts.remove(&key);
        match key {
            FleetOption::MachineId => self.machine_id = None,
            FleetOption::MachineOf => self.machine_of.clear(),
            FleetOption::MachineMetadata => self.metadata.clear(),
            FleetOption::Conflicts => self.conflicts.clear(),
            FleetOption::Replaces => self.replaces.clear(),
            FleetOption::StartAfter => self.start_after.clear(),
            FleetOption::Global => self.global = None,
            _ if self.job.reset(key, span) => {}
            _ => self.reset_scalar(key),
        }
    }

    fn read_value(&mut self, key: FleetOption, value: &str, span: Span) {
        match key {
            FleetOption::MachineMetadata => return self.read_metadata(value, span),
            FleetOption::MachineMetadataExpr => return self.read_metadata_expr(value, span),
            FleetOption::Prefer => return self.read_preference(value, span),
            FleetOption::HealthCheck => return self.read_health_check(value, span),
            _ if key.defines_job() => return self.read_job_option(key, value, span),
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
            FleetOption::StartAfter => self.read_start_after(&value, span),
            FleetOption::Conflicts | FleetOption::Replaces => self.read_pattern(key, &value, span),
            FleetOption::Global => self.read_global(value, span),
            _ => self.read_scalar(key, value, span),
        }
    }

    /// Expands the specifiers of a value. Returns `None` if the expansion fails, after recording an
    /// error. Also returns `None` if the unit is a template and the value depends on the instance.
    pub(super) fn expand(
        &mut self,
        option: FleetOption,
        value: &str,
        span: Span,
    ) -> Option<String> {
        match expand_fleet_specifiers(value, self.name) {
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
                self.machine_id = Some(Spanned { value, span });
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
        let option = FleetOption::MachineOf;
        match value.parse() {
            Err(PeerError::Name(cause)) => {
                let value = value.to_owned();
                self.reports.refuse(span, Kind::UnitName { option, value, cause });
            }
            Err(PeerError::Pattern(cause)) => {
                self.reports.refuse(span, Kind::Pattern { option, cause });
            }
            Ok(Peer::Named(peer)) => {
                if let Some(peer) = self.checked_peer(option, peer, span) {
                    self.machine_of.push(Spanned { value: Peer::Named(peer), span });
                }
            }
            Ok(value) => self.machine_of.push(Spanned { value, span }),
        }
    }

    fn read_start_after(&mut self, value: &str, span: Span) {
        let option = FleetOption::StartAfter;
        match UnitName::parse(value) {
            Err(cause) => {
                let value = value.to_owned();
                self.reports.refuse(span, Kind::UnitName { option, value, cause });
            }
            Ok(peer) => {
                if let Some(value) = self.checked_peer(option, peer, span) {
                    self.start_after.push(Spanned { value, span });
                }
            }
        }
    }

    /// Returns the peer, unless it is the unit itself or a template. Records an error then.
    fn checked_peer(
        &mut self,
        option: FleetOption,
        peer: UnitName,
        span: Span,
    ) -> Option<UnitName> {
        if peer == *self.name {
            self.reports.refuse(span, Kind::PeerIsSelf { option, peer });
            return None;
        }
        if peer.is_template() {
            self.reports.refuse(span, Kind::PeerIsTemplate { option, peer });
            return None;
        }
        Some(peer)
    }

    /// Parses a `MachineMetadata=` condition. The condition is split into key and value before
    /// specifiers are expanded, so that the unit's name cannot change the split.
    fn read_metadata(&mut self, text: &str, span: Span) {
        let (key, value) = match values::split_pair(text) {
            Ok(pair) => pair,
            Err(problem) => return self.report_metadata_problem(text, problem, span),
        };
        let option = FleetOption::MachineMetadata;
        if self.expand(option, text, span).is_none() {
            return;
        }
        let expand =
            |part| expand_fleet_specifiers(part, self.name).expect("the whole was expanded");
        let (key, value) = (expand(key), expand(value));
        match values::split_pair(&format!("{key}={value}")) {
            Ok(_) => _ = self.metadata.entry(key).or_default().insert(value),
            Err(problem) => self.report_metadata_problem(&format!("{key}={value}"), problem, span),
        }
    }

    fn report_metadata_problem(&mut self, text: &str, problem: MetadataProblem, span: Span) {
        let value = text.to_owned();
        self.reports.report_lenient(span, Kind::Metadata { value, problem });
    }

    fn read_pattern(&mut self, option: FleetOption, value: &str, span: Span) {
        let pattern: Pattern = match value.parse() {
            Ok(pattern) => pattern,
            Err(cause) => {
                return self.reports.report_lenient(span, Kind::Pattern { option, cause });
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
        list.push(Spanned { value: pattern, span });
    }

    fn read_global(&mut self, value: String, span: Span) {
        match parse_bool(&value) {
            Some(true) => _ = self.global.get_or_insert(span),
            Some(false) => self.global = None,
            None => self.reports.refuse(span, Kind::NotABoolean { value }),
        }
    }
}

/// Returns `true` if the value differs between instances of a template.
pub(super) fn depends_on_instance(value: &str) -> bool {
    let without_percent_signs = value.replace("%%", "");
    ["%i", "%n", "%N"].iter().any(|specifier| without_percent_signs.contains(specifier))
}

/// Returns `true` if a section name is probably a misspelled `X-Fleet`.
fn is_misnamed(section: &str) -> bool {
    let letters: String = section.chars().filter(char::is_ascii_alphanumeric).collect();
    let fleet = ["xfleet", "fleet"].iter().any(|name| letters.eq_ignore_ascii_case(name));
    fleet && section != SECTION
}

/// Returns the distinct values, in order.
fn distinct<T: PartialEq>(placed: Vec<Spanned<T>>) -> Vec<T> {
    let mut values = Vec::with_capacity(placed.len());
    for Spanned { value, .. } in placed {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}
