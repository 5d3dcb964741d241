//! All of systemd's specifiers, from a unit's name and from facts about where it runs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::escape::{escape_path, unescape, unescape_path};
use crate::name::UnitName;
use crate::specifier::SpecifierError;

macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident $letter:literal $words:literal,)*) => {
        /// Something that a specifier stands for and that the unit's name does not tell.
        ///
        /// `Display` says it in words.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Fact {
            $($(#[$doc])* $name,)*
        }

        impl Fact {
            /// Every fact, in the order of the names.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The letter of the specifier that stands for it.
            pub const fn letter(self) -> char {
                match self {
                    $(Self::$name => $letter,)*
                }
            }
        }

        impl fmt::Display for Fact {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$name => $words,)*
                })
            }
        }
    };
}

facts! {
    /// `%a`: the architecture, such as `x86-64`.
    Architecture 'a' "architecture",
    /// `%b`: the id of this boot.
    BootId 'b' "boot id",
    /// `%B`: `BUILD_ID=` of os-release.
    BuildId 'B' "build id of the operating system",
    /// `%C`: where caches are.
    CacheDirectory 'C' "cache directory",
    /// `%E`: where configuration is.
    ConfigurationDirectory 'E' "configuration directory",
    /// `%d`: where the unit's credentials are; below the runtime directory, where not given.
    CredentialsDirectory 'd' "credentials directory",
    /// `%y`: the path of the unit file. `%Y` is the directory of it.
    Fragment 'y' "path of the unit file",
    /// `%G`: the group of the service manager's user, as a number.
    GroupId 'G' "group id",
    /// `%g`: the name of that group.
    GroupName 'g' "group name",
    /// `%h`: the home of the service manager's user.
    HomeDirectory 'h' "home directory",
    /// `%H`: the host name.
    HostName 'H' "host name",
    /// `%M`: `IMAGE_ID=` of os-release.
    ImageId 'M' "image id of the operating system",
    /// `%A`: `IMAGE_VERSION=` of os-release.
    ImageVersion 'A' "image version of the operating system",
    /// `%v`: the release of the kernel.
    KernelRelease 'v' "kernel release",
    /// `%L`: where logs are.
    LogDirectory 'L' "log directory",
    /// `%m`: the id of the machine.
    MachineId 'm' "machine id",
    /// `%o`: `ID=` of os-release.
    OsId 'o' "id of the operating system",
    /// `%q`: the host name for people; the short one, where not given.
    PrettyHostName 'q' "pretty host name",
    /// `%t`: where sockets and the like are.
    RuntimeDirectory 't' "runtime directory",
    /// `%s`: the shell of the service manager's user.
    Shell 's' "shell",
    /// `%l`: the host name up to the first dot; taken from the host name, where not given.
    ShortHostName 'l' "short host name",
    /// `%S`: where state is kept.
    StateDirectory 'S' "state directory",
    /// `%T`: where temporary files are.
    TemporaryDirectory 'T' "directory for temporary files",
    /// `%U`: the service manager's user, as a number.
    UserId 'U' "user id",
    /// `%u`: the name of that user.
    UserName 'u' "user name",
    /// `%W`: `VARIANT_ID=` of os-release.
    VariantId 'W' "variant id of the operating system",
    /// `%V`: where large temporary files are.
    VarTemporaryDirectory 'V' "directory for large temporary files",
    /// `%w`: `VERSION_ID=` of os-release.
    VersionId 'w' "version id of the operating system",
}

/// What is known about where a unit runs, for its specifiers.
///
/// What was not told is unknown, and a specifier that needs it is an error. A field that
/// os-release leaves out is an empty text to systemd, so tell an empty text.
///
/// ```
/// use fleet_unitfile::{Fact, Facts, UnitName};
///
/// let name = UnitName::parse(r"mount@srv-my\x2ddata.service")?;
/// let facts = Facts::system_manager().with(Fact::HostName, "web1.example.com");
/// assert_eq!(facts.expand("%t/%p on %l: %f", &name)?, "/run/mount on web1: /srv/my-data");
/// assert!(facts.expand("%b", &name).is_err(), "nobody told the boot id");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<Fact, String>);

impl Facts {
    /// Nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is the same on every machine for units of the system's own manager: its directories,
    /// and that its user is root.
    pub fn system_manager() -> Self {
        let known = [
            (Fact::CacheDirectory, "/var/cache"),
            (Fact::ConfigurationDirectory, "/etc"),
            (Fact::GroupId, "0"),
            (Fact::GroupName, "root"),
            (Fact::HomeDirectory, "/root"),
            (Fact::LogDirectory, "/var/log"),
            (Fact::RuntimeDirectory, "/run"),
            (Fact::StateDirectory, "/var/lib"),
            (Fact::TemporaryDirectory, "/tmp"),
            (Fact::UserId, "0"),
            (Fact::UserName, "root"),
            (Fact::VarTemporaryDirectory, "/var/tmp"),
        ];
        known.into_iter().fold(Self::new(), |facts, (fact, value)| facts.with(fact, value))
    }

    /// These facts and another one, in place of what was known about it.
    #[must_use]
    pub fn with(mut self, fact: Fact, value: impl Into<String>) -> Self {
        self.0.insert(fact, value.into());
        self
    }

    /// What was told about a fact.
    pub fn get(&self, fact: Fact) -> Option<&str> {
        self.0.get(&fact).map(String::as_str)
    }

    /// Replaces every specifier of a text, each as systemd does.
    ///
    /// Beside the letters of [`Fact`] these stand for parts of the name:
    ///
    /// | specifier | stands for |
    /// |---|---|
    /// | `%n`, `%N` | the whole name; without its type |
    /// | `%p`, `%P` | the prefix; unescaped |
    /// | `%i`, `%I` | the instance, empty where there is none; unescaped |
    /// | `%j`, `%J` | what follows the last `-` of the prefix; unescaped |
    /// | `%f` | the instance, or else the prefix, as an absolute path |
    /// | `%%` | a percent sign |
    ///
    /// A percent sign stays one at the end, and before what is no ASCII letter or digit. The old
    /// `%c`, `%r` and `%R`, which stand for control groups and which systemd 252 warns of, are
    /// none here.
    ///
    /// This differs from [`expand_specifiers`](crate::expand_specifiers), which follows fleet,
    /// in that `%N` and `%p` stay escaped.
    ///
    /// # Errors
    ///
    /// A letter or digit that is no specifier, one that stands for an unknown fact, or a name
    /// that cannot be unescaped.
    pub fn expand(&self, text: &str, name: &UnitName) -> Result<String, SpecifierError> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            expanded.push_str(before);
            let at = text.len() - after.len() - 1;
            let mut characters = after.chars();
            match characters.next() {
                Some(letter) if letter.is_ascii_alphanumeric() => {
                    expanded.push_str(&self.meaning(letter, at, name)?);
                }
                Some('%') => expanded.push('%'),
                other => {
                    expanded.push('%');
                    expanded.extend(other);
                }
            }
            rest = characters.as_str();
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    fn meaning(
        &self,
        letter: char,
        at: usize,
        name: &UnitName,
    ) -> Result<Cow<'_, str>, SpecifierError> {
        let unescaped = |source| SpecifierError::Unescape { at, letter, source };
        let instance = name.instance().unwrap_or_default();
        let final_part = name.prefix().rsplit('-').next().unwrap_or_default();
        let text = match letter {
            'n' => name.as_str().to_owned(),
            'N' => name.stem().to_owned(),
            'p' => name.prefix().to_owned(),
            'P' => unescape(name.prefix()).map_err(unescaped)?,
            'i' => instance.to_owned(),
            'I' => unescape(instance).map_err(unescaped)?,
            'j' => final_part.to_owned(),
            'J' => unescape(final_part).map_err(unescaped)?,
            'f' => file_name(name).map_err(unescaped)?,
            _ => return self.told(letter, at, name),
        };
        Ok(Cow::Owned(text))
    }

    fn told(
        &self,
        letter: char,
        at: usize,
        name: &UnitName,
    ) -> Result<Cow<'_, str>, SpecifierError> {
        let fact = match letter {
            'Y' => Some(Fact::Fragment),
            _ => Fact::ALL.iter().copied().find(|it| it.letter() == letter),
        };
        let fact = fact.ok_or(SpecifierError::NoSpecifier { at, letter })?;
        let known = match letter {
            'Y' => self.get(fact).map(|path| Cow::Borrowed(directory(path))),
            _ => self.get(fact).map(Cow::Borrowed),
        };
        let known = known.or_else(|| self.derived(fact, name));
        known.ok_or(SpecifierError::UnknownFact { at, letter, fact })
    }

    /// What follows from other facts.
    fn derived(&self, fact: Fact, name: &UnitName) -> Option<Cow<'_, str>> {
        match fact {
            Fact::CredentialsDirectory => {
                let runtime = self.get(Fact::RuntimeDirectory)?;
                Some(Cow::Owned(format!("{runtime}/credentials/{name}")))
            }
            Fact::ShortHostName => {
                let whole = self.get(Fact::HostName)?;
                whole.split('.').next().map(Cow::Borrowed)
            }
            Fact::PrettyHostName => match self.get(Fact::ShortHostName) {
                Some(short) => Some(Cow::Borrowed(short)),
                None => self.derived(Fact::ShortHostName, name),
            },
            _ => None,
        }
    }
}

/// The path that a name stands for: its instance, or what stands before its type.
fn file_name(name: &UnitName) -> Result<String, crate::escape::EscapeError> {
    match name.instance() {
        Some(instance) if !instance.is_empty() => unescape_path(instance),
        _ => unescape_path(name.prefix()),
    }
}

fn directory(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => ".",
    }
}

impl UnitName {
    /// The name of the unit of the given type that belongs to a path, such as `srv-data.mount`.
    ///
    /// # Errors
    ///
    /// The path has a component `..`, or is too long for a name.
    pub fn for_path(path: &str, unit_type: crate::UnitType) -> Result<Self, PathNameError> {
        let stem = escape_path(path)?;
        Ok(Self::parse(&format!("{stem}.{unit_type}"))?)
    }
}

/// Why a path has no unit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathNameError {
    /// The path cannot be escaped.
    #[error(transparent)]
    Escape(#[from] crate::escape::EscapeError),
    /// The escaped path is no name.
    #[error(transparent)]
    Name(#[from] crate::name::NameError),
}
