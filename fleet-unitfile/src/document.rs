//! A unit file as a document: edits and the normal form, which lose nothing that was written.

use crate::edit;
use crate::file::UnitFile;
use crate::format::formatted;
use crate::grammar::byte_order_mark_len;
use crate::option::{OptionView, UnitOption};
use crate::write::{OptionError, check, check_section};

/// Edits. Each gives another unit file, whose source differs in what was edited alone.
impl UnitFile {
    /// This unit file with an option set, and every other byte of the source as it was.
    ///
    /// The option takes the place of the last one of its section and name. Where there is none,
    /// it is put after the last option of its section, below the header of its section, or into
    /// a section at the end.
    ///
    /// # Errors
    ///
    /// The option would not read back as the same.
    pub fn with(&self, option: UnitOption) -> Result<Self, OptionError> {
        check(&option)?;
        Ok(self.edited(&edit::with(self.source(), self.options(), &option)))
    }

    /// This unit file without any option of this name in this section, and every other byte of
    /// the source as it was. Comments between the lines of such an option go with it.
    #[must_use]
    pub fn without(&self, section: &str, name: &str) -> Self {
        self.edited(&edit::without(self.source(), self.values(section, name)))
    }

    /// This unit file with one more option, after the last one of its section; where the section
    /// has none, below its header, or in a section at the end.
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
    /// The option would not read back as the same.
    pub fn with_added(&self, option: UnitOption) -> Result<Self, OptionError> {
        check(&option)?;
        Ok(self.edited(&edit::with_added(self.source(), self.options(), &option)))
    }

    /// This unit file with another value for the option at this index of
    /// [`options`](Self::options).
    ///
    /// # Errors
    ///
    /// The option would not read back as the same.
    ///
    /// # Panics
    ///
    /// There is no option at the index.
    pub fn with_value_at(&self, index: usize, value: &str) -> Result<Self, OptionError> {
        let old = self.option_at(index);
        let new = UnitOption::new(old.section(), old.name(), value);
        check(&new)?;
        Ok(self.edited(&edit::replaced(self.source(), old, &new)))
    }

    /// This unit file with another name for the option at this index of
    /// [`options`](Self::options).
    ///
    /// # Errors
    ///
    /// The option would not read back as the same.
    ///
    /// # Panics
    ///
    /// There is no option at the index.
    pub fn with_name_at(&self, index: usize, name: &str) -> Result<Self, OptionError> {
        let old = self.option_at(index);
        let new = UnitOption::new(old.section(), name, old.verbatim());
        check(&new)?;
        Ok(self.edited(&edit::renamed(self.source(), old, &new)))
    }

    /// This unit file with an option in the line below the one at this index of
    /// [`options`](Self::options), in the same section.
    ///
    /// # Errors
    ///
    /// The option would not read back as the same.
    ///
    /// # Panics
    ///
    /// There is no option at the index.
    pub fn with_after(&self, index: usize, name: &str, value: &str) -> Result<Self, OptionError> {
        let after = self.option_at(index);
        let new = UnitOption::new(after.section(), name, value);
        check(&new)?;
        Ok(self.edited(&edit::inserted(self.source(), after, &new)))
    }

    /// This unit file without the option at this index of [`options`](Self::options), and
    /// without the comments between the lines of that option.
    ///
    /// # Panics
    ///
    /// There is no option at the index.
    #[must_use]
    pub fn without_at(&self, index: usize) -> Self {
        let option = self.option_at(index);
        self.edited(&edit::without(self.source(), std::iter::once(option)))
    }

    /// This unit file with a header of this section, at the end where there is none yet.
    ///
    /// # Errors
    ///
    /// No header can have the name.
    pub fn with_section(&self, section: &str) -> Result<Self, OptionError> {
        check_section(section)?;
        if self.has_section(section) {
            return Ok(self.clone());
        }
        Ok(self.edited(&edit::with_section(self.source(), section)))
    }

    /// This unit file with another name in each header of a section. Where there is a section of
    /// the new name already, the two become one.
    ///
    /// # Errors
    ///
    /// No header can have the name.
    pub fn with_section_renamed(&self, old: &str, new: &str) -> Result<Self, OptionError> {
        check_section(new)?;
        Ok(self.edited(&edit::section_renamed(self.source(), old, new)))
    }

    /// This unit file without a section: without each header of it, and all that stands between
    /// the header and the last option below it. Comments after that option stay; they are
    /// mostly about what comes next.
    #[must_use]
    pub fn without_section(&self, section: &str) -> Self {
        self.edited(&edit::without_section(self.source(), section))
    }

    /// This unit file in the normal form: `[Section]` and `Name=value` without blanks around
    /// them, an empty line above each header that has no comment above it, at most one empty
    /// line elsewhere, and line feeds as line ends.
    ///
    /// Options mean the same and have the same [`hash`](Self::hash); comments stay where they
    /// are, and so does what cannot be read. The lines of a long value keep their indentation.
    ///
    /// ```
    /// let unit = fleet_unitfile::UnitFile::parse("[A]\r\n\r\n K = v\r\n# c\r\n\r\n\r\n[B]\r\n")?;
    /// assert_eq!(unit.formatted().source_str(), Some("[A]\nK=v\n# c\n\n[B]\n"));
    /// # Ok::<(), fleet_unitfile::ParseError>(())
    /// ```
    #[must_use]
    pub fn formatted(&self) -> Self {
        self.edited(&formatted(self.source()))
    }

    fn option_at(&self, index: usize) -> OptionView<'_> {
        let options = self.options();
        let len = options.len();
        options.get(index).unwrap_or_else(|| panic!("no option at {index} of {len}"))
    }

    /// Reads what an edit made of the source.
    fn edited(&self, source: &[u8]) -> Self {
        let has_mark = |source| byte_order_mark_len(source) > 0;
        if has_mark(source) && !has_mark(self.source()) {
            // What was in the middle of the source must not become a byte order mark.
            return Self::parse_collecting([b"\n", source].concat()).0;
        }
        Self::parse_collecting(source).0
    }
}
