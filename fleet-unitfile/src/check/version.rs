//! Versions of systemd, and findings about text that a version does not know.

use std::fmt;
use std::str::FromStr;

use super::code::FindingCode;
use super::command;
use super::kind::Kind;
use super::specifiers;
use super::table;
use super::value_error::ValueError;
use crate::option::OptionView;
use crate::size::integer;

/// A major version of systemd, such as 252.
///
/// ```
/// use fleet_unitfile::SystemdVersion;
///
/// let version: SystemdVersion = "systemd 252 (252.38-1~deb12u1)".parse()?;
/// assert_eq!(version, SystemdVersion::new(252));
/// assert_eq!("v257.3".parse(), Ok(SystemdVersion::new(257)));
/// # Ok::<(), fleet_unitfile::SystemdVersionError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SystemdVersion(u16);

impl SystemdVersion {
    /// Makes a version from its major number.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Returns the major number.
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for SystemdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for SystemdVersion {
    type Err = SystemdVersionError;

    /// Parses a major number, which may begin with `v` or `systemd `, and may have further parts
    /// after it. The first line that `systemctl --version` prints is such a text.
    fn from_str(text: &str) -> Result<Self, SystemdVersionError> {
        let bare = text.strip_prefix("systemd ").unwrap_or(text);
        let bare = bare.strip_prefix('v').unwrap_or(bare);
        let end = bare.find(|c: char| !c.is_ascii_digit()).unwrap_or(bare.len());
        let is_separated = !bare[end..].starts_with(|c: char| c.is_ascii_alphabetic());
        let number = bare[..end].parse().ok().filter(|_| is_separated);
        number.map(Self).ok_or_else(|| SystemdVersionError(text.chars().take(40).collect()))
    }
}

/// Error for a text that is not a version of systemd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of systemd: write a number such as 252")]
pub struct SystemdVersionError(String);

/// Words of values that versions after that of the tables added: options, words, first version. A
/// word that ends in a colon has text after it. If the first version is not certain, an earlier one
/// is given, so that no value is reported wrongly.
const VALUES: &[(&[&str], &[&str], u16)] = &[
    (&["Type"], &["notify-reload"], 253),
    (ACTIONS, &["kexec", "kexec-force", "halt", "halt-force", "halt-immediate"], 253),
    (ACTIONS, &["soft-reboot", "soft-reboot-force"], 254),
    (&["OnFailureJobMode", "OnSuccessJobMode"], &["restart-dependencies"], 253),
    (&["OnFailureJobMode", "OnSuccessJobMode"], &["lenient"], 258),
    (
        &["ListenStream", "ListenDatagram", "ListenSequentialPacket"],
        &["vsock-stream:", "vsock-dgram:", "vsock-seqpacket:"],
        254,
    ),
    (&["PrivateTmp"], &["connected", "disconnected"], 257),
    (&["PrivateUsers"], &["self", "identity", "full"], 257),
    (&["PrivateUsers"], &["managed"], 258),
    (&["ProtectControlGroups"], &["private", "strict"], 257),
    (&["ProtectHostname"], &["private"], 257),
    (&["ProtectHostname"], &["private:", "yes:"], 258),
    (&["RestartMode"], &["debug"], 257),
    (&["SocketProtocol"], &["mptcp"], 257),
    (&["CPUSchedulingPolicy"], &["ext"], 257),
    (&["NUMAPolicy"], &["preferred-many", "weighted-interleave"], 262),
];

const ACTIONS: &[&str] =
    &["FailureAction", "SuccessAction", "JobTimeoutAction", "StartLimitAction"];

/// The first version that expands `%D`.
const SHARED_DATA: SystemdVersion = SystemdVersion(256);

/// The first version that runs a command by a shell after the prefix `|`.
const SHELL_PREFIX: SystemdVersion = SystemdVersion(258);

/// The first version that reads a size with a unit in `MessageQueueMessageSize=`.
const QUEUE_SIZE: SystemdVersion = SystemdVersion(262);

/// Checks that a version of systemd knows an option.
pub(super) fn name(option: OptionView<'_>, version: SystemdVersion) -> Option<ValueError> {
    let name = option.name();
    if let Some(since) = table::since(name).filter(|since| version < *since) {
        let message = format!("systemd {version} has no option {name}, which is new in {since}");
        let help = format!("remove it, or run the unit with systemd {since} or later");
        return Some(ValueError::new(FindingCode::TooNew, message, help));
    }
    let until = table::until(name).filter(|until| version >= *until)?;
    let message = format!("systemd {version} has no option {name}, which {until} has removed");
    Some(ValueError::new(FindingCode::Removed, message, "remove it"))
}

/// Checks that a version of systemd knows a value of an option that it knows.
pub(super) fn value(
    kind: Kind,
    option: OptionView<'_>,
    version: SystemdVersion,
) -> Option<ValueError> {
    let (name, value) = (option.name(), option.value());
    let is_same = |word: &&&str| match word.strip_suffix(':') {
        Some(_) => value.starts_with(**word),
        None => value == **word,
    };
    let word = VALUES.iter().find_map(|(options, words, since)| {
        let word = words.iter().find(is_same).filter(|_| options.contains(&name))?;
        Some((*word, SystemdVersion(*since)))
    });
    if let Some((word, since)) = word.filter(|(_, since)| version < *since) {
        return Some(too_new(&format!("\"{word}\""), version, since));
    }
    if version < SHARED_DATA
        && let Some((code, at)) = specifiers::shared_data(kind, value)
    {
        return Some(ValueError { code, at, ..too_new("\"%D\"", version, SHARED_DATA) });
    }
    if version < SHELL_PREFIX
        && kind == Kind::Command
        && let Some(at) = command::shell_prefix(value)
    {
        let error = too_new("the prefix |", version, SHELL_PREFIX);
        // Older versions read the prefix as part of the path.
        let code = command::code_without_shell(value).unwrap_or(error.code);
        return Some(ValueError { code, at: at..at + 1, ..error });
    }
    let is_size = name == "MessageQueueMessageSize" && integer(value).is_none();
    (version < QUEUE_SIZE && is_size && !value.is_empty())
        .then(|| too_new("a size with a unit", version, QUEUE_SIZE))
}

fn too_new(what: &str, version: SystemdVersion, since: SystemdVersion) -> ValueError {
    let message = format!("systemd {version} does not know {what}, which is new in {since}");
    let help = format!("write another value, or run the unit with systemd {since} or later");
    ValueError::new(FindingCode::TooNew, message, help)
}
