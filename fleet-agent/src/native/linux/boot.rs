//! The boot in which a directory was last used.
//!
//! The restart of a container counts as a reboot too: all processes of the container are gone,
//! although the kernel has not restarted. A container is identified by its pid namespace and by the
//! start time of its first process. The namespace number alone is not enough, since the kernel
//! reuses the number of a removed namespace.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::proc::child;
use crate::clock::boot_id;

/// A boot of a machine, or of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The kernel's boot ID.
    id: String,
    /// Inode of the pid namespace, if it can be read.
    namespace: Option<u64>,
    /// Start time of the first process in it, if it can be read.
    first: Option<u64>,
}

impl Boot {
    /// Returns the current boot.
    pub(crate) fn current() -> io::Result<Self> {
        let namespace = std::fs::metadata("/proc/self/ns/pid").ok().map(|it| it.ino());
        let first = child(1).ok().flatten().map(|process| process.start);
        Ok(Self { id: boot_id()?, namespace, first })
    }

    /// Reads the stored boot; `None` if there is none.
    pub(crate) fn read(file: &Path) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(file) {
            Ok(text) => Ok(Some(Self::parse(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns whether the two boots differ. If they do, no process of one boot can exist in the
    /// other. A value that only one of the two boots has is not compared.
    pub(crate) fn differs_from(&self, other: &Self) -> bool {
        let differ = |one: Option<u64>, other: Option<u64>| {
            one.zip(other).is_some_and(|(one, other)| one != other)
        };
        self.id != other.id
            || differ(self.namespace, other.namespace)
            || differ(self.first, other.first)
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let mut boot = Self { id: lines.next().unwrap_or_default().to_owned(), ..Self::default() };
        for (key, value) in lines.filter_map(|line| line.split_once(' ')) {
            match key {
                "namespace" => boot.namespace = value.parse().ok(),
                "first" => boot.first = value.parse().ok(),
                _ => {}
            }
        }
        boot
    }

    /// Formats the boot for storage.
    pub(crate) fn text(&self) -> String {
        let line =
            |key, value: Option<u64>| value.map(|it| format!("\n{key} {it}")).unwrap_or_default();
        self.id.clone() + &line("namespace", self.namespace) + &line("first", self.first)
    }
}

/// Returns a text that identifies the current boot of the machine or container, for
/// [`is_current_boot`].
///
/// # Errors
///
/// The boot ID of the kernel cannot be read.
pub fn current_boot() -> io::Result<String> {
    Ok(Boot::current()?.text())
}

/// Returns whether a process that ran in the boot of this text may still run.
///
/// # Errors
///
/// As for [`current_boot`].
pub fn is_current_boot(text: &str) -> io::Result<bool> {
    Ok(!Boot::parse(text).differs_from(&Boot::current()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarted_container_is_another_boot() {
        let written = "a\nnamespace 5\nfirst 7";
        let rows = [
            ("a\nnamespace 5\nfirst 7", false),
            ("b\nnamespace 5\nfirst 7", true),
            ("a\nnamespace 6\nfirst 7", true),
            // The number of the namespace was reused.
            ("a\nnamespace 5\nfirst 8", true),
            // Only the boot ID is known.
            ("a", false),
            ("b", true),
            // The first process or the namespace is hidden.
            ("a\nnamespace 5", false),
            ("a\nfirst 8", true),
        ];
        let written = Boot::parse(written);
        assert_eq!(Boot::parse(&written.text()), written);
        for (other, expected) in rows {
            let other = Boot::parse(other);
            assert_eq!(written.differs_from(&other), expected, "{other:?}");
            assert_eq!(other.differs_from(&written), expected, "{other:?}");
        }
    }

    #[test]
    fn current_boot_has_all_values() {
        let present = Boot::current().expect("it can be read");
        assert!(present.namespace.is_some() && present.first.is_some(), "{present:?}");
        let is_current = |boot: &Boot| is_current_boot(&boot.text()).expect("it can be read");
        assert!(is_current(&present));
        let first = present.first.map(|first| first + 1);
        assert!(!is_current(&Boot { first, ..present }), "the container has restarted");
    }
}
