//! What this crate says that systemd makes of a unit.

use std::collections::BTreeMap;

use fleet_unitfile::{
    CommandLine, Diagnostic, DiagnosticKind, FindingCode, MergedUnit, OptionView, Severity,
    SpecifierContext, UNIT_DIRECTORIES, UnitFile, UnitName, UnitOption, check,
};
use serde_json::Value;

use crate::cases::{Case, File};
use crate::known::{Kind, Known, known};
use crate::parts::before_refusal;
use crate::read::Reading;

/// The properties of a unit, by name.
pub(crate) type Properties = BTreeMap<String, Value>;

/// What is the same for all units of a machine.
pub(crate) struct World {
    pub(crate) facts: SpecifierContext,
    /// How much memory the machine has, in bytes, and in pages of how many.
    pub(crate) memory: (u64, u64),
    /// What a plain unit of each type has.
    pub(crate) plain: BTreeMap<&'static str, Properties>,
}

/// What systemd says of a unit, as far as this crate tells.
#[derive(Debug, PartialEq)]
pub(crate) struct Expected {
    pub(crate) load_state: &'static str,
    pub(crate) properties: Properties,
}

/// Reads a unit as this crate does.
pub(crate) fn expected(case: &Case, shared: &[File], world: &World) -> Expected {
    let files = case.files.iter().chain(shared).map(|(path, text)| {
        let is_drop_in = path.rsplit('/').nth(1).is_some_and(|folder| folder.ends_with(".d"));
        (path.clone(), applied(&case.name, text, is_drop_in, &world.facts))
    });
    let unit = MergedUnit::select(case.name.clone(), &UNIT_DIRECTORIES, files);
    let load_state = load_state(case, &unit, &world.facts);
    let mut properties = Properties::new();
    if load_state == "loaded" {
        let main = unit.main().map_or("", |main| main.path.as_str());
        let facts = world.facts.clone().with(fleet_unitfile::Specifier::Fragment, main);
        let reading = Reading { unit: &unit, facts: &facts, world };
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

/// The options of a file up to where systemd stops reading it.
fn applied(name: &UnitName, text: &[u8], is_drop_in: bool, facts: &SpecifierContext) -> UnitFile {
    let (file, _) = UnitFile::parse_collecting(text);
    let end = stop(text).into_iter().chain(fatal(name, &file, facts).filter(|_| is_drop_in)).min();
    let Some(end) = end else { return file };
    let upto = file.options().filter(|option| option.span().start <= end);
    let options: Vec<UnitOption> = upto
        .filter_map(|option| match option.span().start < end {
            true => Some(option.into()),
            false => kept(name, option, facts),
        })
        .collect();
    match options.as_slice() {
        [] => UnitFile::parse("# A file that says nothing is not an empty one.\n"),
        _ => return UnitFile::from_options(options).expect("what was read can be written"),
    }
    .expect("a comment")
}

/// Where systemd stops reading a source, because it cannot go on.
fn stop(text: &[u8]) -> Option<usize> {
    use DiagnosticKind::{InvalidUtf8, LineTooLong, SectionCharacter, UnclosedHeader};
    let (_, diagnostics) = UnitFile::parse_collecting(text);
    let stops = [LineTooLong, InvalidUtf8, UnclosedHeader, SectionCharacter];
    // A bracket too many makes a section that nobody knows.
    let is_harmless = |it: &Diagnostic| {
        let header = &text[it.span().start..it.span().end];
        let bad = |byte: &u8| matches!(byte, b'"' | b'\'' | b'\\' | ..b' ' | 0x7f);
        it.kind() == SectionCharacter && !header.iter().any(bad)
    };
    let stop = diagnostics.iter().find(|it| stops.contains(&it.kind()) && !is_harmless(it));
    stop.map(|diagnostic| diagnostic.span().start)
}

/// The first option for whose value systemd refuses a file.
fn fatal(name: &UnitName, file: &UnitFile, facts: &SpecifierContext) -> Option<usize> {
    let is_fatal = |option: &OptionView<'_>| {
        let codes = codes(name, (*option).into());
        codes.iter().any(|code| code.severity() == Severity::Error)
            || refused(name, *option, facts) == Some(false)
    };
    file.options().find(is_fatal).map(|option| option.span().start)
}

/// Whether there is a command that systemd refuses for what its specifiers stand for, and if so,
/// whether it goes on without it.
fn refused(name: &UnitName, option: OptionView<'_>, facts: &SpecifierContext) -> Option<bool> {
    let known = known(name.unit_type());
    let same = |it: &&&Known| (it.section, it.option) == (option.section(), option.name());
    match known.iter().find(same)?.kind {
        Kind::Commands => {}
        Kind::WorkingDirectory => {
            let place = facts.expand(option.value(), name).ok()?;
            let is_fine = option.value().is_empty() || place.starts_with(['/', '-', '~']);
            return (!is_fine).then_some(false);
        }
        _ => return None,
    }
    let commands = CommandLine::parse(option.value()).ok()?;
    let wrong = commands.iter().find(|it| it.expand(facts, name).is_err())?;
    Some(wrong.ignores_failure())
}

/// What counts of an option with a command that is refused: the commands before that.
fn kept(name: &UnitName, option: OptionView<'_>, facts: &SpecifierContext) -> Option<UnitOption> {
    if !option.name().starts_with("Exec") {
        return None;
    }
    let commands = before_refusal(option.value()).into_iter();
    let last = commands.take_while(|it| it.expand(facts, name).is_ok()).last()?;
    let value = &option.value()[..last.span().end];
    Some(UnitOption::new(option.section(), option.name(), value))
}

fn load_state(case: &Case, unit: &MergedUnit, facts: &SpecifierContext) -> &'static str {
    let Some(main) = unit.main() else { return "not-found" };
    if unit.is_masked() {
        return "masked";
    }
    let text = case.files.iter().find(|(path, _)| *path == main.path);
    let text = text.map_or(&[][..], |(_, text)| text);
    let (file, _) = UnitFile::parse_collecting(text);
    match (stop(text), fatal(&case.name, &file, facts)) {
        (Some(stop), fatal) if fatal.is_none_or(|fatal| stop < fatal) => return "error",
        (_, Some(_)) => return "bad-setting",
        _ => {}
    }
    let file = unit.to_unit_file();
    let options: Vec<UnitOption> = file
        .options()
        .filter_map(|option| match refused(&case.name, option, facts) {
            Some(_) => kept(&case.name, option, facts),
            None => Some(option.into()),
        })
        .collect();
    let file = UnitFile::from_options(options).expect("what was read can be written");
    let whole = check(&case.name, &file);
    let is_refused = |code: FindingCode| code >= FindingCode::NoCommand;
    if whole.iter().any(|finding| is_refused(finding.code())) { "bad-setting" } else { "loaded" }
}

/// What is wrong with one option by itself.
pub(crate) fn codes(name: &UnitName, option: UnitOption) -> Vec<FindingCode> {
    let file = UnitFile::from_options([option]).expect("what was read can be written");
    let codes = check(name, &file).into_iter().map(|finding| finding.code());
    codes.filter(|&code| !TOLD_ONLY.contains(&code) && code < FindingCode::NoCommand).collect()
}

/// What is told of a value that counts all the same.
const TOLD_ONLY: [FindingCode; 4] =
    [FindingCode::Escape, FindingCode::OutdatedKey, FindingCode::Repeated, FindingCode::Template];
