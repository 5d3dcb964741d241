//! Unit names and unit types.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// Maximum length of a unit name in bytes.
const MAX_BYTES: usize = 255;

/// Suffixes of the files of podman's Quadlet that are no units of fleet.
const OTHER_QUADLETS: [&str; 7] =
    ["artifact", "build", "image", "kube", "network", "pod", "volume"];

/// A valid unit name, such as `web@3.service`.
///
/// A name consists of a *stem*, a dot and a [`UnitType`]. If a stem contains an `@`, the first `@`
/// splits it into a *prefix* and an *instance*. A name with an empty instance is a *template*.
/// Names are compared, ordered and hashed by text. Clones share the text.
///
/// ```
/// use fleet_unitfile::{UnitName, UnitType};
///
/// let name = UnitName::parse("web@3.service")?;
/// assert_eq!(name.unit_type(), UnitType::Service);
/// assert_eq!((name.stem(), name.prefix(), name.instance()), ("web@3", "web", Some("3")));
/// assert_eq!(name.template(), Some(UnitName::parse("web@.service")?));
/// # Ok::<(), fleet_unitfile::NameError>(())
/// ```
#[derive(Clone)]
pub struct UnitName {
    text: Arc<str>,
    unit_type: UnitType,
    /// Offset of the first `@` of the stem.
    at: Option<u8>,
}

impl UnitName {
    /// Parses a unit name.
    ///
    /// # Errors
    ///
    /// Returns an error for the first rule that the text breaks. The error suggests a remedy.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match check(text) {
            Ok((unit_type, at)) => Ok(Self { text: text.into(), unit_type, at }),
            Err(kind) => Err(NameError { name: excerpt(text), kind }),
        }
    }

    /// Returns the full name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the type, taken from the suffix.
    pub fn unit_type(&self) -> UnitType {
        self.unit_type
    }

    /// Returns the name without the dot and the type: `web@3` of `web@3.service`.
    pub fn stem(&self) -> &str {
        &self.text[..self.stem_end()]
    }

    /// Returns the stem up to the first `@`, or the whole stem if it contains no `@`.
    pub fn prefix(&self) -> &str {
        &self.text[..self.at.map_or(self.stem_end(), usize::from)]
    }

    /// Returns the text after the first `@` of the stem, or `None` if the stem contains no `@`. For
    /// a template, the text is empty.
    pub fn instance(&self) -> Option<&str> {
        self.at.map(|at| &self.text[usize::from(at) + 1..self.stem_end()])
    }

    /// Returns `true` if the name is a template, such as `web@.service`.
    pub fn is_template(&self) -> bool {
        self.instance() == Some("")
    }

    /// Returns `true` if the name is an instance of a template, such as `web@3.service`.
    pub fn is_instance(&self) -> bool {
        self.instance().is_some_and(|instance| !instance.is_empty())
    }

    /// Returns the template of an instance, or `None` if the name is a template or a plain name.
    pub fn template(&self) -> Option<Self> {
        let at = self.at.filter(|_| self.is_instance())?;
        let text = format!("{}@.{}", self.prefix(), self.unit_type).into();
        Some(Self { text, unit_type: self.unit_type, at: Some(at) })
    }

    /// Returns the name of the unit that systemd runs for this one. For a `.container` file this is
    /// the service that podman makes of it, and for every other unit the unit itself.
    ///
    /// ```
    /// use fleet_unitfile::UnitName;
    ///
    /// for (name, in_systemd) in
    ///     [("web.container", "web.service"), ("web@1.container", "web@1.service"),
    ///      ("web.socket", "web.socket")]
    /// {
    ///     assert_eq!(UnitName::parse(name)?.systemd_name(), UnitName::parse(in_systemd)?);
    /// }
    /// # Ok::<(), fleet_unitfile::NameError>(())
    /// ```
    #[must_use]
    pub fn systemd_name(&self) -> Self {
        if self.unit_type != UnitType::Container {
            return self.clone();
        }
        let unit_type = UnitType::Service;
        Self { text: format!("{}.{unit_type}", self.stem()).into(), unit_type, at: self.at }
    }

    /// Returns the instance of this template with the given instance name. The instance name is
    /// inserted without escaping.
    ///
    /// # Errors
    ///
    /// Returns an error if this name is not a template, if the instance name is empty, or if the
    /// resulting name is invalid.
    pub fn instantiate(&self, instance: &str) -> Result<Self, NameError> {
        let refuse = |kind| Err(NameError { name: self.text.to_string(), kind });
        if !self.is_template() {
            return refuse(NameErrorKind::NotTemplate);
        }
        if instance.is_empty() {
            return refuse(NameErrorKind::EmptyInstance);
        }
        Self::parse(&format!("{}@{instance}.{}", self.prefix(), self.unit_type))
    }

    fn stem_end(&self) -> usize {
        self.text.len() - self.unit_type.as_str().len() - 1
    }
}

/// Error for a string that is not a valid unit name.
///
/// The message quotes the string, and states the broken rule and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unit name {name:?} {kind}")]
pub struct NameError {
    name: String,
    kind: NameErrorKind,
}

impl NameError {
    /// Returns the rule that the text breaks.
    pub fn kind(&self) -> NameErrorKind {
        self.kind
    }

    /// Returns the refused text, truncated if it is too long for a name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The rules of unit names that a string can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NameErrorKind {
    /// The text is empty.
    Empty,
    /// The text is longer than 255 bytes.
    TooLong {
        /// Length of the text in bytes.
        bytes: usize,
    },
    /// There is no dot, or nothing after the last one.
    NoType,
    /// The text after the last dot is not a unit type.
    UnknownType,
    /// The name is that of a file of podman's Quadlet that describes no container.
    UnsupportedQuadlet,
    /// The prefix is empty: the text begins with the dot of its type, or with an `@`.
    EmptyPrefix,
    /// The stem contains a character that is not allowed.
    Character {
        /// The first invalid character.
        found: char,
    },
    /// There is an `@`, but the type has no templates.
    TypeWithoutTemplates {
        /// The type of the name.
        unit_type: UnitType,
    },
    /// The name to instantiate is not a template.
    NotTemplate,
    /// The instance name is empty.
    EmptyInstance,
}

impl fmt::Display for NameErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty: write a name such as \"web.service\""),
            Self::TooLong { bytes } => {
                write!(f, "is {bytes} bytes long: use at most {MAX_BYTES}")
            }
            Self::NoType => f.write_str("has no type: add a suffix such as \".service\""),
            Self::UnknownType => {
                write!(f, "does not end in a unit type: write one of {}", type_list())
            }
            Self::UnsupportedQuadlet => f.write_str(
                "is not supported: of the files of podman's Quadlet, only .container files are \
                 units",
            ),
            Self::EmptyPrefix => f.write_str(
                "starts with its \"@\" or type: put a name in front, as in \"web@.service\"",
            ),
            Self::Character { found } => write!(
                f,
                "has the character {found:?}: use ASCII letters, digits and \":-_.\\@\", \
                 and write any other as an escape such as \"\\x20\"",
            ),
            Self::TypeWithoutTemplates { unit_type } => write!(
                f,
                "has an \"@\", but a {unit_type} cannot be a template or an instance: \
                 remove the \"@\"",
            ),
            Self::NotTemplate => f.write_str(
                "is not a template, so has no instances: use a name such as \"web@.service\"",
            ),
            Self::EmptyInstance => f.write_str("needs the name of an instance after its \"@\""),
        }
    }
}

/// Checks a unit name, and returns its type and the offset of its first `@`.
fn check(text: &str) -> Result<(UnitType, Option<u8>), NameErrorKind> {
    if text.is_empty() {
        return Err(NameErrorKind::Empty);
    }
    if text.len() > MAX_BYTES {
        return Err(NameErrorKind::TooLong { bytes: text.len() });
    }
    let (stem, suffix) = text.rsplit_once('.').ok_or(NameErrorKind::NoType)?;
    if suffix.is_empty() {
        return Err(NameErrorKind::NoType);
    }
    let unit_type: UnitType =
        suffix.parse().map_err(|_| match OTHER_QUADLETS.contains(&suffix) {
            true => NameErrorKind::UnsupportedQuadlet,
            false => NameErrorKind::UnknownType,
        })?;
    check_stem(stem, unit_type).map(|at| (unit_type, at))
}

fn check_stem(stem: &str, unit_type: UnitType) -> Result<Option<u8>, NameErrorKind> {
    if let Some(found) = stem.chars().find(|&c| !may_be_in_stem(c)) {
        return Err(NameErrorKind::Character { found });
    }
    let at = stem.find('@');
    if stem.is_empty() || at == Some(0) {
        return Err(NameErrorKind::EmptyPrefix);
    }
    if at.is_some() && !unit_type.may_be_template() {
        return Err(NameErrorKind::TypeWithoutTemplates { unit_type });
    }
    Ok(at.map(|at| u8::try_from(at).expect("a name is at most 255 bytes long")))
}

fn may_be_in_stem(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '_' | '.' | '\\' | '@')
}

/// Returns the text, truncated to the maximum length of a name.
fn excerpt(text: &str) -> String {
    let end = (0..=text.len().min(MAX_BYTES)).rfind(|&end| text.is_char_boundary(end));
    text[..end.unwrap_or_default()].to_owned()
}

impl FromStr for UnitName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for UnitName {
    type Error = NameError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::parse(text)
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl AsRef<str> for UnitName {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl Borrow<str> for UnitName {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl PartialEq for UnitName {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for UnitName {}

impl PartialEq<str> for UnitName {
    fn eq(&self, other: &str) -> bool {
        &*self.text == other
    }
}

impl PartialEq<&str> for UnitName {
    fn eq(&self, other: &&str) -> bool {
        &*self.text == *other
    }
}

impl PartialOrd for UnitName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for UnitName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for UnitName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// The type of a unit: the suffix after the last dot of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnitType {
    /// A mount point that is mounted on first access.
    Automount,
    /// A D-Bus name that activates a service.
    Busname,
    /// A container of podman's Quadlet, which systemd runs as a service.
    Container,
    /// A device exposed by the kernel.
    Device,
    /// A mount point.
    Mount,
    /// A watched file or directory that activates another unit.
    Path,
    /// A group of processes that were started elsewhere and are only supervised.
    Scope,
    /// A supervised process, or a group of them.
    Service,
    /// A node of the tree of resource limits, which groups units.
    Slice,
    /// A saved set of running units.
    Snapshot,
    /// A socket that activates a service on traffic.
    Socket,
    /// A swap device or file.
    Swap,
    /// A synchronization point that groups other units.
    Target,
    /// A timer that activates another unit.
    Timer,
}

impl UnitType {
    /// All types, in alphabetical order.
    pub const ALL: [Self; 14] = [
        Self::Automount,
        Self::Busname,
        Self::Container,
        Self::Device,
        Self::Mount,
        Self::Path,
        Self::Scope,
        Self::Service,
        Self::Slice,
        Self::Snapshot,
        Self::Socket,
        Self::Swap,
        Self::Target,
        Self::Timer,
    ];

    /// Returns the suffix without its dot, such as `service`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Automount => "automount",
            Self::Busname => "busname",
            Self::Container => "container",
            Self::Device => "device",
            Self::Mount => "mount",
            Self::Path => "path",
            Self::Scope => "scope",
            Self::Service => "service",
            Self::Slice => "slice",
            Self::Snapshot => "snapshot",
            Self::Socket => "socket",
            Self::Swap => "swap",
            Self::Target => "target",
            Self::Timer => "timer",
        }
    }

    /// Returns `true` if units of this type may be templates or instances.
    pub const fn may_be_template(self) -> bool {
        matches!(
            self,
            Self::Container
                | Self::Path
                | Self::Service
                | Self::Socket
                | Self::Target
                | Self::Timer
        )
    }
}

impl fmt::Display for UnitType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for UnitType {
    type Err = UnitTypeError;

    /// Parses a suffix without its dot. Case-sensitive: `Service` is not a type.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|unit_type| unit_type.as_str() == text)
            .ok_or_else(|| UnitTypeError(text.to_owned()))
    }
}

/// Error for a word that is not one of the unit types.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a unit type: write one of {types}", types = type_list())]
pub struct UnitTypeError(String);

/// Returns all types as a list, for messages.
pub(crate) fn type_list() -> String {
    UnitType::ALL.map(UnitType::as_str).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_types_parse_case_sensitively() {
        for unit_type in UnitType::ALL {
            assert_eq!(unit_type.to_string().parse(), Ok(unit_type));
            assert!(unit_type.as_str().to_uppercase().parse::<UnitType>().is_err());
        }
        assert!(UnitType::ALL.is_sorted());
        let error = "servce".parse::<UnitType>().unwrap_err().to_string();
        assert!(error.starts_with("\"servce\" is not a unit type: write one of automount, "));
    }

    #[test]
    fn some_types_may_be_templates() {
        let may: Vec<_> = UnitType::ALL.into_iter().filter(|t| t.may_be_template()).collect();
        let words: Vec<_> = may.into_iter().map(UnitType::as_str).collect();
        assert_eq!(words, ["container", "path", "service", "socket", "target", "timer"]);
    }
}
