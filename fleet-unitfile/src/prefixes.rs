//! Prefix characters of a command, such as `-` and `@`.

use std::fmt;

/// The privileges that a command runs with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privileges {
    /// The privileges of the unit, with `User=` and sandboxing applied.
    #[default]
    Unit,
    /// `+`: full privileges, regardless of the unit's restrictions.
    Full,
    /// `!`: sandboxing applies, but not the unit's user and groups.
    KeepUser,
    /// `!!`: like [`KeepUser`](Self::KeepUser), but only on kernels without ambient capabilities.
    KeepUserWithoutAmbient,
}

/// The prefixes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefixes {
    pub(crate) ignores_failure: bool,
    pub(crate) sets_argv0: bool,
    pub(crate) keeps_variables: bool,
    pub(crate) privileges: Privileges,
}

impl Prefixes {
    /// Parses the prefixes of a command's first word. Returns the prefixes and the remaining text.
    ///
    /// A prefix that occurs a second time belongs to the remaining text. The exception is `!!`,
    /// which is a prefix of its own.
    pub(crate) fn read(word: &str) -> (Self, &str) {
        let mut prefixes = Self::default();
        for (at, byte) in word.bytes().enumerate() {
            match (byte, prefixes.privileges) {
                (b'-', _) if !prefixes.ignores_failure => prefixes.ignores_failure = true,
                (b'@', _) if !prefixes.sets_argv0 => prefixes.sets_argv0 = true,
                (b':', _) if !prefixes.keeps_variables => prefixes.keeps_variables = true,
                (b'+', Privileges::Unit) => prefixes.privileges = Privileges::Full,
                (b'!', Privileges::Unit) => prefixes.privileges = Privileges::KeepUser,
                (b'!', Privileges::KeepUser) => {
                    prefixes.privileges = Privileges::KeepUserWithoutAmbient;
                }
                _ => return (prefixes, &word[at..]),
            }
        }
        (prefixes, "")
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marks =
            [(self.ignores_failure, "-"), (self.sets_argv0, "@"), (self.keeps_variables, ":")];
        let set = marks.into_iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, mark)| mark)
            .chain([match self.privileges {
                Privileges::Unit => "",
                Privileges::Full => "+",
                Privileges::KeepUser => "!",
                Privileges::KeepUserWithoutAmbient => "!!",
            }])
            .try_for_each(|mark| f.write_str(mark))
    }
}
