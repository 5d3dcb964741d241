//! Identity of a machine, and of the daemon instance on it.

use std::path::Path;

use fleet_agent::{wall_time, write_atomic};
use fleet_core::MachineId;
use fleet_store::{Lineage, Registry};

use super::error::{Context as _, StartError};

/// File with the machine ID of a Linux host.
const MACHINE_ID: &str = "/etc/machine-id";

/// Returns the machine ID in `/etc/machine-id`. If that file is missing or empty, as in a
/// container, returns the machine ID stored in `directory`.
pub(crate) fn host_machine_id(directory: &Path) -> Result<MachineId, StartError> {
    match std::fs::read_to_string(MACHINE_ID) {
        Ok(text) if !text.trim().is_empty() => {
            text.trim().parse().context(|| format!("{MACHINE_ID} does not contain a machine ID"))
        }
        _ => stored_id(directory),
    }
}

/// Returns the machine ID stored in `directory`, or creates one.
pub(crate) fn stored_id(directory: &Path) -> Result<MachineId, StartError> {
    let path = directory.join("machine-id");
    let text = load_or_create(&path)?;
    text.parse().context(|| format!("{} does not contain a machine ID", path.display()))
}

/// Returns the token stored in `directory`, and creates it if necessary.
///
/// The token distinguishes this daemon from others with the same machine ID. A restarted daemon has
/// the same token, so it can take over its earlier presence immediately.
pub(crate) fn token(directory: &Path) -> Result<String, StartError> {
    load_or_create(&directory.join("token"))
}

/// Returns the host name.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Ensures that the store has a lineage. If the store fails, the error is only logged, because the
/// cluster also works without a lineage. But without it, daemons do not notice that a store was
/// restored from a backup. The next daemon that starts tries again.
pub(crate) async fn ensure_lineage(registry: &Registry) -> Result<(), StartError> {
    let fresh: Lineage = random()?
        .parse()
        .context(|| "internal error: the random cluster identity is invalid".to_owned())?;
    // Later than any epoch that this machine may remember of an earlier cluster.
    let fresh = fresh.with_epoch_base(wall_time().as_millis() * 1000);
    if let Err(error) = registry.lineage(&fresh).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(
            error,
            "cannot give the store an identity (lineage): until any fleetd starts again, fleetd \
             does not notice that a backup of the store was restored"
        );
    }
    Ok(())
}

/// Returns the trimmed content of a file. If the file does not exist, creates it atomically with a
/// random content.
fn load_or_create(path: &Path) -> Result<String, StartError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(path),
        Err(error) => Err(error).context(|| format!("cannot read {}", path.display())),
    }
}

fn create(path: &Path) -> Result<String, StartError> {
    let text = random()?;
    let written = write_atomic(path, format!("{text}\n").as_bytes(), true);
    written.context(|| format!("cannot write {}", path.display()))?;
    Ok(text)
}

fn random() -> Result<String, StartError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        StartError::new(format!("cannot get random bytes from the kernel: {error}"))
    })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_created_once() {
        let dir = tempfile::tempdir().unwrap();
        let id = stored_id(dir.path()).unwrap();
        assert_eq!(id.as_str().len(), 32);
        assert_eq!(stored_id(dir.path()).unwrap(), id);
        assert_eq!(token(dir.path()).unwrap(), token(dir.path()).unwrap());
    }
}
