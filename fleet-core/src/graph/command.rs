//! What is executed.

/// One command line. No shell reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The program: a path, or (for units of systemd alone) a name that is searched for. Variables
    /// are not expanded in it.
    pub program: String,
    /// What the program is told its name is, where that is not its path (`@`).
    pub name: Option<String>,
    /// Its arguments, in which `$NAME` as a whole word, `${NAME}` and `$$` are expanded as systemd
    /// does it when the command is executed.
    pub arguments: Vec<String>,
    /// Its failure counts as success (`-`).
    pub ignore_failure: bool,
    /// `$` is an ordinary character in the arguments (`:`).
    pub verbatim: bool,
    /// It keeps the rights of whoever runs the units (`+`, `!`, `!!`).
    pub privileged: bool,
}

impl Command {
    /// A program with its arguments.
    #[must_use]
    pub fn new(program: impl Into<String>, arguments: impl IntoIterator<Item = String>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            ..Self::default()
        }
    }
}
