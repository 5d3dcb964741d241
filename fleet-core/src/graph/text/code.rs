//! The codes of all that can be found wrong: what each means and how much it weighs.

use std::fmt;

use fleet_unitfile::Severity;

/// Declares every code once: its name, its text and its meaning.
macro_rules! codes {
    ($($name:ident $text:literal $meaning:literal)*) => {
        /// What was found. The text of a code stays the same in later versions; one that begins
        /// with `E` is an error, and one that begins with `W` a warning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $meaning] $name,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The text that stands for it, such as `E07`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// What it stands for, in a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

codes! {
    NoColon "E01" "A line has no colon."
    UnknownKey "E02" "A key is unknown, or none at all."
    OutsideStanza "E03" "A field stands before the first `unit:`."
    RepeatedKey "E04" "A key that may be given once is given again."
    Empty "E05" "A value, or an item of a list, is empty."
    BadName "E06" "A unit, target or variable has a name that it cannot have."
    UnknownType "E07" "A type is unknown."
    BadDuration "E08" "A duration cannot be read, or is out of range."
    BadQuoting "E09" "A quote is not closed, or a backslash begins no escape."
    BadProgram "E10" "A program is not an absolute path."
    UnknownVariable "E11" "A dollar sign is followed by no variable that the stanza knows."
    RepeatedUnit "E12" "Two units have the same name."
    RepeatedProvider "E13" "Two units provide the same target."
    ProvidedTwice "E14" "A unit provides a target twice."
    DependsOnItself "E15" "A unit depends on a target that it provides itself."
    NotProvided "E16" "A unit depends on a target that no unit provides."
    DependencyCycle "E17" "Units depend on each other in a circle."
    WrongType "E18" "A key is not for units of this type."
    MissingKey "E19" "A key is missing that units of this type need."
    TwoReadinesses "E20" "Both `ready-wait` and `ready-grep` are given."
    BadPattern "E21" "A regular expression cannot be read, or takes too much room."
    BadStatus "E22" "An exit status or a signal is none."
    VirtualCommand "E23" "A virtual unit is to execute something."
    RestartAlways "E24" "A oneshot is to be started again after it has succeeded."
    StrayFold "E25" "A line goes on with a value that cannot be continued."
    BadCharacter "E26" "A line has a control character, or is not UTF-8."
    TooLarge "E27" "A file is larger than 1 MiB, or there are too many units."
    BadGoal "E28" "The goal is provided by no unit, or masked."
    BadValue "E29" "A value is none of those that its key takes."
    OldUnitKey "W01" "`name:` is written for `unit:`."
    SeveralKinds "W02" "A unit depends on a target twice; the strongest kind counts."
    Unneeded "W03" "A unit is needed neither by the goal nor by any other unit."
    HardGoal "W04" "The goal's own unit has `depends-on`, so a failure takes everything down."
    NoProgram "W05" "What is to be executed is no executable file here."
    NoStopTimeout "W06" "A unit may take for ever to stop."
    Extension "W07" "A key that begins with `x-` is passed over."
}

impl Code {
    /// How much it weighs: a file, or a system, with an error is refused.
    #[must_use]
    pub fn severity(self) -> Severity {
        if self.as_str().starts_with('E') { Severity::Error } else { Severity::Warning }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
