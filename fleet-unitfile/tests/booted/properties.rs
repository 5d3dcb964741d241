//! Converts options to systemd properties, one kind of value at a time.

use fleet_unitfile::values::{Size, parse_bool, parse_permyriad, parse_size, quote_word};
use fleet_unitfile::{MergedUnit, OptionView, SpecifierContext, UnitName, UnitOption, UnitType};
use serde_json::{Value, json};

use crate::expected::{World, codes};
use crate::options::{ComparedOption, Kind, known};
use crate::parts::{
    address, before_error, before_refusal, flags, integer, limit, simplified, span, unquoted,
};

/// Predicts the properties that systemd reports for a unit.
pub(crate) struct UnitProperties<'a> {
    pub(crate) unit: &'a MergedUnit,
    pub(crate) context: &'a SpecifierContext,
    pub(crate) world: &'a World,
}

impl UnitProperties<'_> {
    /// Returns the property of an option; `None` if it is not compared.
    pub(crate) fn property(&self, known: &ComparedOption) -> Option<Value> {
        match known.kind {
            Kind::Commands => Some(self.commands(known)),
            Kind::Condition(_) | Kind::Listen(_) | Kind::Monotonic(_) | Kind::Watch(_) => {
                Some(self.mixed(known))
            }
            Kind::Calendar => Some(json!(self.mixed(known).as_array()?.len())),
            Kind::Environment => Some(self.environment(known)),
            Kind::EnvironmentFile => Some(self.environment_files(known)),
            // A unit type that cannot fail has no units for failure.
            Kind::Units if self.cannot_fail() && known.option.starts_with("On") => None,
            Kind::Units => Some(self.units(known)),
            Kind::Urls => Some(self.urls(known)),
            Kind::Variables => Some(self.variables(known)),
            _ => self.single(known),
        }
    }

    /// Returns the soft limit. If only one limit is set, it is both.
    pub(crate) fn soft_limit(&self, known: &ComparedOption) -> Option<Value> {
        let soft = format!("{}Soft", known.property);
        match self.last(known) {
            Some(value) => limit(known, value.split(':').next()?),
            None => self.plain(&soft),
        }
    }

    fn name(&self) -> &UnitName {
        self.unit.name()
    }

    fn cannot_fail(&self) -> bool {
        matches!(self.name().unit_type(), UnitType::Slice | UnitType::Target)
    }

    fn plain(&self, property: &str) -> Option<Value> {
        self.world.plain[self.name().unit_type().as_str()].get(property).cloned()
    }

    /// Returns the lines of an option that systemd accepts, after the last empty line, which resets
    /// the option.
    fn counted(&self, known: &ComparedOption) -> Vec<OptionView<'_>> {
        let lines = self.unit.values(known.section, known.option).map(|it| it.option);
        let lines: Vec<_> = lines.filter(|option| self.counts(known, *option)).collect();
        let start = lines.iter().rposition(|it| it.value().is_empty()).map_or(0, |at| at + 1);
        lines[start..].to_vec()
    }

    /// Returns the effective value of an option that takes one value.
    fn last(&self, known: &ComparedOption) -> Option<&str> {
        let lines = self.unit.values(known.section, known.option).map(|it| it.option);
        let counts = |it: &OptionView<'_>| self.counts(known, *it);
        lines.rev().find(counts).map(OptionView::value).filter(|value| !value.is_empty())
    }

    /// Whether systemd accepts a line: its text is valid, and so is its value with specifiers
    /// expanded.
    fn counts(&self, known: &ComparedOption, option: OptionView<'_>) -> bool {
        let value = option.value();
        if !codes(self.name(), option.into()).is_empty() {
            return false;
        }
        match known.kind {
            _ if value.is_empty() => true,
            Kind::Path if self.expand(value).is_some_and(|it| it.is_empty()) => true,
            Kind::Path
            | Kind::Condition(_)
            | Kind::Listen(_)
            | Kind::Watch(_)
            | Kind::Monotonic(_)
            | Kind::Calendar => self.entry(known, value).is_some(),
            Kind::EnvironmentFile => self.path(value.strip_prefix('-').unwrap_or(value)).is_some(),
            Kind::WorkingDirectory => {
                let place = value.strip_prefix('-').unwrap_or(value);
                place == "~" || self.path(place).is_some()
            }
            _ => true,
        }
    }

    /// Returns an absolute path with its specifiers expanded.
    fn path(&self, text: &str) -> Option<String> {
        let path = self.expand(text)?;
        path.starts_with('/').then(|| simplified(&path))
    }

    fn expand(&self, text: &str) -> Option<String> {
        self.context.expand(text, self.name()).ok()
    }

    fn single(&self, known: &ComparedOption) -> Option<Value> {
        let comes_to_nothing = |value: &&str| self.expand(value).is_some_and(|it| it.is_empty());
        let value = self.last(known).filter(|value| {
            !matches!(known.option, "Description" | "SourcePath") || !comes_to_nothing(value)
        });
        let Some(value) = value else {
            return match known.property {
                "Description" => match self.name().unit_type() {
                    // Such units are described by their path.
                    UnitType::Mount | UnitType::Slice => None,
                    _ => Some(json!(self.name().as_str())),
                },
                // A oneshot service has no start timeout.
                "TimeoutStartUSec" => None,
                // The default type of a service depends on its commands.
                "Type" if self.name().unit_type() == UnitType::Service => None,
                _ => self.plain(known.property),
            };
        };
        let number = |text: &str| Some(json!(integer(text)?));
        match known.kind {
            Kind::Bool => Some(json!(parse_bool(value)?)),
            Kind::Choice(_) => Some(json!(value)),
            Kind::Limit => limit(known, value.split(':').next_back()?),
            Kind::Memory => self.memory(value),
            Kind::Mode => Some(json!(u32::from_str_radix(value, 8).ok()?)),
            Kind::Number(..) => number(value),
            Kind::Path => Some(json!(self.path(value)?)),
            Kind::Quota => Some(json!(u64::from(parse_permyriad(value).ok()?) * 100)),
            Kind::Span => span(value, false),
            Kind::Timeout => span(value, true),
            Kind::Text => Some(json!(self.expand(value)?)),
            Kind::WorkingDirectory => {
                let (mark, path) = value.strip_prefix('-').map_or(("", value), |it| ("!", it));
                let path =
                    if path == "~" { "~".to_owned() } else { simplified(&self.expand(path)?) };
                Some(json!(format!("{mark}{path}")))
            }
            _ => unreachable!("{known:?} is a list"),
        }
    }

    fn memory(&self, value: &str) -> Option<Value> {
        let (all, page) = self.world.memory;
        Some(match parse_size(value).ok()? {
            Size::Bytes(bytes) => json!(bytes),
            Size::Permyriad(share) => json!(all / page * u64::from(share) / 10_000 * page),
            _ => json!(u64::MAX),
        })
    }

    fn commands(&self, known: &ComparedOption) -> Value {
        let mut all = Vec::new();
        let lines = self.unit.values(known.section, known.option);
        for value in lines.map(|it| it.option.value()) {
            if value.is_empty() {
                all.clear();
            }
            for command in before_refusal(value) {
                // A command that may fail is ignored, with all after it.
                let Ok(command) = command.expand(self.context, self.name()) else { break };
                let argv: Vec<&str> = command.argv().collect();
                all.push(match known.property.ends_with("Ex") {
                    true => json!([command.path(), argv, flags(&command)]),
                    false => json!([command.path(), argv, command.ignores_failure()]),
                });
            }
        }
        json!(all)
    }

    /// Merges options of several names into one list, the last first.
    fn mixed(&self, of: &ComparedOption) -> Value {
        let mut entries = Vec::new();
        let all = known(self.name().unit_type());
        for it in self.unit.options().map(|it| it.option) {
            let is_it = |known: &&&ComparedOption| {
                (known.section, known.option) == (it.section(), it.name())
                    && (known.property == of.property
                        || known.property.starts_with("Timers")
                            && of.property.starts_with("Timers"))
            };
            let Some(known) = all.iter().find(is_it) else { continue };
            if !self.counts(known, it) {
                continue;
            }
            match it.value() {
                "" => entries.clear(),
                value => entries.extend(self.entry(known, value).map(|it| (known.property, it))),
            }
        }
        entries.retain(|(property, _)| *property == of.property);
        let mut entries: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
        if !matches!(of.kind, Kind::Listen(_)) {
            entries.reverse();
        }
        json!(entries)
    }

    fn entry(&self, known: &ComparedOption, value: &str) -> Option<Value> {
        match known.kind {
            Kind::Condition(name) => {
                let (triggers, rest) =
                    value.strip_prefix('|').map_or((false, value), |it| (true, it));
                let (negated, rest) = rest.strip_prefix('!').map_or((false, rest), |it| (true, it));
                Some(json!([name, triggers, negated, self.path(rest)?]))
            }
            Kind::Listen("FIFO") => Some(json!(["FIFO", self.path(value)?])),
            Kind::Listen(name) => Some(json!([name, address(&self.expand(value)?)])),
            Kind::Monotonic(name) => Some(json!([name, span(&self.expand(value)?, false)?])),
            Kind::Watch(name) => Some(json!([name, self.path(value)?])),
            Kind::Path => Some(json!(self.path(value)?)),
            Kind::Calendar => Some(json!(self.expand(value)?)),
            _ => None,
        }
    }

    fn environment(&self, known: &ComparedOption) -> Value {
        let mut all: Vec<String> = Vec::new();
        for option in self.lines_in_parts(known) {
            for word in before_error(option) {
                let expanded = self.expand(&word).filter(|_| self.is_sound(known, &word));
                let is_sound = |it: &String| self.is_sound(known, &it.replace('%', "%%"));
                let Some(word) = expanded.filter(is_sound) else { continue };
                let name = word.split('=').next().unwrap_or_default();
                let same = |it: &String| it.split('=').next() == Some(name);
                match all.iter().position(same) {
                    Some(at) => all[at] = word,
                    None => all.push(word),
                }
            }
        }
        json!(all)
    }

    fn environment_files(&self, known: &ComparedOption) -> Value {
        let files = self.counted(known).into_iter().filter_map(|option| {
            let value = self.expand(option.value())?;
            let (may_miss, path) =
                value.strip_prefix('-').map_or((false, &*value), |it| (true, it));
            Some(json!([simplified(path), may_miss]))
        });
        Value::Array(files.collect())
    }

    /// Returns documentation URLs: specifiers are expanded before the line is split.
    fn urls(&self, known: &ComparedOption) -> Value {
        let mut all = Vec::new();
        for line in self.lines_in_parts(known) {
            let words = self.expand(line).map(|line| unquoted(&line)).unwrap_or_default();
            all.extend(words.into_iter().filter(|word| self.is_sound(known, word)));
        }
        json!(all)
    }

    /// Returns variable names, without duplicates.
    fn variables(&self, known: &ComparedOption) -> Value {
        let mut all: Vec<String> = Vec::new();
        for word in self.lines_in_parts(known).into_iter().flat_map(before_error) {
            let expanded = self.expand(&word).filter(|_| self.is_sound(known, &word));
            let is_sound = |it: &String| self.is_sound(known, &it.replace('%', "%%"));
            let expanded = expanded.filter(is_sound);
            all.extend(expanded.filter(|word| !all.contains(word)));
        }
        json!(all)
    }

    /// Returns names of other units, except those that units have by default.
    fn units(&self, known: &ComparedOption) -> Value {
        let mut all = std::collections::BTreeSet::new();
        for option in self.unit.effective(known.section, known.option) {
            for word in option.option.value().split_whitespace() {
                let own = UnitOption::new(known.section, known.option, word);
                let sound = codes(self.name(), own).is_empty();
                let name = self.expand(word).and_then(|word| UnitName::parse(&word).ok());
                let Some(mut name) = name.filter(|_| sound) else { continue };
                if name.is_template() {
                    let own = self.name().instance().unwrap_or(self.name().prefix());
                    let Ok(instance) = name.instantiate(own) else { continue };
                    name = instance;
                }
                if name.as_str().starts_with("dep-") {
                    all.insert(name.to_string());
                }
            }
        }
        json!(all)
    }

    /// Returns the lines of a list after its last reset. Lines of which only some words are valid
    /// are included.
    fn lines_in_parts(&self, known: &ComparedOption) -> Vec<&str> {
        self.unit.effective(known.section, known.option).map(|it| it.option.value()).collect()
    }

    /// Whether one word of a list is valid.
    fn is_sound(&self, known: &ComparedOption, word: &str) -> bool {
        let option = UnitOption::new(known.section, known.option, quote_word(word));
        codes(self.name(), option).is_empty()
    }
}
