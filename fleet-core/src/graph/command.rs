//! Commands that a unit executes.

use fleet_unitfile::expand_variables;

/// One command line. No shell interprets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Command {
    /// Path of the program. Variables in the path are not expanded. In units from systemd, the
    /// program may be a name without a path, for which the supervisor searches the usual
    /// directories.
    pub program: String,
    /// Value of `argv[0]` if it differs from the path of the program (prefix `@`). Variables in it
    /// are expanded.
    pub name: Option<String>,
    /// Arguments of the program. At execution `$NAME` as a whole word, `${NAME}` and `$$` are
    /// expanded as in systemd.
    pub arguments: Vec<String>,
    /// Whether a failure counts as success (`-`).
    pub ignore_failure: bool,
    /// Whether `$` is an ordinary character in the arguments (`:`).
    pub verbatim: bool,
    /// Whether the command keeps the privileges of the supervisor (`+`, `!`, `!!`).
    pub privileged: bool,
}

impl Command {
    /// Creates a command from a program and its arguments.
    #[must_use]
    pub fn new(program: impl Into<String>, arguments: impl IntoIterator<Item = String>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Returns the argument vector with variables expanded as systemd expands them. `$NAME` as a
    /// whole word is replaced by the words of the variable's value, or by nothing if the variable
    /// is unset. `${NAME}` is replaced by the value, and `$$` by a dollar sign.
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
