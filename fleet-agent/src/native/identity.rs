//! Users and groups: who the supervisor is, and who a unit's processes are to be.

use std::collections::BTreeSet;
use std::ffi::CString;

use fleet_core::graph::Surroundings;
use fleet_core::graph::systemd::Site;
use nix::unistd::{Gid, Group, Uid, User as Account};

use super::facts::facts;

/// Who the supervisor is, which decides what it can do for a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// Whether it may become another user.
    pub(crate) root: bool,
    /// Its own user, by name and by number.
    pub(crate) users: Vec<String>,
    /// Its own group, by name and by number.
    pub(crate) groups: Vec<String>,
    /// Which controllers limit the control groups of units; why none does, otherwise.
    pub(crate) controllers: Result<BTreeSet<String>, String>,
    /// What specifiers stand for, and what the operator accepts.
    pub(crate) site: Site,
}

/// The user that a process is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) home: String,
    pub(crate) shell: String,
}

/// The numbers that a process is to run under; `None` keeps fleet's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// All groups beside.
    pub(crate) groups: Option<Vec<u32>>,
    pub(crate) user: Option<User>,
}

impl User {
    /// The variables by which programs know who they run as.
    pub(crate) fn variables(&self) -> [(String, String); 4] {
        [
            ("HOME", &self.home),
            ("USER", &self.name),
            ("LOGNAME", &self.name),
            ("SHELL", &self.shell),
        ]
        .map(|(name, value)| (name.to_owned(), value.clone()))
    }
}

/// Who the supervisor itself is, with the options that its operator accepts.
pub(crate) fn host(
    accept: BTreeSet<String>,
    controllers: Result<BTreeSet<String>, String>,
) -> Host {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    let user = Account::from_uid(uid).ok().flatten().map(|account| account.name);
    let group = Group::from_gid(gid).ok().flatten().map(|group| group.name);
    Host {
        root: uid.is_root(),
        users: user.into_iter().chain([uid.to_string()]).collect(),
        groups: group.into_iter().chain([gid.to_string()]).collect(),
        controllers,
        site: Site { facts: facts(), accept },
    }
}

/// Why nobody is known whom a process could be, for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unknown {
    User(String),
    Group(String),
}

/// Looks up the user and the group of a unit, in this machine's accounts as they are now.
pub(crate) fn look_up(surroundings: &Surroundings) -> Result<Identity, Unknown> {
    let mut identity = Identity::default();
    if let Some(name) = &surroundings.user {
        let unknown = || Unknown::User(format!("there is no user {name:?} here"));
        let account = account(name).ok_or_else(unknown)?;
        identity.uid = Some(account.uid.as_raw());
        identity.gid = Some(account.gid.as_raw());
        identity.user = Some(User {
            name: account.name,
            home: account.dir.to_string_lossy().into_owned(),
            shell: account.shell.to_string_lossy().into_owned(),
        });
    }
    if let Some(name) = &surroundings.group {
        identity.gid = Some(group(name)?);
    }
    identity.groups = groups(surroundings, &identity)?;
    // Becoming who one is already would need rights that only root has.
    identity.uid = identity.uid.filter(|&uid| uid != Uid::effective().as_raw());
    identity.gid = identity.gid.filter(|&gid| gid != Gid::effective().as_raw());
    Ok(identity)
}

/// The groups that a process is in beside its own: those of its user, and those that the unit adds.
/// Only root can choose, so others keep what they have.
fn groups(surroundings: &Surroundings, identity: &Identity) -> Result<Option<Vec<u32>>, Unknown> {
    let more = &surroundings.supplementary_groups;
    let is_asked = identity.uid.is_some() || identity.gid.is_some() || !more.is_empty();
    if !is_asked || !Uid::effective().is_root() {
        return Ok(None);
    }
    let own = identity.gid.map_or_else(Gid::effective, Gid::from_raw);
    let user = identity.user.as_ref().and_then(|user| CString::new(user.name.as_str()).ok());
    let of_user = user.map(|user| nix::unistd::getgrouplist(&user, own)).transpose();
    let untold = |error| Unknown::Group(format!("cannot tell the groups of its user: {error}"));
    let of_user = of_user.map_err(untold)?;
    let mut all: BTreeSet<u32> =
        of_user.unwrap_or_default().iter().map(|gid| gid.as_raw()).collect();
    for name in more {
        all.insert(group(name)?);
    }
    Ok(Some(all.into_iter().collect()))
}

/// The home directory of the user that fleet itself runs as.
pub(crate) fn own_home() -> Option<String> {
    let account = Account::from_uid(Uid::effective()).ok().flatten()?;
    Some(account.dir.to_string_lossy().into_owned())
}

fn account(name: &str) -> Option<Account> {
    let by_name = Account::from_name(name).ok().flatten();
    by_name.or_else(|| Account::from_uid(Uid::from_raw(name.parse().ok()?)).ok().flatten())
}

fn group(name: &str) -> Result<u32, Unknown> {
    let by_name = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    let found = by_name.or_else(|| name.parse().ok());
    found.ok_or_else(|| Unknown::Group(format!("there is no group {name:?} here")))
}
