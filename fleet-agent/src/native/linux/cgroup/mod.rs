//! Control groups (cgroup v2), one per run of a unit.
//!
//! A process and all its descendants stay in their control group, so the kernel can kill all of
//! them at once. The groups are created below the group of the daemon:
//!
//! ```text
//! the daemon's own group / fleet-DEVICE-INODE of its directory / UNIT.INVOCATION
//! ```
//!
//! Root may create groups there. Other users may do so if the daemon's group is delegated to them.
//!
//! The path of a run's group is stored with the run, because the next daemon may be in another
//! group.

mod bpf;
pub(crate) mod filters;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tokio::io::Interest;

use super::limits::CgroupSetting;
use crate::async_fd::register;

/// Controllers that limit the groups, as far as they are available.
const CONTROLLERS: [&str; 4] = ["cpu", "io", "memory", "pids"];

/// Maximum depth to which groups below the group of a unit are traversed. The unit may have created
/// these groups, and by default the kernel does not limit their depth.
const MAX_DEPTH: usize = 16;

/// Attempts to create a group that is removed concurrently.
const ATTEMPTS: usize = 3;

/// The parent of all control groups of one service manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Groups {
    base: PathBuf,
    controllers: BTreeSet<String>,
    /// Whether devices and addresses can be filtered.
    filters: bool,
}

/// Removes the empty control groups that an [`InitSupervisor`](crate::native::InitSupervisor) or a
/// [`NativeManager`](crate::NativeManager) of `directory` has created below the group of this
/// process.
///
/// Both remove their empty groups themselves. But a group in which a unit has left processes behind
/// remains. Call this function after killing these processes.
pub fn remove_empty_cgroups(directory: &Path) {
    // Without groups, or without the directory, there is nothing to remove.
    if let Ok(own) = own_group()
        && let Ok(groups) = Groups::below(&own, directory)
    {
        groups.remove_empty();
    }
}

/// The control group of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Group(PathBuf);

impl Groups {
    /// Returns the parent of a manager's control groups. Creates the parent if it is missing, and
    /// removes empty groups in it. If control groups cannot be used, the error is the reason, as a
    /// message for people.
    pub(crate) fn find(directory: &Path) -> Result<Self, String> {
        let own = own_group()?;
        let unusable = |what: &str| format!("the control group {} {what}", own.display());
        let procs = own.join("cgroup.procs");
        rustix::fs::access(&procs, rustix::fs::Access::WRITE_OK)
            .map_err(|error| unusable(&format!("is not writable: {error}")))?;
        let mut groups = Self::below(&own, directory).map_err(|error| error.to_string())?;
        fs::create_dir(&groups.base)
            .or_else(ignore(io::ErrorKind::AlreadyExists))
            .map_err(|error| unusable(&format!("cannot have child groups: {error}")))?;
        groups.check().inspect_err(|_| groups.remove_empty())?;
        groups.controllers = groups.delegate_from(&own);
        groups.filters = filters::check().is_ok();
        // An earlier manager may have left groups whose processes have ended since.
        groups.remove_empty_children();
        Ok(groups)
    }

    /// Returns the manager's groups below this group.
    fn below(own: &Path, directory: &Path) -> io::Result<Self> {
        let identity = fs::metadata(directory)?;
        let base = own.join(format!("fleet-{:x}-{:x}", identity.dev(), identity.ino()));
        Ok(Self { base, controllers: BTreeSet::new(), filters: false })
    }

    /// Returns the controllers that limit the groups.
    pub(crate) fn controllers(&self) -> &BTreeSet<String> {
        &self.controllers
    }

    /// Returns whether the devices and addresses of the groups can be filtered.
    pub(crate) fn has_filters(&self) -> bool {
        self.filters
    }

    /// Enables the controllers that limit units for the groups of this manager. Returns the
    /// controllers that could be enabled. The kernel refuses to enable one while the daemon's own
    /// group contains another process.
    fn delegate_from(&self, own: &Path) -> BTreeSet<String> {
        let there = fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
        let there = there.split_whitespace().filter(|name| CONTROLLERS.contains(name));
        let hand_down = |name: &&str| {
            let requested = format!("+{name}");
            let hand = |group: &Path| fs::write(group.join("cgroup.subtree_control"), &requested);
            hand(own).and_then(|()| hand(&self.base)).is_ok()
        };
        there.filter(hand_down).map(str::to_owned).collect()
    }

    /// Returns the group for a run of a unit. The group is created in the file system when the
    /// first process enters it.
    pub(crate) fn for_run(&self, unit: &str, invocation: &str) -> Group {
        // With the invocation ID it must not exceed the length of a file name.
        let unit: String = unit.chars().take(200).collect();
        Group(self.base.join(format!("{unit}.{invocation}")))
    }

    /// Removes groups without processes.
    pub(crate) fn remove_empty(&self) {
        self.remove_empty_children();
        // The parent stays if units keep running, as intended.
        drop(fs::remove_dir(&self.base));
    }

    fn check(&self) -> Result<(), String> {
        if !self.base.join("cgroup.kill").exists() {
            return Err(
                "the kernel cannot kill control groups: 5.14 or later is required".to_owned()
            );
        }
        let kind = fs::read_to_string(self.base.join("cgroup.type")).unwrap_or_default();
        match kind.trim() {
            "domain" => Ok(()),
            other => Err(format!("control groups created here have the type {other:?}")),
        }
    }

    fn remove_empty_children(&self) {
        for group in children(&self.base).unwrap_or_default() {
            // A group that cannot be removed does no harm.
            drop(Group(group).remove());
        }
    }
}

impl Group {
    /// Creates the group if it is missing, and opens it.
    pub(crate) fn open(&self) -> io::Result<File> {
        let mut left = ATTEMPTS;
        loop {
            let made = fs::create_dir_all(&self.0);
            left -= 1;
            match made.and_then(|()| File::open(&self.0)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && left > 0 => {}
                opened => return opened,
            }
        }
    }

    /// Opens the process list of the group. A process that writes `0` to this list enters the
    /// group.
    pub(crate) fn list(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.0.join("cgroup.procs"))
    }

    /// Sets the limits of the group, which has to exist.
    pub(crate) fn limit(&self, settings: &[CgroupSetting]) -> io::Result<()> {
        settings.iter().try_for_each(|it| fs::write(self.0.join(it.file), &it.value))
    }

    /// Returns the pids of all processes in the group and in the groups below it.
    pub(crate) fn members(&self) -> io::Result<Vec<u32>> {
        let mut members = Vec::new();
        for group in self.all()? {
            let text = match fs::read_to_string(group.join("cgroup.procs")) {
                Err(error) if is_gone(&error) => continue,
                // The enclosing group lists its processes.
                Err(error) if group != self.0 && is_threaded(&error) => continue,
                text => text?,
            };
            // The kernel writes 0 for processes in other pid namespaces.
            let pids = text.lines().filter_map(|line| line.parse().ok());
            members.extend(pids.filter(|&pid: &u32| pid != 0));
        }
        Ok(members)
    }

    /// Returns whether a process is in the group or in one below it. Unlike
    /// [`members`](Self::members), this includes zombies: a zombie counts as a member of the group
    /// in which it ended.
    pub(crate) fn contained(&self, pid: u32) -> io::Result<bool> {
        let group = match fs::read_to_string(format!("/proc/{pid}/cgroup")) {
            Err(error) if is_no_process(&error) => return Ok(false),
            group => group?,
        };
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        Ok(directory_of(&group, &mounts).is_some_and(|group| group.starts_with(&self.0)))
    }

    /// Kills all processes in the group at once, including those being created.
    pub(crate) fn kill(&self) -> io::Result<()> {
        fs::write(self.0.join("cgroup.kill"), "1")
            .or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
    }

    /// Whether the group has no processes.
    pub(crate) fn is_empty(&self) -> io::Result<bool> {
        match fs::read(self.0.join("cgroup.events")) {
            Err(error) if is_gone(&error) => Ok(true),
            events => events.map(|events| !is_populated(&events)),
        }
    }

    /// Returns once the group has no processes.
    pub(crate) async fn wait_empty(&self) -> io::Result<()> {
        let events = match File::open(self.0.join("cgroup.events")) {
            Err(error) if is_gone(&error) => return Ok(()),
            events => register(events?.into(), Interest::PRIORITY)?,
        };
        let mut text = [0; 128];
        loop {
            let length = match rustix::io::pread(events.get_ref(), &mut text, 0) {
                Err(rustix::io::Errno::NODEV) => return Ok(()),
                length => length?,
            };
            if !is_populated(&text[..length]) {
                return Ok(());
            }
            events.ready(Interest::PRIORITY).await?.clear_ready();
        }
    }

    /// Returns the directory of the group.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the group and the groups below it, if they have no processes.
    pub(crate) fn remove(&self) -> io::Result<()> {
        // Hardly any unit creates groups of its own, which would have to be removed first.
        if fs::remove_dir(&self.0).is_ok() {
            return Ok(());
        }
        for group in self.all()?.iter().rev() {
            match fs::remove_dir(group) {
                Err(error) if is_gone(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Ok(()),
                removed => removed?,
            }
        }
        Ok(())
    }

    /// Returns this group and all groups below it, parents first.
    fn all(&self) -> io::Result<Vec<PathBuf>> {
        let mut all = vec![self.0.clone()];
        let mut level = all.clone();
        for _ in 0..MAX_DEPTH {
            let mut next = Vec::new();
            for group in &level {
                next.extend(children(group)?);
            }
            all.extend_from_slice(&next);
            level = next;
        }
        Ok(all)
    }
}

/// Returns the groups directly below a group.
fn children(group: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(group) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            children.push(entry.path());
        }
    }
    Ok(children)
}

/// Returns the directory of this process's control group.
fn own_group() -> Result<PathBuf, String> {
    let read = |path: &str| {
        fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
    };
    let own = read("/proc/self/cgroup")?;
    let mounts = read("/proc/self/mountinfo")?;
    directory_of(&own, &mounts).ok_or_else(|| "cgroup v2 is not mounted".to_owned())
}

/// Locates a control group by the content of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn directory_of(own: &str, mounts: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        if kind.split(' ').next()? != "cgroup2" {
            return None;
        }
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let inside = Path::new(own).strip_prefix(root).ok()?;
        Some(Path::new(point).join(inside))
    })
}

fn is_populated(events: &[u8]) -> bool {
    events.split(|&byte| byte == b'\n').any(|line| line == b"populated 1")
}

/// Whether the error means that a group was removed while it was being read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Whether the error means that a group is threaded, and so has no process list.
fn is_threaded(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
}

/// Whether the error means that a process ended while it was being read.
fn is_no_process(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn ignore(kind: io::ErrorKind) -> impl FnOnce(io::Error) -> io::Result<()> {
    move |error| if error.kind() == kind { Ok(()) } else { Err(error) }
}

/// Moves this process to the group that contains the control groups of all units of `directory`, if
/// the process is in one of these groups.
///
/// The supervisor is in such a group if one of its units started it, for example a login shell of
/// its SSH service. If it stayed there, it would end together with that unit. It would also create
/// the groups of all other units below the group of that unit.
///
/// # Errors
///
/// The directory cannot be read, or the process may not leave its group. In the second case, the
/// message says how to start the process instead.
pub(crate) fn leave_units(directory: &Path) -> io::Result<()> {
    // Without control groups there is none to leave.
    let Ok(own) = own_group() else { return Ok(()) };
    let groups = Groups::below(&own, directory)?.base;
    let Some(outside) = outside_of(&groups, &own) else { return Ok(()) };
    fs::write(outside.join("cgroup.procs"), "0").map_err(|error| {
        let (own, outside) = (own.display(), outside.display());
        let problem = format!(
            "it was started by one of its own units, in the control group {own}, and cannot move \
             to {outside}: {error}; start it from elsewhere, since it would stop with that unit"
        );
        io::Error::new(error.kind(), problem)
    })
}

/// Returns the group to which a process in the group `own` has to move. This is the parent of the
/// outermost ancestor that has the same name as the manager's `groups`. Returns `None` if no
/// ancestor has that name, since the process is then in no unit's group.
///
/// Several ancestors can have that name: a supervisor that did not leave a unit's group has created
/// its own `groups` below that group. Only the parent of the outermost one is outside of all units.
fn outside_of(groups: &Path, own: &Path) -> Option<PathBuf> {
    let of_units = own.ancestors().filter(|group| group.file_name() == groups.file_name());
    of_units.last()?.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cgroup_is_located_by_mounts() {
        let alone = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let hybrid = "30 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n";
        let inside = "29 23 0:26 /pod/7 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
        for (own, mounts, expected) in [
            ("0::/\n", alone, Some("/sys/fs/cgroup/")),
            ("0::/a.slice/b.service\n", alone, Some("/sys/fs/cgroup/a.slice/b.service")),
            ("4:cpu:/x\n0::/y\n", hybrid, Some("/sys/fs/cgroup/unified/y")),
            ("0::/pod/7/fleet\n", inside, Some("/sys/fs/cgroup/fleet")),
            ("0::/other\n", inside, None),
            ("4:cpu:/x\n", hybrid, None),
            ("0::/\n", "30 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", None),
            ("", "", None),
        ] {
            assert_eq!(directory_of(own, mounts), expected.map(PathBuf::from), "{own:?}");
        }
    }

    #[test]
    fn populated_cgroup_is_detected() {
        assert!(is_populated(b"populated 1\nfrozen 0\n"));
        assert!(!is_populated(b"populated 0\nfrozen 1\n") && !is_populated(b""));
    }

    #[test]
    fn members_include_threaded_child_group() {
        let directory = tempfile::tempdir().expect("a directory can be made");
        // If no groups can be created, there is nothing to test.
        let Ok(groups) = Groups::find(directory.path()) else { return };
        let group = groups.for_run("a.service", "1");
        group.open().expect("it can be created");
        let inside = group.0.join("inside");
        let made = fs::create_dir(&inside)
            .and_then(|()| fs::write(inside.join("cgroup.type"), "threaded"));
        let mut child = std::process::Command::new("/bin/sleep").arg("1000").spawn().expect("runs");
        let pid = child.id().to_string();
        let entered = fs::write(group.0.join("cgroup.procs"), &pid)
            .and_then(|()| fs::write(inside.join("cgroup.threads"), &pid));
        let members = group.members();
        child.kill().and_then(|()| child.wait()).expect("it is our child");
        groups.remove_empty();
        made.and(entered).expect("it can be created");
        assert_eq!(members.expect("it is no error"), [child.id()]);
    }

    #[tokio::test]
    async fn removed_cgroup_is_empty() {
        let group = Group(PathBuf::from("/no/such/group"));
        assert_eq!(group.members().expect("it is no error"), [0; 0]);
        group.kill().and_then(|()| group.remove()).expect("it is no error");
        group.wait_empty().await.expect("it is no error");
        assert!(group.is_empty().expect("it is no error"));
    }

    #[test]
    fn supervisor_in_own_unit_finds_outer_cgroup() {
        let outside = |own: &str| {
            let groups = Path::new(own).join("fleet-1-2");
            outside_of(&groups, Path::new(own)).map(|group| group.display().to_string())
        };
        for (own, expected) in [
            ("/sys/fs/cgroup/", None),
            ("/sys/fs/cgroup/system.slice/ssh.service", None),
            // A group of another supervisor's unit is as good as any.
            ("/sys/fs/cgroup/fleet-3-4/sshd.5", None),
            ("/sys/fs/cgroup/fleet-1-2/sshd.5", Some("/sys/fs/cgroup")),
            ("/sys/fs/cgroup/init/fleet-1-2/sshd.5/session/1", Some("/sys/fs/cgroup/init")),
            ("/sys/fs/cgroup/fleet-1-2/sshd.5/fleet-1-2/sh.6", Some("/sys/fs/cgroup")),
        ] {
            assert_eq!(outside(own).as_deref(), expected, "{own}");
        }
    }
}
