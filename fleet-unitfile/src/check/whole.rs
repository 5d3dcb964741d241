//! Rules about a unit as a whole: what it must have, and what does not go together.

use super::choices;
use super::code::FindingCode;
use super::command::count;
use super::flaw::Flaw;
use super::table;
use crate::diagnostic::Severity;
use crate::escape::{escape_path, unescape_path};
use crate::file::UnitFile;
use crate::name::UnitName;
use crate::option::OptionView;
use crate::reset::{PATHS, SOCKETS, TIMERS};
use crate::unit_type::UnitType;
use crate::value::parse_bool;

/// A rule that is broken, with the option that it is about if there is one.
pub(super) type Broken<'a> = (Option<OptionView<'a>>, Flaw);

/// The rules that a unit breaks, because of which systemd refuses it.
pub(super) fn check<'a>(name: &'a UnitName, file: &'a UnitFile) -> Vec<Broken<'a>> {
    match name.unit_type() {
        UnitType::Service => Service { name, file }.check(),
        UnitType::Timer => trigger(name, file, "Timer", &TIMERS),
        UnitType::Path => trigger(name, file, "Path", &PATHS),
        UnitType::Socket => [trigger(name, file, "Socket", &SOCKETS), accept(name, file)].concat(),
        UnitType::Mount => [source(name, file), named(name, file, "Mount", "Where")].concat(),
        UnitType::Automount => named(name, file, "Automount", "Where"),
        UnitType::Swap => named(name, file, "Swap", "What"),
        UnitType::Scope | UnitType::Busname | UnitType::Snapshot => vec![no_file(name)],
        UnitType::Device | UnitType::Slice | UnitType::Target => Vec::new(),
    }
}

/// What sets off a timer beside those that are a list: yes or no, each by itself.
const CHANGES: [&str; 2] = ["OnClockChange", "OnTimezoneChange"];

/// The last value of an option that counts: one that is wrong is ignored, and an empty one that
/// is not takes back those before it.
fn set<'a>(
    name: &UnitName,
    file: &'a UnitFile,
    section: &'a str,
    key: &'a str,
) -> Option<OptionView<'a>> {
    let kind = table::kind(section, key)?;
    let counts =
        |option: &OptionView<'_>| kind.check(key, option.value(), name).iter().all(is_harmless);
    file.values(section, key).rfind(counts).filter(|option| !option.value().is_empty())
}

/// Whether a value counts although this is wrong with it: systemd refuses the unit for an error
/// anyway, which need not be told twice, and takes some things as they are.
fn is_harmless(flaw: &Flaw) -> bool {
    flaw.code.severity() == Severity::Error || flaw.code == FindingCode::Escape
}

fn is_yes(option: Option<OptionView<'_>>) -> bool {
    option.is_some_and(|option| parse_bool(option.value()) == Some(true))
}

struct Service<'a> {
    name: &'a UnitName,
    file: &'a UnitFile,
}

impl<'a> Service<'a> {
    fn check(&self) -> Vec<Broken<'a>> {
        let rules = [self.command(), self.several(), self.bus_name(), self.oneshot()];
        rules.into_iter().flatten().collect()
    }

    fn option(&self, name: &'static str) -> Option<OptionView<'a>> {
        set(self.name, self.file, "Service", name)
    }

    /// The type that systemd gives to the service; one that it does not know counts as none.
    fn service_type(&self) -> &'a str {
        // An empty value is no type, so the one before it stays.
        let known = |option: &OptionView<'_>| choices::SERVICE_TYPES.contains(&option.value());
        let given = self.file.values("Service", "Type").rfind(known).map(OptionView::value);
        given.unwrap_or_else(|| match (self.option("BusName"), self.option("ExecStart")) {
            (Some(_), _) => "dbus",
            (None, Some(_)) => "simple",
            (None, None) => "oneshot",
        })
    }

    fn command(&self) -> Option<Broken<'a>> {
        if self.option("ExecStart").is_some() {
            return None;
        }
        let has_success_action = set(self.name, self.file, "Unit", "SuccessAction")
            .is_some_and(|option| option.value() != "none");
        let stays = is_yes(self.option("RemainAfterExit"));
        let is_oneshot = self.service_type() == "oneshot";
        let stops = self.option("ExecStop").is_some();
        let (message, help) = if !stops && !has_success_action {
            ("the service has nothing to run", "add ExecStart= to [Service]")
        } else if !is_oneshot {
            ("only a oneshot service may have no ExecStart", "add ExecStart=, or Type=oneshot")
        } else if !stays && !has_success_action {
            ("a service without ExecStart ends at once", "add ExecStart=, or RemainAfterExit=yes")
        } else {
            return None;
        };
        Some((None, Flaw::whole(FindingCode::NoCommand, message, help)))
    }

    fn several(&self) -> Option<Broken<'a>> {
        let starts: Vec<OptionView<'_>> = self.file.values("Service", "ExecStart").collect();
        let from = starts.iter().rposition(|it| it.value().is_empty()).map_or(0, |at| at + 1);
        let mut commands = 0;
        let second = starts[from..].iter().find(|option| {
            commands += count(option.value());
            commands > 1
        })?;
        (self.service_type() != "oneshot").then(|| {
            let message = "only a oneshot service may run several commands";
            let help = "write Type=oneshot, or put what comes first into ExecStartPre=";
            (Some(*second), Flaw::whole(FindingCode::SeveralCommands, message, help))
        })
    }

    fn bus_name(&self) -> Option<Broken<'a>> {
        let is_missing = self.service_type() == "dbus" && self.option("BusName").is_none();
        is_missing.then(|| {
            let message = "a service of this type needs a BusName";
            let help = "add BusName= with the name that the service takes on the bus";
            (self.option("Type"), Flaw::whole(FindingCode::NoBusName, message, help))
        })
    }

    fn oneshot(&self) -> Option<Broken<'a>> {
        if self.service_type() != "oneshot" {
            return None;
        }
        let restart = self.option("Restart");
        if let Some(option) = restart.filter(|it| ["always", "on-success"].contains(&it.value())) {
            let message = "a oneshot service cannot be started again when it succeeds";
            let help = "write Restart=on-failure, or start it by a timer";
            return Some((Some(option), Flaw::whole(FindingCode::OneshotRestart, message, help)));
        }
        let exit_type = self.option("ExitType").filter(|it| it.value() == "cgroup")?;
        let message = "a oneshot service ends with its command";
        let flaw = Flaw::whole(FindingCode::OneshotRestart, message, "leave ExitType= out");
        Some((Some(exit_type), flaw))
    }
}

/// That one of some options, at least, is set.
fn trigger<'a>(
    unit: &UnitName,
    file: &'a UnitFile,
    section: &'static str,
    names: &[&'static str],
) -> Vec<Broken<'a>> {
    let changes = CHANGES.iter().any(|key| is_yes(set(unit, file, section, key)));
    if changes || names.iter().any(|key| is_listed(unit, file, section, key)) {
        return Vec::new();
    }
    let message = format!("nothing ever sets off this {}", section.to_lowercase());
    let help = format!("add {}= to [{section}], or another of its kind", names[0]);
    vec![(None, Flaw::whole(FindingCode::NoTrigger, message, help))]
}

/// Whether an option of a list counts, which an empty value of another may have taken back.
fn is_listed(unit: &UnitName, file: &UnitFile, section: &'static str, key: &'static str) -> bool {
    let last = set(unit, file, section, key).map(OptionView::span);
    last.is_some_and(|last| file.effective(section, key).any(|option| option.span() == last))
}

/// What keeps a socket from accepting connections, if it is to.
fn accept<'a>(name: &UnitName, file: &'a UnitFile) -> Vec<Broken<'a>> {
    let option = |key| set(name, file, "Socket", key);
    let Some(accept) = option("Accept").filter(|it| is_yes(Some(*it))) else { return Vec::new() };
    let other = SOCKETS[2..].iter().find(|key| is_listed(name, file, "Socket", key));
    let (message, help) = if let Some(other) = other {
        (format!("{other} has no connections to accept"), "write Accept=no")
    } else if option("Service").is_some() {
        let message = "each connection gets an instance of the socket's own template".to_owned();
        (message, "remove Service=, or write Accept=no")
    } else if option("MaxConnections").is_some_and(|it| it.value().trim_matches('0').is_empty()) {
        ("no connection is allowed".to_owned(), "raise MaxConnections=, or write Accept=no")
    } else {
        return Vec::new();
    };
    vec![(Some(accept), Flaw::whole(FindingCode::Accept, message, help))]
}

fn source<'a>(name: &UnitName, file: &'a UnitFile) -> Vec<Broken<'a>> {
    if set(name, file, "Mount", "What").is_some() {
        return Vec::new();
    }
    let message = "the mount does not say what it mounts";
    vec![(None, Flaw::whole(FindingCode::NoSource, message, "add What= to [Mount]"))]
}

/// That a path is the one that the unit's name stands for.
fn named<'a>(
    name: &UnitName,
    file: &'a UnitFile,
    section: &'static str,
    key: &'static str,
) -> Vec<Broken<'a>> {
    let Some(option) = set(name, file, section, key) else { return Vec::new() };
    let path = option.value();
    // What a specifier stands for is not known here, and a label is looked up by systemd.
    if !path.starts_with('/') || path.contains('%') {
        return Vec::new();
    }
    let (Ok(stands_for), Ok(wanted)) = (unescape_path(name.stem()), escape_path(path)) else {
        return Vec::new();
    };
    if escape_path(&stands_for).is_ok_and(|own| own == wanted) {
        return Vec::new();
    }
    let message = format!("the path is not the one that {name} stands for");
    let unit_type = name.unit_type();
    let help = format!("name the unit {wanted}.{unit_type}, or write {key}={stands_for}");
    vec![(Some(option), Flaw::whole(FindingCode::NameMismatch, message, help))]
}

fn no_file(name: &UnitName) -> Broken<'static> {
    let message = format!("systemd reads no unit files of type {}", name.unit_type());
    let help = "such units are made by programs, or belong to an older systemd";
    (None, Flaw::whole(FindingCode::NoFile, message, help))
}
