//! Things on the machine that stanzas refer to.

use super::Code;

/// A program, an account or a path that a stanza needs on the machine on which its unit runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostResource {
    /// Path of a program.
    Program(String),
    /// Name or number of a user.
    User(String),
    /// Name or number of a group.
    Group(String),
    /// Path of a working directory.
    Directory(String),
    /// Path of a file of variables.
    EnvironmentFile(String),
}

impl HostResource {
    /// Returns the name, number or path.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Program(name)
            | Self::User(name)
            | Self::Group(name)
            | Self::Directory(name)
            | Self::EnvironmentFile(name) => name,
        }
    }

    /// Returns the code, the message and the remedy if it is missing. `name` is its short name.
    pub(super) fn missing(&self, name: &str) -> (Code, String, &'static str) {
        match self {
            Self::Program(_) => (
                Code::NoProgram,
                format!("`{name}` is not an executable file here"),
                "install the program, or correct the path",
            ),
            Self::User(_) => (
                Code::NotHere,
                format!("there is no user `{name}` here"),
                "create the user before the unit starts, or correct the name",
            ),
            Self::Group(_) => (
                Code::NotHere,
                format!("there is no group `{name}` here"),
                "create the group before the unit starts, or correct the name",
            ),
            Self::Directory(_) => (
                Code::NotHere,
                format!("`{name}` is not a directory here"),
                "create it before the unit starts, or put - before the path to use / without it",
            ),
            Self::EnvironmentFile(_) => (
                Code::NotHere,
                format!("`{name}` is not a file here"),
                "create it before the unit starts, or put - before the path to ignore this",
            ),
        }
    }
}
