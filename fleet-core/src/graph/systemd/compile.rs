//! Reads one file: asks of each option what becomes of it, and keeps what is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_unitfile::{OptionView, UnitFile, UnitName, UnitType, directives};

use super::draft::Draft;
use super::refusal::{Cause, Position, Refusal, Refusals, Remark};
use super::relation::{Relation, relations};
use super::site::Site;
use super::standing::{Standing, standing};
use super::timer::Timer;
use super::value::{In, shown};
use crate::graph::{Name, Unit};

/// How many refusals and how many remarks are kept of one unit.
const MOST: usize = 100;

/// A unit that can be run, as far as its own file tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// It provides its own name, and depends on nothing yet.
    pub unit: Arc<Unit>,
    /// What it starts and when, if it is a timer.
    pub timer: Option<Timer>,
    /// What it says of other units, in the order of the file.
    pub relations: Vec<Relation>,
    /// Other names that it goes by, as `Alias=` has them.
    pub aliases: BTreeSet<UnitName>,
    /// Whether it has the dependencies that systemd gives to each unit (`DefaultDependencies=`).
    pub default_dependencies: bool,
    /// What a person should know, in the order of the file.
    pub remarks: Vec<Remark>,
    /// Where each option that counts stands.
    places: Box<[Position]>,
}

/// Turns a unit file of systemd into a unit of the graph.
///
/// Services become what their `Type=` says, targets and timers virtual units. Nothing outside the
/// file is looked at but `site`. Specifiers are replaced as systemd does.
///
/// ```
/// use fleet_core::graph::systemd::{Site, compile};
/// use fleet_unitfile::UnitFile;
///
/// let file = UnitFile::parse("[Service]\nExecStart=/usr/bin/web\nProtectHome=yes\n")?;
/// let refusals = compile(&"web.service".parse()?, &file, &Site::default()).unwrap_err();
/// let expected = "web.service:3:1: Service.ProtectHome is not possible: ";
/// assert!(refusals.to_string().starts_with(expected));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// All reasons not to run it: options that cannot be honoured, values that cannot be read, and what
/// the file lacks as a whole.
pub fn compile(name: &UnitName, file: &UnitFile, site: &Site) -> Result<Compiled, Refusals> {
    let mut compiler = Compiler::new(name, file, site);
    if let Some(problem) = cannot_be_run(name, file) {
        compiler.refuse(None, problem);
        return compiler.finish();
    }
    for option in file.options() {
        compiler.take(option);
    }
    compiler.finish()
}

/// What keeps a whole type of units, or an empty file, from being run.
fn cannot_be_run(name: &UnitName, file: &UnitFile) -> Option<String> {
    if !matches!(name.unit_type(), UnitType::Service | UnitType::Target | UnitType::Timer) {
        return Some(format!(
            "the native supervisor runs .service, .target and .timer units only, not .{} \
             ones: run it under systemd",
            name.unit_type()
        ));
    }
    if name.is_template() {
        return Some("a template is not run itself: name an instance of it".to_owned());
    }
    let is_masked = file.source().is_empty();
    is_masked.then(|| "an empty file masks the unit: write a unit into it".to_owned())
}

struct Compiler<'a> {
    name: &'a UnitName,
    file: &'a UnitFile,
    site: &'a Site,
    draft: Draft,
    relations: Vec<Relation>,
    aliases: BTreeSet<UnitName>,
    refusals: Vec<Refusal>,
    remarks: Vec<Remark>,
    /// Where each option that counts stands, in bytes; a place of that takes a look at all lines.
    places: BTreeMap<(String, String), usize>,
}

impl<'a> Compiler<'a> {
    fn new(name: &'a UnitName, file: &'a UnitFile, site: &'a Site) -> Self {
        Self {
            name,
            file,
            site,
            draft: Draft::new(),
            relations: Vec::new(),
            aliases: BTreeSet::new(),
            refusals: Vec::new(),
            remarks: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    fn take(&mut self, option: OptionView<'_>) {
        let (section, name) = (option.section(), option.name());
        if section.starts_with("X-") || name.starts_with("X-") {
            return;
        }
        if !self.has(section) {
            return self.refuse(Some(option), foreign(section, self.name.unit_type()));
        }
        match standing(section, name) {
            None => self.refuse(Some(option), unknown(section, name)),
            Some(Standing::Aside) => {}
            Some(Standing::Inert(why)) => self.remark(option, why),
            Some(Standing::Honoured) => self.honour(option),
            Some(it) if it.asks_for_nothing(option.value()) => {
                // The last one counts.
                let full = format!("{section}.{name}");
                self.refusals.retain(|old| old.option() != Some(&full));
            }
            Some(Standing::RefusedUnless(_, why) | Standing::Refused(why)) => {
                self.refuse(Some(option), why.to_owned());
            }
        }
    }

    /// Whether systemd reads this section in a unit of this type.
    fn has(&self, section: &str) -> bool {
        match section {
            "Unit" | "Install" => true,
            "Service" => self.name.unit_type() == UnitType::Service,
            "Timer" => self.name.unit_type() == UnitType::Timer,
            _ => false,
        }
    }

    fn honour(&mut self, option: OptionView<'_>) {
        let (section, name, value) = (option.section(), option.name(), option.value());
        let known = (section.to_owned(), name.to_owned());
        self.places.insert(known, option.span().start);
        let facts = &self.site.facts;
        let unit = In::new(self.name, facts);
        let expand = |text: &str| unit.expand(text);
        let done = match (section, name) {
            ("Install", "Alias") => alias(&mut self.aliases, value, self.name.unit_type(), &expand),
            _ => match relations(option, &expand) {
                Some(Ok(names)) => {
                    let place = self.place(option);
                    let relation = |(kind, unit)| Relation { kind, unit, place: place.clone() };
                    self.relations.extend(names.into_iter().map(relation));
                    Ok(())
                }
                Some(Err(problem)) => Err(problem),
                None => self.draft.take(section, name, value, &unit),
            },
        };
        if let Err(problem) = done {
            self.refuse(Some(option), problem);
        }
    }

    fn place(&self, option: OptionView<'_>) -> Position {
        let location = self.file.location(option.span().start);
        Position::new(location, option.section(), option.name())
    }

    /// Keeps a reason not to run the unit, unless the operator accepts it.
    fn refuse(&mut self, option: Option<OptionView<'_>>, problem: String) {
        if let Some(option) = option.filter(|option| self.site.accept.contains(option.name())) {
            let text = format!("is passed over, as this machine's operator accepts; it {problem}");
            return self.remark(option, &text);
        }
        if self.refusals.len() < MOST {
            let place = option.map(|option| self.place(option));
            self.refusals.push(Refusal { place, cause: Cause::Setting, problem });
        }
    }

    /// Keeps something to know; the same of one option is kept once.
    fn remark(&mut self, option: OptionView<'_>, text: &str) {
        let full = format!("{}.{}", option.section(), option.name());
        let known = |remark: &Remark| remark.place.option == full && remark.text == text;
        if self.remarks.len() < MOST && !self.remarks.iter().any(known) {
            self.remarks.push(Remark { place: self.place(option), text: text.to_owned() });
        }
    }

    /// The place of an option that counts, by its section and name.
    fn placed(&self, section: &str, name: &str) -> Option<Position> {
        let at = self.places.get(&(section.to_owned(), name.to_owned()))?;
        Some(Position::new(self.file.location(*at), section, name))
    }

    /// The places of all options that count.
    fn all_places(&self) -> Box<[Position]> {
        let place = |((section, name), at): (&(String, String), &usize)| {
            Position::new(self.file.location(*at), section, name)
        };
        self.places.iter().map(place).collect()
    }

    fn finish(mut self) -> Result<Compiled, Refusals> {
        let draft = std::mem::take(&mut self.draft);
        let default_dependencies = draft.default_dependencies.unwrap_or(true);
        let name = Name::new(self.name.as_str()).map_err(|problem| problem.to_string());
        // What is missing of a whole may be missing because a part of it was refused.
        let unit = match name {
            _ if !self.refusals.is_empty() => None,
            Ok(name) => self.finished(draft, name),
            Err(problem) => {
                self.refuse(None, format!("its name cannot be used: {problem}"));
                None
            }
        };
        let places = self.all_places();
        match unit {
            Some((unit, timer)) => Ok(Compiled {
                unit: Arc::new(unit),
                timer,
                relations: self.relations,
                aliases: self.aliases,
                default_dependencies,
                remarks: self.remarks,
                places,
            }),
            None => Err(Refusals { unit: self.name.clone(), all: self.refusals }),
        }
    }

    fn finished(&mut self, draft: Draft, name: Name) -> Option<(Unit, Option<Timer>)> {
        let flaws = draft.flaws(self.name.unit_type());
        for (option, problem) in flaws.refused {
            let place = option.and_then(|(section, name)| self.placed(section, name));
            self.refusals.push(Refusal { place, cause: Cause::Setting, problem });
        }
        for ((section, name), text) in flaws.remarked {
            if let Some(place) = self.placed(section, name) {
                self.remarks.push(Remark { place, text: text.to_owned() });
            }
        }
        let timer = (self.name.unit_type() == UnitType::Timer)
            .then(|| draft.timer.timer(&In::new(self.name, &self.site.facts)))
            .transpose();
        match timer {
            Ok(timer) if self.refusals.is_empty() => {
                Some((draft.unit(name, self.name.unit_type()), timer))
            }
            Ok(_) => None,
            Err(problem) => {
                self.refuse(None, problem);
                None
            }
        }
    }
}

impl Compiled {
    /// Where an option that counts stands; the last place, where there are several. Nothing if the
    /// file does not have it.
    #[must_use]
    pub fn place_of(&self, section: &str, name: &str) -> Option<Position> {
        self.places.iter().find(|place| place.is_of(section, name)).cloned()
    }
}

impl Refusal {
    fn option(&self) -> Option<&String> {
        self.place.as_ref().map(|place| &place.option)
    }
}

fn foreign(section: &str, unit_type: UnitType) -> String {
    format!("stands in [{section}], which means nothing in a .{unit_type} unit: take it out")
}

/// Adds other names of the unit; an empty value takes all away.
fn alias(
    aliases: &mut BTreeSet<UnitName>,
    value: &str,
    unit_type: UnitType,
    expand: &impl Fn(&str) -> Result<String, String>,
) -> Result<(), String> {
    if value.is_empty() {
        aliases.clear();
    }
    for word in value.split_whitespace() {
        let alias = expand(word)?.parse::<UnitName>().map_err(shown)?;
        if alias.unit_type() != unit_type || alias.is_template() {
            return Err(format!("names {alias}: write the name of a .{unit_type} unit"));
        }
        aliases.insert(alias);
    }
    Ok(())
}

/// What to say of an option that systemd does not have, with the nearest that it has.
fn unknown(section: &str, name: &str) -> String {
    let distance = |known: &str| strsim::damerau_levenshtein(known, name);
    let near = directives()
        .filter(|directive| directive.section == section)
        .map(|directive| (distance(directive.name), directive.name))
        .min()
        .filter(|(distance, _)| *distance <= 3.min(name.len() / 2));
    let help = near.map_or_else(
        || "take it out, or begin its name with X-".to_owned(),
        |(_, near)| format!("write {near}="),
    );
    format!("is no option of systemd in [{section}]: {help}")
}
