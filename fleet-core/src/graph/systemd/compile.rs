//! Compiles a unit file of systemd to a unit and its relations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_unitfile::check::directives;
use fleet_unitfile::spelling::suggest;
use fleet_unitfile::{OptionView, SpecifierContext, UnitFile, UnitName, UnitType};

use super::accept::{AcceptedOptions, Confinement, OptionGroup};
use super::activator::{Activator, NO_RELATIONS};
use super::condition;
use super::draft::Draft;
use super::relation::{Relation, relations};
use super::service::ServiceDescriptors;
use super::service_options::SCHEDULING;
use super::support::{
    OptionPosition, RefusalCause, Remark, RemarkKind, Support, UnitRefusal, UnitRefusals,
    Unsupported, support, unsupported_value,
};
use super::timer::Timer;
use super::value::{ValueContext, unreadable};
use crate::graph::model::{InitUnit, Name};

/// Maximum number of refusals, and of remarks, per unit.
const MAX_REPORTED: usize = 100;

/// A unit without refusals in its own file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompiledUnit {
    /// The unit. It provides its own name and has no dependencies yet.
    pub unit: Arc<InitUnit>,
    /// Triggers and triggered unit, for a timer.
    pub timer: Option<Timer>,
    /// Settings and triggered unit, for a socket or path.
    pub activator: Option<Activator>,
    /// File descriptors that a service gets.
    pub descriptors: ServiceDescriptors,
    /// Relations to other units, in the order of the file.
    pub relations: Vec<Relation>,
    /// Additional names (`Alias=`).
    pub aliases: BTreeSet<UnitName>,
    /// Whether the unit gets systemd's default dependencies (`DefaultDependencies=`).
    pub default_dependencies: bool,
    /// Whether the unit stops once no active unit needs it (`StopWhenUnneeded=`).
    pub stop_when_unneeded: bool,
    /// Remarks for people, in the order of the file.
    pub remarks: Vec<Remark>,
    /// Positions of the honoured options.
    positions: Box<[OptionPosition]>,
}

/// Compiles a systemd unit file to a unit of the graph.
///
/// The `Type=` of a service determines the type of the unit, while all other units become virtual
/// units. The result depends only on the file and the options. Specifiers are expanded as
/// systemd expands them.
///
/// ```
/// use fleet_core::graph::systemd::{CompileOptions, compile};
/// use fleet_unitfile::UnitFile;
///
/// let file = UnitFile::parse("[Service]\nExecStart=/usr/bin/web\nPrivatePIDs=yes\n")?;
/// let refusals = compile(&"web.service".parse()?, &file, &CompileOptions::default()).unwrap_err();
/// let expected = "web.service:3:1: Service.PrivatePIDs is not supported: ";
/// assert!(refusals.to_string().starts_with(expected));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// Returns all reasons to refuse the unit: options that cannot be honoured, values that cannot be
/// read, and missing options.
pub fn compile(
    name: &UnitName,
    file: &UnitFile,
    options: &CompileOptions,
) -> Result<CompiledUnit, UnitRefusals> {
    let mut compiler = Compiler::new(name, file, options);
    if let Some(problem) = file_problem(name, file) {
        compiler.refuse(None, problem);
        return compiler.finish();
    }
    for option in file.options() {
        compiler.take(option);
    }
    compiler.finish()
}

/// The supported unit types.
const SUPPORTED: [UnitType; 5] =
    [UnitType::Service, UnitType::Socket, UnitType::Path, UnitType::Timer, UnitType::Target];

/// Returns the reason to refuse the file as a whole, or `None` if there is no such reason.
/// Unsupported unit types, templates and empty files are refused.
fn file_problem(name: &UnitName, file: &UnitFile) -> Option<String> {
    if name.unit_type() == UnitType::Container {
        return Some(
            "a .container unit needs systemd and podman 5.4 or later: place it on machines with \
             service_manager = \"systemd\""
                .to_owned(),
        );
    }
    if !SUPPORTED.contains(&name.unit_type()) {
        return Some(format!(
            "the native supervisor runs .service, .socket, .path, .timer and .target units only, \
             not .{} ones: run it under systemd",
            name.unit_type()
        ));
    }
    if name.is_template() {
        return Some("a template cannot run: name an instance of it".to_owned());
    }
    let is_masked = file.source().is_empty();
    is_masked.then(|| "an empty file masks the unit: write a unit into it".to_owned())
}

struct Compiler<'a> {
    name: &'a UnitName,
    file: &'a UnitFile,
    options: &'a CompileOptions,
    draft: Draft,
    relations: Vec<Relation>,
    aliases: BTreeSet<UnitName>,
    refusals: Vec<UnitRefusal>,
    remarks: Vec<Remark>,
    /// Byte offset of each honoured option. Lines and columns are computed only at the end, because
    /// each costs a pass over the file.
    positions: BTreeMap<(String, String), usize>,
}

impl<'a> Compiler<'a> {
    fn new(name: &'a UnitName, file: &'a UnitFile, options: &'a CompileOptions) -> Self {
        Self {
            name,
            file,
            options,
            draft: Draft::new(),
            relations: Vec::new(),
            aliases: BTreeSet::new(),
            refusals: Vec::new(),
            remarks: Vec::new(),
            positions: BTreeMap::new(),
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
        match support(section, name) {
            None => match nearest(section, name) {
                Some(near) => self.refuse(
                    Some(option),
                    format!("is not a systemd option in [{section}]: write {near}="),
                ),
                None => self.remark(option, UNKNOWN, RemarkKind::Unknown),
            },
            Some(Support::Informational) => {}
            Some(Support::Ignored(why)) => self.remark(option, why, RemarkKind::Difference),
            Some(Support::Honoured) => match self.unsupported(option) {
                Some(why) => self.refuse_option(option, Some(why.group), why.reason.to_owned()),
                None => self.honour(option),
            },
            Some(it) if it.is_neutral(option.value()) => {
                // The last assignment counts.
                let full = format!("{section}.{name}");
                self.refusals.retain(|old| old.option() != Some(&full));
            }
            Some(Support::RefusedUnless(_, why) | Support::Refused(why)) => {
                self.refuse_option(option, Some(why.group), why.reason.to_owned());
            }
        }
    }

    /// Returns why an honoured option is not supported here, if an operator can accept its loss.
    fn unsupported(&self, option: OptionView<'_>) -> Option<Unsupported> {
        let name = option.name();
        let is_check = name.starts_with("Condition") || name.starts_with("Assert");
        if is_check && option.section() == "Unit" && self.name.unit_type() == UnitType::Target {
            return Some(condition::OF_TARGET);
        }
        unsupported_value(option.section(), name, option.value())
    }

    /// Returns whether systemd reads this section in a unit of this type.
    fn has(&self, section: &str) -> bool {
        match section {
            "Unit" | "Install" => true,
            "Path" => self.name.unit_type() == UnitType::Path,
            "Service" => self.name.unit_type() == UnitType::Service,
            "Socket" => self.name.unit_type() == UnitType::Socket,
            "Timer" => self.name.unit_type() == UnitType::Timer,
            _ => false,
        }
    }

    fn honour(&mut self, option: OptionView<'_>) {
        let (section, name, value) = (option.section(), option.name(), option.value());
        let known = (section.to_owned(), name.to_owned());
        self.positions.insert(known, option.span().start);
        let specifiers = &self.options.specifiers;
        let unit = ValueContext::new(self.name, specifiers);
        let expand = |text: &str| unit.expand(text);
        let done = match (section, name) {
            ("Install", "Alias") => alias(&mut self.aliases, value, self.name.unit_type(), &expand),
            _ => match relations(option, &expand) {
                Some(Ok(names)) => {
                    if name == "Sockets" {
                        let sockets = names.iter().map(|(_, socket)| socket.clone());
                        self.draft.descriptors.sockets.extend(sockets);
                    }
                    if self.is_activator() && names.iter().any(|(kind, _)| kind.pulls_or_stops()) {
                        self.remark(option, NO_RELATIONS, RemarkKind::Difference);
                    }
                    let position = self.position(option);
                    let relation =
                        |(kind, unit)| Relation { kind, unit, position: position.clone() };
                    self.relations.extend(names.into_iter().map(relation));
                    Ok(())
                }
                Some(Err(problem)) => Err(problem),
                None => match self.options.confinement.lacks(name) {
                    Some(why) if section == "Service" => {
                        return self.take_unsupported(option, why);
                    }
                    _ => self.draft.take(section, name, value, &unit),
                },
            },
        };
        if let Err(problem) = done {
            self.refuse(Some(option), problem);
        }
    }

    /// Applies an option that the supervisor cannot honour. It is refused, unless its value changes
    /// nothing, or unless it only tunes the use of resources.
    fn take_unsupported(&mut self, option: OptionView<'_>, why: &str) {
        let unit = ValueContext::new(self.name, &self.options.specifiers);
        let before = self.draft.run.clone();
        let taken = self.draft.take(option.section(), option.name(), option.value(), &unit);
        let is_changed = self.draft.run != before;
        self.draft.run = before;
        match taken {
            Err(problem) => self.refuse(Some(option), problem),
            Ok(()) if !is_changed => {}
            Ok(()) if SCHEDULING.contains(&option.name()) => {
                self.remark(option, &format!("is ignored: it {why}"), RemarkKind::Difference);
            }
            Ok(()) => self.refuse_option(option, Some(OptionGroup::Sandboxing), why.to_owned()),
        }
    }

    fn is_activator(&self) -> bool {
        matches!(self.name.unit_type(), UnitType::Path | UnitType::Socket)
    }

    fn position(&self, option: OptionView<'_>) -> OptionPosition {
        let location = self.file.location(option.span().start);
        OptionPosition::new(location, option.section(), option.name())
    }

    /// Adds a refusal of the whole file, or of an option unless the operator accepts it.
    fn refuse(&mut self, option: Option<OptionView<'_>>, problem: String) {
        match option {
            Some(option) => self.refuse_option(option, None, problem),
            None => self.add_refusal(None, None, problem),
        }
    }

    /// Adds a refusal of an option, unless the operator accepts its loss.
    fn refuse_option(
        &mut self,
        option: OptionView<'_>,
        group: Option<OptionGroup>,
        problem: String,
    ) {
        if self.options.accept.contains(option.name(), group) {
            let text = format!("is ignored, as this machine accepts; it {problem}");
            self.remark(option, &text, RemarkKind::Accepted(group));
        } else {
            self.add_refusal(Some(self.position(option)), group, problem);
        }
    }

    fn add_refusal(
        &mut self,
        position: Option<OptionPosition>,
        group: Option<OptionGroup>,
        problem: String,
    ) {
        if self.refusals.len() < MAX_REPORTED {
            let cause = RefusalCause::Setting;
            self.refusals.push(UnitRefusal { position, cause, group, problem });
        }
    }

    /// Adds a remark, once per option and text.
    fn remark(&mut self, option: OptionView<'_>, text: &str, kind: RemarkKind) {
        let full = format!("{}.{}", option.section(), option.name());
        let known = |remark: &Remark| remark.position.option == full && remark.text == text;
        if self.remarks.len() < MAX_REPORTED && !self.remarks.iter().any(known) {
            self.remarks.push(Remark::new(self.position(option), text).with_kind(kind));
        }
    }

    /// Returns the position of an honoured option.
    fn position_of(&self, section: &str, name: &str) -> Option<OptionPosition> {
        let at = self.positions.get(&(section.to_owned(), name.to_owned()))?;
        Some(OptionPosition::new(self.file.location(*at), section, name))
    }

    /// Returns the positions of all honoured options.
    fn all_positions(&self) -> Box<[OptionPosition]> {
        let place = |((section, name), at): (&(String, String), &usize)| {
            OptionPosition::new(self.file.location(*at), section, name)
        };
        self.positions.iter().map(place).collect()
    }

    fn finish(mut self) -> Result<CompiledUnit, UnitRefusals> {
        let draft = std::mem::take(&mut self.draft);
        let stop_when_unneeded = draft.stop_when_unneeded;
        let default_dependencies = draft.default_dependencies.unwrap_or(true);
        let descriptors = draft.descriptors.clone();
        let name = Name::new(self.name.as_str()).map_err(|problem| problem.to_string());
        // If options were refused, whatever seems missing may be among them.
        let unit = match name {
            _ if !self.refusals.is_empty() => None,
            Ok(name) => self.finished(draft, name),
            Err(problem) => {
                self.refuse(None, format!("its name cannot be used: {problem}"));
                None
            }
        };
        let positions = self.all_positions();
        if self.name.unit_type() == UnitType::Timer {
            let effects = self.relations.extract_if(.., |it| it.kind.is_effect());
            let text = "has no effect, because a timer does nothing but start its unit";
            self.remarks.extend(effects.map(|it| Remark::new(it.position, text)));
        }
        match unit {
            Some((unit, timer, activator)) => Ok(CompiledUnit {
                unit: Arc::new(unit),
                timer,
                activator,
                descriptors,
                relations: self.relations,
                aliases: self.aliases,
                default_dependencies,
                stop_when_unneeded,
                remarks: self.remarks,
                positions,
            }),
            None => Err(UnitRefusals { unit: self.name.clone(), all: self.refusals }),
        }
    }

    fn finished(
        &mut self,
        draft: Draft,
        name: Name,
    ) -> Option<(InitUnit, Option<Timer>, Option<Activator>)> {
        let problems = draft.problems(self.name.unit_type());
        for (option, problem) in problems.refused {
            let position = option.and_then(|(section, name)| self.position_of(section, name));
            self.add_refusal(position, None, problem);
        }
        for ((section, name), text) in problems.remarked {
            if let Some(position) = self.position_of(section, name) {
                self.remarks.push(Remark::new(position, text));
            }
        }
        match self.starter(&draft) {
            Ok((timer, activator)) if self.refusals.is_empty() => {
                Some((draft.unit(name, self.name.unit_type()), timer, activator))
            }
            Ok(_) => None,
            Err(problem) => {
                self.refuse(None, problem);
                None
            }
        }
    }

    /// Returns the timer or activator, for a unit that starts another one.
    fn starter(&self, draft: &Draft) -> Result<(Option<Timer>, Option<Activator>), String> {
        let context = ValueContext::new(self.name, &self.options.specifiers);
        let conditions = || draft.run.conditions.clone();
        Ok(match self.name.unit_type() {
            UnitType::Timer => (Some(draft.timer.timer(&draft.run.conditions, &context)?), None),
            UnitType::Socket => (None, Some(draft.socket.activator(conditions(), &context)?)),
            UnitType::Path => (None, Some(draft.path.activator(conditions(), &context)?)),
            _ => (None, None),
        })
    }
}

impl CompiledUnit {
    /// Returns the position of an honoured option, or `None` if the file does not contain the
    /// option. For a repeated option, this is the position of the last one.
    #[must_use]
    pub fn position_of(&self, section: &str, name: &str) -> Option<OptionPosition> {
        self.positions.iter().find(|position| position.is_of(section, name)).cloned()
    }
}

impl UnitRefusal {
    fn option(&self) -> Option<&String> {
        self.position.as_ref().map(|position| &position.option)
    }
}

fn foreign(section: &str, unit_type: UnitType) -> String {
    format!("is in [{section}], which has no meaning in a .{unit_type} unit: remove it")
}

/// Adds aliases of the unit; an empty value resets the list.
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
        let alias = expand(word)?.parse::<UnitName>().map_err(unreadable)?;
        if alias.unit_type() != unit_type || alias.is_template() {
            return Err(format!("names {alias}: write the name of a .{unit_type} unit"));
        }
        aliases.insert(alias);
    }
    Ok(())
}

/// Remark on an option that is similar to no known one. It is probably newer than the table of
/// options, and older versions of systemd ignore it too.
const UNKNOWN: &str = "is ignored, because this version of fleet does not know it";

/// Returns the known option that is most similar to an unknown one. An option with a similar name
/// is probably misspelt. Ignoring it could run a unit without the confinement that it asks for.
fn nearest(section: &str, name: &str) -> Option<&'static str> {
    let known = directives().filter(|directive| directive.section == section);
    suggest(name, known.map(|directive| directive.name))
}

/// The parts of the environment that compilation depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Values of the specifiers. If a unit uses a specifier that has no value, the unit is refused.
    pub specifiers: SpecifierContext,
    /// Unsupported options that do not lead to a refusal. The unit runs without these options, and
    /// a remark reports each of them.
    pub accept: AcceptedOptions,
    /// The restrictions that the supervisor can impose on processes.
    pub confinement: Confinement,
}
