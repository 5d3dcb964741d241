//! Checks of sections and option names: unknown, outdated, without effect, or in `[Install]`.

use std::collections::BTreeSet;

use crate::check::finding::{FindingCode, ValueError, listed, quoted, words};
use crate::check::kind::Kind;
use crate::check::specifiers::expanded;
use crate::check::table;
use crate::file::UnitFile;
use crate::file::option::OptionView;
use crate::name::{UnitName, UnitType};
use crate::spelling::suggest;
use crate::syntax::diagnostic::Span;

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

/// Returns `true` if a section is ignored in a unit of this name.
pub(super) fn is_ignored(name: &UnitName, section: &str) -> bool {
    !table::sections_of(name.unit_type()).any(|known| known == section)
}

fn section_error(name: &UnitName, section: &str) -> ValueError {
    let unit_type = name.unit_type();
    if table::section_names().any(|known| known == section) {
        let message = format!("systemd ignores section [{section}] in a {unit_type} unit");
        let help = format!("move the section to a unit of type {}", section.to_lowercase());
        return ValueError::new(FindingCode::ForeignSection, message, help);
    }
    let message = format!("unknown section [{section}]");
    let allowed = table::sections_of(unit_type);
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
    let here = table::sections_of(name.unit_type()).filter(|it| *it != section);
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

/// Options of older systemd versions that this version warns about, with their replacements.
const OUTDATED: [(&str, &[&str]); 9] = [
    ("BlockIODeviceWeight", &["IODeviceWeight"]),
    ("BlockIOReadBandwidth", &["IOReadBandwidthMax"]),
    ("BlockIOWriteBandwidth", &["IOWriteBandwidthMax"]),
    ("CPUShares", &["CPUWeight"]),
    ("MemoryLimit", &["MemoryMax"]),
    ("RequiresOverridable", &["Requires"]),
    ("RequisiteOverridable", &["Requisite"]),
    ("StartupBlockIOWeight", &["StartupIOWeight"]),
    ("StartupCPUShares", &["StartupCPUWeight"]),
];

/// Options of older systemd versions, each with its replacements. systemd 252 still accepts these
/// options without a warning, but newer versions may refuse them.
const OLD: [(&str, &[&str]); 11] = [
    ("BindTo", &["BindsTo"]),
    ("BlockIOAccounting", &["IOAccounting"]),
    ("BlockIOWeight", &["IOWeight"]),
    ("InaccessibleDirectories", &["InaccessiblePaths"]),
    ("OnFailureIsolate", &["OnFailureJobMode"]),
    ("PermissionsStartOnly", &["+ or ! before the programs that need all rights"]),
    ("PropagateReloadFrom", &["ReloadPropagatedFrom"]),
    ("PropagateReloadTo", &["PropagatesReloadTo"]),
    ("ReadOnlyDirectories", &["ReadOnlyPaths"]),
    ("ReadWriteDirectories", &["ReadWritePaths"]),
    ("StartLimitInterval", &["StartLimitIntervalSec in [Unit]"]),
];

/// Options that systemd accepts and silently ignores, with their sections.
const WITHOUT_EFFECT: [(&str, &[&str]); 5] = [
    ("BusPolicy", &["Service"]),
    ("Capabilities", &["Service", "Socket", "Mount", "Swap"]),
    ("IgnoreOnSnapshot", &["Unit"]),
    ("NetClass", &["Service", "Socket", "Mount", "Swap", "Slice", "Scope"]),
    ("SysVStartPriority", &["Service"]),
];

/// Checks for an option that has no effect any more. The tables do not contain these.
pub(super) fn without_effect(option: OptionView<'_>) -> Option<ValueError> {
    let is_same = |(name, sections): &&(&str, &[&str])| {
        *name == option.name() && sections.contains(&option.section())
    };
    let (name, _) = WITHOUT_EFFECT.iter().find(is_same)?;
    let message = format!("{name} is an option of older versions of systemd: it has no effect");
    Some(ValueError::new(FindingCode::OldKey, message, "remove it"))
}

/// Checks for an option, or a value, of an older systemd version.
pub(super) fn outdated(option: OptionView<'_>) -> Option<ValueError> {
    let (name, value) = (option.name(), option.value());
    if let Some(error) = outdated_value(name, value) {
        return Some(error);
    }
    let find = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(old, _)| *old == name).map(|(_, others)| *others)
    };
    let (code, says, others) = match (find(&OUTDATED), find(&OLD)) {
        (Some(others), _) => (FindingCode::OutdatedKey, "newer versions ignore it", others),
        (None, others) => (FindingCode::OldKey, "newer versions have a replacement", others?),
    };
    let message = format!("{name} is an option of older versions of systemd: {says}");
    Some(ValueError::new(code, message, format!("write {}", listed(others))))
}

fn outdated_value(name: &str, value: &str) -> Option<ValueError> {
    let (message, help) = match (name, value) {
        ("KillMode", "none") => (
            "KillMode=none leaves processes behind, and systemd will remove this value".to_owned(),
            "write mixed or process",
        ),
        ("StandardOutput" | "StandardError", "syslog") => {
            let message = format!("systemd reads {name}={value} as journal");
            (message, "write journal, or remove the option")
        }
        ("StandardOutput" | "StandardError", "syslog+console") => {
            (format!("systemd reads {name}={value} as journal+console"), "write journal+console")
        }
        ("User" | "SocketUser", "nobody") => (
            "the user nobody is shared with other programs, which can access its processes"
                .to_owned(),
            "give the unit a user of its own, or write DynamicUser=yes",
        ),
        _ => return None,
    };
    Some(ValueError::new(FindingCode::OutdatedKey, message, help))
}

/// Checks for a path that systemd has moved.
pub(super) fn legacy_path(kind: Kind, option: OptionView<'_>) -> Option<ValueError> {
    use Kind::{EnvironmentFile, Listen, ListenLocal, Path, PathEach, PathTest, WorkingDirectory};
    let of_path =
        [Path, PathEach, PathTest, Listen, ListenLocal, EnvironmentFile, WorkingDirectory];
    let value = option.value();
    let path = value.trim_start_matches(['-', '|', '!', ' ']);
    let is_path = of_path.contains(&kind) || option.name() == "PIDFile";
    if !is_path || !path.starts_with("/var/run/") {
        return None;
    }
    let message = format!("{} is below /var/run, the old name of /run", quoted(path));
    let error = ValueError::new(FindingCode::OldPath, message, format!("write {}", &path[4..]));
    Some(error.at_word((value.len() - path.len(), path)))
}

/// The options of `[Install]` that name units.
pub(super) const OPTIONS: [&str; 5] = ["Alias", "Also", "RequiredBy", "UpheldBy", "WantedBy"];

/// Checks an option of `[Install]` that `systemctl enable` would refuse or ignore.
pub(super) fn check_install(name: &UnitName, option: OptionView<'_>) -> Vec<ValueError> {
    if option.section() != "Install" || option.value().is_empty() {
        return Vec::new();
    }
    match option.name() {
        "Alias" => {
            let each = words(option.value());
            each.filter_map(|word| Some(alias(name, word.1)?.at_word(word))).collect()
        }
        "DefaultInstance" => default_instance(name, option.value()).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn alias(name: &UnitName, alias: &str) -> Option<ValueError> {
    let unit_type = name.systemd_name().unit_type();
    let error = |message, help| Some(ValueError::new(FindingCode::Install, message, help));
    if !may_have_aliases(unit_type) {
        let message = format!("a {unit_type} unit cannot have an alias");
        return error(message, "remove the alias".to_owned());
    }
    // An alias that is no name has a finding of its own.
    let other = UnitName::parse(&expanded(alias, name)?).ok()?;
    if other.unit_type() != unit_type {
        let message = format!("{} is not an alias of the type {unit_type}", quoted(alias));
        return error(message, format!("write {}.{unit_type}", other.stem()));
    }
    if name.is_template() && other.instance().is_none() {
        let message = format!("{} cannot be the alias of a template", quoted(alias));
        return error(message, format!("write {}@.{unit_type}", other.stem()));
    }
    None
}

fn may_have_aliases(unit_type: UnitType) -> bool {
    use UnitType::{Device, Path, Service, Socket, Target, Timer};
    matches!(unit_type, Device | Path | Service | Socket | Target | Timer)
}

fn default_instance(name: &UnitName, value: &str) -> Option<ValueError> {
    if !name.is_template() {
        let message = "only a template has a default instance".to_owned();
        return Some(ValueError::new(FindingCode::Install, message, "remove the option"));
    }
    let instance = expanded(value, name)?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    (!instance.chars().all(is_letter)).then(|| {
        let message = format!("{} is not the name of an instance", quoted(value));
        let help = "use letters, digits and \":-_.\\@\", and escape the other characters";
        ValueError::new(FindingCode::Install, message, help)
    })
}
