//! IPC objects of users: shared memory, semaphores and message queues, of System V and of POSIX.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::{fs, io};

use nix::libc;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, openat, statat, unlinkat};
use rustix::io::Errno;

use super::files::DIRECTORY;

/// Kinds of System V objects: the kernel's table, with the columns of the object and its owner.
const TABLES: [(&str, Kind, usize); 3] = [
    ("/proc/sysvipc/shm", Kind::Memory, 7),
    ("/proc/sysvipc/sem", Kind::Semaphores, 4),
    ("/proc/sysvipc/msg", Kind::Queue, 7),
];

/// Directories of POSIX objects.
const DIRECTORIES: [&str; 2] = ["/dev/shm", "/dev/mqueue"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Memory,
    Semaphores,
    Queue,
}

/// Maximum depth to which directories of POSIX objects are searched.
const MAX_DEPTH: usize = 64;

/// Returns whether a user or group of this number owns an object.
pub(crate) fn has_objects(id: u32) -> bool {
    !system_v(id).is_empty() || search_posix(id, &mut |_, _, _| Ok(())).is_ok_and(|found| found)
}

/// Removes the objects that a user or group of this number owns.
pub(crate) fn remove(id: u32) {
    for (kind, object) in system_v(id) {
        let removed = remove_object(kind, object);
        let is_gone = |error: &io::Error| {
            [libc::EINVAL, libc::EIDRM].map(Some).contains(&error.raw_os_error())
        };
        if let Err(error) =
            removed.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
        {
            warn_left(id, &error);
        }
    }
    let removed =
        search_posix(id, &mut |directory, name, flags| match unlinkat(directory, name, flags) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        });
    if let Err(error) = removed {
        warn_left(id, &error.into());
    }
}

fn warn_left(id: u32, error: &io::Error) {
    tracing::warn!(%error, user = id, "cannot remove an IPC object of a unit's user");
}

fn system_v(id: u32) -> Vec<(Kind, i32)> {
    let mut found = Vec::new();
    for (table, kind, owner) in TABLES {
        // A kernel may lack them.
        let text = fs::read_to_string(table).unwrap_or_default();
        found.extend(owned(&text, owner, id).map(|object| (kind, object)));
    }
    found
}

/// Returns the objects of a table whose user or group is `id`. The column after `owner` is the
/// group.
fn owned(table: &str, owner: usize, id: u32) -> impl Iterator<Item = i32> {
    table.lines().skip(1).filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let owners = words.get(owner..owner + 2)?;
        let is_owned = owners.iter().any(|word| word.parse() == Ok(id));
        is_owned.then(|| words.get(1)?.parse().ok()).flatten()
    })
}

/// Function for each file of a user: its directory, its name, and the flags for its removal.
type OnFile<'a> = dyn FnMut(&OwnedFd, &CStr, AtFlags) -> rustix::io::Result<()> + 'a;

/// Calls `on_file` for each file of POSIX objects that the user or group owns. Returns whether
/// there is one, or the first error.
fn search_posix(id: u32, on_file: &mut OnFile<'_>) -> rustix::io::Result<bool> {
    let mut result = Ok(false);
    for path in DIRECTORIES {
        // A machine may lack it.
        let Ok(directory) = openat(CWD, path, DIRECTORY, Mode::empty()) else { continue };
        result = merge(result, search(&directory, id, on_file, 0));
    }
    result
}

/// Searches a directory. All users may create files and directories there, and replace them at any
/// time. So each file is accessed below the open directory, and no symbolic link is followed.
fn search(
    directory: &OwnedFd,
    id: u32,
    on_file: &mut OnFile<'_>,
    depth: usize,
) -> rustix::io::Result<bool> {
    let mut result = Ok(false);
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Ok(found) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let is_directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        if is_directory
            && depth < MAX_DEPTH
            && let Ok(inner) = openat(directory, name, DIRECTORY, Mode::empty())
        {
            result = merge(result, search(&inner, id, on_file, depth + 1));
        }
        if [found.st_uid, found.st_gid].contains(&id) {
            let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            result = merge(result, on_file(directory, name, flags).map(|()| true));
        }
    }
    result
}

/// Combines two results; the first error counts.
fn merge(
    one: rustix::io::Result<bool>,
    other: rustix::io::Result<bool>,
) -> rustix::io::Result<bool> {
    Ok(one? | other?)
}

fn remove_object(kind: Kind, object: i32) -> io::Result<()> {
    // SAFETY: the command removes the object and takes no argument.
    #[expect(unsafe_code, reason = "no library in use has functions for these calls")]
    let answer = unsafe {
        match kind {
            Kind::Memory => libc::shmctl(object, libc::IPC_RMID, std::ptr::null_mut()),
            Kind::Semaphores => libc::semctl(object, 0, libc::IPC_RMID),
            Kind::Queue => libc::msgctl(object, libc::IPC_RMID, std::ptr::null_mut()),
        }
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the search followed links that other users could put in place of directories.
    #[test]
    fn links_are_not_followed() {
        let [home, other] = [(); 2].map(|()| tempfile::tempdir().expect("a directory can be made"));
        fs::create_dir(home.path().join("inner")).expect("it can be created");
        fs::write(home.path().join("inner/file"), "").expect("it can be written");
        fs::write(other.path().join("kept"), "").expect("it can be written");
        std::os::unix::fs::symlink(other.path(), home.path().join("link")).expect("it is new");
        let own = rustix::process::geteuid().as_raw();
        let directory = openat(CWD, home.path(), DIRECTORY, Mode::empty()).expect("it exists");
        let mut names = Vec::new();
        let found = search(
            &directory,
            own,
            &mut |_, name, _| {
                names.push(name.to_string_lossy().into_owned());
                Ok(())
            },
            0,
        );
        names.sort();
        assert_eq!((found, names.join(" ")), (Ok(true), "file inner link".to_owned()));
    }

    #[test]
    fn owners_are_found_in_the_tables_of_the_kernel() {
        let memory = "       key      shmid perms                  size  cpid  lpid nattch   uid   \
                      gid  cuid  cgid\n\
                      0  3  600  4096  7  7  0  61200  61200  61200  61200\n\
                      0  4  600  4096  7  7  0  0  61200  61200  61200\n\
                      0  5  600  4096  7  7  0  0  0  61200  61200\n";
        assert_eq!(owned(memory, TABLES[0].2, 61200).collect::<Vec<_>>(), [3, 4]);
        let semaphores = "key semid perms nsems uid gid cuid cgid otime ctime\n\
                          0 9 600 1 61200 0 0 0 0 0\n";
        assert_eq!(owned(semaphores, TABLES[1].2, 61200).collect::<Vec<_>>(), [9]);
        let queues = "key msqid perms cbytes qnum lspid lrpid uid gid cuid cgid\n\
                      0 2 600 0 0 0 0 61200 61200 0 0\n";
        assert_eq!(owned(queues, TABLES[2].2, 61200).collect::<Vec<_>>(), [2]);
    }
}
