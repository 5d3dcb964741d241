//! What is executed.

use fleet_unitfile::expand_variables;

/// One command line. No shell reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// The program: a path, or (for units of systemd alone) a name that is searched for. Variables
    /// are not expanded in it.
    pub program: String,
    /// What the program is told its name is, where that is not its path (`@`). Variables are
    /// expanded in it.
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

    /// What the program is told, its name first, with the values of variables, as systemd puts them
    /// in: `$NAME` as a whole word becomes the words of the value, none where it is not set;
    /// `${NAME}` becomes the value, and `$$` a dollar sign.
    ///
    /// ```
    /// use fleet_core::graph::Command;
    ///
    /// let command = Command::new("/bin/run", ["$FLAGS", "${NAME}.log"].map(str::to_owned));
    /// let value = |name: &str| if name == "FLAGS" { Some("-v -n") } else { Some("web") };
    /// assert_eq!(command.argv(value), ["/bin/run", "-v", "-n", "web.log"]);
    /// let command = Command { name: Some("${NAME}".to_owned()), ..command };
    /// assert_eq!(command.argv(value), ["web", "-v", "-n", "web.log"]);
    /// ```
    pub fn argv<V: AsRef<str>>(&self, variable: impl Fn(&str) -> Option<V>) -> Vec<String> {
        let name = self.name.as_ref().unwrap_or(&self.program);
        let words = [name].into_iter().chain(&self.arguments);
        if self.verbatim {
            return words.cloned().collect();
        }
        words.flat_map(|word| expand_variables(word, &variable)).collect()
    }
}
