//! Prevents file systems that do not respond from delaying other units. An example is a mount whose
//! server is gone.
//!
//! A process that uses a file on such a file system blocks in the kernel, and nothing can prevent
//! that. But a blocked runtime thread would also delay the tasks of other units in its queue. So
//! the thread first moves these tasks to another thread.
//!
//! The move is cheap compared with a remote file access, but it doubles the system time of a
//! process start. So it is only done for units that use files outside of the system's own
//! directories, such as `/usr`. If those directories do not respond, the machine is unusable
//! anyway.

use std::path::Path;

use fleet_core::graph::{Command, DirectoryPath, ExecEnvironment, ExecOutput, Run};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Directories of the system itself.
const LOCAL_DIRECTORIES: [&str; 12] = [
    "/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin",
    "/sys", "/usr",
];

/// Runs `work`. If `may_block` is set, first moves the other tasks of this thread to another
/// thread, because `work` may block for a long time.
pub(crate) fn block_in_place_if<T>(may_block: bool, work: impl FnOnce() -> T) -> T {
    let has_others = || {
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        flavor.is_ok_and(|flavor| flavor == RuntimeFlavor::MultiThread)
    };
    if may_block && has_others() { block_in_place(work) } else { work() }
}

/// Whether the start of a run may access a remote file system.
pub(crate) fn run_may_block(run: &Run) -> bool {
    !run.conditions.is_empty() || looks_up_account(&run.exec_environment)
}

/// Whether the start of a process may access a remote file system.
pub(crate) fn spawn_may_block(command: &Command, exec_env: &ExecEnvironment) -> bool {
    let files = exec_env.environment_files.iter().map(|file| file.path.as_str());
    let outputs = [Some(&exec_env.output), exec_env.error.as_ref()];
    let outputs = outputs.into_iter().flatten().filter_map(file_of);
    let mut named = files.chain(outputs).chain([command.program.as_str()]);
    let directory = match &exec_env.directory.path {
        DirectoryPath::Root => false,
        DirectoryPath::At(path) => may_block(path),
        DirectoryPath::Home => true,
    };
    directory || looks_up_account(exec_env) || named.any(may_block)
}

/// Whether accounts are looked up, which may require a remote server.
fn looks_up_account(exec_env: &ExecEnvironment) -> bool {
    let groups = &exec_env.supplementary_groups;
    exec_env.user.is_some() || exec_env.group.is_some() || !groups.is_empty()
}

fn file_of(output: &ExecOutput) -> Option<&str> {
    match output {
        ExecOutput::Log | ExecOutput::Null | ExecOutput::Inherit => None,
        ExecOutput::File(path) | ExecOutput::Append(path) | ExecOutput::Truncate(path) => {
            Some(path)
        }
    }
}

/// Whether a path is outside of the system's own directories. A program name without a slash is
/// only searched for in these directories, so it counts as inside.
fn may_block(path: &str) -> bool {
    path.starts_with('/') && !LOCAL_DIRECTORIES.iter().any(|own| Path::new(path).starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_system_directories_may_block() {
        for (path, expected) in [
            ("true", false),
            ("/bin/true", false),
            ("/usr/local/bin/mine", false),
            ("/binary/true", true),
            ("/srv/mine", true),
            ("/home/me/mine", true),
        ] {
            assert_eq!(may_block(path), expected, "{path}");
        }
    }
}
