//! Checks of section and option names, with suggestions.

use std::collections::BTreeSet;

use super::code::FindingCode;
use super::table;
use super::value_error::{ValueError, quoted};
use crate::diagnostic::Span;
use crate::file::UnitFile;
use crate::name::UnitName;
use crate::spelling::suggest;

/// Returns an error for each section that systemd ignores, at the section's first header.
pub(super) fn check<'a>(
    name: &'a UnitName,
    file: &'a UnitFile,
) -> impl Iterator<Item = (Span, ValueError)> {
    let mut reported = BTreeSet::new();
    let odd = file.headers().filter(|(section, _)| is_ignored(name, section));
    let odd = odd.filter(|(section, _)| !section.starts_with("X-"));
    let first = odd.filter(move |(section, _)| reported.insert(*section));
    first.map(|(section, span)| (span, section_error(name, section)))
}

/// Returns `true` if systemd ignores a section in a unit of this name.
pub(super) fn is_ignored(name: &UnitName, section: &str) -> bool {
    let is_own = table::own_section(name.unit_type()) == Some(section);
    !is_own && section != "Unit" && section != "Install"
}

fn section_error(name: &UnitName, section: &str) -> ValueError {
    let unit_type = name.unit_type();
    if table::section_names().any(|known| known == section) {
        let message = format!("systemd ignores section [{section}] in a {unit_type} unit");
        let help = format!("move the section to a unit of type {}", section.to_lowercase());
        return ValueError::new(FindingCode::ForeignSection, message, help);
    }
    let message = format!("unknown section [{section}]");
    let own = table::own_section(unit_type);
    let allowed = own.into_iter().chain(["Unit", "Install"]);
    let help = match suggest(section, allowed.clone()) {
        Some(near) => format!("write [{near}]"),
        None => format!(
            "write {}, or begin the name with X- if the section is for another program",
            allowed.map(|known| format!("[{known}]")).collect::<Vec<_>>().join(", "),
        ),
    };
    ValueError::new(FindingCode::UnknownSection, message, help)
}

/// Returns the span for a finding about a missing option. This is the header of the section that
/// belongs to the unit's type, or else the first header of the file.
pub(super) fn missing_span(name: &UnitName, file: &UnitFile) -> Span {
    let own = table::own_section(name.unit_type());
    let header = file.headers().find(|(section, _)| own == Some(*section));
    header.or_else(|| file.headers().next()).map_or_else(Span::default, |(_, span)| span)
}

/// Describes an option name that the section does not have.
pub(super) fn unknown_key(name: &UnitName, section: &str, key: &str) -> ValueError {
    let own = table::own_section(name.unit_type());
    let here = own.into_iter().chain(["Unit", "Install"]).filter(|it| *it != section);
    let has_key = |section: &&'static str| table::kind(section, key).is_some();
    let message = format!("[{section}] has no option {}", quoted(key));
    if let Some(other) = here.clone().find(has_key) {
        let help = format!("move it to [{other}]");
        return ValueError::new(FindingCode::MisplacedKey, message, help);
    }
    if let Some(near) = suggest(key, table::names(section)) {
        return ValueError::new(FindingCode::UnknownKey, message, format!("write {near}"));
    }
    // Options that several unit types share are options of services.
    if let Some(other) = ["Service"].into_iter().chain(table::section_names()).find(has_key) {
        let help = format!("it is an option of {} units, in [{other}]", other.to_lowercase());
        return ValueError::new(FindingCode::MisplacedKey, message, help);
    }
    let near = here.filter_map(|other| Some((other, suggest(key, table::names(other))?))).next();
    let help = match near {
        Some((other, near)) => format!("write {near}, and move it to [{other}]"),
        None => format!("remove it, or write X-{key} if it is for another program"),
    };
    ValueError::new(FindingCode::UnknownKey, message, help)
}
