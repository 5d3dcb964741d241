//! Identity of a machine, and of the daemon instance on it.

use std::path::Path;

use fleet_agent::files::write_atomic;
use fleet_agent::wall_time;
use fleet_core::MachineId;
use fleet_store::Registry;
use fleet_store::registry::Lineage;

use super::{Context as _, StartError};

/// File with the machine ID of a Linux host.
const MACHINE_ID: &str = "/etc/machine-id";

/// Number of random bytes in a token or a machine ID.
const RANDOM_BYTES: usize = 16;

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
    let Some(stored) = read(&path)? else {
        let created = create(&path)?;
        return created.parse().context(|| "internal error: the random ID is invalid".to_owned());
    };
    // A new ID would be that of a new machine, so the daemon does not replace it by itself.
    String::from_utf8_lossy(&stored).trim().parse().context(|| {
        format!(
            "{} does not contain a machine ID (restore the file, or remove it to join as a new \
             machine)",
            path.display()
        )
    })
}

/// Returns the machine ID stored in `directory`, or stores this one.
pub(crate) fn stored_id_or(directory: &Path, fallback: &str) -> Result<MachineId, StartError> {
    let path = directory.join("machine-id");
    if read(&path)?.is_none() {
        let written = write_atomic(&path, format!("{fallback}\n").as_bytes(), true);
        written.context(|| format!("cannot write {}", path.display()))?;
    }
    stored_id(directory)
}

/// Returns the token stored in `directory`, and creates it if necessary.
///
/// The token distinguishes this daemon from others with the same machine ID. A restarted daemon has
/// the same token, so it can take over its earlier presence immediately. A damaged token is
/// replaced: the daemon then waits until the earlier presence ends.
pub(crate) fn token(directory: &Path) -> Result<String, StartError> {
    let path = directory.join("token");
    let Some(stored) = read(&path)? else { return create(&path) };
    if let Some(token) = valid_token(&stored) {
        return Ok(token.to_owned());
    }
    tracing::warn!(
        path = %path.display(),
        "the identity token of this machine is damaged: replacing it by a new one; the machine can \
         join once its earlier presence has ended"
    );
    create(&path)
}

/// Returns the token in a stored file, if the file is as [`create`] writes it.
fn valid_token(stored: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(stored).ok()?.trim();
    let is_token = text.len() == 2 * RANDOM_BYTES && text.bytes().all(|b| b.is_ascii_hexdigit());
    is_token.then_some(text)
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

/// Returns the content of a file, or `None` if the file does not exist.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StartError> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(|| format!("cannot read {}", path.display())),
    }
}

/// Creates or replaces a file atomically with a random content.
fn create(path: &Path) -> Result<String, StartError> {
    let text = random()?;
    let written = write_atomic(path, format!("{text}\n").as_bytes(), true);
    written.context(|| format!("cannot write {}", path.display()))?;
    Ok(text)
}

fn random() -> Result<String, StartError> {
    let mut bytes = [0; RANDOM_BYTES];
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
        assert_eq!(stored_id_or(dir.path(), "dev-1").unwrap(), id);
        let other = tempfile::tempdir().unwrap();
        assert_eq!(stored_id_or(other.path(), "dev-1").unwrap().as_str(), "dev-1");
        assert_eq!(stored_id(other.path()).unwrap().as_str(), "dev-1");
        assert_eq!(token(dir.path()).unwrap(), token(dir.path()).unwrap());
    }

    #[test]
    fn damaged_token_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let first = token(dir.path()).unwrap();
        let cut = &first.as_bytes()[..20];
        for damaged in [&b""[..], b"\n", &[0xff; 20], cut, b"not a token of thirty-two digits"] {
            std::fs::write(&path, damaged).unwrap();
            let replaced = token(dir.path()).unwrap();
            assert!(replaced.len() == 32 && replaced != first, "{damaged:?}: {replaced}");
            assert_eq!(token(dir.path()).unwrap(), replaced, "{damaged:?}");
        }
    }

    #[test]
    fn damaged_machine_id_is_refused_with_remedy() {
        let dir = tempfile::tempdir().unwrap();
        for damaged in [&b""[..], &[0xff; 20]] {
            std::fs::write(dir.path().join("machine-id"), damaged).unwrap();
            let error = stored_id(dir.path()).unwrap_err().to_string();
            assert!(error.contains("remove it to join as a new machine"), "{error}");
        }
    }
}
