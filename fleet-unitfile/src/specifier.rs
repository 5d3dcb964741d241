//! Specifiers: their values, and their expansion.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use crate::escape::{EscapeError, escape_path, unescape, unescape_path};
use crate::name::UnitName;

/// Expands specifiers in an option of fleet, by the rules of fleet v1. All of them stand for parts
/// of the unit's name.
///
/// These rules are wrong for options of systemd: use
/// [`SpecifierContext::expand`](crate::SpecifierContext::expand) for those, and
/// [`CommandLine`](crate::CommandLine) for commands.
///
/// | specifier | stands for |
/// |---|---|
/// | `%n` | the whole name |
/// | `%N` | the name without its type, unescaped |
/// | `%p` | the prefix, unescaped |
/// | `%i` | the instance, verbatim; empty if the name has none |
/// | `%%` | a percent sign |
///
/// # Errors
///
/// Returns an error if a percent sign is not followed by one of these letters or another percent
/// sign. Also returns an error if the part of the name for `%N` or `%p` cannot be unescaped.
///
/// ```
/// use fleet_unitfile::specifier::expand_fleet_specifiers;
/// use fleet_unitfile::UnitName;
///
/// let name = UnitName::parse("web@3.service")?;
/// assert_eq!(expand_fleet_specifiers("%p-%i at 100%%", &name)?, "web-3 at 100%");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn expand_fleet_specifiers(text: &str, name: &UnitName) -> Result<String, SpecifierError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        expanded.push_str(before);
        let at = text.len() - after.len() - 1;
        let mut characters = after.chars();
        let letter = characters.next().ok_or(SpecifierError::Unfinished { at })?;
        let unescaped =
            |part| unescape(part).map_err(|source| SpecifierError::Unescape { at, letter, source });
        match letter {
            '%' => expanded.push('%'),
            'n' => expanded.push_str(name.as_str()),
            'N' => expanded.push_str(&unescaped(name.stem())?),
            'p' => expanded.push_str(&unescaped(name.prefix())?),
            'i' => expanded.push_str(name.instance().unwrap_or_default()),
            _ => return Err(SpecifierError::Unknown { at, letter }),
        }
        rest = characters.as_str();
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Error for specifiers that cannot be expanded. Its offsets are byte offsets in the value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecifierError {
    /// A letter that is not a specifier.
    #[error("unknown specifier \"%{letter}\": use %n, %N, %p or %i, and %% for a percent sign")]
    Unknown {
        /// The offset of the percent sign.
        at: usize,
        /// The character after the percent sign.
        letter: char,
    },
    /// A specifier without a value in the context.
    #[error(
        "specifier \"%{letter}\" cannot be expanded, because the {specifier} is not known: write \
         the value itself"
    )]
    UnknownValue {
        /// The offset of the percent sign.
        at: usize,
        /// The letter of the specifier.
        letter: char,
        /// The specifier.
        specifier: Specifier,
    },
    /// A letter for which systemd has no specifier.
    #[error("unknown specifier \"%{letter}\": write %% for a percent sign")]
    NotASpecifier {
        /// The offset of the percent sign.
        at: usize,
        /// The character after the percent sign.
        letter: char,
    },
    /// A percent sign with nothing after it.
    #[error("incomplete specifier \"%\" at the end: write %% for a percent sign")]
    Unfinished {
        /// The offset of the percent sign.
        at: usize,
    },
    /// The specifier stands for an unescaped part of the name, but this part contains an invalid
    /// escape.
    #[error(
        "specifier \"%{letter}\" cannot be expanded, because the unit name has an invalid escape"
    )]
    Unescape {
        /// The offset of the percent sign.
        at: usize,
        /// The letter of the specifier.
        letter: char,
        /// The invalid escape in the name.
        source: EscapeError,
    },
}

macro_rules! specifiers {
    ($($(#[$doc:meta])* $name:ident $letter:literal $words:literal,)*) => {
        /// A specifier that stands for a value of the environment, not for a part of the unit's
        /// name.
        ///
        /// `Display` writes a description, such as "boot id".
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Specifier {
            $($(#[$doc])* $name,)*
        }

        impl Specifier {
            /// All specifiers, in the order of their variants.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the letter of the specifier.
            pub const fn letter(self) -> char {
                match self {
                    $(Self::$name => $letter,)*
                }
            }
        }

        impl fmt::Display for Specifier {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$name => $words,)*
                })
            }
        }
    };
}

specifiers! {
    /// `%a`: the architecture, such as `x86-64`.
    Architecture 'a' "architecture",
    /// `%b`: the ID of the current boot.
    BootId 'b' "boot id",
    /// `%B`: `BUILD_ID=` of os-release.
    BuildId 'B' "build id of the operating system",
    /// `%C`: the directory for caches.
    CacheDirectory 'C' "cache directory",
    /// `%E`: the directory for configuration.
    ConfigurationDirectory 'E' "configuration directory",
    /// `%d`: the directory of the unit's credentials. If it is not set, expansion derives the
    /// directory from the runtime directory.
    CredentialsDirectory 'd' "credentials directory",
    /// `%y`: the path of the unit file. Setting it also sets `%Y`, the directory that contains the
    /// file.
    Fragment 'y' "path of the unit file",
    /// `%G`: the numeric group of the service manager's user.
    GroupId 'G' "group id",
    /// `%g`: the group name of the service manager's user.
    GroupName 'g' "group name",
    /// `%h`: the home directory of the service manager's user.
    HomeDirectory 'h' "home directory",
    /// `%H`: the host name.
    HostName 'H' "host name",
    /// `%M`: `IMAGE_ID=` of os-release.
    ImageId 'M' "image id of the operating system",
    /// `%A`: `IMAGE_VERSION=` of os-release.
    ImageVersion 'A' "image version of the operating system",
    /// `%v`: the kernel release.
    KernelRelease 'v' "kernel release",
    /// `%L`: the directory for logs.
    LogDirectory 'L' "log directory",
    /// `%m`: the machine ID.
    MachineId 'm' "machine id",
    /// `%o`: `ID=` of os-release.
    OsId 'o' "id of the operating system",
    /// `%q`: the pretty host name. If it is not set, expansion uses the short host name.
    PrettyHostName 'q' "pretty host name",
    /// `%t`: the directory for run-time files, such as sockets.
    RuntimeDirectory 't' "runtime directory",
    /// `%D`: the directory for shared data. systemd knows this specifier since version 256.
    SharedDataDirectory 'D' "shared data directory",
    /// `%s`: the shell of the service manager's user.
    Shell 's' "shell",
    /// `%l`: the host name up to its first dot. If it is not set, expansion derives it from the
    /// host name.
    ShortHostName 'l' "short host name",
    /// `%S`: the directory for state.
    StateDirectory 'S' "state directory",
    /// `%T`: the directory for temporary files.
    TemporaryDirectory 'T' "directory for temporary files",
    /// `%U`: the numeric ID of the service manager's user.
    UserId 'U' "user id",
    /// `%u`: the name of the service manager's user.
    UserName 'u' "user name",
    /// `%W`: `VARIANT_ID=` of os-release.
    VariantId 'W' "variant id of the operating system",
    /// `%V`: the directory for larger and longer-lived temporary files.
    VarTemporaryDirectory 'V' "directory for large temporary files",
    /// `%w`: `VERSION_ID=` of os-release.
    VersionId 'w' "version id of the operating system",
}

/// Values of the specifiers that depend on the environment in which a unit runs.
///
/// Expanding a specifier is an error if its value is neither set nor derived from another value.
/// systemd instead expands a specifier to an empty string if os-release lacks its field. To get the
/// same result, set an empty string as the value.
///
/// ```
/// use fleet_unitfile::specifier::Specifier;
/// use fleet_unitfile::{SpecifierContext, UnitName};
///
/// let name = UnitName::parse(r"mount@srv-my\x2ddata.service")?;
/// let context = SpecifierContext::system_manager().with(Specifier::HostName, "web1.example.com");
/// assert_eq!(context.expand("%t/%p on %l: %f", &name)?, "/run/mount on web1: /srv/my-data");
/// assert!(context.expand("%b", &name).is_err(), "the boot ID is not set");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecifierContext(BTreeMap<Specifier, String>);

impl SpecifierContext {
    /// Creates a context in which no value is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a context with the values that are the same for all system managers: their
    /// directories, and the user root.
    pub fn system_manager() -> Self {
        let known = [
            (Specifier::CacheDirectory, "/var/cache"),
            (Specifier::ConfigurationDirectory, "/etc"),
            (Specifier::GroupId, "0"),
            (Specifier::GroupName, "root"),
            (Specifier::HomeDirectory, "/root"),
            (Specifier::LogDirectory, "/var/log"),
            (Specifier::RuntimeDirectory, "/run"),
            (Specifier::SharedDataDirectory, "/usr/share"),
            (Specifier::StateDirectory, "/var/lib"),
            (Specifier::TemporaryDirectory, "/tmp"),
            (Specifier::UserId, "0"),
            (Specifier::UserName, "root"),
            (Specifier::VarTemporaryDirectory, "/var/tmp"),
        ];
        known
            .into_iter()
            .fold(Self::new(), |context, (specifier, value)| context.with(specifier, value))
    }

    /// Sets the value of a specifier, replacing an earlier one.
    #[must_use]
    pub fn with(mut self, specifier: Specifier, value: impl Into<String>) -> Self {
        self.0.insert(specifier, value.into());
        self
    }

    /// Returns the value that was set for a specifier.
    pub fn get(&self, specifier: Specifier) -> Option<&str> {
        self.0.get(&specifier).map(String::as_str)
    }

    /// Expands every specifier of a string in the same way as systemd.
    ///
    /// In addition to the letters of [`Specifier`], the following specifiers stand for parts of the
    /// name:
    ///
    /// | specifier | stands for |
    /// |---|---|
    /// | `%n` | the whole name |
    /// | `%N` | the name without its type |
    /// | `%p`, `%P` | the prefix: as written, unescaped |
    /// | `%i`, `%I` | the instance, or an empty string: as written, unescaped |
    /// | `%j`, `%J` | the text after the last `-` of the prefix: as written, unescaped |
    /// | `%f` | the instance, or else the prefix, as an absolute path |
    /// | `%%` | a percent sign |
    ///
    /// A percent sign is literal at the end of the text and before any character other than an
    /// ASCII letter or digit. The old control group specifiers `%c`, `%r` and `%R` are not
    /// supported; systemd 252 warns about them.
    ///
    /// The function [`expand_fleet_specifiers`] follows fleet v1
    /// and unescapes `%N` and `%p`. This method leaves both escaped.
    ///
    /// # Errors
    ///
    /// Returns an error if a percent sign is followed by a letter or digit that is not a specifier.
    /// Also returns an error if a specifier has no value, or if the name cannot be unescaped.
    pub fn expand(&self, text: &str, name: &UnitName) -> Result<String, SpecifierError> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            expanded.push_str(before);
            let at = text.len() - after.len() - 1;
            let mut characters = after.chars();
            match characters.next() {
                Some(letter) if letter.is_ascii_alphanumeric() => {
                    expanded.push_str(&self.resolve(letter, at, name)?);
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

    fn resolve(
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
            _ => return self.resolve_from_context(letter, at, name),
        };
        Ok(Cow::Owned(text))
    }

    fn resolve_from_context(
        &self,
        letter: char,
        at: usize,
        name: &UnitName,
    ) -> Result<Cow<'_, str>, SpecifierError> {
        let specifier = match letter {
            'Y' => Some(Specifier::Fragment),
            _ => Specifier::ALL.iter().copied().find(|it| it.letter() == letter),
        };
        let specifier = specifier.ok_or(SpecifierError::NotASpecifier { at, letter })?;
        let known = match letter {
            'Y' => self.get(specifier).map(|path| Cow::Borrowed(directory(path))),
            _ => self.get(specifier).map(Cow::Borrowed),
        };
        let known = known.or_else(|| self.derived(specifier, name));
        known.ok_or(SpecifierError::UnknownValue { at, letter, specifier })
    }

    /// Derives a value that is not set from other values.
    fn derived(&self, specifier: Specifier, name: &UnitName) -> Option<Cow<'_, str>> {
        match specifier {
            Specifier::CredentialsDirectory => {
                let runtime = self.get(Specifier::RuntimeDirectory)?;
                Some(Cow::Owned(format!("{runtime}/credentials/{name}")))
            }
            Specifier::ShortHostName => {
                let whole = self.get(Specifier::HostName)?;
                whole.split('.').next().map(Cow::Borrowed)
            }
            Specifier::PrettyHostName => match self.get(Specifier::ShortHostName) {
                Some(short) => Some(Cow::Borrowed(short)),
                None => self.derived(Specifier::ShortHostName, name),
            },
            _ => None,
        }
    }
}

/// Unescapes the instance of a name to an absolute path. If the name has no instance, unescapes its
/// prefix.
fn file_name(name: &UnitName) -> Result<String, EscapeError> {
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
    /// Returns the name of the unit of the given type that belongs to a path: `srv-data.mount` for
    /// `/srv/data`.
    ///
    /// # Errors
    ///
    /// Returns an error if the path has a `..` component or is too long for a unit name.
    pub fn for_path(path: &str, unit_type: crate::UnitType) -> Result<Self, PathNameError> {
        let stem = escape_path(path)?;
        Ok(Self::parse(&format!("{stem}.{unit_type}"))?)
    }
}

/// Error for a path that has no unit name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathNameError {
    /// The path cannot be escaped.
    #[error(transparent)]
    Escape(#[from] EscapeError),
    /// The escaped path is not a valid unit name.
    #[error(transparent)]
    Name(#[from] crate::name::NameError),
}
