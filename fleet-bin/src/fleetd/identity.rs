//! Who a machine is, and what tells its daemon from another one under the same identity.

use std::io::Write as _;
use std::path::Path;

use fleet_agent::wall_time;
use fleet_core::MachineId;
use fleet_store::{Lineage, Registry};

use super::error::{Context as _, StartError};

/// Where the identity of a Linux machine is kept.
const MACHINE_ID: &str = "/etc/machine-id";

/// The identity of the machine that this process runs on; where it has none, as in a container, the
/// one that is kept in `directory`.
pub(crate) fn of_this_machine(directory: &Path) -> Result<MachineId, StartError> {
    match std::fs::read_to_string(MACHINE_ID) {
        Ok(text) if !text.trim().is_empty() => {
            text.trim().parse().context(|| format!("{MACHINE_ID} holds no machine ID"))
        }
        _ => kept_in(directory),
    }
}

/// The identity kept in `directory`; a new one if there is none.
pub(crate) fn kept_in(directory: &Path) -> Result<MachineId, StartError> {
    let path = directory.join("machine-id");
    let text = kept(&path)?;
    text.parse().context(|| format!("{} holds no machine ID", path.display()))
}

/// What tells the daemon that keeps its files in `directory` from every other one; the same after
/// a restart, so that a daemon that comes back takes its machine's place at once.
pub(crate) fn token(directory: &Path) -> Result<String, StartError> {
    kept(&directory.join("token"))
}

/// The name of this host, for people.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Sees to it that the cluster's memory has a lineage. If that cannot be, the next daemon to start
/// does it: only a restored store could be missed for want of one.
pub(crate) async fn settle_lineage(registry: &Registry) -> Result<(), StartError> {
    let fresh: Lineage = random()?.parse().context(|| "a random text is no lineage".to_owned())?;
    // Later than any order that this machine may remember of a cluster that it was in before.
    let fresh = fresh.beginning_at(wall_time().as_millis() * 1000);
    if let Err(error) = registry.lineage(&fresh).await {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "cannot say which lineage the store is of");
    }
    Ok(())
}

/// The content of a file; if there is none, it is made with random content, whole or not at all.
fn kept(path: &Path) -> Result<String, StartError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => create(path),
        Err(error) => Err(error).context(|| format!("cannot read {}", path.display())),
    }
}

fn create(path: &Path) -> Result<String, StartError> {
    let text = random()?;
    write_whole(path, &text).context(|| format!("cannot write {}", path.display()))?;
    Ok(text)
}

fn random() -> Result<String, StartError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StartError::new(error.to_string()))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = std::fs::File::create(&beside)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let id = kept_in(dir.path()).unwrap();
        assert_eq!(id.as_str().len(), 32);
        assert_eq!(kept_in(dir.path()).unwrap(), id);
        assert_eq!(token(dir.path()).unwrap(), token(dir.path()).unwrap());
    }
}
