//! What may stand before the program of a command, and what it means.

use std::fmt;

/// With which rights a command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privileges {
    /// Those of the unit: `User=`, sandbox and all.
    #[default]
    Unit,
    /// `+`: all of them, whatever the unit restricts.
    Full,
    /// `!`: the unit's sandbox, but not its user and groups.
    KeepUser,
    /// `!!`: like [`KeepUser`](Self::KeepUser), on kernels without ambient capabilities alone.
    KeepUserWithoutAmbient,
}

/// The characters before the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefixes {
    pub(crate) ignores_failure: bool,
    pub(crate) names_itself: bool,
    pub(crate) keeps_variables: bool,
    pub(crate) privileges: Privileges,
}

impl Prefixes {
    /// The prefixes of the first word, and what follows them; each counts once.
    pub(crate) fn read(word: &str) -> (Self, &str) {
        let mut prefixes = Self::default();
        for (at, byte) in word.bytes().enumerate() {
            match (byte, prefixes.privileges) {
                (b'-', _) if !prefixes.ignores_failure => prefixes.ignores_failure = true,
                (b'@', _) if !prefixes.names_itself => prefixes.names_itself = true,
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
            [(self.ignores_failure, "-"), (self.names_itself, "@"), (self.keeps_variables, ":")];
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
