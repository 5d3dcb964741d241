//! The properties of a unit that this crate predicts.

use std::collections::BTreeMap;

use fleet_unitfile::check::FindingCode;
use fleet_unitfile::tree::UNIT_DIRECTORIES;
use fleet_unitfile::{
    CommandLine, Diagnostic, DiagnosticKind, MergedUnit, OptionView, Severity, SpecifierContext,
    UnitFile, UnitName, UnitOption,
};
use serde_json::Value;

use crate::cases::{Case, File};
use crate::options::{ComparedOption, Kind, known};
use crate::parts::before_refusal;
use crate::properties::UnitProperties;

/// The properties of a unit, by name.
pub(crate) type Properties = BTreeMap<String, Value>;

/// Facts that are the same for all units of a machine.
pub(crate) struct World {
    pub(crate) context: SpecifierContext,
    /// Memory of the machine in bytes, and its page size.
    pub(crate) memory: (u64, u64),
    /// The properties of a minimal unit of each type.
    pub(crate) plain: BTreeMap<&'static str, Properties>,
}

/// The predicted state of a unit, as far as this crate covers it.
#[derive(Debug, PartialEq)]
pub(crate) struct Expected {
    pub(crate) load_state: &'static str,
    pub(crate) properties: Properties,
}

/// Predicts the properties of a unit.
pub(crate) fn expected(case: &Case, shared: &[File], world: &World) -> Expected {
    let files = case.files.iter().chain(shared).map(|(path, text)| {
        let is_drop_in = path.rsplit('/').nth(1).is_some_and(|folder| folder.ends_with(".d"));
        (path.clone(), applied(&case.name, text, is_drop_in, &world.context))
    });
    let unit = MergedUnit::select(case.name.clone(), &UNIT_DIRECTORIES, files);
    let load_state = load_state(case, &unit, &world.context);
    let mut properties = Properties::new();
    if load_state == "loaded" {
        let main = unit.main().map_or("", |main| main.path.as_str());
        let context =
            world.context.clone().with(fleet_unitfile::specifier::Specifier::Fragment, main);
        let reading = UnitProperties { unit: &unit, context: &context, world };
        for known in known(case.name.unit_type()) {
            if let Some(value) = reading.property(known) {
                properties.insert(known.property.to_owned(), value);
            }
            if known.kind == Kind::Limit {
                let soft = format!("{}Soft", known.property);
                properties.extend(reading.soft_limit(known).map(|value| (soft, value)));
            }
        }
    }
    Expected { load_state, properties }
}

/// Returns the options of a file up to the point at which systemd stops reading it.
fn applied(name: &UnitName, text: &[u8], is_drop_in: bool, context: &SpecifierContext) -> UnitFile {
    let (file, _) = UnitFile::parse_collecting(text);
    let end =
        stop(text).into_iter().chain(fatal(name, &file, context).filter(|_| is_drop_in)).min();
    let Some(end) = end else { return file };
    let upto = file.options().filter(|option| option.span().start <= end);
    let options: Vec<UnitOption> = upto
        .filter_map(|option| match option.span().start < end {
            true => Some(option.into()),
            false => kept(name, option, context),
        })
        .collect();
    match options.as_slice() {
        [] => UnitFile::parse(
            "# A comment keeps the file from being empty, which would mask the unit.\n",
        ),
        _ => return UnitFile::from_options(options).expect("what was read can be written"),
    }
    .expect("a comment")
}

/// Returns the offset at which systemd stops reading a source because of an error.
fn stop(text: &[u8]) -> Option<usize> {
    use DiagnosticKind::{InvalidUtf8, LineTooLong, SectionCharacter, UnclosedHeader};
    let (_, diagnostics) = UnitFile::parse_collecting(text);
    let stops = [LineTooLong, InvalidUtf8, UnclosedHeader, SectionCharacter];
    // An extra bracket makes an unknown section.
    let is_harmless = |it: &Diagnostic| {
        let header = &text[it.span().start..it.span().end];
        let bad = |byte: &u8| matches!(byte, b'"' | b'\'' | b'\\' | ..b' ' | 0x7f);
        it.kind() == SectionCharacter && !header.iter().any(bad)
    };
    let stop = diagnostics.iter().find(|it| stops.contains(&it.kind()) && !is_harmless(it));
    stop.map(|diagnostic| diagnostic.span().start)
}

/// Returns the offset of the first option with a value for which systemd refuses the file.
fn fatal(name: &UnitName, file: &UnitFile, context: &SpecifierContext) -> Option<usize> {
    let is_fatal = |option: &OptionView<'_>| {
        let codes = codes(name, (*option).into());
        codes.iter().any(|code| code.severity() == Severity::Error)
            || refused(name, *option, context) == Some(false)
    };
    file.options().find(is_fatal).map(|option| option.span().start)
}

/// Checks the expanded specifiers of a command or working directory. Returns `None` if systemd
/// accepts them, `Some(true)` if it only ignores the command, and `Some(false)` if it refuses the
/// file.
fn refused(name: &UnitName, option: OptionView<'_>, context: &SpecifierContext) -> Option<bool> {
    let known = known(name.unit_type());
    let same = |it: &&&ComparedOption| (it.section, it.option) == (option.section(), option.name());
    match known.iter().find(same)?.kind {
        Kind::Commands => {}
        Kind::WorkingDirectory => {
            let place = context.expand(option.value(), name).ok()?;
            let is_fine = option.value().is_empty() || place.starts_with(['/', '-', '~']);
            return (!is_fine).then_some(false);
        }
        _ => return None,
    }
    let commands = CommandLine::parse(option.value()).ok()?;
    let wrong = commands.iter().find(|it| it.expand(context, name).is_err())?;
    Some(wrong.ignores_failure())
}

/// Returns the effective part of an option with a refused command: the commands before the refused
/// one. Returns `None` if there are none.
fn kept(name: &UnitName, option: OptionView<'_>, context: &SpecifierContext) -> Option<UnitOption> {
    if !option.name().starts_with("Exec") {
        return None;
    }
    let commands = before_refusal(option.value()).into_iter();
    let last = commands.take_while(|it| it.expand(context, name).is_ok()).last()?;
    let value = &option.value()[..last.span().end];
    Some(UnitOption::new(option.section(), option.name(), value))
}

fn load_state(case: &Case, unit: &MergedUnit, context: &SpecifierContext) -> &'static str {
    let Some(main) = unit.main() else { return "not-found" };
    if unit.is_masked() {
        return "masked";
    }
    let text = case.files.iter().find(|(path, _)| *path == main.path);
    let text = text.map_or(&[][..], |(_, text)| text);
    let (file, _) = UnitFile::parse_collecting(text);
    match (stop(text), fatal(&case.name, &file, context)) {
        (Some(stop), fatal) if fatal.is_none_or(|fatal| stop < fatal) => return "error",
        (_, Some(_)) => return "bad-setting",
        _ => {}
    }
    let file = unit.to_unit_file();
    let options: Vec<UnitOption> = file
        .options()
        .filter_map(|option| match refused(&case.name, option, context) {
            Some(_) => kept(&case.name, option, context),
            None => Some(option.into()),
        })
        .collect();
    let file = UnitFile::from_options(options).expect("what was read can be written");
    let whole = file.check(&case.name);
    let is_refused = |code: FindingCode| code >= FindingCode::NoCommand;
    if whole.iter().any(|finding| is_refused(finding.code())) { "bad-setting" } else { "loaded" }
}

/// Returns the finding codes of one option by itself.
pub(crate) fn codes(name: &UnitName, option: UnitOption) -> Vec<FindingCode> {
    let file = UnitFile::from_options([option]).expect("what was read can be written");
    let codes = file.check(name).into_iter().map(|finding| finding.code());
    codes.filter(|&code| !REPORTED_ONLY.contains(&code) && code < FindingCode::NoCommand).collect()
}

/// Findings about values that take effect nevertheless.
const REPORTED_ONLY: [FindingCode; 4] =
    [FindingCode::Escape, FindingCode::OutdatedKey, FindingCode::Repeated, FindingCode::Template];
