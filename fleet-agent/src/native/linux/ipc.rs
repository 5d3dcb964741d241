//! IPC objects of users: shared memory, semaphores and message queues, of System V and of POSIX.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::libc;

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

/// Returns whether a user or group of this number owns an object.
pub(crate) fn has_objects(id: u32) -> bool {
    !system_v(id).is_empty() || !posix(id).is_empty()
}

/// Removes the objects that a user or group of this number owns.
pub(crate) fn remove(id: u32) {
    let removed = system_v(id).into_iter().map(|(kind, object)| remove_object(kind, object));
    let files = posix(id).into_iter().map(|path| match path.is_dir() && !path.is_symlink() {
        true => fs::remove_dir(path),
        false => fs::remove_file(path),
    });
    for error in removed.chain(files).filter_map(Result::err) {
        let is_gone = error.kind() == io::ErrorKind::NotFound
            || [libc::EINVAL, libc::EIDRM].map(Some).contains(&error.raw_os_error());
        if !is_gone {
            tracing::warn!(%error, user = id, "cannot remove an IPC object of a unit's user");
        }
    }
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

/// Returns the files of POSIX objects, those in directories before the directories.
fn posix(id: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = DIRECTORIES.iter().map(PathBuf::from).collect();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = fs::symlink_metadata(entry.path()) else { continue };
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
            if [metadata.uid(), metadata.gid()].contains(&id) {
                found.push(entry.path());
            }
        }
    }
    found.sort_by_key(|path: &PathBuf| std::cmp::Reverse(depth(path)));
    found
}

fn depth(path: &Path) -> usize {
    path.components().count()
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
