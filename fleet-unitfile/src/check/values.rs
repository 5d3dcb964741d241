//! Checks of values that are one word, path or name.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::calendar::SHORTHANDS;
use crate::calendar::is_calendar;
use crate::check::choices;
use crate::check::finding::{FindingCode, ValueError, listed, one_of, pieces, quoted};
use crate::check::specifiers::expanded;
use crate::name::{NameErrorKind, UnitName, UnitType};
use crate::spelling::suggest;
use crate::values::parse_bool;
use crate::values::size::integer;
use crate::values::words::Splitter;

/// Checks a boolean, or one of some additional words.
pub(super) fn boolean(value: &str, words: &[&str]) -> Option<ValueError> {
    let is_word = |word: &&str| match word.strip_suffix(':') {
        Some(_) => value.len() > word.len() && value.starts_with(*word),
        None => value == *word,
    };
    if parse_bool(value).is_some() || words.iter().any(is_word) {
        return None;
    }
    let words: Vec<&str> = words.iter().copied().filter(|word| !word.ends_with(':')).collect();
    let message = match value {
        "" => "a boolean must not be empty".to_owned(),
        _ if !words.is_empty() => format!("{} is not an accepted value", quoted(value)),
        _ => format!("{} is neither yes nor no", quoted(value)),
    };
    let help = match suggest(value, words.iter().copied()) {
        Some(near) => format!("write {near}"),
        None => format!("write {}", listed(&[&["yes", "no"], &words[..]].concat())),
    };
    let code = if words.is_empty() { FindingCode::Boolean } else { FindingCode::Choice };
    Some(ValueError::new(code, message, help))
}

pub(super) fn fatal_boolean(value: &str) -> Option<ValueError> {
    boolean(value, &[]).map(|error| ValueError { code: FindingCode::FatalBoolean, ..error })
}

pub(super) fn choice(value: &str, words: &[&str]) -> Option<ValueError> {
    (!words.contains(&value)).then(|| {
        let message = format!("{} is not an accepted value", quoted(value));
        ValueError::new(FindingCode::Choice, message, one_of(value, words))
    })
}

/// Checks that a value is one of several words. A word that ends in a colon needs an absolute path
/// after it, as in `file:/var/log/web`, except that any name may follow `fd:`.
pub(super) fn word_or_argument(value: &str, words: &[&str]) -> Option<ValueError> {
    let fits = |word: &&str| match word.strip_suffix(':') {
        Some("fd") => value.strip_prefix("fd:").is_some_and(|name| !name.contains(':')),
        Some(_) => value.strip_prefix(word).is_some_and(|path| path.starts_with('/')),
        None => value == *word,
    };
    if words.iter().any(fits) {
        return None;
    }
    let file = words.iter().find(|word| word.ends_with(':') && value.starts_with(**word));
    if let Some(name) = value.strip_prefix("fd:").filter(|_| file.is_some()) {
        let message = format!("{} is not the name of a file descriptor", quoted(name));
        let error = ValueError::new(FindingCode::Form, message, "write a name without colons");
        return Some(error.at_word((3, name)));
    }
    if let Some(word) = file {
        let message = format!("{} is not an absolute path", quoted(&value[word.len()..]));
        let error = ValueError::new(FindingCode::Path, message, "write an absolute path");
        return Some(error.at_word((word.len(), &value[word.len()..])));
    }
    choice(value, words)
}

pub(super) fn signal(value: &str) -> Option<ValueError> {
    (!is_signal(value)).then(|| {
        let message = format!("{} is not a signal", quoted(value));
        let near =
            suggest(value.strip_prefix("SIG").unwrap_or(value), choices::SIGNALS.iter().copied());
        let help = near.map_or_else(
            || "write a name such as SIGTERM, or a number".to_owned(),
            |near| format!("write SIG{near}"),
        );
        ValueError::new(FindingCode::Signal, message, help)
    })
}

/// Returns `true` if a value is the number or name of a signal, or an offset from a real-time
/// signal, such as `RTMIN+3`.
pub(super) fn is_signal(value: &str) -> bool {
    if let Some(number) = integer(value) {
        return (1..=64).contains(&number);
    }
    let name = value.strip_prefix("SIG").unwrap_or(value);
    let real_time = ["RTMIN", "RTMAX"].iter().find_map(|word| name.strip_prefix(word));
    match real_time {
        Some(place) => {
            let digits = place.strip_prefix(['+', '-']).unwrap_or("0");
            place.is_empty() || digits.parse::<u8>().is_ok_and(|digits| digits <= 34)
        }
        None => choices::SIGNALS.contains(&name),
    }
}

/// Checks an absolute path without `..` components.
pub(super) fn path(value: &str) -> Option<ValueError> {
    if !is_absolute(value) {
        let message = format!("{} is not an absolute path", quoted(value));
        return Some(ValueError::new(FindingCode::Path, message, "write an absolute path"));
    }
    value.split('/').any(|part| part == "..").then(|| {
        let message = format!("{} has a part \"..\"", quoted(value));
        ValueError::new(FindingCode::Path, message, "write the path without \"..\"")
    })
}

/// Checks a condition on a path. The path may have the prefixes `|` and `!`, in this order and
/// without blanks, as in `|!/etc/disabled`.
pub(super) fn path_test(value: &str) -> Option<ValueError> {
    let marked = value.strip_prefix('|').unwrap_or(value);
    path(marked.strip_prefix('!').unwrap_or(marked))
}

/// Checks absolute paths separated by colons.
pub(super) fn path_list(value: &str) -> Option<ValueError> {
    let mut at = 0;
    value.split(':').find_map(|part| {
        let start = at;
        at += part.len() + 1;
        path(part).map(|error| error.at_word((start, part)))
    })
}

/// Checks the path of a PID file, which may be relative to `/run`.
pub(super) fn pid_file(value: &str) -> Option<ValueError> {
    path(&format!("/{value}")).map(|_| {
        let message = format!("{} has a part \"..\"", quoted(value));
        ValueError::new(FindingCode::FatalPath, message, "write the path without \"..\"")
    })
}

pub(super) fn root_path(value: &str) -> Option<ValueError> {
    path(value).map(|error| ValueError { code: FindingCode::FatalPath, ..error })
}

/// Checks that a value is an absolute path, or `~` for the user's home. A leading dash means that
/// the directory may be missing.
pub(super) fn working_directory(value: &str) -> Option<ValueError> {
    let place = value.strip_prefix('-').unwrap_or(value);
    let error = path(place).filter(|_| place != "~")?;
    // With the dash systemd only warns.
    let code = if place.len() < value.len() { error.code } else { FindingCode::FatalPath };
    let help = "write an absolute path, or ~ for the user's home";
    Some(ValueError { code, help: help.to_owned(), ..error })
}

/// Returns `true` if a path is absolute.
pub(super) fn is_absolute(path: &str) -> bool {
    path.starts_with('/')
}

pub(super) fn user(value: &str) -> Option<ValueError> {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = is_digits(value);
    let why = if is_number {
        // These two numbers are reserved and identify no user.
        let has_zero = value.len() > 1 && value.starts_with('0');
        let number = value.parse::<u32>().ok().filter(|_| !has_zero);
        let is_fine = number.is_some_and(|it| it != u32::MAX && it != 0xffff);
        (!is_fine).then_some("is not a number that a user or group may have")
    } else if value.strip_prefix('-').is_some_and(is_digits) {
        Some("is a negative number")
    } else if value.contains([':', '/']) || value.chars().any(char::is_control) {
        Some("has a character that no name of a user or group may have")
    } else if value.trim_matches([' ', '\t']) != value {
        Some("has blanks around it")
    } else if value == "." || value == ".." {
        Some("is not the name of a user or group")
    } else {
        None
    };
    why.map(|why| {
        let message = format!("{} {why}", quoted(value));
        ValueError::new(FindingCode::User, message, "write a name such as www-data, or a number")
    })
}

/// Checks a unit name, of a given type if there is one, in an option of the unit `own`.
pub(super) fn unit(value: &str, unit_type: Option<UnitType>, own: &UnitName) -> Option<ValueError> {
    let name = match expanded(value, own) {
        Some(name) => name,
        None => Cow::Owned(without_specifiers(value)?),
    };
    if let Some(error) = unit_name(value, &name, unit_type, own) {
        return Some(error);
    }
    let wanted = unit_type.filter(|it| !name.ends_with(&format!(".{it}")))?;
    let message = format!("{} is not a {wanted} unit", quoted(value));
    let help = format!("write a name that ends in .{wanted}");
    Some(ValueError::new(FindingCode::UnitName, message, help))
}

/// Checks a unit name, which is written as `value`.
fn unit_name(
    value: &str,
    name: &str,
    unit_type: Option<UnitType>,
    own: &UnitName,
) -> Option<ValueError> {
    let error = match UnitName::parse(name) {
        Ok(name) if name.is_template() && !own.is_template() && !own.is_instance() => {
            // An empty instance that a specifier stands for is filled in.
            return (!value.contains('%')).then(|| template(value, own));
        }
        Ok(name) if name.unit_type() == UnitType::Container => {
            let message = format!("{} is the file of a service of podman", quoted(value));
            let stem = value.strip_suffix(".container").unwrap_or(value);
            let help = format!("write {stem}.service");
            return Some(ValueError::new(FindingCode::UnitName, message, help));
        }
        Ok(_) => return None,
        Err(error) => error,
    };
    let wanted = unit_type.unwrap_or(UnitType::Service);
    let with_type = |stem: &str, suffix: &str| {
        let text = format!("{stem}.{suffix}");
        UnitName::parse(&without_specifiers(&text)?).is_ok().then_some(text)
    };
    let (stem, suffix) = value.rsplit_once('.').unwrap_or((value, ""));
    let near = suggest(suffix, UnitType::ALL.map(UnitType::as_str));
    let help = match (error.kind(), near) {
        (NameErrorKind::TypeWithoutTemplates { unit_type }, _) => {
            format!("remove the @, because a {unit_type} unit cannot be an instance")
        }
        (NameErrorKind::UnknownType, Some(near)) if with_type(stem, near).is_some() => {
            format!("write {stem}.{near}")
        }
        (NameErrorKind::NoType, _) if let Some(text) = with_type(value, wanted.as_str()) => {
            match unit_type {
                Some(_) => format!("write {text}"),
                None => format!("write {text}, or another unit type"),
            }
        }
        (NameErrorKind::UnknownType, _) if let Some(text) = with_type(value, wanted.as_str()) => {
            format!("end the name in a unit type, as in {text}")
        }
        _ => format!("write a name such as web.{wanted}"),
    };
    let message = format!("{} is not the name of a unit", quoted(value));
    Some(ValueError::new(FindingCode::UnitName, message, help))
}

fn template(value: &str, own: &UnitName) -> ValueError {
    let message = format!("{} is a template, of which only instances can run", quoted(value));
    let named = value.replacen("@.", &format!("@{}.", own.prefix()), 1);
    let help = format!("write an instance such as {named}");
    ValueError::new(FindingCode::Template, message, help)
}

/// Replaces each specifier of a unit name by a letter, so that the rest of the name can be checked.
/// Returns `None` if the type of the unit depends on a specifier.
fn without_specifiers(value: &str) -> Option<String> {
    if !value.contains('%') {
        return Some(value.to_owned());
    }
    let (stem, unit_type) = value.rsplit_once('.')?;
    if unit_type.contains('%') {
        return None;
    }
    let mut plain = String::new();
    let mut characters = stem.chars();
    while let Some(character) = characters.next() {
        match character {
            '%' => {
                characters.next();
                plain.push('x');
            }
            _ => plain.push(character),
        }
    }
    Some(format!("{plain}.{unit_type}"))
}

/// Checks that a value is a socket address. This is a port, an address with a port, a path, an
/// abstract name, or a vsock address.
pub(super) fn address(value: &str) -> Option<ValueError> {
    let is_fine = is_local(value) || is_port(value) || is_internet(value);
    (!is_fine).then(|| {
        let message = format!("{} is not the address of a socket", quoted(value));
        let help = "write a port, ADDRESS:PORT, an absolute path, or @NAME";
        ValueError::new(FindingCode::Address, message, help)
    })
}

/// Checks a path, an abstract name or a vsock address.
pub(super) fn local_address(value: &str) -> Option<ValueError> {
    (!is_local(value)).then(|| {
        let message = format!("{} is not the address of a local socket", quoted(value));
        ValueError::new(FindingCode::Address, message, "write an absolute path, or @NAME")
    })
}

/// Checks a D-Bus name: two or more words separated by dots.
pub(super) fn bus_name(value: &str) -> Option<ValueError> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_word =
        |word: &str| word.chars().all(is_letter) && word.starts_with(|c: char| !c.is_ascii_digit());
    // A word of a unique name, such as :1.5, may begin with a digit.
    let is_part = |word: &str| word.chars().all(is_letter) && !word.is_empty();
    let is_fine = match value.strip_prefix(':') {
        Some(unique) => unique.contains('.') && unique.split('.').all(is_part),
        None => value.contains('.') && value.split('.').all(is_word),
    };
    (!is_fine).then(|| {
        let message = format!("{} is not a name on the message bus", quoted(value));
        ValueError::new(FindingCode::BusName, message, "write a name such as org.example.Web")
    })
}

/// Returns `true` for the path of a node, an abstract name, and a vsock address.
fn is_local(value: &str) -> bool {
    // The kernel has no room for more.
    const MAX_PATH: usize = 107;
    if let Some(path) = value.strip_prefix('/') {
        return path.contains(|c| c != '/') && value.len() <= MAX_PATH;
    }
    if let Some(name) = value.strip_prefix('@') {
        return !name.is_empty() && value.len() <= MAX_PATH;
    }
    let kinds = ["vsock:", "vsock-stream:", "vsock-dgram:", "vsock-seqpacket:"];
    let vsock = kinds.iter().find_map(|kind| value.strip_prefix(kind)?.split_once(':'));
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    vsock.is_some_and(|(machine, port)| {
        (machine.is_empty() || is_number(machine)) && is_number(port)
    })
}

fn is_port(text: &str) -> bool {
    integer(text).is_some_and(|port| (1..=65_535).contains(&port))
}

fn is_internet(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    // A scope of the address may follow it.
    let host = host.split('%').next().unwrap_or_default();
    let port = port.split('%').next().unwrap_or_default();
    let six = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host_is_fine = match six {
        Some(six) => six.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok(),
    };
    host_is_fine && is_port(port)
}

/// Checks a calendar event, which consists of weekdays, a date, a time and a time zone, each of
/// which is optional. The check does not test whether the time zone exists.
pub(super) fn calendar(value: &str) -> Option<ValueError> {
    (!is_calendar(value)).then(|| {
        let message = format!("{} is not a calendar event", quoted(value));
        let help = match suggest(value, SHORTHANDS) {
            Some(near) => format!("write {near}"),
            None => "write an event such as daily, or \"Mon..Fri *-*-* 06:30:00\"".to_owned(),
        };
        ValueError::new(FindingCode::Calendar, message, help)
    })
}

/// Checks a list of network address ranges. A range is an address with an optional prefix length
/// (`10.0.0.0/8`), or a word for a common range (`localhost`).
///
/// systemd removes no quotes from this value, so quotes make an address invalid.
pub(super) fn address_ranges(value: &str) -> Vec<ValueError> {
    let errors = pieces(value).filter(|(_, word)| !is_address_range(word)).map(|word| {
        let message = format!("{} is not a range of addresses", quoted(word.1));
        let help = match word.1.starts_with(['"', '\'']) {
            true => "write the range without quotes",
            false => "write a range such as 10.0.0.0/8, or any, localhost, link-local or multicast",
        };
        ValueError::new(FindingCode::Address, message, help).at_word(word)
    });
    errors.collect()
}

fn is_address_range(word: &str) -> bool {
    if word.eq_ignore_ascii_case("localhost") {
        return true;
    }
    if ["any", "link-local", "multicast"].contains(&word) {
        return true;
    }
    let (address, length) = match word.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (word, None),
    };
    let most = match (address.parse::<Ipv4Addr>(), address.parse::<Ipv6Addr>()) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        _ => return false,
    };
    length.is_none_or(|length| integer(length).is_some_and(|it| (0..=most).contains(&it)))
}

/// Checks a device rule such as `/dev/sda rw`: the path of a device, or a device group, and the
/// access rights.
pub(super) fn device(value: &str, unit: &UnitName) -> Option<ValueError> {
    let mut words = Splitter::new(value, true);
    let Some(Ok(path)) = words.next() else {
        let error = ValueError::new(FindingCode::Quotes, "a quote is not closed", "close it");
        return Some(error);
    };
    let (written, rights) = (&value[..words.at()], words.rest());
    if let Some(error) = expanded(&path, unit).and_then(|path| device_path(&path)) {
        return Some(error.at_word((0, written)));
    }
    let bare = rights.trim_start_matches([' ', '\t']);
    bare.contains(|c| !"rwm".contains(c)).then(|| {
        let message = format!("{} is not an access mode of a device", quoted(bare));
        let help = "write one or more of the letters r, w and m, such as rw";
        ValueError::new(FindingCode::Choice, message, help)
            .at_word((value.len() - bare.len(), bare))
    })
}

fn device_path(device: &str) -> Option<ValueError> {
    let is_group = ["char-", "block-"].iter().any(|start| device.starts_with(start));
    if is_group {
        return None;
    }
    path(device).or_else(|| {
        let mut parts = device.split('/').filter(|part| !part.is_empty() && *part != ".");
        let is_fine = match parts.next() {
            Some("dev") => true,
            Some("run") => parts.next() == Some("systemd") && parts.next() == Some("inaccessible"),
            _ => false,
        };
        (!is_fine).then(|| {
            let message = format!("{} is not the path of a device", quoted(device));
            let help = "write a path below /dev/, or a device group such as char-pts";
            ValueError::new(FindingCode::Path, message, help)
        })
    })
}

/// Checks that a value is the name of an architecture. The check does not test whether the machine
/// can run programs for it.
pub(super) fn personality(value: &str) -> Option<ValueError> {
    (!choices::ALL_ARCHITECTURES.contains(&value)).then(|| {
        let message = format!("{} is not an architecture", quoted(value));
        // The nearest word may be that of another machine.
        let help = "write an architecture that the machine can run, such as x86-64";
        ValueError::new(FindingCode::Choice, message, help)
    })
}
