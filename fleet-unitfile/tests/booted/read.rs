//! Options as properties of systemd's: each kind of value, read with this crate.

use fleet_unitfile::{
    MergedUnit, OptionView, Size, SpecifierContext, UnitName, UnitOption, UnitType, parse_bool,
    parse_permyriad, parse_size, quote_word,
};
use serde_json::{Value, json};

use crate::expected::{World, codes};
use crate::known::{Kind, Known, known};
use crate::parts::{
    address, before_error, before_refusal, flags, integer, limit, simplified, span, unquoted,
};

/// A unit that is read.
pub(crate) struct Reading<'a> {
    pub(crate) unit: &'a MergedUnit,
    pub(crate) facts: &'a SpecifierContext,
    pub(crate) world: &'a World,
}

impl Reading<'_> {
    /// The property that shows an option; `None` where it is not compared.
    pub(crate) fn property(&self, known: &Known) -> Option<Value> {
        match known.kind {
            Kind::Commands => Some(self.commands(known)),
            Kind::Condition(_) | Kind::Listen(_) | Kind::Monotonic(_) | Kind::Watch(_) => {
                Some(self.mixed(known))
            }
            Kind::Calendar => Some(json!(self.mixed(known).as_array()?.len())),
            Kind::Environment => Some(self.environment(known)),
            Kind::EnvironmentFile => Some(self.environment_files(known)),
            // What cannot fail has no units for that.
            Kind::Units if self.cannot_fail() && known.option.starts_with("On") => None,
            Kind::Units => Some(self.units(known)),
            Kind::Urls => Some(self.urls(known)),
            Kind::Variables => Some(self.variables(known)),
            _ => self.single(known),
        }
    }

    /// The soft limit, which stands before the hard one or is the same.
    pub(crate) fn soft_limit(&self, known: &Known) -> Option<Value> {
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

    /// All lines of an option that systemd does not ignore, empty ones too.
    fn counted(&self, known: &Known) -> Vec<OptionView<'_>> {
        let lines = self.unit.values(known.section, known.option).map(|it| it.option);
        let lines: Vec<_> = lines.filter(|option| self.counts(known, *option)).collect();
        let start = lines.iter().rposition(|it| it.value().is_empty()).map_or(0, |at| at + 1);
        lines[start..].to_vec()
    }

    /// The value that counts of an option that has one.
    fn last(&self, known: &Known) -> Option<&str> {
        let lines = self.unit.values(known.section, known.option).map(|it| it.option);
        let counts = |it: &OptionView<'_>| self.counts(known, *it);
        lines.rev().find(counts).map(OptionView::value).filter(|value| !value.is_empty())
    }

    /// Whether systemd does not ignore a line: nothing is wrong with it, nor with what its
    /// specifiers stand for.
    fn counts(&self, known: &Known, option: OptionView<'_>) -> bool {
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

    /// An absolute path, once its specifiers are replaced.
    fn path(&self, text: &str) -> Option<String> {
        let path = self.expand(text)?;
        path.starts_with('/').then(|| simplified(&path))
    }

    fn expand(&self, text: &str) -> Option<String> {
        self.facts.expand(text, self.name()).ok()
    }

    fn single(&self, known: &Known) -> Option<Value> {
        let comes_to_nothing = |value: &&str| self.expand(value).is_some_and(|it| it.is_empty());
        let value = self.last(known).filter(|value| {
            !matches!(known.option, "Description" | "SourcePath") || !comes_to_nothing(value)
        });
        let Some(value) = value else {
            return match known.property {
                "Description" => match self.name().unit_type() {
                    // These are described by what they stand for.
                    UnitType::Mount | UnitType::Slice => None,
                    _ => Some(json!(self.name().as_str())),
                },
                // A service that runs once has no end of time to start in.
                "TimeoutStartUSec" => None,
                // What a service without a type is depends on its commands.
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

    fn commands(&self, known: &Known) -> Value {
        let mut all = Vec::new();
        let lines = self.unit.values(known.section, known.option);
        for value in lines.map(|it| it.option.value()) {
            if value.is_empty() {
                all.clear();
            }
            for command in before_refusal(value) {
                // One that may fail is ignored, with all after it.
                let Ok(command) = command.expand(self.facts, self.name()) else { break };
                let argv: Vec<&str> = command.argv().collect();
                all.push(match known.property.ends_with("Ex") {
                    true => json!([command.path(), argv, flags(&command)]),
                    false => json!([command.path(), argv, command.ignores_failure()]),
                });
            }
        }
        json!(all)
    }

    /// Options of several names that make one list, the last first.
    fn mixed(&self, of: &Known) -> Value {
        let mut entries = Vec::new();
        let all = known(self.name().unit_type());
        for it in self.unit.options().map(|it| it.option) {
            let is_it = |known: &&&Known| {
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

    fn entry(&self, known: &Known, value: &str) -> Option<Value> {
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

    fn environment(&self, known: &Known) -> Value {
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

    fn environment_files(&self, known: &Known) -> Value {
        let files = self.counted(known).into_iter().filter_map(|option| {
            let value = self.expand(option.value())?;
            let (may_miss, path) =
                value.strip_prefix('-').map_or((false, &*value), |it| (true, it));
            Some(json!([simplified(path), may_miss]))
        });
        Value::Array(files.collect())
    }

    /// Places of documents: specifiers are replaced before the line is split.
    fn urls(&self, known: &Known) -> Value {
        let mut all = Vec::new();
        for line in self.lines_in_parts(known) {
            let words = self.expand(line).map(|line| unquoted(&line)).unwrap_or_default();
            all.extend(words.into_iter().filter(|word| self.is_sound(known, word)));
        }
        json!(all)
    }

    /// Names of variables, each once.
    fn variables(&self, known: &Known) -> Value {
        let mut all: Vec<String> = Vec::new();
        for word in self.lines_in_parts(known).into_iter().flat_map(before_error) {
            let expanded = self.expand(&word).filter(|_| self.is_sound(known, &word));
            let is_sound = |it: &String| self.is_sound(known, &it.replace('%', "%%"));
            let expanded = expanded.filter(is_sound);
            all.extend(expanded.filter(|word| !all.contains(word)));
        }
        json!(all)
    }

    /// Names of other units, of which only those count that no unit has by default.
    fn units(&self, known: &Known) -> Value {
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

    /// The lines of a list after its last reset, those too of which only some words count.
    fn lines_in_parts(&self, known: &Known) -> Vec<&str> {
        self.unit.effective(known.section, known.option).map(|it| it.option.value()).collect()
    }

    /// Whether nothing is wrong with one word of a list.
    fn is_sound(&self, known: &Known, word: &str) -> bool {
        let option = UnitOption::new(known.section, known.option, quote_word(word));
        codes(self.name(), option).is_empty()
    }
}
