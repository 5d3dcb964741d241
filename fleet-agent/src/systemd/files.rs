//! The directory of unit files and records.
//!
//! | file | content |
//! |---|---|
//! | `NAME` | the unit file, byte for byte; systemd has a link to it |
//! | `NAME.json` | the last request: hash, epoch, generation, target state; any pending request |
//! | `boot` | the ID of the boot to which all other files belong |
//! | `lock` | empty; locked by the process that uses the directory |
//!
//! Each file is replaced atomically by renaming. No file is synced to the disk. If the daemon ends,
//! the kernel still has everything that was written. After a reboot the directory is meaningless.

use std::io;
use std::path::{Path, PathBuf};

use fleet_core::Epoch;
use fleet_unitfile::{UnitFile, UnitName};

use super::SystemdConfig;
use super::record::Record;
use crate::files::{write_atomic, write_atomic_with_mode};

pub(crate) const TO_DISK: bool = false;

/// Mode of unit files. systemd logs a warning for each unit file that not all users can read. The
/// mode of the directory keeps other users out.
pub(crate) const TEXT_MODE: u32 = 0o644;

/// The directory of one manager.
#[derive(Debug)]
pub(crate) struct UnitFiles {
    directory: PathBuf,
}

impl UnitFiles {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns the path of the unit file.
    pub(crate) fn text(&self, unit: &UnitName) -> PathBuf {
        self.directory.join(unit.as_str())
    }

    fn record(&self, unit: &UnitName) -> PathBuf {
        self.directory.join(format!("{unit}.json"))
    }

    pub(crate) fn write_text(&self, unit: &UnitName, source: &[u8]) -> io::Result<()> {
        write_atomic_with_mode(&self.text(unit), source, TO_DISK, TEXT_MODE)
    }

    pub(crate) fn write_record(&self, unit: &UnitName, record: &Record) -> io::Result<()> {
        write_atomic(&self.record(unit), &record.to_json()?, TO_DISK)
    }

    /// Removes the unit file, and then the record. The unit exists until both are gone.
    pub(crate) fn remove(&self, unit: &UnitName) -> io::Result<()> {
        ignore_missing(std::fs::remove_file(self.text(unit)))?;
        self.remove_record(unit)
    }

    /// Removes the record. The unit then counts as not requested.
    pub(crate) fn remove_record(&self, unit: &UnitName) -> io::Result<()> {
        ignore_missing(std::fs::remove_file(self.record(unit)))
    }

    /// Reads all units that have a file or a record.
    ///
    /// If one of the two is missing or unreadable, or if the record belongs to another file, the
    /// unit counts as not requested. So the agent makes its request again: a wanted unit is loaded
    /// again and keeps running, and any other unit is unloaded.
    pub(crate) fn read(&self) -> io::Result<Vec<(UnitName, Record)>> {
        let mut units = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let unit = name.strip_suffix(".json").unwrap_or(name);
            let Ok(unit) = UnitName::parse(unit) else { continue };
            let of_both = name.ends_with(".json") && self.text(&unit).exists();
            if let Some(record) = (!of_both).then(|| self.read_unit(&unit)).flatten() {
                units.push((unit, record));
            }
        }
        Ok(units)
    }

    /// Returns the units that are installed, but have neither a file nor a record: this directory
    /// was removed, and the units may still run. They count as not requested, like units with one
    /// missing file.
    pub(crate) fn read_lost(&self, config: &SystemdConfig) -> io::Result<Vec<(UnitName, Record)>> {
        let is_own_link = |unit: &UnitName, path: &Path| {
            std::fs::read_link(path).is_ok_and(|to| to == self.text(unit))
        };
        let mut units = self.read_installed(&config.links, is_own_link)?;
        units.extend(self.read_installed(&config.quadlets, |_, _| true)?);
        Ok(units)
    }

    /// Returns the units that have an own file in a directory of systemd or podman, but neither a
    /// file nor a record here.
    fn read_installed(
        &self,
        directory: &Path,
        is_own: impl Fn(&UnitName, &Path) -> bool,
    ) -> io::Result<Vec<(UnitName, Record)>> {
        let entries = match std::fs::read_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut units = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let Some(Ok(unit)) = name.to_str().map(UnitName::parse) else { continue };
            let is_own = is_own(&unit, &entry.path());
            let is_lost = !self.text(&unit).exists() && !self.record(&unit).exists();
            if let Some(record) = (is_own && is_lost).then(|| self.read_unit(&unit)).flatten() {
                units.push((unit, record));
            }
        }
        Ok(units)
    }

    fn read_unit(&self, unit: &UnitName) -> Option<Record> {
        let record = std::fs::read(self.record(unit)).ok();
        let record = record.and_then(|bytes| Record::from_json(&bytes));
        let source = std::fs::read(self.text(unit)).unwrap_or_default();
        let hash = UnitFile::parse_collecting(&source).0.hash();
        match record {
            Some(record) if record.known.hash == hash => Some(record),
            Some(record) => Some(Record::new(hash, record.known.epoch)),
            None => Some(Record::new(hash, Epoch(0))),
        }
    }

    /// Returns whether the directory belongs to this boot.
    pub(crate) fn is_of_boot(&self, boot: &str) -> io::Result<bool> {
        match std::fs::read_to_string(self.directory.join("boot")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            memory => Ok(memory? == boot),
        }
    }

    /// Removes all units of an earlier boot. None of them runs, and systemd has no links to their
    /// files any more.
    pub(crate) fn forget_old_boot(&self, boot: &str) -> io::Result<()> {
        let file = self.directory.join("boot");
        let memory = std::fs::read_to_string(&file).unwrap_or_default();
        if memory == boot {
            return Ok(());
        }
        if !memory.is_empty() {
            for (unit, _) in self.read()? {
                self.remove(&unit)?;
            }
        }
        write_atomic(&file, boot.as_bytes(), TO_DISK)
    }
}

/// Turns the error for a missing file into success.
pub(crate) fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_core::TargetState;

    const TEXT: &[u8] = b"[Service]\nExecStart=/bin/true\n";

    fn asked(files: &UnitFiles, unit: &UnitName) -> Option<TargetState> {
        let units = files.read().expect("it can be read");
        let found = units.into_iter().find(|(name, _)| name == unit);
        found.map(|(_, record)| record.known.requested)
    }

    #[test]
    fn incomplete_unit_counts_as_not_requested() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let files = UnitFiles::new(temporary.path().to_owned());
        let unit: UnitName = "a.service".parse().expect("it is a name");
        assert_eq!(asked(&files, &unit), None);

        let hash = UnitFile::parse(TEXT).expect("it parses").hash();
        let mut record = Record::new(hash, Epoch(3));
        record.known.requested = TargetState::Launched;
        files.write_text(&unit, TEXT).expect("it can be written");
        assert_eq!(asked(&files, &unit), Some(TargetState::Inactive), "without a record");
        files.write_record(&unit, &record).expect("it can be written");
        assert_eq!(files.read().expect("it can be read"), [(unit.clone(), record)]);
        files.write_text(&unit, b"[Service]\n").expect("it can be written");
        assert_eq!(asked(&files, &unit), Some(TargetState::Inactive), "with another file");
        std::fs::remove_file(files.text(&unit)).expect("it can be removed");
        assert_eq!(asked(&files, &unit), Some(TargetState::Inactive), "without a file");
        files.remove(&unit).expect("it can be removed");
        assert_eq!(asked(&files, &unit), None);
    }

    #[test]
    fn only_own_installed_units_are_recovered() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let files = UnitFiles::new(temporary.path().join("units"));
        let links = temporary.path().join("links");
        let quadlets = temporary.path().join("quadlets");
        let config = SystemdConfig {
            links: links.clone(),
            quadlets: quadlets.clone(),
            ..SystemdConfig::system()
        };
        assert_eq!(files.read_lost(&config).expect("they are missing"), []);
        for folder in [&files.directory, &links, &quadlets] {
            std::fs::create_dir(folder).expect("it can be made");
        }
        let name = |unit: &str| UnitName::parse(unit).expect("it is a name");
        let link = |unit: &str, to: &Path| {
            std::os::unix::fs::symlink(to, links.join(unit)).expect("it can be made");
        };
        let (lost, kept, foreign) = (name("lost.service"), name("kept.service"), name("x.service"));
        link("lost.service", &files.text(&lost));
        link("kept.service", &files.text(&kept));
        link("other.service", &files.text(&lost));
        link("x.service", &temporary.path().join("elsewhere").join(foreign.as_str()));
        files.write_text(&kept, TEXT).expect("it can be written");
        for container in ["a.container", "kept.container", "a.container.new"] {
            std::fs::write(quadlets.join(container), TEXT).expect("it can be written");
        }
        files.write_text(&name("kept.container"), TEXT).expect("it can be written");
        let found = files.read_lost(&config).expect("they can be read");
        let requested: Vec<_> =
            found.iter().map(|(unit, record)| (unit, record.known.requested)).collect();
        let container = name("a.container");
        assert_eq!(
            requested,
            [(&lost, TargetState::Inactive), (&container, TargetState::Inactive)]
        );
    }

    #[test]
    fn new_boot_forgets_all_units() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let files = UnitFiles::new(temporary.path().to_owned());
        let unit: UnitName = "a.service".parse().expect("it is a name");
        files.forget_old_boot("one").expect("it can be written");
        files.write_text(&unit, TEXT).expect("it can be written");
        files.forget_old_boot("one").expect("it can be written");
        assert!(asked(&files, &unit).is_some());
        files.forget_old_boot("two").expect("it can be written");
        assert_eq!(asked(&files, &unit), None);
    }
}
