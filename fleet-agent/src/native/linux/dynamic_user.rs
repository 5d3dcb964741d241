//! Users that exist only while a unit runs (`DynamicUser=`).
//!
//! A user ID is taken as systemd takes it: the owner of the unit's directories, then a hash of the
//! name, then random numbers, all of them from systemd's range. The lock file of systemd for the
//! number is locked meanwhile, so that all service managers of the machine take different numbers.
//! The lock ends with the daemon, but the file stays until the user is released.
//!
//! A record in `/run/userdb` makes the name known to programs on machines with `nss-systemd`.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::hash::Hasher as _;
use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::libc;
use nix::unistd::{Gid, Group, Uid, User as Account};
use serde::{Deserialize, Serialize};

use super::ipc;

/// The range of user IDs that systemd uses.
const RANGE: RangeInclusive<u32> = 61184..=65519;

/// Number of random numbers that are tried.
const MAX_TRIES: usize = 100;

/// The user and group of a run. They may be static, if the machine has accounts of these names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DynamicIds {
    /// Name of the user.
    pub(crate) user: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Names and numbers that are released after the run.
    held: Vec<(String, u32)>,
}

/// The users that the units of a service manager have at present.
#[derive(Debug)]
pub(crate) struct DynamicUsers {
    /// Directory of the lock files.
    locks: PathBuf,
    /// Directory of the records.
    records: PathBuf,
    /// Users by name and number. A name may have two numbers for a while, if the daemon restarts.
    held: Mutex<BTreeMap<(String, u32), HeldUser>>,
}

#[derive(Debug)]
struct HeldUser {
    /// `None` if another daemon has it, which must not happen.
    lock: Option<File>,
    /// Number of runs with this user.
    runs: usize,
}

/// A number, with the lock that protects it.
type LockedId = (u32, File);

impl Default for DynamicUsers {
    fn default() -> Self {
        Self::at("/run/systemd/dynamic-uid".into(), "/run/userdb".into())
    }
}

impl DynamicUsers {
    fn at(locks: PathBuf, records: PathBuf) -> Self {
        Self { locks, records, held: Mutex::default() }
    }

    /// Takes a user and group for a run. Of all paths that exist, the first one whose owner is a
    /// free number decides the number.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is invalid, if no number is free, or if the lock files cannot be
    /// written.
    pub(crate) fn take(
        &self,
        user: &str,
        group: Option<&str>,
        paths: &[PathBuf],
    ) -> io::Result<DynamicIds> {
        let mut ids = DynamicIds { user: user.to_owned(), ..DynamicIds::default() };
        (ids.uid, ids.gid) = match static_user(user)? {
            Some(ids) => ids,
            None => {
                let id = self.hold(user, paths)?;
                ids.held.push((user.to_owned(), id));
                (id, id)
            }
        };
        if let Some(group) = group.filter(|group| *group != user) {
            let found = static_group(group).and_then(|found| match found {
                Some(gid) => Ok(gid),
                None => {
                    self.hold(group, paths).inspect(|&id| ids.held.push((group.to_owned(), id)))
                }
            });
            match found {
                Ok(gid) => ids.gid = gid,
                Err(error) => {
                    self.release(&ids);
                    return Err(error);
                }
            }
        }
        Ok(ids)
    }

    /// Continues to hold the user and group of a run that an earlier daemon has started.
    pub(crate) fn adopt(&self, ids: &DynamicIds) -> io::Result<()> {
        for (name, id) in &ids.held {
            let lock = self.lock(*id)?;
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            let known = held.entry((name.clone(), *id)).or_insert(HeldUser { lock: None, runs: 0 });
            known.runs += 1;
            known.lock = known.lock.take().or(lock);
        }
        Ok(())
    }

    /// Releases the user and group after a run. With the last run of a user, its number becomes
    /// free, and its IPC objects are removed.
    pub(crate) fn release(&self, ids: &DynamicIds) {
        for (name, id) in &ids.held {
            // The number stays locked until its objects are removed.
            if let Some(HeldUser { lock: Some(_lock), .. }) = self.release_one(name, *id) {
                ipc::remove(*id);
                self.forget(name, *id);
            }
        }
    }

    /// Ends the use of a user by one run. Returns the user if this was the last run.
    fn release_one(&self, name: &str, id: u32) -> Option<HeldUser> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (name.to_owned(), id);
        let known = held.get_mut(&key)?;
        known.runs -= 1;
        if known.runs == 0 { held.remove(&key) } else { None }
    }

    /// Takes a number for a name, or the number that the name has already.
    fn hold(&self, name: &str, paths: &[PathBuf]) -> io::Result<u32> {
        let shared = share(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner), name);
        if let Some(id) = shared {
            return Ok(id);
        }
        let (id, lock) = self.choose(name, paths)?;
        // Another run may have taken the name meanwhile. Then its number counts.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = share(&mut held, name) {
            drop(fs::remove_file(self.locks.join(id.to_string())));
            return Ok(other);
        }
        self.record(name, id);
        held.insert((name.to_owned(), id), HeldUser { lock: Some(lock), runs: 1 });
        Ok(id)
    }

    fn choose(&self, name: &str, paths: &[PathBuf]) -> io::Result<LockedId> {
        let owners = paths.iter().filter_map(|path| Some(fs::metadata(path).ok()?.uid()));
        let random = std::iter::repeat_with(random).take(MAX_TRIES);
        let candidates = owners.chain([hashed(name)]).chain(random);
        for id in candidates.filter(|id| RANGE.contains(id)) {
            let Some(mut lock) = self.lock(id)? else { continue };
            // A daemon that restarts has no locks for some milliseconds.
            let is_running = ipc::has_objects(id) || has_process(id)?;
            if !is_running {
                self.forget_record(id);
            }
            if is_running || is_account(id)? {
                drop(fs::remove_file(self.locks.join(id.to_string())));
                continue;
            }
            lock.set_len(0)?;
            writeln!(lock, "{name}")?;
            return Ok((id, lock));
        }
        Err(io::Error::other("all numbers that were tried are in use"))
    }

    /// Locks a number. Returns `None` if another process has locked it.
    fn lock(&self, id: u32) -> io::Result<Option<File>> {
        DirBuilder::new().recursive(true).mode(0o755).create(&self.locks)?;
        let path = self.locks.join(id.to_string());
        let mut options = File::options();
        options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        loop {
            let file = options.open(&path)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
                // Its previous owner may have removed it since.
                Ok(()) if file.metadata()?.nlink() > 0 => return Ok(Some(file)),
                Ok(()) => {}
            }
        }
    }

    fn forget(&self, name: &str, id: u32) {
        for file in self.files(name, id) {
            drop(fs::remove_file(file));
        }
        drop(fs::remove_file(self.locks.join(id.to_string())));
    }

    /// Removes the record of a number that a killed daemon has left.
    fn forget_record(&self, id: u32) {
        let link = self.records.join(format!("{id}.user"));
        let Ok(target) = fs::read_link(&link) else { return };
        if let Some(name) = target.to_str().and_then(|file| file.strip_suffix(".user")) {
            self.files(name, id).iter().for_each(|file| drop(fs::remove_file(file)));
        }
    }

    /// Returns the files of a record: those of the user and the group, by name and by number.
    fn files(&self, name: &str, id: u32) -> [PathBuf; 4] {
        [
            format!("{name}.user"),
            format!("{name}.group"),
            format!("{id}.user"),
            format!("{id}.group"),
        ]
        .map(|file| self.records.join(file))
    }

    /// Makes the name known. Without it, programs see the number alone.
    fn record(&self, name: &str, id: u32) {
        let [user, group, of_uid, of_gid] = self.files(name, id);
        let common = "\"disposition\":\"dynamic\",\"service\":\"fleet\"";
        let write = |file: &Path, link: &Path, text: String| -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(0o755).create(&self.records)?;
            let mut options = File::options();
            let mut opened =
                options.write(true).create(true).truncate(true).mode(0o644).open(file)?;
            opened.write_all(text.as_bytes())?;
            drop(fs::remove_file(link));
            symlink(file.file_name().unwrap_or_default(), link)
        };
        let of_user = format!(
            "{{\"userName\":\"{name}\",\"realName\":\"Dynamic User\",\"uid\":{id},\"gid\":{id},\
             {common}}}\n"
        );
        let of_group = format!("{{\"groupName\":\"{name}\",\"gid\":{id},{common}}}\n");
        let written =
            write(&user, &of_uid, of_user).and_then(|()| write(&group, &of_gid, of_group));
        if let Err(error) = written {
            tracing::warn!(%error, user = name, "cannot make the name of a dynamic user known");
        }
    }
}

/// Returns the number that a name has already, for one more run.
fn share(held: &mut BTreeMap<(String, u32), HeldUser>, name: &str) -> Option<u32> {
    let numbers = (name.to_owned(), 0)..=(name.to_owned(), u32::MAX);
    let ((_, id), known) = held.range_mut(numbers).next()?;
    known.runs += 1;
    Some(*id)
}

/// Returns the number that systemd prefers for a name.
fn hashed(name: &str) -> u32 {
    const KEY: [u64; 2] = [0xf548_cecf_317e_5337, 0x59ec_d98d_5739_bb8a];
    #[expect(deprecated, reason = "systemd uses this algorithm, which `DefaultHasher` may change")]
    let mut hasher = std::hash::SipHasher::new_with_keys(KEY[0], KEY[1]);
    hasher.write(name.as_bytes());
    let low_half = hasher.finish() & u64::from(u32::MAX);
    into_range(u32::try_from(low_half).unwrap_or_default())
}

fn random() -> u32 {
    let number = getrandom::u32().expect("the kernel gives random bytes to every process");
    into_range(number)
}

fn into_range(number: u32) -> u32 {
    RANGE.start() + number % (RANGE.end() - RANGE.start() + 1)
}

/// Returns the numbers of the user and its group, if the name is a number, or if the machine has
/// such an account.
fn static_user(name: &str) -> io::Result<Option<(u32, u32)>> {
    check_name(name)?;
    if let Some(id) = number(name) {
        return Ok(Some(Account::from_uid(Uid::from_raw(id))?.map_or((id, id), ids)));
    }
    // A dynamic user of a service manager is no account of the machine.
    let is_static = |(uid, _): &(u32, u32)| !RANGE.contains(uid);
    match Account::from_name(name)?.map(ids).filter(is_static) {
        None if is_static_group(name)? => Err(taken(name, "group", "user")),
        found => Ok(found),
    }
}

/// Returns the number of a user or group that is given by number. The kernel takes the numbers with
/// all bits set, in 16 and in 32 bits, for none at all.
fn number(name: &str) -> Option<u32> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let id = name.parse().ok().filter(|_| is_number)?;
    (id != u32::from(u16::MAX) && id != u32::MAX).then_some(id)
}

fn ids(account: Account) -> (u32, u32) {
    (account.uid.as_raw(), account.gid.as_raw())
}

fn static_group(name: &str) -> io::Result<Option<u32>> {
    check_name(name)?;
    let is_static = |id: &u32| !RANGE.contains(id);
    let group = match number(name) {
        Some(id) => Some(id),
        None => Group::from_name(name)?.map(|group| group.gid.as_raw()).filter(is_static),
    };
    let user = Account::from_name(name)?.map(|account| account.uid.as_raw()).filter(is_static);
    match (group, user) {
        (None, Some(_)) => Err(taken(name, "user", "group")),
        (group, _) => Ok(group),
    }
}

fn is_static_group(name: &str) -> io::Result<bool> {
    Ok(Group::from_name(name)?.is_some_and(|group| !RANGE.contains(&group.gid.as_raw())))
}

fn taken(name: &str, kind: &str, other: &str) -> io::Error {
    io::Error::other(format!("there is a {kind} of that name, but no {other}: {name:?}"))
}

/// Refuses names that systemd refuses for users of its own.
fn check_name(name: &str) -> io::Result<()> {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_name = name.starts_with(is_letter)
        && name.chars().all(|c| is_letter(c) || c.is_ascii_digit() || c == '-')
        && name.len() <= 31;
    if is_name || number(name).is_some() {
        return Ok(());
    }
    let problem = "write a name of at most 31 letters, digits, \"-\" and \"_\"";
    Err(io::Error::other(problem))
}

/// Returns whether the machine has a user or a group of this number.
fn is_account(id: u32) -> io::Result<bool> {
    let (user, group) =
        (Account::from_uid(Uid::from_raw(id))?, Group::from_gid(Gid::from_raw(id))?);
    Ok(user.is_some() || group.is_some())
}

/// Returns whether a process runs as the user or group of this number.
fn has_process(id: u32) -> io::Result<bool> {
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let is_process =
            path.file_name().is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit());
        if !is_process {
            continue;
        }
        // A process may end meanwhile.
        let Ok(status) = fs::read_to_string(path.join("status")) else { continue };
        let numbers =
            status.lines().filter(|line| line.starts_with("Uid:") || line.starts_with("Gid:"));
        if numbers.flat_map(str::split_whitespace).any(|word| word.parse() == Ok(id)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users(home: &Path) -> DynamicUsers {
        DynamicUsers::at(home.join("locks"), home.join("records"))
    }

    fn files(directory: &Path) -> Vec<String> {
        let read = fs::read_dir(directory).into_iter().flatten();
        let mut names: Vec<String> = read
            .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Verified with systemd 252.
    #[test]
    fn name_decides_the_preferred_number() {
        assert_eq!(["web.main", "1", "web"].map(hashed), [62347, 63237, 63404]);
    }

    #[test]
    fn runs_of_one_user_share_its_number() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let users = users(home.path());
        let first = users.take("fleet-dynamic", None, &[]).expect("a number is free");
        let second = users.take("fleet-dynamic", Some("fleet-group"), &[]).expect("it is shared");
        assert_eq!((first.uid, first.gid), (second.uid, first.uid));
        assert_ne!(second.uid, second.gid);
        let id = first.uid;
        let record = fs::read_to_string(home.path().join(format!("records/{id}.user")));
        assert!(record.expect("it is linked").contains("\"userName\":\"fleet-dynamic\""));
        users.release(&first);
        assert_eq!(files(&home.path().join("locks")).len(), 2);
        users.release(&second);
        assert_eq!(files(&home.path().join("locks")), [""; 0]);
        assert_eq!(files(&home.path().join("records")), [""; 0]);
    }

    #[test]
    fn number_of_another_daemon_is_not_taken() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let (first, second) = (users(home.path()), users(home.path()));
        let one = first.take("fleet-dynamic", None, &[]).expect("a number is free");
        let other = second.take("fleet-dynamic", None, &[]).expect("a number is free");
        assert_ne!(one.uid, other.uid);
        // A daemon that ends keeps the lock file, which the next one locks.
        drop(first);
        let next = users(home.path());
        next.adopt(&one).expect("it is free");
        assert!(second.lock(one.uid).expect("it can be opened").is_none());
        next.release(&one);
        assert!(second.lock(one.uid).expect("it can be opened").is_some());
    }

    /// Regression: the lock file of another manager was removed.
    #[test]
    fn adopted_number_of_another_daemon_stays_locked() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let (first, second) = (users(home.path()), users(home.path()));
        let one = first.take("fleet-dynamic", None, &[]).expect("a number is free");
        second.adopt(&one).expect("it is noted");
        second.release(&one);
        assert_eq!(files(&home.path().join("locks")), [one.uid.to_string()]);
        // A name with two numbers keeps both until their runs are over.
        let other = second.take("fleet-dynamic", None, &[]).expect("a number is free");
        drop(first);
        second.adopt(&one).expect("it is free");
        second.release(&other);
        assert_eq!(files(&home.path().join("locks")), [one.uid.to_string()]);
        second.release(&one);
        assert_eq!(files(&home.path().join("locks")), [""; 0]);
    }

    #[test]
    fn accounts_of_the_machine_are_used() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let users = users(home.path());
        let ids = users.take("root", None, &[]).expect("it exists");
        assert_eq!((ids.uid, ids.gid, ids.held.len()), (0, 0, 0));
        assert_eq!(files(home.path()), [""; 0]);
        for name in ["", "a b", "1a", "a/b", "+0", "65535", "4294967295", &"a".repeat(32)] {
            users.take(name, None, &[]).expect_err(name);
        }
    }
}
