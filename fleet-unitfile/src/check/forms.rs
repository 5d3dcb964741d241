//! Values that consist of several parts, each with rules of its own.

use crate::check::finding::{FindingCode, ValueError, one_of, pieces, quoted};
use crate::check::lists::each_word;
use crate::check::specifiers::{expanded, path_form};
use crate::check::{choices, numbers, values};
use crate::name::UnitName;
use crate::values::size::{Size, integer, parse_size};
use crate::values::timespan::parse_timespan;
use crate::values::words::{WordError, cunescape, split_words};

/// The form of a value with several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::check) enum Form {
    /// `TYPE:PATH`.
    BpfProgram,
    /// Names and hexadecimal numbers of memory mappings.
    CoredumpFilter,
    /// `ID` or `ID:PATH`.
    Credential,
    /// Data in base64.
    Data,
    /// The path of a device, and a limit for it.
    DeviceLimit(DeviceLimit),
    /// `SOURCE:OPTIONS`, or `SOURCE:PARTITION:OPTIONS`.
    ExtensionImages,
    /// The name of a file descriptor.
    FileDescriptorName,
    /// A hash in hexadecimal digits, or the path of a file.
    Hash,
    /// A signature in base64, or the path of a file.
    HashSignature,
    /// Text with escapes.
    InputText,
    /// The name of a network interface.
    Interface,
    /// Names of network interfaces, which a tilde inverts.
    Interfaces,
    /// `FIELD=VALUE` for the journal.
    LogFields,
    /// The name of a journal namespace.
    LogNamespace,
    /// `SOURCE:TARGET`, with options.
    MountImages,
    /// A netlink family and a group.
    Netlink,
    /// A time span, which may be in nanoseconds.
    Nanoseconds,
    /// A whole number, or a size.
    QueueSize,
    /// `OPTIONS`, or `PARTITION:OPTIONS`.
    RootImageOptions,
    /// `ID:DATA`, with escapes in the data.
    SetCredential,
    /// `ID:DATA`, with the data in base64.
    SetCredentialEncrypted,
    /// The ports of a rule for sockets.
    SocketBind,
    /// Names of system calls and groups of them, which a tilde inverts.
    SystemCalls,
    /// The name or number of an error, or `kill`.
    SystemCallError,
    /// `PATH` or `PATH:OPTIONS`.
    TemporaryFileSystem,
}

/// The limit of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::check) enum DeviceLimit {
    /// A size or a number of operations per second.
    Amount,
    /// A time span.
    Latency,
    /// A weight.
    Weight,
}

impl Form {
    /// Returns `true` if a later value of the option replaces an earlier one.
    pub(in crate::check) fn is_single(self) -> bool {
        matches!(
            self,
            Self::FileDescriptorName
                | Self::Hash
                | Self::HashSignature
                | Self::Interface
                | Self::LogNamespace
                | Self::Nanoseconds
                | Self::QueueSize
                | Self::SystemCallError
        )
    }

    /// Returns `true` if systemd expands specifiers in the value.
    pub(in crate::check) fn has_specifiers(self) -> bool {
        matches!(
            self,
            Self::BpfProgram
                | Self::Credential
                | Self::DeviceLimit(_)
                | Self::ExtensionImages
                | Self::FileDescriptorName
                | Self::InputText
                | Self::LogFields
                | Self::LogNamespace
                | Self::MountImages
                | Self::RootImageOptions
                | Self::SetCredential
                | Self::SetCredentialEncrypted
                | Self::TemporaryFileSystem
        )
    }

    /// Returns the errors in a value that is not empty.
    pub(in crate::check) fn check(self, value: &str, unit: &UnitName) -> Vec<ValueError> {
        match self {
            Self::ExtensionImages => each_word(value, |word| extension_image(word, value, unit)),
            Self::MountImages => each_word(value, |word| mount_image(word, value, unit)),
            Self::TemporaryFileSystem => each_word(value, |word| {
                values::path(&path_form(word.split(':').next().unwrap_or_default(), unit))
            }),
            Self::RootImageOptions => each_strict_word(value, root_image_option),
            Self::LogFields => each_strict_word(value, log_field),
            Self::CoredumpFilter => {
                let error = |word| coredump_filter(word);
                pieces(value).filter_map(|word| Some(error(word.1)?.at_word(word))).collect()
            }
            Self::Interfaces => {
                let names = value.strip_prefix('~').unwrap_or(value);
                each_word(names, |name| if value.contains('\\') { None } else { interface(name) })
                    .into_iter()
                    .map(|error| error.shifted(value.len() - names.len()))
                    .collect()
            }
            Self::SystemCalls => {
                let names = value.strip_prefix('~').unwrap_or(value);
                each_word(names, system_call)
                    .into_iter()
                    .map(|error| error.shifted(value.len() - names.len()))
                    .collect()
            }
            _ => self.check_one(value, unit).into_iter().collect(),
        }
    }

    fn check_one(self, value: &str, unit: &UnitName) -> Option<ValueError> {
        match self {
            Self::BpfProgram => bpf_program(value, unit),
            Self::Credential => credential(value, unit),
            Self::SetCredential => set_credential(value, |data| cunescape(data).is_ok()),
            Self::SetCredentialEncrypted => set_credential(value, is_base64),
            Self::Data => (!is_base64(value)).then(|| {
                form(value, "is not base64", "write the data in base64, with = at its end")
            }),
            Self::DeviceLimit(limit) => device_limit(value, limit),
            Self::FileDescriptorName => {
                let name = expanded(value, unit)?;
                let is_fine = is_descriptor_name(&name);
                (!is_fine).then(|| form(&name, "is not a name", "use ASCII without colons"))
            }
            Self::Hash => hash(value),
            Self::HashSignature => {
                let is_signature = value.strip_prefix("base64:").is_some_and(is_base64);
                (!value.starts_with('/') && !is_signature).then(|| {
                    form(value, "is not a signature", "write an absolute path, or base64:DATA")
                })
            }
            Self::InputText => cunescape(value).err().map(|error| bad_escape(value, error)),
            Self::Interface if value == "*" => None,
            Self::Interface => interface(value),
            Self::LogNamespace => log_namespace(&expanded(value, unit)?),
            Self::Nanoseconds => {
                let in_microseconds = value.replace("nsec", "us").replace("ns", "us");
                parse_timespan(&in_microseconds).is_err().then(|| {
                    form(value, "is not a time span", "write a number with a unit, such as 50us")
                })
            }
            Self::QueueSize if integer(value).is_some() => None,
            Self::QueueSize => numbers::size(value),
            Self::Netlink => netlink(value),
            Self::SocketBind => socket_bind(value),
            Self::SystemCallError => {
                let is_number = integer(value).is_some_and(|it| (1..=4095).contains(&it));
                let is_fine = value == "kill" || is_number || choices::ERRORS.contains(&value);
                (!is_fine).then(|| {
                    let message = format!("{} is not an error", quoted(value));
                    let help = "write a name such as EPERM, a number from 1 to 4095, or kill";
                    ValueError::new(FindingCode::Choice, message, help)
                })
            }
            _ => None,
        }
    }
}

/// Checks words like [`each_word`], in a value that systemd ignores because of an unknown escape.
fn each_strict_word(value: &str, error: impl Fn(&str) -> Option<ValueError>) -> Vec<ValueError> {
    match split_words(value) {
        Err(error @ WordError::Escape { .. }) => vec![bad_escape(value, error)],
        _ => each_word(value, error),
    }
}

/// Makes the error for a text that lacks the required form.
fn form(text: &str, what: &str, help: &str) -> ValueError {
    ValueError::new(FindingCode::Form, format!("{} {what}", quoted(text)), help)
}

/// Makes the error for an escape that makes systemd ignore the value.
pub(in crate::check) fn bad_escape(value: &str, error: WordError) -> ValueError {
    let help = "write \\\\ for a backslash";
    let WordError::Escape { at } = error else {
        let message = "the escapes of the value do not form UTF-8";
        return ValueError::new(FindingCode::BadEscape, message, help);
    };
    let next = value[at + 1..].chars().next().map_or(0, char::len_utf8);
    let escape = &value[at..at + 1 + next];
    let message = format!("{} is not an escape", quoted(escape));
    ValueError::new(FindingCode::BadEscape, message, help).at_word((at, escape))
}

/// Checks the source and the further parts of an image. Quotes may hide colons, so only the start
/// of such a value is checked.
fn image_parts<'a>(word: &'a str, value: &str) -> Vec<&'a str> {
    let word = word.strip_prefix('-').unwrap_or(word).trim_start_matches(':');
    let parts = word.split(':');
    if value.contains(['"', '\'', '\\']) { parts.take(1).collect() } else { parts.collect() }
}

fn extension_image(word: &str, value: &str, unit: &UnitName) -> Option<ValueError> {
    let parts = image_parts(word, value);
    if matches!(word, "" | ":") {
        return None;
    }
    values::path(&path_form(parts[0], unit)).or_else(|| partitions(&parts[1..]))
}

fn mount_image(word: &str, value: &str, unit: &UnitName) -> Option<ValueError> {
    let parts = image_parts(word, value);
    let is_hidden = value.contains(['"', '\'', '\\']);
    if matches!(word, "" | ":") {
        return None;
    }
    values::path(&path_form(parts[0], unit)).or_else(|| match parts.get(1) {
        None if is_hidden => None,
        None | Some(&"") => Some(form(word, "has no path to mount at", "write SOURCE:DESTINATION")),
        Some(target) => values::path(&path_form(target, unit)).or_else(|| partitions(&parts[2..])),
    })
}

/// Checks pairs of partitions and mount options. Options alone need no partition.
fn partitions(parts: &[&str]) -> Option<ValueError> {
    let named = parts.chunks_exact(2).map(|pair| pair[0]);
    named.filter(|name| !name.is_empty()).find_map(partition)
}

fn partition(name: &str) -> Option<ValueError> {
    let is_known = choices::PARTITIONS.contains(&name) || name.contains('%');
    (!is_known).then(|| {
        let message = format!("{} is not a partition", quoted(name));
        ValueError::new(FindingCode::Choice, message, one_of(name, choices::PARTITIONS))
    })
}

fn root_image_option(word: &str) -> Option<ValueError> {
    let parts =
        word.split_once(':').filter(|(name, options)| !name.is_empty() && !options.is_empty());
    parts.and_then(|(name, _)| partition(name))
}

fn bpf_program(value: &str, unit: &UnitName) -> Option<ValueError> {
    let Some((kind, path)) = value.split_once(':') else {
        return Some(form(value, "names no program", "write TYPE:PATH, such as egress:/sys/x"));
    };
    if !choices::BPF_ATTACH_TYPES.contains(&kind) {
        let message = format!("{} is not a type of program", quoted(kind));
        let help = one_of(kind, choices::BPF_ATTACH_TYPES);
        return Some(ValueError::new(FindingCode::Choice, message, help).at_word((0, kind)));
    }
    values::path(&path_form(path, unit)).map(|error| error.at_word((kind.len() + 1, path)))
}

/// Checks the name of a credential, and its path. A path that is not absolute names another
/// credential.
fn credential(value: &str, unit: &UnitName) -> Option<ValueError> {
    let (id, path) = value.split_once(':').unwrap_or((value, ""));
    credential_name(&expanded(id, unit)?).or_else(|| {
        let path = path_form(path, unit);
        match path.as_ref() {
            "" => None,
            path if path.contains("//") || path.contains("/./") => {
                Some(form(path, "is not a simple path", "write the path without // and /./"))
            }
            path if path.starts_with('/') => values::path(path),
            name => credential_name(name),
        }
    })
}

fn credential_name(name: &str) -> Option<ValueError> {
    let is_fine = is_file_name(name) && is_descriptor_name(name);
    (!is_fine).then(|| {
        let help = "write ID or ID:PATH, with a file name of ASCII characters as ID";
        form(name, "is not the name of a credential", help)
    })
}

fn set_credential(value: &str, is_data: impl Fn(&str) -> bool) -> Option<ValueError> {
    let Some((id, data)) = value.split_once(':') else {
        return Some(form(value, "has no data", "write ID:DATA"));
    };
    if !id.contains('%')
        && let Some(error) = credential_name(id)
    {
        return Some(error);
    }
    let is_fine = data.contains('%') || (!data.is_empty() && is_data(data));
    (!is_fine).then(|| {
        let help = "write valid escapes, or base64 for encrypted data";
        form(data, "cannot be decoded", help).at_word((id.len() + 1, data))
    })
}

fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains('/') && name.len() <= 255
}

fn is_descriptor_name(name: &str) -> bool {
    let is_fine = |c: char| c.is_ascii() && !c.is_ascii_control() && c != ':';
    name.len() <= 255 && name.chars().all(is_fine)
}

/// Returns `true` for data in base64, whose blanks do not count.
fn is_base64(text: &str) -> bool {
    let data: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let padding = data.iter().rev().take_while(|&&byte| byte == b'=').count();
    let digits = &data[..data.len() - padding];
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    data.len().is_multiple_of(4) && padding <= 2 && digits.iter().all(is_digit)
}

fn device_limit(value: &str, limit: DeviceLimit) -> Option<ValueError> {
    let help = match limit {
        DeviceLimit::Amount => "write a path and a limit, such as /dev/sda 5M",
        DeviceLimit::Latency => "write a path and a time span, such as /dev/sda 20ms",
        DeviceLimit::Weight => "write a path and a weight from 1 to 10000, such as /dev/sda 500",
    };
    // A quoted path may contain blanks.
    let path_len = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].find(quote).map(|at| at + 2),
        _ => value.find([' ', '\t']),
    };
    let Some((path, amount)) = path_len.map(|len| value.split_at(len)) else {
        return Some(form(value, "has no path and limit", help));
    };
    let amount = amount.trim_start_matches([' ', '\t']);
    let is_fine = match limit {
        DeviceLimit::Amount => match parse_size(amount) {
            Ok(Size::Bytes(bytes)) => bytes > 0,
            Ok(Size::Infinity) => true,
            _ => false,
        },
        DeviceLimit::Latency => parse_timespan(amount).is_ok(),
        DeviceLimit::Weight => integer(amount).is_some_and(|it| (1..=10_000).contains(&it)),
    };
    let at = value.len() - amount.len();
    (!is_fine || path.is_empty())
        .then(|| form(amount, "is not a limit of a device", help).at_word((at, amount)))
}

fn hash(value: &str) -> Option<ValueError> {
    let is_hash = value.len() >= 32
        && value.len().is_multiple_of(2)
        && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    (!value.starts_with('/') && !is_hash).then(|| {
        let help = "write an absolute path, or 32 or more hexadecimal digits";
        form(value, "is not a hash", help)
    })
}

/// Checks the name of a network interface. A number is not a name.
fn interface(name: &str) -> Option<ValueError> {
    let is_number = integer(name).is_some_and(|index| index > 0)
        || name.bytes().all(|byte| byte.is_ascii_digit());
    let is_character = |c: char| c.is_ascii_graphic() && !matches!(c, ':' | '/' | '%');
    let is_fine = !is_number
        && !matches!(name, "." | ".." | "all" | "default")
        && name.len() <= 15
        && name.chars().all(is_character);
    (!is_fine)
        .then(|| form(name, "is not the name of a network interface", "write a name such as eth0"))
}

fn log_field(word: &str) -> Option<ValueError> {
    let name = word.split_once('=').map(|(name, _)| name).unwrap_or_default();
    let is_letter = |byte: u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_');
    let is_fine = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.len() <= 64
        && name.bytes().all(is_letter);
    (!is_fine && !name.contains('%')).then(|| {
        let help = "write FIELD=VALUE, with a field of capital letters, digits and underscores";
        form(word, "is not a field of the journal", help)
    })
}

fn log_namespace(name: &str) -> Option<ValueError> {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_' | '.' | '@');
    let is_fine = is_file_name(name) && name.chars().all(is_letter);
    (!is_fine)
        .then(|| form(name, "is not the name of a namespace", "use letters, digits and \":-_.@\""))
}

fn coredump_filter(word: &str) -> Option<ValueError> {
    let hexadecimal = ["0x", "0X"].iter().find_map(|prefix| word.strip_prefix(prefix));
    let digits = hexadecimal.unwrap_or(word);
    let is_fine =
        choices::COREDUMP_FILTERS.contains(&word) || u64::from_str_radix(digits, 16).is_ok();
    (!is_fine).then(|| {
        let message = format!("{} is not a kind of memory mapping", quoted(word));
        ValueError::new(FindingCode::Choice, message, one_of(word, choices::COREDUMP_FILTERS))
    })
}

fn netlink(value: &str) -> Option<ValueError> {
    let parts: Vec<&str> = pieces(value).map(|(_, part)| part).collect();
    let is_number =
        |text: &str, most: i64| integer(text).is_some_and(|it| (0..=most).contains(&it));
    let is_family = |text: &str| {
        choices::NETLINK_FAMILIES.contains(&text) || is_number(text, i64::from(i32::MAX))
    };
    let is_fine = match parts[..] {
        [family] => is_family(family),
        [family, group] => is_family(family) && is_number(group, i64::from(u32::MAX)),
        _ => false,
    };
    (!is_fine).then(|| {
        let help = "write a family and a group, such as kobject-uevent 1";
        form(value, "is not a netlink address", help)
    })
}

/// Checks a rule such as `ipv4:tcp:80-90`, each part of which may be missing.
fn socket_bind(value: &str) -> Option<ValueError> {
    let port = |text: &str| integer(text).filter(|port| (1..=65_535).contains(port));
    let is_ports = |text: &str| match text.split_once('-') {
        _ if text == "any" => true,
        Some((first, last)) => {
            matches!((port(first), port(last)), (Some(first), Some(last)) if first <= last)
        }
        None => port(text).is_some(),
    };
    let mut parts = value.split(':').peekable();
    parts.next_if(|part| matches!(*part, "ipv4" | "ipv6"));
    parts.next_if(|part| ["tcp", "udp"].iter().any(|it| it.eq_ignore_ascii_case(part)));
    parts.next_if(|part| is_ports(part));
    parts.next().is_some().then(|| {
        let help = "write any, or a rule such as ipv4:tcp:80 or udp:5000-5999";
        form(value, "is not a rule for sockets", help)
    })
}

/// Checks a group of system calls, and the error number after a colon. Names of system calls depend
/// on the architecture, so they are not checked.
fn system_call(word: &str) -> Option<ValueError> {
    let (name, error) = match word.split_once(':') {
        Some((name, error)) => (name, Some(error)),
        None => (word, None),
    };
    if name.starts_with('@') && !choices::SYSTEM_CALL_GROUPS.contains(&name) {
        let message = format!("{} is not a group of system calls", quoted(name));
        let help = one_of(name, choices::SYSTEM_CALL_GROUPS);
        return Some(ValueError::new(FindingCode::Choice, message, help));
    }
    let is_error = |error: &str| {
        let is_number = integer(error).is_some_and(|it| (0..=4095).contains(&it));
        error == "kill" || is_number || choices::ERRORS.contains(&error)
    };
    let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'@' | b'-');
    let is_name = !name.is_empty() && name.bytes().all(is_letter);
    let is_fine = is_name && error.is_none_or(is_error);
    (!is_fine).then(|| {
        let help = "write a system call, a group such as @clock, or either with :EPERM";
        form(word, "is not a system call with an error", help)
    })
}
