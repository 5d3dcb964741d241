//! Directories that a unit names: `StateDirectory=` and similar options.
//!
//! The directories of dynamic users are in a directory that only root can enter. For example,
//! `/var/lib/web` is a link to `/var/lib/private/web`.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use fleet_core::graph::exec_options::{DirectoryGroup, DirectoryKind};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, chownat, fstat, openat};
use rustix::process::{Gid, Uid};

use super::exec_resources::failure;
use super::process::SpawnFailure;
use crate::native::linux::identity::Identity;

/// Exit statuses of systemd for these directories.
const RUNTIME_DIRECTORY: i32 = 233;
const STATE_DIRECTORY: i32 = 238;
const CACHE_DIRECTORY: i32 = 239;
const LOGS_DIRECTORY: i32 = 240;
const CONFIGURATION_DIRECTORY: i32 = 241;

/// Creates the directories of one kind that do not exist, and gives them to the user of the unit.
pub(super) fn create_directories(
    kind: DirectoryKind,
    group: &DirectoryGroup,
    is_private: bool,
    identity: &Identity,
) -> Result<(), SpawnFailure> {
    let code = match kind {
        DirectoryKind::Runtime => RUNTIME_DIRECTORY,
        DirectoryKind::State => STATE_DIRECTORY,
        DirectoryKind::Cache => CACHE_DIRECTORY,
        DirectoryKind::Logs => LOGS_DIRECTORY,
        _ => CONFIGURATION_DIRECTORY,
    };
    for (path, links) in &group.paths {
        let is_configuration = kind == DirectoryKind::Configuration;
        let private = PathBuf::from(group.private_path(path));
        let is_linked = !group.is_nested(path);
        let path = Path::new(path);
        let create = |at: &Path| {
            create_directory(at, group.mode).and_then(|directory| give(&directory, identity))
        };
        let created = match () {
            // An existing configuration belongs to its administrator.
            () if is_configuration && path.is_dir() => Ok(()),
            () if is_private => create_private_base(Path::new(&group.private_base()))
                .and_then(|()| move_directory(path, &private))
                .and_then(|()| create(&private))
                .and_then(|()| if is_linked { create_link(&private, path) } else { Ok(()) }),
            () if group.base.is_empty() || is_configuration => create(path),
            () => move_back(&private, path).and_then(|()| create(path)),
        };
        created.map_err(|error| {
            failure(code, format!("cannot create the directory {}", path.display()), &error)
        })?;
        for link in links {
            create_link(path, Path::new(link)).map_err(|error| {
                failure(code, format!("cannot create the symbolic link {link}"), &error)
            })?;
        }
    }
    Ok(())
}

/// Creates a directory with this mode, and the directories above it.
fn create_directory(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    if let Some(above) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    let directory = open_directory(path)?;
    // Not subject to our own file mode creation mask.
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?;
    Ok(directory)
}

/// Opens a directory. A unit may own the directory above it, so a symbolic link counts only if our
/// own user has created it.
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() && found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it is a symbolic link of another user"));
    }
    let path = if found.is_symlink() { fs::canonicalize(path)? } else { path.to_owned() };
    Ok(openat(CWD, path, DIRECTORY, Mode::empty())?)
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Creates a relative link, as systemd does. An equal link may exist.
fn create_link(target: &Path, link: &Path) -> io::Result<()> {
    if let Some(above) = link.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    let target = relative(target, link);
    match symlink(&target, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let is_equal = fs::read_link(link).is_ok_and(|found| found == target);
            if is_equal { Ok(()) } else { Err(error) }
        }
        created => created,
    }
}

/// Returns the path of a file as seen from the directory of a link.
fn relative(target: &Path, link: &Path) -> PathBuf {
    let above = link.ancestors().skip(1);
    let shared = above.enumerate().find_map(|(up, it)| Some((up, target.strip_prefix(it).ok()?)));
    match shared {
        Some((up, rest)) => std::iter::repeat_n(Path::new(".."), up).chain([rest]).collect(),
        None => target.to_owned(),
    }
}

/// Creates the directory above the directories of dynamic users. The numbers of such users are used
/// again, so other users must not enter it.
fn create_private_base(path: &Path) -> io::Result<()> {
    if let Some(above) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let directory = openat(CWD, path, DIRECTORY, Mode::empty())?;
    let found = fstat(&directory)?;
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("{} belongs to another user", path.display())));
    }
    if found.st_mode & 0o077 == 0 {
        return Ok(());
    }
    Ok(rustix::fs::fchmod(&directory, Mode::RWXU)?)
}

/// Moves the directory of a unit that had no dynamic user before.
fn move_directory(path: &Path, private: &Path) -> io::Result<()> {
    if path.is_symlink() || !path.is_dir() || private.exists() {
        return Ok(());
    }
    if let Some(above) = private.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
    }
    fs::rename(path, private)
}

/// Moves the directory of a unit that had a dynamic user before.
fn move_back(private: &Path, path: &Path) -> io::Result<()> {
    let leads_there = path.is_symlink()
        && fs::canonicalize(path)
            .is_ok_and(|it| fs::canonicalize(private).is_ok_and(|to| to == it));
    if !leads_there {
        return Ok(());
    }
    fs::remove_file(path)?;
    fs::rename(private, path)
}

/// Gives a directory with everything in it to a user and group, unless it is theirs already. A
/// program that changes the directory meanwhile cannot lead this outside of it.
fn give(directory: &OwnedFd, identity: &Identity) -> io::Result<()> {
    let (uid, gid) = (identity.uid.map(Uid::from_raw), identity.gid.map(Gid::from_raw));
    let found = fstat(directory)?;
    let has_user = identity.uid.is_none_or(|uid| uid == found.st_uid);
    if has_user && identity.gid.is_none_or(|gid| gid == found.st_gid) {
        return Ok(());
    }
    give_entries(directory, uid, gid, 0)?;
    // The directory itself is last: if this is interrupted, the next start tries again. A change of
    // the owner removes special mode bits.
    rustix::fs::fchown(directory, uid, gid)?;
    // Files that give their user to others must not have a number that is used again.
    let kept = if identity.is_dynamic { 0o1777 } else { 0o7777 };
    Ok(rustix::fs::fchmod(directory, Mode::from_raw_mode(found.st_mode & kept))?)
}

/// Maximum depth of a tree that is given to another user: each level takes a part of the stack.
const MAX_DEPTH: usize = 256;

fn give_entries(
    directory: &OwnedFd,
    uid: Option<Uid>,
    gid: Option<Gid>,
    depth: usize,
) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(io::Error::other("its directories are nested too deeply"));
    }
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entry.file_type() == FileType::Directory {
            give_entries(&openat(directory, name, DIRECTORY, Mode::empty())?, uid, gid, depth + 1)?;
        }
        chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_dynamic_users_are_private() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let at = |name: &str| home.path().join(name).display().to_string();
        let group = DirectoryGroup {
            base: at("s"),
            paths: vec![
                (at("s/a"), vec![at("s/link")]),
                (at("s/a/b"), Vec::new()),
                (at("s/c/d"), Vec::new()),
            ],
            mode: 0o750,
        };
        let create = |is_dynamic| {
            let identity = Identity { is_dynamic, ..Identity::default() };
            create_directories(DirectoryKind::State, &group, is_dynamic, &identity)
                .expect("they can be created");
        };
        create(false);
        fs::write(at("s/a/b/file"), "kept").expect("it can be written");
        for _ in 0..2 {
            create(true);
            let link = |path: &str| fs::read_link(at(path)).map(|it| it.display().to_string());
            let links = ["s/a", "s/c/d", "s/link"].map(|path| link(path).expect("it is a link"));
            assert_eq!(links, ["private/a", "../private/c/d", "a"]);
            let mode = |path: &str| fs::metadata(at(path)).expect("it exists").mode() & 0o7777;
            assert_eq!((mode("s/private"), mode("s/private/a/b")), (0o700, 0o750));
            assert_eq!(fs::read_to_string(at("s/a/b/file")).expect("it is there"), "kept");
        }
        create(false);
        assert!(!Path::new(&at("s/a")).is_symlink() && !Path::new(&at("s/c/d")).is_symlink());
        assert_eq!(fs::read_to_string(at("s/link/b/file")).expect("it is there"), "kept");
    }
}
