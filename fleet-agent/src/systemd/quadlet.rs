//! Containers of podman's Quadlet: their files, and podman's generator, which makes services of
//! them.
//!
//! systemd runs its generators whenever it reloads. podman's generator reads `web.container` from
//! the directories of Quadlet, and writes `web.service`, which systemd then loads. That is too late
//! to refuse a file. So a dry run of the generator shows beforehand whether there will be a
//! service.
//!
//! The generator skips all files of a directory if it cannot parse one of them.
//! Therefore, fleet has a directory of its own, and a refused file does not stay in it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use fleet_unitfile::{UnitFile, UnitName};
use tokio::process::Command;

use super::SystemdScope;
use super::context::{ManagerContext, io_error};
use super::files::{TEXT_MODE, TO_DISK, ignore_missing};
use super::jobs::bad_file;
use crate::ServiceError;
use crate::files::write_atomic_with_mode;

/// Maximum duration of a dry run of the generator.
const LONGEST_RUN: Duration = Duration::from_secs(30);

/// Held while a file that the generator may refuse is in the directory.
pub(crate) type QuadletTurn = tokio::sync::Mutex<()>;

/// Returns the path at which podman's generator finds the file of a container.
pub(crate) fn path(context: &ManagerContext, unit: &UnitName) -> PathBuf {
    context.config.quadlets.join(unit.as_str())
}

/// Copies the file of a container to the directory of the generator, unless the generator makes no
/// service of it. systemd loads the service at its next reload.
pub(crate) async fn install(
    context: &ManagerContext,
    unit: &UnitName,
    file: &UnitFile,
) -> Result<(), ServiceError> {
    let scope = context.config.scope;
    let Some(generator) = find_generator(&directories(scope), name(scope)) else {
        let problem = format!(
            "this machine has no {}, which runs .container units: install podman 5.4 or later, or \
             place the unit on another machine",
            name(scope)
        );
        return Err(ServiceError::BadSetting { unit: unit.clone(), line: 0, problem });
    };
    let _turn = context.quadlets.lock().await;
    let path = path(context, unit);
    // A daemon that was killed during a load may have left another file in the directory.
    let before = std::fs::read(context.files.text(unit)).ok();
    // A reload may happen while a refused file is there.
    context.reload.require();
    let written = write(&path, file.source());
    written.map_err(io_error(format!("write the file of {unit} for podman")))?;
    let refusal = match dry_run(context, &generator).await {
        Ok(output) => refusal(unit, &output, &context.config.quadlets).map(Ok),
        Err(error) => Some(Err(error)),
    };
    context.reload.require();
    let Some(refusal) = refusal else { return Ok(()) };
    let restored = match before {
        Some(before) => write(&path, &before),
        None => ignore_missing(std::fs::remove_file(&path)),
    };
    restored.map_err(io_error(format!("remove the refused file of {unit}")))?;
    Err(match refusal {
        Ok(refusal) => bad_file(unit, file, refusal),
        Err(error) => io_error(format!("run {}", generator.display()))(error),
    })
}

/// Removes the file of a container. The service exists until the next reload.
pub(crate) fn uninstall(context: &ManagerContext, unit: &UnitName) -> Result<(), ServiceError> {
    context.reload.require();
    let removed = ignore_missing(std::fs::remove_file(path(context, unit)));
    removed.map_err(io_error(format!("remove the file of {unit} for podman")))
}

/// Whether podman's generator has made this unit file from the file of a container.
pub(crate) fn is_generated(context: &ManagerContext, unit: &UnitName, service: &Path) -> bool {
    let Ok(text) = std::fs::read(service) else { return false };
    let (file, _) = UnitFile::parse_collecting(text);
    file.get("Unit", "SourcePath").is_some_and(|source| Path::new(source) == path(context, unit))
}

/// Returns why systemd does not know the service of an installed container.
pub(crate) fn no_service(context: &ManagerContext, unit: &UnitName) -> String {
    format!(
        "{} has made no {} when systemd reloaded: see its messages in the journal of the machine",
        name(context.config.scope),
        unit.systemd_name()
    )
}

fn write(path: &Path, source: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    write_atomic_with_mode(path, source, TO_DISK, TEXT_MODE)
}

fn name(scope: SystemdScope) -> &'static str {
    match scope {
        SystemdScope::System => "podman-system-generator",
        SystemdScope::User => "podman-user-generator",
    }
}

/// Returns the directories that systemd searches for generators, in its order.
fn directories(scope: SystemdScope) -> [PathBuf; 4] {
    let directory = match scope {
        SystemdScope::System => "system-generators",
        SystemdScope::User => "user-generators",
    };
    ["/run/systemd", "/etc/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd"]
        .map(|parent| Path::new(parent).join(directory))
}

/// Returns the generator that systemd runs. An empty file or a link to `/dev/null` masks it.
fn find_generator(directories: &[PathBuf], name: &str) -> Option<PathBuf> {
    let paths = directories.iter().map(|directory| directory.join(name));
    let first = paths.into_iter().find(|path| path.symlink_metadata().is_ok())?;
    let is_program = first.metadata().is_ok_and(|it| it.is_file() && it.len() > 0);
    is_program.then_some(first)
}

/// Makes the generator print the services that it would write.
async fn dry_run(context: &ManagerContext, generator: &Path) -> io::Result<Output> {
    let mut command = Command::new(generator);
    command.arg("--dryrun").stdin(Stdio::null()).kill_on_drop(true);
    tokio::select! {
        output = command.output() => output,
        () = context.config.clock.sleep(LONGEST_RUN) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no end after {LONGEST_RUN:?}")))
        }
    }
}

/// Returns why the generator makes no service of a file; `None` if it makes one.
fn refusal(unit: &UnitName, output: &Output, directory: &Path) -> Option<String> {
    let printed = String::from_utf8_lossy(&output.stdout);
    let header = format!("---{}---", unit.systemd_name());
    if printed.lines().any(|line| line == header) {
        return None;
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let reason = errors.lines().find_map(|line| {
        let message = match line.split_once("]: ") {
            Some((program, message)) if program.starts_with("quadlet-generator[") => message,
            _ => line,
        };
        let (_, reason) = message
            .split_once(&format!("converting \"{unit}\": "))
            .or_else(|| message.split_once(&format!("/{unit}\", ")))?;
        Some(reason.to_owned())
    });
    Some(match reason {
        Some(reason) => format!(
            "podman refuses the file: {reason}: correct it, or install a version of podman that \
             supports it"
        ),
        None => format!(
            "podman makes no {} of it from {}: install podman 5.4 or later",
            unit.systemd_name(),
            directory.display()
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn first_generator_is_used_unless_masked() {
        let temporary = tempfile::tempdir().expect("a directory can be made");
        let directories = ["run", "etc", "usr"].map(|it| temporary.path().join(it));
        let find = || find_generator(&directories, "podman");
        assert_eq!(find(), None, "no directory");
        for directory in &directories {
            std::fs::create_dir(directory).expect("it can be made");
        }
        let path = |number: usize| directories[number].join("podman");
        std::fs::write(path(2), "#!/bin/sh\n").expect("it can be written");
        assert_eq!(find(), Some(path(2)));
        symlink("/dev/null", path(1)).expect("it can be made");
        assert_eq!(find(), None, "masked by a link");
        std::fs::write(path(0), "").expect("it can be written");
        assert_eq!(find(), None, "masked by an empty file");
        std::fs::remove_file(path(0)).expect("it can be removed");
        symlink(path(2), path(0)).expect("it can be made");
        assert_eq!(find(), Some(path(0)));
    }

    /// Messages of podman 5.4.
    const ERRORS: &str = "\
quadlet-generator[9]: Loading source unit file /run/containers/systemd/fleet/none.container
quadlet-generator[9]: Loading source unit file /run/containers/systemd/fleet/typo.container
quadlet-generator[9]: Warning: typo.container specifies the image \"web\" which not a fully \
qualified image name.
quadlet-generator[9]: error loading \"/run/containers/systemd/fleet/broken.container\", file \
contains line 1: “[Container” which is not a key-value pair, group, or comment
converting \"none.container\": no Image or Rootfs key specified
converting \"typo.container\": unsupported key 'Exce' in group 'Container' in /run/typo.container
";

    #[test]
    fn refusals_have_the_reason_of_podman() {
        let output = Output {
            status: ExitStatus::from_raw(1 << 8),
            stdout: b"---web.service---\n[X-Container]\nImage=a\n\n---b@1.service---\n".to_vec(),
            stderr: ERRORS.as_bytes().to_vec(),
        };
        let told = |unit: &str| {
            let unit = unit.parse().expect("it is a name");
            refusal(&unit, &output, Path::new("/run/containers/systemd/fleet"))
        };
        let remedy = ": correct it, or install a version of podman that supports it";
        for (unit, reason) in [
            ("none.container", "no Image or Rootfs key specified"),
            (
                "typo.container",
                "unsupported key 'Exce' in group 'Container' in /run/typo.container",
            ),
            (
                "broken.container",
                "file contains line 1: “[Container” which is not a key-value pair, group, or \
                 comment",
            ),
        ] {
            let expected = format!("podman refuses the file: {reason}{remedy}");
            assert_eq!(told(unit), Some(expected), "{unit}");
        }
        assert_eq!([told("web.container"), told("b@1.container")], [None, None]);
        let expected = "podman makes no other.service of it from /run/containers/systemd/fleet: \
                        install podman 5.4 or later";
        assert_eq!(told("other.container").as_deref(), Some(expected));
    }
}
