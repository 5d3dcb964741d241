//! Lossless edits of a unit file, and its normal form.

use crate::edit;
use crate::file::UnitFile;
use crate::format::formatted;
use crate::option::{OptionView, UnitOption};
use crate::write::{OptionError, check, check_section};

/// Methods for editing. Each of them returns a new unit file, and changes only the edited part of
/// the source.
impl UnitFile {
    /// Returns this unit file with an option set. Every other byte of the source is unchanged.
    ///
    /// The method replaces the last option with the same section and name. If no such option
    /// exists, it adds the option:
    ///
    /// - after the last option of the section;
    /// - below the header, if the section has no options;
    /// - in a new section at the end, if the section does not exist.
    ///
    /// # Errors
    ///
    /// Returns an error if parsing the result would not yield the same option, for example because
    /// the value contains a line end.
    pub fn with(&self, option: UnitOption) -> Result<Self, OptionError> {
        check(&option)?;
        Ok(self.edited(&edit::with(self.marked(), self.options(), &option)))
    }

    /// Returns this unit file without the options that have this section and name. Every other byte
    /// of the source is unchanged.
    ///
    /// If an option continues over several lines, the comments between its lines are removed too.
    pub fn without(&self, section: &str, name: &str) -> Self {
        self.edited(&edit::without(self.marked(), self.values(section, name)))
    }

    /// Returns this unit file with one more option. The method adds it:
    ///
    /// - after the last option of the section;
    /// - below the header, if the section has no options;
    /// - in a new section at the end, if the section does not exist.
    ///
    /// ```
    /// use fleet_unitfile::{UnitFile, UnitOption};
    ///
    /// let unit = UnitFile::parse("[Unit]\nAfter=a.service\n\n# What runs.\n[Service]\n")?;
    /// let unit = unit.with_added(UnitOption::new("Unit", "After", "b.service"))?;
    /// let text = "[Unit]\nAfter=a.service\nAfter=b.service\n\n# What runs.\n[Service]\n";
    /// assert_eq!(unit.source_str(), Some(text));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if parsing the result would not yield the same option, for example because
    /// the value contains a line end.
    pub fn with_added(&self, option: UnitOption) -> Result<Self, OptionError> {
        check(&option)?;
        Ok(self.edited(&edit::with_added(self.marked(), self.options(), &option)))
    }

    /// Returns this unit file with another value for the option at an index of
    /// [`options`](Self::options).
    ///
    /// # Errors
    ///
    /// Returns an error if parsing the result would not yield this value, for example because the
    /// value contains a line end.
    ///
    /// # Panics
    ///
    /// Panics if there is no option at the index.
    pub fn with_value_at(&self, index: usize, value: &str) -> Result<Self, OptionError> {
        let old = self.option_at(index);
        let new = UnitOption::new(old.section(), old.name(), value);
        check(&new)?;
        Ok(self.edited(&edit::replaced(self.marked(), old, &new)))
    }

    /// Returns this unit file with other values for many options, in time linear in its size.
    ///
    /// `value` gets each option, and returns its new value, or `None` to keep the old one.
    ///
    /// ```
    /// use fleet_unitfile::UnitFile;
    ///
    /// let unit = UnitFile::parse("[Service]\nUser=%i\nGroup=web\n")?;
    /// let unit = unit.with_values(|option| {
    ///     option.value().contains("%i").then(|| option.value().replace("%i", "a"))
    /// })?;
    /// assert_eq!(unit.to_string(), "[Service]\nUser=a\nGroup=web\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error for the first option that would not read back with its new value, for
    /// example because the value contains a line end.
    pub fn with_values(
        &self,
        mut value: impl FnMut(OptionView<'_>) -> Option<String>,
    ) -> Result<Self, OptionError> {
        let mut changes = Vec::new();
        for old in self.options() {
            if let Some(value) = value(old) {
                let new = UnitOption::new(old.section(), old.name(), value);
                check(&new)?;
                changes.push((old, new));
            }
        }
        Ok(self.edited(&edit::all_replaced(self.marked(), changes.into_iter())))
    }

    /// Returns this unit file without the options for which `keep` returns `false`, in time linear
    /// in its size.
    pub fn retain(&self, mut keep: impl FnMut(OptionView<'_>) -> bool) -> Self {
        self.edited(&edit::without(self.marked(), self.options().filter(|it| !keep(*it))))
    }

    /// Returns this unit file with another name for the option at an index of
    /// [`options`](Self::options).
    ///
    /// # Errors
    ///
    /// Returns an error if parsing the result would not yield this name, for example because the
    /// name contains a `=`.
    ///
    /// # Panics
    ///
    /// Panics if there is no option at the index.
    pub fn with_name_at(&self, index: usize, name: &str) -> Result<Self, OptionError> {
        let old = self.option_at(index);
        let new = UnitOption::new(old.section(), name, old.verbatim());
        check(&new)?;
        Ok(self.edited(&edit::renamed(self.marked(), old, &new)))
    }

    /// Returns this unit file with a new option on the line below an existing option, and in the
    /// same section. `index` is the index of the existing option in [`options`](Self::options).
    ///
    /// # Errors
    ///
    /// Returns an error if parsing the result would not yield the same option, for example because
    /// the value contains a line end.
    ///
    /// # Panics
    ///
    /// Panics if there is no option at the index.
    pub fn with_after(&self, index: usize, name: &str, value: &str) -> Result<Self, OptionError> {
        let after = self.option_at(index);
        let new = UnitOption::new(after.section(), name, value);
        check(&new)?;
        Ok(self.edited(&edit::inserted(self.marked(), after, &new)))
    }

    /// Returns this unit file without the option at an index of [`options`](Self::options), and
    /// without the comments between the lines of that option.
    ///
    /// # Panics
    ///
    /// Panics if there is no option at the index.
    pub fn without_at(&self, index: usize) -> Self {
        let option = self.option_at(index);
        self.edited(&edit::without(self.marked(), std::iter::once(option)))
    }

    /// Returns this unit file with a header of this section. If no header exists yet, an empty
    /// section is added at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if a header cannot have this name.
    pub fn with_section(&self, section: &str) -> Result<Self, OptionError> {
        check_section(section)?;
        if self.has_section(section) {
            return Ok(self.clone());
        }
        Ok(self.edited(&edit::with_section(self.marked(), section)))
    }

    /// Returns this unit file with a section renamed in each of its headers. If a section with the
    /// new name exists, the file then has one section with the options of both.
    ///
    /// # Errors
    ///
    /// Returns an error if a header cannot have the new name.
    pub fn with_section_renamed(&self, old: &str, new: &str) -> Result<Self, OptionError> {
        check_section(new)?;
        Ok(self.edited(&edit::section_renamed(self.marked(), old, new)))
    }

    /// Returns this unit file without a section.
    ///
    /// The method removes each header of the section and the text below it, up to the last option
    /// before the next header. Comments after that option stay, because they are mostly about the
    /// text that follows.
    pub fn without_section(&self, section: &str) -> Self {
        self.edited(&edit::without_section(self.marked(), section))
    }

    /// Returns this unit file in normal form:
    ///
    /// - Headers, names and values have no blanks around them.
    /// - All line ends are line feeds.
    /// - One empty line precedes each header, unless the header is the first line or below a
    ///   comment.
    /// - No empty line separates a header from the option or comment below it.
    /// - Elsewhere, several empty lines in a row become one. At the start and the end, they are
    ///   removed.
    ///
    /// The options keep their meaning, and the [`hash`](Self::hash) is unchanged. Comments and
    /// invalid lines stay in place. The lines of a continued value keep their indentation.
    ///
    /// ```
    /// let unit = fleet_unitfile::UnitFile::parse("[A]\r\n\r\n K = v\r\n# c\r\n\r\n\r\n[B]\r\n")?;
    /// assert_eq!(unit.formatted().source_str(), Some("[A]\nK=v\n# c\n\n[B]\n"));
    /// # Ok::<(), fleet_unitfile::ParseError>(())
    /// ```
    pub fn formatted(&self) -> Self {
        self.edited(&formatted(self.marked()))
    }

    fn option_at(&self, index: usize) -> OptionView<'_> {
        let options = self.options();
        let len = options.len();
        options.get(index).unwrap_or_else(|| panic!("no option at {index} of {len}"))
    }

    /// Parses the edited source.
    fn edited(&self, source: &[u8]) -> Self {
        Self::parse_collecting(source).0
    }
}
