//! Conditions on files and directories.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fleet_core::graph::ConditionKind;
use fleet_core::graph::condition::{expand_braces, fnmatch};
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use super::machine::{Machine, read};
use crate::native::linux::files::parse_file;

/// Names of files that do not count as contents of a directory.
const HIDDEN_NAMES: [&str; 3] = ["lost+found", "aquota.user", "aquota.group"];

/// Ends of names of backups, and of files that package managers leave behind.
const BACKUP_ENDS: [&str; 18] = [
    "~",
    ".rpmnew",
    ".rpmsave",
    ".rpmorig",
    ".dpkg-old",
    ".dpkg-new",
    ".dpkg-tmp",
    ".dpkg-dist",
    ".dpkg-bak",
    ".dpkg-backup",
    ".dpkg-remove",
    ".ucf-new",
    ".ucf-old",
    ".ucf-dist",
    ".swp",
    ".bak",
    ".old",
    ".new",
];

/// Maximum number of block devices below each other.
const MAX_DEVICE_DEPTH: usize = 10;

impl Machine {
    /// Evaluates a condition on a path.
    pub(super) fn check_path(&self, kind: ConditionKind, path: &str) -> bool {
        let metadata = || fs::metadata(path).ok();
        match kind {
            ConditionKind::PathExists => metadata().is_some(),
            ConditionKind::PathExistsGlob => {
                expand_braces(path).iter().any(|pattern| exists_match(pattern))
            }
            ConditionKind::PathIsDirectory => metadata().is_some_and(|it| it.is_dir()),
            ConditionKind::PathIsSymbolicLink => {
                fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink())
            }
            ConditionKind::PathIsMountPoint => is_mount_point(path).unwrap_or(false),
            ConditionKind::PathIsReadWrite => {
                let read_only = is_read_only(path);
                read_only != Ok(true) && read_only != Err(Errno::NOENT)
            }
            ConditionKind::PathIsEncrypted => self.is_encrypted(path),
            ConditionKind::PathIsSocket => metadata().is_some_and(|it| it.file_type().is_socket()),
            ConditionKind::DirectoryNotEmpty => is_directory_with_files(path),
            ConditionKind::FileNotEmpty => {
                metadata().is_some_and(|it| it.is_file() && it.len() > 0)
            }
            ConditionKind::FileIsExecutable => {
                metadata().is_some_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
            }
            _ => self.needs_update(path),
        }
    }

    /// Returns whether `/usr` is newer than the last update of a directory.
    fn needs_update(&self, path: &str) -> bool {
        if let Some(forced) = self.command_line_flag("systemd.condition-needs-update") {
            return forced;
        }
        if self.exists("/etc/initrd-release") || is_read_only(path) == Ok(true) {
            return false;
        }
        let stamp = Path::new(path).join(".updated");
        let (Ok(updated), Ok(usr)) =
            (fs::symlink_metadata(&stamp), fs::symlink_metadata(self.path("/usr")))
        else {
            return true;
        };
        if usr.mtime() != updated.mtime() {
            return usr.mtime() > updated.mtime();
        }
        if usr.mtime_nsec() == 0 || updated.mtime_nsec() > 0 {
            return usr.mtime_nsec() > updated.mtime_nsec();
        }
        // The file system of the stamp stores no fractions of seconds, so the file contains them.
        let variables = parse_file(&read(&stamp).unwrap_or_default());
        let recorded = variables.iter().find(|(name, _)| name == "TIMESTAMP_NSEC");
        let recorded = recorded.and_then(|(_, value)| value.parse::<i128>().ok());
        let changed = i128::from(usr.mtime()) * 1_000_000_000 + i128::from(usr.mtime_nsec());
        recorded.is_none_or(|recorded| changed > recorded)
    }

    /// Returns whether dm-crypt encrypts the block device of a path. A path without a block device
    /// counts as not encrypted.
    fn is_encrypted(&self, path: &str) -> bool {
        let Some((major, minor)) = self.block_device(path) else { return false };
        let device = self.path(&format!("/sys/dev/block/{major}:{minor}"));
        is_encrypted_device(&device, MAX_DEVICE_DEPTH)
    }

    /// Returns the block device of a path's file system. Some file systems, such as btrfs, have a
    /// number of their own instead, and name the device in the list of mounts.
    fn block_device(&self, path: &str) -> Option<(u32, u32)> {
        let number = |device| (rustix::fs::major(device), rustix::fs::minor(device));
        let (major, minor) = number(fs::metadata(path).ok()?.dev());
        if major != 0 {
            return Some((major, minor));
        }
        let mount = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
        let id = mount.stx_mnt_id.to_string();
        let mounts = self.read("/proc/self/mountinfo")?;
        let line = mounts.lines().find(|line| line.split(' ').next() == Some(id.as_str()))?;
        let (_, source) = line.split_once(" - ")?;
        let device = fs::metadata(source.split(' ').nth(1)?).ok()?;
        device.file_type().is_block_device().then(|| number(device.rdev()))
    }
}

/// Returns whether a block device, or each device below it, is encrypted. `device` is its directory
/// in `/sys`.
pub(super) fn is_encrypted_device(device: &Path, depth: usize) -> bool {
    if depth == 0 {
        return false;
    }
    if read(&device.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("CRYPT-")) {
        return true;
    }
    let below = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let mut below = below.map(|entry| is_encrypted_device(&entry.path(), depth - 1)).peekable();
    below.peek().is_some() && below.all(|is_encrypted| is_encrypted)
}

/// Returns whether a file system is mounted at the path itself.
fn is_mount_point(path: &str) -> io::Result<bool> {
    let status = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::empty())?;
    if status.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Before Linux 5.8. This misses a directory that is mounted from its own file system.
    let (own, parent) = (fs::metadata(path)?, fs::metadata(Path::new(path).join(".."))?);
    Ok(own.dev() != parent.dev() || own.ino() == parent.ino())
}

/// Returns whether the file system of a path is read-only.
fn is_read_only(path: &str) -> Result<bool, Errno> {
    let flags = rustix::fs::statvfs(path)?.f_flag;
    if flags.contains(StatVfsMountFlags::RDONLY) {
        return Ok(true);
    }
    // A file system may be read-only without such a flag.
    Ok(rustix::fs::access(path, Access::WRITE_OK) == Err(Errno::ROFS))
}

/// Returns whether a path is a directory that contains other files than hidden ones and backups. A
/// directory that cannot be read counts as one.
fn is_directory_with_files(path: &str) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => {
            entries.any(|entry| entry.is_ok_and(|it| counts(&it.file_name().to_string_lossy())))
        }
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        }
    }
}

fn counts(name: &str) -> bool {
    let is_backup = BACKUP_ENDS.iter().any(|end| name.ends_with(end));
    !name.starts_with('.') && !HIDDEN_NAMES.contains(&name) && !is_backup
}

/// Returns whether a path exists that matches the pattern. A leading dot is matched by a dot alone.
fn exists_match(pattern: &str) -> bool {
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    exists_below(PathBuf::from("/"), &parts)
        && (!pattern.ends_with('/')
            || exists_below(PathBuf::from("/"), &[&parts[..], &["."]].concat()))
}

fn exists_below(directory: PathBuf, parts: &[&str]) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return fs::symlink_metadata(directory).is_ok();
    };
    if !part.contains(['*', '?', '[', '\\']) {
        return exists_below(directory.join(part), rest);
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry));
    names.any(|(name, entry)| {
        let is_visible = !name.starts_with('.') || part.starts_with('.') || part.starts_with("\\.");
        is_visible && fnmatch(part, &name) && exists_below(entry.path(), rest)
    })
}
