//! A user namespace in which root and the user of the unit keep their numbers.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, getpid};

/// Creates the namespace. The processes in it see all users and groups as nobody, except for the
/// given ones: those of the executor, and those of the unit.
///
/// The privilege to write the mapping is lost with the change of the namespace. So a child process
/// writes it, as in systemd.
pub(super) fn hide_others(
    present: (u32, u32),
    (uid, gid): (Option<u32>, Option<u32>),
) -> io::Result<()> {
    let (users, groups) = (mapping(present.0, uid), mapping(present.1, gid));
    let process = getpid();
    let (mut here, mut there) = UnixStream::pair()?;
    // SAFETY: this process has one thread, so the child may do everything.
    #[expect(unsafe_code, reason = "no other process has the privilege and stays outside")]
    let forked = unsafe { fork() }?;
    let ForkResult::Parent { child } = forked else {
        drop(here);
        let written = write_mapping(&mut there, process.as_raw(), &users, &groups);
        let errno = written.err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
        drop(there.write_all(&errno.to_ne_bytes()));
        std::process::exit(0);
    };
    drop(there);
    let created = unshare(CloneFlags::CLONE_NEWUSER);
    let mut answer = [0; 4];
    let answered = match created {
        Ok(()) => here.write_all(b"x").and_then(|()| here.read_exact(&mut answer)),
        Err(error) => Err(error.into()),
    };
    // The child ends with the connection.
    drop(here);
    waitpid(child, None)?;
    answered?;
    match i32::from_ne_bytes(answer) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Writes the mapping of a process, once it reports that it has created its namespace.
fn write_mapping(
    connection: &mut UnixStream,
    process: i32,
    users: &str,
    groups: &str,
) -> io::Result<()> {
    connection.read_exact(&mut [0])?;
    let write = |file: &str, text: &str| fs::write(format!("/proc/{process}/{file}"), text);
    write("setgroups", "deny")?;
    write("gid_map", groups)?;
    write("uid_map", users)
}

/// Returns the kernel's lines for numbers that stay the same.
fn mapping(present: u32, own: Option<u32>) -> String {
    let own = own.filter(|own| *own != present);
    [Some(present), own].into_iter().flatten().map(|id| format!("{id} {id} 1\n")).collect()
}
