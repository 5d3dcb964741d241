//! Sections and names of options: which there are, where they belong, and what was meant.

use std::collections::BTreeSet;

use super::code::FindingCode;
use super::flaw::{Flaw, quoted};
use super::near::nearest;
use super::table;
use crate::diagnostic::Span;
use crate::file::UnitFile;
use crate::name::UnitName;

/// What is wrong with the sections of a file, each told at its first header.
pub(super) fn check<'a>(
    name: &'a UnitName,
    file: &'a UnitFile,
) -> impl Iterator<Item = (Span, Flaw)> {
    let mut told = BTreeSet::new();
    let odd = file.headers().filter(|(section, _)| is_ignored(name, section));
    let odd = odd.filter(|(section, _)| !section.starts_with("X-"));
    let first = odd.filter(move |(section, _)| told.insert(*section));
    first.map(|(section, span)| (span, flaw(name, section)))
}

/// Whether systemd skips a section in a unit of this name.
pub(super) fn is_ignored(name: &UnitName, section: &str) -> bool {
    let is_own = table::own_section(name.unit_type()) == Some(section);
    !is_own && section != "Unit" && section != "Install"
}

fn flaw(name: &UnitName, section: &str) -> Flaw {
    let unit_type = name.unit_type();
    if table::section_names().any(|known| known == section) {
        let message = format!("section [{section}] means nothing in a {unit_type} unit");
        let help = format!("put it into a unit of type {}", section.to_lowercase());
        return Flaw::whole(FindingCode::ForeignSection, message, help);
    }
    let message = format!("there is no section [{section}]");
    let own = table::own_section(unit_type);
    let allowed = own.into_iter().chain(["Unit", "Install"]);
    let help = match nearest(section, allowed.clone()) {
        Some(near) => format!("write [{near}]"),
        None => format!(
            "write {}, or begin the name with X- if it is for another program",
            allowed.map(|known| format!("[{known}]")).collect::<Vec<_>>().join(", "),
        ),
    };
    Flaw::whole(FindingCode::UnknownSection, message, help)
}

/// Where to tell of what is missing: at the header of the section where it should be, or at the
/// first one.
pub(super) fn place(name: &UnitName, file: &UnitFile) -> Span {
    let own = table::own_section(name.unit_type());
    let header = file.headers().find(|(section, _)| own == Some(*section));
    header.or_else(|| file.headers().next()).map_or_else(Span::default, |(_, span)| span)
}

/// What to say of a name that the section has no option of.
pub(super) fn unknown_key(name: &UnitName, section: &str, key: &str) -> Flaw {
    let own = table::own_section(name.unit_type());
    let here = own.into_iter().chain(["Unit", "Install"]).filter(|it| *it != section);
    let has_key = |section: &&'static str| table::kind(section, key).is_some();
    let message = format!("[{section}] has no option {}", quoted(key));
    if let Some(other) = here.clone().find(has_key) {
        let help = format!("put it into [{other}]");
        return Flaw::whole(FindingCode::MisplacedKey, message, help);
    }
    if let Some(near) = nearest(key, table::names(section)) {
        return Flaw::whole(FindingCode::UnknownKey, message, format!("write {near}"));
    }
    // What several types have, services have.
    if let Some(other) = ["Service"].into_iter().chain(table::section_names()).find(has_key) {
        let help = format!("it is an option of {} units, in [{other}]", other.to_lowercase());
        return Flaw::whole(FindingCode::MisplacedKey, message, help);
    }
    let near = here.filter_map(|other| Some((other, nearest(key, table::names(other))?))).next();
    let help = match near {
        Some((other, near)) => format!("write {near}, and put it into [{other}]"),
        None => format!("remove it, or write X-{key} if it is for another program"),
    };
    Flaw::whole(FindingCode::UnknownKey, message, help)
}
