//! Moves the supervisor out of the control groups of its own units.
//!
//! The supervisor is in such a group if one of its units started it, for example a login shell of
//! its SSH service. If it stayed there, it would end together with that unit. It would also create
//! the groups of all other units below the group of that unit.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{Groups, own_group};

/// Moves this process to the group that contains the control groups of all units of `directory`, if
/// the process is in one of these groups.
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
