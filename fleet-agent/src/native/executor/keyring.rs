//! The session keyring of a process.

use std::io;

use nix::libc;
use rustix::process::{Gid, Uid, getgid, getuid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use super::plan::{ExecPlan, KeyringPlan};
use super::syscalls::{add_key, keyctl};
use crate::native::linux::process_info::INVOCATION_ID;

/// Operations and keyrings of the kernel's `keyctl.h`.
const JOIN_SESSION_KEYRING: i32 = 1;
const SET_PERMISSIONS: i32 = 5;
const LINK: i32 = 8;
const SESSION_KEYRING: i64 = -3;
const USER_KEYRING: i64 = -4;

/// View, read and search, for the possessor and for the user.
const READABLE: i64 = 0x0b0b_0000;

/// Creates the keyring, if the plan asks for one. Without support by the kernel, or if the user has
/// too many keys, the process keeps the keyring of its executor, as under systemd.
pub(super) fn enter(plan: &ExecPlan) -> io::Result<()> {
    if plan.keyring == KeyringPlan::Inherit {
        return Ok(());
    }
    let ids = plan.identity.as_ref().map_or((None, None), |it| (it.uid, it.gid));
    let (uid, gid) = (getuid(), getgid());
    // The keyring belongs to the real user.
    change_real(ids.0.map_or(uid, Uid::from_raw), ids.1.map_or(gid, Gid::from_raw))?;
    let joined = join(plan.keyring == KeyringPlan::Shared);
    change_real(uid, gid)?;
    match joined {
        Err(error) if is_tolerated(&error) => return Ok(()),
        joined => joined?,
    }
    if let Some(id) = plan.environment.get(INVOCATION_ID).and_then(|text| bytes(text)) {
        // The key is only information.
        let added = add_key(c"invocation_id", &id, SESSION_KEYRING);
        drop(added.and_then(|key| keyctl(SET_PERMISSIONS, [key, READABLE])));
    }
    Ok(())
}

fn join(shares_user: bool) -> io::Result<()> {
    keyctl(JOIN_SESSION_KEYRING, [0, 0])?;
    if shares_user {
        keyctl(LINK, [USER_KEYRING, SESSION_KEYRING])?;
    }
    Ok(())
}

fn is_tolerated(error: &io::Error) -> bool {
    let tolerated = [libc::ENOSYS, libc::EACCES, libc::EPERM, libc::EDQUOT];
    error.raw_os_error().is_some_and(|errno| tolerated.contains(&errno))
}

/// Changes the real user and group alone.
fn change_real(uid: Uid, gid: Gid) -> io::Result<()> {
    set_thread_res_gid(gid, None, None)?;
    Ok(set_thread_res_uid(uid, None, None)?)
}

fn bytes(text: &str) -> Option<[u8; 16]> {
    Some(u128::from_str_radix(text, 16).ok()?.to_be_bytes())
}
