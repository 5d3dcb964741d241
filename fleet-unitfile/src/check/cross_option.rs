//! Rules about the unit as a whole: required options and conflicting ones.

use crate::check::command::count;
use crate::check::finding::{FindingCode, ValueError};
use crate::check::{choices, table};
use crate::escape::{escape_path, unescape_path};
use crate::file::UnitFile;
use crate::file::option::OptionView;
use crate::file::options::{PATH_TRIGGERS, SOCKET_LISTENERS, TIMER_TRIGGERS};
use crate::name::{UnitName, UnitType};
use crate::syntax::diagnostic::Severity;
use crate::values::parse_bool;

/// A violated rule: the option that violates it, or `None` if an option is missing, and the error.
pub(super) type Violation<'a> = (Option<OptionView<'a>>, ValueError);

/// Returns the violated rules for which systemd refuses the unit.
pub(super) fn check<'a>(name: &'a UnitName, file: &'a UnitFile) -> Vec<Violation<'a>> {
    match name.unit_type() {
        UnitType::Container => check_container(name, file),
        UnitType::Service => Service { name, file }.check(),
        UnitType::Timer => check_trigger(name, file, "Timer", &TIMER_TRIGGERS),
        UnitType::Path => check_trigger(name, file, "Path", &PATH_TRIGGERS),
        UnitType::Socket => [
            check_trigger(name, file, "Socket", &SOCKET_LISTENERS),
            check_accept(name, file),
            check_symlinks(name, file),
        ]
        .concat(),
        UnitType::Mount => {
            [check_source(name, file), check_named_path(name, file, "Mount", "Where")].concat()
        }
        UnitType::Automount => check_named_path(name, file, "Automount", "Where"),
        UnitType::Swap => check_named_path(name, file, "Swap", "What"),
        UnitType::Scope | UnitType::Busname | UnitType::Snapshot => vec![no_file(name)],
        UnitType::Slice => check_slice_name(name),
        UnitType::Device | UnitType::Target => Vec::new(),
    }
}

/// Boolean triggers of a timer. They are not in [`TIMER_TRIGGERS`], because an empty value of
/// another trigger does not reset them.
const CHANGE_TRIGGERS: [&str; 2] = ["OnClockChange", "OnTimezoneChange"];

/// Returns the option with this section and key that is in effect: the last one with a valid value.
/// Returns `None` if no value is valid. Also returns `None` if the last valid value is empty,
/// because an empty value is a reset.
fn effective_option<'a>(
    name: &UnitName,
    file: &'a UnitFile,
    section: &'a str,
    key: &'a str,
) -> Option<OptionView<'a>> {
    let kind = table::kind(section, key)?;
    let counts =
        |option: &OptionView<'_>| kind.check(key, option.value(), name).iter().all(counts_as_valid);
    file.values(section, key).rfind(counts).filter(|option| !option.value().is_empty())
}

/// Returns `true` if the rules of this module treat a value with this error as valid. This holds
/// for:
///
/// - errors because of which systemd refuses the unit. A second finding, that the option is
///   missing, would not help;
/// - unknown escapes, because systemd keeps the value.
fn counts_as_valid(error: &ValueError) -> bool {
    error.code.severity() == Severity::Error || error.code == FindingCode::Escape
}

fn is_yes(option: Option<OptionView<'_>>) -> bool {
    option.is_some_and(|option| parse_bool(option.value()) == Some(true))
}

struct Service<'a> {
    name: &'a UnitName,
    file: &'a UnitFile,
}

impl<'a> Service<'a> {
    fn check(&self) -> Vec<Violation<'a>> {
        let rules = [self.command(), self.several(), self.bus_name(), self.oneshot()];
        rules.into_iter().flatten().collect()
    }

    fn option(&self, name: &'static str) -> Option<OptionView<'a>> {
        effective_option(self.name, self.file, "Service", name)
    }

    /// Returns the service type that is in effect. If no `Type=` has a known value, systemd derives
    /// the type from `BusName=` and `ExecStart=`.
    fn service_type(&self) -> &'a str {
        // An empty value is no type, so the one before it stays in effect.
        let known = |option: &OptionView<'_>| choices::SERVICE_TYPES.contains(&option.value());
        let given = self.file.values("Service", "Type").rfind(known).map(OptionView::value);
        given.unwrap_or_else(|| match (self.option("BusName"), self.option("ExecStart")) {
            (Some(_), _) => "dbus",
            (None, Some(_)) => "simple",
            (None, None) => "oneshot",
        })
    }

    fn command(&self) -> Option<Violation<'a>> {
        if self.option("ExecStart").is_some() {
            return None;
        }
        let has_success_action = effective_option(self.name, self.file, "Unit", "SuccessAction")
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
        Some((None, ValueError::new(FindingCode::NoCommand, message, help)))
    }

    fn several(&self) -> Option<Violation<'a>> {
        let starts: Vec<OptionView<'_>> = self.file.values("Service", "ExecStart").collect();
        let from = starts.iter().rposition(|it| it.value().is_empty()).map_or(0, |at| at + 1);
        let mut commands = 0;
        let second = starts[from..].iter().find(|option| {
            commands += count(option.value(), self.name);
            commands > 1
        })?;
        (self.service_type() != "oneshot").then(|| {
            let message = "only a oneshot service can have several commands";
            let help = "write Type=oneshot, or move all but the last command to ExecStartPre=";
            (Some(*second), ValueError::new(FindingCode::SeveralCommands, message, help))
        })
    }

    fn bus_name(&self) -> Option<Violation<'a>> {
        let is_missing = self.service_type() == "dbus" && self.option("BusName").is_none();
        is_missing.then(|| {
            let message = "a service of type dbus needs BusName=";
            let help = "add BusName= with the name that the service takes on the bus";
            (self.option("Type"), ValueError::new(FindingCode::NoBusName, message, help))
        })
    }

    fn oneshot(&self) -> Option<Violation<'a>> {
        if self.service_type() != "oneshot" {
            return None;
        }
        let restart = self.option("Restart");
        if let Some(option) = restart.filter(|it| ["always", "on-success"].contains(&it.value())) {
            let message = "a oneshot service cannot be restarted after it succeeds";
            let help = "write Restart=on-failure, or start the service by a timer";
            return Some((
                Some(option),
                ValueError::new(FindingCode::OneshotRestart, message, help),
            ));
        }
        let exit_type = self.option("ExitType").filter(|it| it.value() == "cgroup")?;
        let message = "\"cgroup\" does not fit a oneshot service, which ends with its command";
        let error = ValueError::new(FindingCode::OneshotRestart, message, "remove ExitType=");
        Some((Some(exit_type), error))
    }
}

/// Checks that podman can make a service of a container, and that fleet finds this service.
fn check_container<'a>(name: &UnitName, file: &'a UnitFile) -> Vec<Violation<'a>> {
    let option = |key| effective_option(name, file, "Container", key);
    let image = match (option("Image"), option("Rootfs")) {
        (None, None) => {
            let (message, help) = ("the container has no image", "add Image= to [Container]");
            Some((None, ValueError::new(FindingCode::NoImage, message, help)))
        }
        (Some(_), rootfs @ Some(_)) => {
            let (message, help) = ("the container has an image too", "remove Rootfs= or Image=");
            Some((rootfs, ValueError::new(FindingCode::NoImage, message, help)))
        }
        _ => None,
    };
    let service_name = option("ServiceName").map(|option| {
        let message = format!("fleet finds this container as {} only", name.systemd_name());
        let help = "remove ServiceName=, and give the file the name that the service should have";
        (Some(option), ValueError::new(FindingCode::ServiceName, message, help))
    });
    image.into_iter().chain(service_name).collect()
}

/// Checks that at least one trigger is set.
fn check_trigger<'a>(
    unit: &UnitName,
    file: &'a UnitFile,
    section: &'static str,
    names: &[&'static str],
) -> Vec<Violation<'a>> {
    let changes =
        CHANGE_TRIGGERS.iter().any(|key| is_yes(effective_option(unit, file, section, key)));
    if changes || names.iter().any(|key| is_listed(unit, file, section, key)) {
        return Vec::new();
    }
    let message = format!("nothing triggers this {}", section.to_lowercase());
    let help = format!("add an option such as {}= to [{section}]", names[0]);
    vec![(None, ValueError::new(FindingCode::NoTrigger, message, help))]
}

/// Returns `true` if the option `key`, which adds to a list, is in effect. Its last valid value
/// must not be empty, and no later empty value of another option may have reset the list.
fn is_listed(unit: &UnitName, file: &UnitFile, section: &'static str, key: &'static str) -> bool {
    let last = effective_option(unit, file, section, key).map(OptionView::span);
    last.is_some_and(|last| file.effective(section, key).any(|option| option.span() == last))
}

/// Checks the conditions for `Accept=yes`.
fn check_accept<'a>(name: &UnitName, file: &'a UnitFile) -> Vec<Violation<'a>> {
    let option = |key| effective_option(name, file, "Socket", key);
    let Some(accept) = option("Accept").filter(|it| is_yes(Some(*it))) else { return Vec::new() };
    let other = SOCKET_LISTENERS[2..].iter().find(|key| is_listed(name, file, "Socket", key));
    let (message, help) = if let Some(other) = other {
        (format!("{other} has no connections to accept"), "write Accept=no")
    } else if option("Service").is_some() {
        let message = "each connection starts an instance of the template with the socket's name";
        (message.to_owned(), "remove Service=, or write Accept=no")
    } else if option("MaxConnections").is_some_and(|it| it.value().trim_matches('0').is_empty()) {
        let message = "MaxConnections=0 allows no connection".to_owned();
        (message, "raise MaxConnections=, or write Accept=no")
    } else {
        return Vec::new();
    };
    vec![(Some(accept), ValueError::new(FindingCode::Accept, message, help))]
}

/// Checks that a socket with links has exactly one node in the file system, to which they lead.
fn check_symlinks<'a>(name: &UnitName, file: &'a UnitFile) -> Vec<Violation<'a>> {
    let Some(links) = effective_option(name, file, "Socket", "Symlinks") else { return Vec::new() };
    let nodes = |key: &&'static str| {
        let is_node = |option: &OptionView<'_>| {
            let kind = table::kind("Socket", key);
            let is_valid = kind.is_some_and(|it| it.check(key, option.value(), name).is_empty());
            is_valid && option.value().starts_with(['/', '%'])
        };
        file.effective("Socket", key).filter(is_node).count()
    };
    let count: usize = ["ListenStream", "ListenDatagram", "ListenSequentialPacket", "ListenFIFO"]
        .iter()
        .map(nodes)
        .sum();
    if count == 1 {
        return Vec::new();
    }
    let message = format!("the links need exactly one node in the file system, not {count}");
    let help = "listen on one path, or remove Symlinks=";
    vec![(Some(links), ValueError::new(FindingCode::Symlinks, message, help))]
}

fn check_slice_name<'a>(name: &UnitName) -> Vec<Violation<'a>> {
    let stem = name.stem();
    if stem == "-" || !stem.split('-').any(str::is_empty) {
        return Vec::new();
    }
    let message = "the name has an empty part before, after or between dashes";
    let help = "rename the unit, with one dash between two parts";
    vec![(None, ValueError::new(FindingCode::SliceName, message, help))]
}

fn check_source<'a>(name: &UnitName, file: &'a UnitFile) -> Vec<Violation<'a>> {
    if effective_option(name, file, "Mount", "What").is_some() {
        return Vec::new();
    }
    let message = "the mount has no What=";
    vec![(None, ValueError::new(FindingCode::NoSource, message, "add What= to [Mount]"))]
}

/// Checks that a path is the one that the unit's name stands for.
fn check_named_path<'a>(
    name: &UnitName,
    file: &'a UnitFile,
    section: &'static str,
    key: &'static str,
) -> Vec<Violation<'a>> {
    let Some(option) = effective_option(name, file, section, key) else { return Vec::new() };
    let path = option.value();
    // The value of a specifier is unknown here, and systemd resolves a label.
    if !path.starts_with('/') || path.contains('%') {
        return Vec::new();
    }
    let (Ok(stands_for), Ok(wanted)) = (unescape_path(name.stem()), escape_path(path)) else {
        return Vec::new();
    };
    if escape_path(&stands_for).is_ok_and(|own| own == wanted) {
        return Vec::new();
    }
    let message = format!("the path does not match the unit name, which stands for {stands_for}");
    let unit_type = name.unit_type();
    let help = format!("rename the unit to {wanted}.{unit_type}, or write {key}={stands_for}");
    vec![(Some(option), ValueError::new(FindingCode::NameMismatch, message, help))]
}

fn no_file(name: &UnitName) -> Violation<'static> {
    let message = format!("systemd reads no unit files of type {}", name.unit_type());
    let help = match name.unit_type() {
        UnitType::Scope => "remove the file: programs create scope units at run time".to_owned(),
        other => format!("remove the file: current versions of systemd have no {other} units"),
    };
    (None, ValueError::new(FindingCode::NoFile, message, help))
}
