//! The boot that a directory was last used in.
//!
//! A container that is started again is as good as a machine that was booted: what ran in it is
//! gone, though the kernel is the one of before. It is known by its namespace of process ids, and
//! by when its first process started: the kernel gives the number of a namespace that is gone to
//! another one.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::proc::{boot_id, child};

/// A boot of a machine, or of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Boot {
    /// What the kernel calls it.
    id: String,
    /// The namespace of process ids, where that can be seen.
    namespace: Option<u64>,
    /// When its first process started, where that can be seen.
    first: Option<u64>,
}

impl Boot {
    /// The one that this process is in.
    pub(crate) fn current() -> io::Result<Self> {
        let namespace = std::fs::metadata("/proc/self/ns/pid").ok().map(|it| it.ino());
        let first = child(1).ok().flatten().map(|process| process.start);
        Ok(Self { id: boot_id()?, namespace, first })
    }

    /// The one that was written down; nothing if none was.
    pub(crate) fn read(file: &Path) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(file) {
            Ok(text) => Ok(Some(Self::parse(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether nothing that ran in one can run in the other. What is known of one of them alone, as
    /// where an earlier version wrote it, tells nothing.
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

    /// As it is written down.
    pub(crate) fn text(&self) -> String {
        let line =
            |key, value: Option<u64>| value.map(|it| format!("\n{key} {it}")).unwrap_or_default();
        self.id.clone() + &line("namespace", self.namespace) + &line("first", self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_is_started_again_is_another_boot() {
        let written = "a\nnamespace 5\nfirst 7";
        let rows = [
            ("a\nnamespace 5\nfirst 7", false),
            ("b\nnamespace 5\nfirst 7", true),
            ("a\nnamespace 6\nfirst 7", true),
            // The number of the namespace has been given to the next one.
            ("a\nnamespace 5\nfirst 8", true),
            // What an earlier version wrote.
            ("a", false),
            ("b", true),
            // Where the first process is hidden.
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
    fn all_of_the_present_boot_is_known_here() {
        let present = Boot::current().expect("it can be read");
        assert!(present.namespace.is_some() && present.first.is_some(), "{present:?}");
    }
}
