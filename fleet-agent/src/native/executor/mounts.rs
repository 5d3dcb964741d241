//! Changes what the process sees of the file system, in a mount namespace of its own.
//!
//! Most changes attach a copy of a directory at its own path, with other attributes: a read-only
//! `/usr`, or a writable directory inside of it. The copies are made before anything changes, so
//! that each has the attributes that its mounts had outside. Only below a path that shows
//! something else, such as an empty file system, a copy is made after that was attached.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree,
};

use super::plan::{EXIT_NAMESPACE, ExecFailure, Mount, MountKind};
use super::syscalls::change_mount;

/// Applies the mounts. This process must be alone in its mount namespace.
pub(super) fn apply(mounts: &[Mount]) -> Result<(), ExecFailure> {
    let failed =
        |step: String| move |error: io::Error| ExecFailure::new(EXIT_NAMESPACE, step, &error);
    // Mounts of the machine still become visible here, but not the other way round.
    let separate = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", separate)
        .map_err(|error| failed("separate its mounts".to_owned())(error.into()))?;
    let table = MountTable::new(mounts);
    let mut prepared = Vec::new();
    for entry in table.entries() {
        let source = table.prepare(entry);
        prepared.push((entry, source.map_err(failed(entry.step()))?));
    }
    for (entry, source) in prepared {
        table.attach(entry, source).map_err(failed(entry.step()))?;
    }
    for entry in table.entries() {
        entry.seal().map_err(failed(entry.step()))?;
    }
    Ok(())
}

/// All mounts of a process by path, parents before children.
#[derive(Debug, PartialEq, Eq)]
struct MountTable(BTreeMap<PathBuf, Entry>);

/// All changes at one path.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    path: PathBuf,
    kind: MountKind,
    optional: bool,
    /// Whether the path and everything below it is read-only, as far as this entry decides that.
    read_only: Option<bool>,
    no_exec: Option<bool>,
}

/// What is attached at the path of an entry.
enum Source {
    Nothing,
    Tree(OwnedFd),
    /// A copy of the path itself, made when the mounts above it are attached.
    Itself,
    /// A `/dev`, with the devices to be attached in it.
    Devices(OwnedFd, Vec<(&'static str, OwnedFd)>),
}

impl MountTable {
    fn new(mounts: &[Mount]) -> Self {
        let mut table: BTreeMap<PathBuf, Entry> = BTreeMap::new();
        for mount in mounts {
            let path = resolve(Path::new(&mount.path));
            let entry = Entry::new(path.clone(), mount);
            match table.get_mut(&path) {
                Some(known) => known.merge(entry),
                None => drop(table.insert(path, entry)),
            }
        }
        let hidden = |path: &Path, table: &BTreeMap<PathBuf, Entry>| {
            let above = path.ancestors().skip(1).filter_map(|above| table.get(above));
            above.into_iter().any(|it| matches!(it.kind, MountKind::Inaccessible { .. }))
        };
        let paths: Vec<PathBuf> = table.keys().cloned().collect();
        for path in paths.iter().filter(|path| hidden(path, &table)).collect::<Vec<_>>() {
            table.remove(path);
        }
        Self(table)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    /// Returns the attributes of an entry. What it does not decide, the next entry above decides.
    fn attributes(&self, entry: &Entry) -> (MountAttrFlags, MountAttrFlags) {
        let above = || entry.path.ancestors().filter_map(|path| self.0.get(path));
        let read_only = above().find_map(|it| it.read_only);
        let no_exec = above().find_map(|it| it.no_exec);
        let (mut set, mut clear) = (MountAttrFlags::empty(), MountAttrFlags::empty());
        for (decided, flag) in [
            (read_only, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (no_exec, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        ] {
            match decided {
                Some(true) => set |= flag,
                Some(false) => clear |= flag,
                None => {}
            }
        }
        (set, clear)
    }

    /// Returns whether an entry above shows something else than the machine has there.
    fn is_below_other_contents(&self, entry: &Entry) -> bool {
        let mut above = entry.path.ancestors().skip(1).filter_map(|path| self.0.get(path));
        above.any(Entry::shows_other_contents)
    }

    fn prepare(&self, entry: &Entry) -> io::Result<Source> {
        let prepared = match &entry.kind {
            _ if entry.path == Path::new("/") => Ok(Source::Nothing),
            MountKind::Bind { source, recursive, .. } => {
                copy(Path::new(source), *recursive).map(Source::Tree)
            }
            MountKind::Inaccessible { empty_file } => match fs::metadata(&entry.path) {
                Ok(found) if found.is_dir() => tmpfs("mode=000").map(Source::Tree),
                Ok(_) => copy(Path::new(empty_file), false).map(Source::Tree),
                Err(error) => Err(error),
            },
            MountKind::Tmpfs { options, .. } => tmpfs(options).map(Source::Tree),
            MountKind::FileSystem { name, options } => file_system(name, options).map(Source::Tree),
            MountKind::Devices => devices(),
            _ if self.is_below_other_contents(entry) => return Ok(Source::Itself),
            _ => copy(&entry.path, true).map(Source::Tree),
        };
        let source = match prepared {
            Err(error) if error.kind() == io::ErrorKind::NotFound && entry.optional => {
                return Ok(Source::Nothing);
            }
            prepared => prepared?,
        };
        if let Source::Tree(tree) = &source {
            // A copy already has the attributes that its mounts have on the machine.
            let mut set = self.attributes(entry).0;
            if matches!(entry.kind, MountKind::Bind { no_suid: true, .. }) {
                set |= MountAttrFlags::MOUNT_ATTR_NOSUID;
            }
            // A new file system is writable until all mounts in it exist.
            if matches!(entry.kind, MountKind::Tmpfs { .. } | MountKind::FileSystem { .. }) {
                set.remove(MountAttrFlags::MOUNT_ATTR_RDONLY);
            }
            change_mount(tree, set, MountAttrFlags::empty(), true)?;
            let is_new = matches!(entry.kind, MountKind::Bind { .. } | MountKind::Tmpfs { .. });
            if is_new && !self.is_below_other_contents(entry) {
                let is_tmpfs = matches!(entry.kind, MountKind::Tmpfs { .. });
                if is_tmpfs && entry.optional && !entry.path.exists() {
                    return Ok(Source::Nothing);
                }
                // Later the path may be on a read-only file system.
                create_mount_point(&entry.path, tree)?;
            }
        }
        Ok(source)
    }

    fn attach(&self, entry: &Entry, source: Source) -> io::Result<()> {
        match source {
            Source::Nothing if entry.path == Path::new("/") => {
                let root = open_tree(CWD, "/", OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
                change_mount(root, self.attributes(entry).0, MountAttrFlags::empty(), true)
            }
            Source::Nothing => Ok(()),
            Source::Tree(tree) => {
                if matches!(entry.kind, MountKind::Bind { .. } | MountKind::Tmpfs { .. }) {
                    create_mount_point(&entry.path, &tree)?;
                }
                match attach(&tree, &entry.path) {
                    // What is attached above it does not contain the path.
                    Err(error) if error.kind() == io::ErrorKind::NotFound && entry.optional => {
                        Ok(())
                    }
                    attached => attached,
                }
            }
            Source::Itself => {
                let tree = match copy(&entry.path, true) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && entry.optional => {
                        return Ok(());
                    }
                    copied => copied?,
                };
                let (set, clear) = self.attributes(entry);
                change_mount(&tree, set, clear, true)?;
                attach(&tree, &entry.path)
            }
            Source::Devices(tree, devices) => {
                attach(&tree, &entry.path)?;
                fill_devices(&entry.path, devices)
            }
        }
    }
}

impl Entry {
    fn new(path: PathBuf, mount: &Mount) -> Self {
        let (read_only, no_exec) = match &mount.kind {
            MountKind::ReadOnly => (Some(true), None),
            MountKind::ReadWrite | MountKind::ReadWriteByDefault => (Some(false), None),
            MountKind::NoExec => (None, Some(true)),
            MountKind::Exec => (None, Some(false)),
            MountKind::Bind { read_only, .. } => (Some(*read_only), None),
            MountKind::Tmpfs { .. } | MountKind::FileSystem { .. } => (Some(false), None),
            MountKind::Devices => (Some(false), Some(true)),
            MountKind::Inaccessible { .. } => (Some(true), Some(true)),
        };
        Self { path, kind: mount.kind.clone(), optional: mount.optional, read_only, no_exec }
    }

    /// Adds another change at the same path. The kind that comes first counts, and its attributes.
    fn merge(&mut self, other: Self) {
        let (first, second) = if other.kind < self.kind {
            (other, std::mem::replace(self, Self { optional: false, ..self.blank() }))
        } else {
            (std::mem::replace(self, self.blank()), other)
        };
        *self = Self {
            read_only: stronger(first.read_only, second.read_only),
            no_exec: stronger(first.no_exec, second.no_exec),
            optional: first.optional && second.optional,
            ..first
        };
    }

    fn blank(&self) -> Self {
        Self {
            path: self.path.clone(),
            kind: MountKind::ReadWriteByDefault,
            optional: self.optional,
            read_only: None,
            no_exec: None,
        }
    }

    fn shows_other_contents(&self) -> bool {
        matches!(
            self.kind,
            MountKind::Bind { .. }
                | MountKind::Devices
                | MountKind::FileSystem { .. }
                | MountKind::Tmpfs { .. }
        )
    }

    /// Makes file systems read-only that had to be writable until all mounts in them existed.
    fn seal(&self) -> io::Result<()> {
        let set = match self.kind {
            MountKind::Tmpfs { read_only: true, .. } => MountAttrFlags::MOUNT_ATTR_RDONLY,
            MountKind::Devices => {
                MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC
            }
            _ => return Ok(()),
        };
        if self.optional && !self.path.exists() {
            return Ok(());
        }
        let mount = open_tree(CWD, &self.path, OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
        change_mount(mount, set, MountAttrFlags::empty(), false)
    }

    /// Returns the step for a failure.
    fn step(&self) -> String {
        let path = self.path.display();
        match &self.kind {
            MountKind::Inaccessible { .. } => format!("make {path} inaccessible"),
            MountKind::Bind { source, .. } => format!("bind {source} to {path}"),
            MountKind::Devices => format!("set up its own {path}"),
            MountKind::FileSystem { .. } => format!("mount {path}"),
            MountKind::ReadOnly => format!("make {path} read-only"),
            MountKind::ReadWrite | MountKind::ReadWriteByDefault => {
                format!("keep {path} writable")
            }
            MountKind::NoExec => format!("forbid programs in {path}"),
            MountKind::Exec => format!("permit programs in {path}"),
            MountKind::Tmpfs { .. } => format!("mount an empty file system on {path}"),
        }
    }
}

/// Combines two decisions about an attribute.
fn stronger(one: Option<bool>, other: Option<bool>) -> Option<bool> {
    if one == Some(true) { one } else { other.or(one) }
}

/// Follows all symbolic links in the existing part of a path.
fn resolve(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match existing.map(|(above, real)| (path.strip_prefix(above), real)) {
        Some((Ok(rest), real)) if rest.as_os_str().is_empty() => real,
        Some((Ok(rest), real)) => real.join(rest),
        _ => path.to_owned(),
    }
}

/// Copies the mount of a path, beginning at the path.
fn copy(path: &Path, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    if recursive {
        flags |= OpenTreeFlags::AT_RECURSIVE;
    }
    Ok(open_tree(CWD, path, flags)?)
}

fn attach(tree: impl AsFd, path: &Path) -> io::Result<()> {
    Ok(move_mount(tree, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Creates an empty file system with mount options, separated by commas.
fn tmpfs(options: &str) -> io::Result<OwnedFd> {
    let file_system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_STRICTATIME;
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match (option, option.split_once('=')) {
            ("ro" | "rw" | "nosuid" | "nodev", _) => {}
            ("suid", _) => attributes.remove(MountAttrFlags::MOUNT_ATTR_NOSUID),
            ("dev", _) => attributes.remove(MountAttrFlags::MOUNT_ATTR_NODEV),
            ("noexec", _) => attributes |= MountAttrFlags::MOUNT_ATTR_NOEXEC,
            (_, Some((name, value))) => fsconfig_set_string(&file_system, name, value)?,
            (name, None) => fsconfig_set_flag(&file_system, name)?,
        }
    }
    fsconfig_create(&file_system)?;
    Ok(fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn file_system(name: &str, options: &[(String, String)]) -> io::Result<OwnedFd> {
    let file_system = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        fsconfig_set_string(&file_system, name.as_str(), value.as_str())?;
    }
    fsconfig_create(&file_system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    Ok(fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Creates the mount point for a tree: a directory or an empty file.
fn create_mount_point(path: &Path, tree: &OwnedFd) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let is_directory =
        rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(tree)?.st_mode).is_dir();
    let directory = if is_directory { Some(path) } else { path.parent() };
    if let Some(directory) = directory {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    }
    if !is_directory {
        // A symbolic link that leads nowhere is not followed.
        File::create_new(path)?;
    }
    Ok(())
}

/// Devices and directories of the machine that a private `/dev` contains.
const DEVICES: [&str; 10] =
    ["null", "zero", "full", "random", "urandom", "tty", "pts", "shm", "mqueue", "hugepages"];

/// Symbolic links of a private `/dev`.
const LINKS: [(&str, &str); 6] = [
    ("ptmx", "pts/ptmx"),
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("log", "/run/systemd/journal/dev-log"),
];

fn devices() -> io::Result<Source> {
    let mut found = Vec::new();
    for name in DEVICES {
        match copy(&Path::new("/dev").join(name), true) {
            Ok(tree) => found.push((name, tree)),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Source::Devices(tmpfs("mode=755,dev")?, found))
}

fn fill_devices(directory: &Path, devices: Vec<(&'static str, OwnedFd)>) -> io::Result<()> {
    for (name, tree) in devices {
        let path = directory.join(name);
        create_mount_point(&path, &tree)?;
        attach(&tree, &path)?;
    }
    for (name, target) in LINKS {
        symlink(target, directory.join(name))?;
    }
    fs::DirBuilder::new().recursive(true).create(directory.join("hugepages"))?;
    link_by_number(directory)
}

/// Creates a link to each character device, named by its numbers.
fn link_by_number(directory: &Path) -> io::Result<()> {
    let links = directory.join("char");
    fs::create_dir(&links)?;
    for name in DEVICES {
        let found = match fs::metadata(directory.join(name)) {
            Ok(found) if found.file_type().is_char_device() => found.rdev(),
            _ => continue,
        };
        let number = format!("{}:{}", rustix::fs::major(found), rustix::fs::minor(found));
        symlink(Path::new("..").join(name), links.join(number))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: &str, kind: MountKind) -> Mount {
        Mount { path: path.to_owned(), kind, optional: false }
    }

    fn tmpfs() -> MountKind {
        MountKind::Tmpfs { options: String::new(), read_only: false }
    }

    /// Formats the entries in their order, with their attributes.
    fn entries(mounts: &[Mount]) -> Vec<String> {
        let table = MountTable::new(mounts);
        let format = |entry: &Entry| {
            let (set, clear) = table.attributes(entry);
            let flags = [
                (set, MountAttrFlags::MOUNT_ATTR_RDONLY, " ro"),
                (clear, MountAttrFlags::MOUNT_ATTR_RDONLY, " rw"),
                (set, MountAttrFlags::MOUNT_ATTR_NOEXEC, " noexec"),
                (clear, MountAttrFlags::MOUNT_ATTR_NOEXEC, " exec"),
            ];
            let flags = flags.iter().filter(|(all, flag, _)| all.contains(*flag));
            let flags: String = flags.map(|(.., word)| *word).collect();
            let later = if table.is_below_other_contents(entry) { " later" } else { "" };
            format!("{}{flags}{later}", entry.path.display())
        };
        table.entries().map(format).collect()
    }

    #[test]
    fn nearest_entry_decides_the_attributes() {
        use MountKind::{Exec, NoExec, ReadOnly, ReadWrite, ReadWriteByDefault};
        assert_eq!(
            entries(&[
                mount("/none/a/b", ReadWrite),
                mount("/", ReadOnly),
                mount("/none/a/b/c", NoExec),
                mount("/none", NoExec),
                mount("/none/a", Exec),
            ]),
            [
                "/ ro",
                "/none ro noexec",
                "/none/a ro exec",
                "/none/a/b rw exec",
                "/none/a/b/c rw noexec"
            ]
        );
        assert_eq!(
            entries(&[mount("/none", ReadWriteByDefault), mount("/none", ReadOnly)]),
            ["/none ro"]
        );
        assert_eq!(
            entries(&[mount("/none", ReadWrite), mount("/none", NoExec)]),
            ["/none rw noexec"]
        );
    }

    #[test]
    fn paths_below_other_contents_are_copied_later() {
        assert_eq!(
            entries(&[
                mount("/none/a", MountKind::ReadOnly),
                mount("/none", tmpfs()),
                mount("/gone/a", MountKind::ReadWrite),
                mount("/gone", MountKind::Inaccessible { empty_file: "/empty".to_owned() }),
            ]),
            ["/gone ro noexec", "/none rw", "/none/a ro later"]
        );
    }
}
