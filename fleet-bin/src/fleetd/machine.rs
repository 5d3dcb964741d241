//! What this machine says of itself, and what tells its daemon from others.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use fleet_agent::wall_time;
use fleet_core::{MachineId, Resources};
use fleet_http::Listen;
use fleet_store::MachineRecord;

use super::config::Config;
use super::error::{Context as _, StartError};
use super::{facts, identity};

/// Where the data directory has what belongs to the machine itself.
pub(crate) fn directory(config: &Config) -> PathBuf {
    config.data_dir.join("machine")
}

/// The machine's identity: the one of the configuration, or its own.
pub(crate) fn id(config: &Config) -> Result<MachineId, StartError> {
    match &config.machine_id {
        Some(id) => Ok(id.clone()),
        None => identity::of_this_machine(&directory(config)),
    }
}

/// What the machine says of itself, by its configuration, by what it has and by where its daemon
/// listens.
pub(crate) fn record(config: &Config, id: MachineId, listen: &[Listen]) -> MachineRecord {
    let address = config.public_ip.or_else(facts::address);
    let api = config.doors.url(listen, address);
    MachineRecord {
        address,
        api: api.map_or_else(String::new, |url| url.to_string()),
        metadata: config.metadata.clone(),
        offers: config.offers.of(facts::resources(&config.data_dir)),
        ..of_this_daemon(id)
    }
}

/// One of several machines that share this one evenly.
pub(crate) fn share(record: MachineRecord, machines: u16, directory: &Path) -> MachineRecord {
    let part = |whole: u64| whole / u64::from(machines.max(1));
    let has = facts::resources(directory);
    let offers = Resources { cpu: part(has.cpu), memory: part(has.memory), disk: part(has.disk) };
    MachineRecord { offers, ..record }
}

/// A machine of which nothing is said but its host, and which daemon runs on it from now on.
pub(crate) fn of_this_daemon(id: MachineId) -> MachineRecord {
    MachineRecord {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: identity::host(),
        started: Some(wall_time()),
        ..MachineRecord::new(id)
    }
}

/// Where a daemon keeps what is worth nothing after the next boot: until when its machine was
/// certainly present, and what tells it from others under the same identity.
///
/// Where several machines share a store, that is a directory that a reboot clears and that no copy
/// of a disk has: the copy of a machine must not take the original's place. A daemon that is
/// started again finds it there and has its place at once; after a reboot the place is free when
/// the lease of the life before has ended. A store of its own no other machine can reach, so there
/// all stays with the data, and a machine that boots need not wait.
pub(crate) fn until_boot(config: &Config) -> Result<PathBuf, StartError> {
    if !config.store.is_etcd() {
        return Ok(directory(config));
    }
    let directory = &config.runtime_dir;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.context(|| format!("cannot make {}: choose another runtime_dir", directory.display()))?;
    Ok(directory.clone())
}

#[cfg(test)]
mod tests {
    use super::super::config::{Found, Low, Origin, Raw};
    use super::*;

    fn config(folder: &Path, store: &str) -> Config {
        let path = |name: &str| folder.join(name).display().to_string();
        let (data, runtime) = (path("data"), path("run"));
        let found = |text: &str| {
            let (raw, origin) = (Raw::Text(text.to_owned()), Origin::Flag("test".to_owned()));
            Found { raw, origin }
        };
        let pairs = [("store", store), ("data_dir", &data), ("runtime_dir", &runtime)];
        let low: Low = pairs.into_iter().map(|(key, text)| (key, found(text))).collect();
        Config::resolve(&low).unwrap()
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn a_copied_disk_has_not_what_tells_a_machine_from_its_copy() {
        let folder = tempfile::tempdir().unwrap();
        let shared = config(folder.path(), "etcd");
        let alone = config(folder.path(), "embedded");
        std::fs::create_dir_all(directory(&shared)).unwrap();
        let token = |config| identity::token(&until_boot(config).unwrap()).unwrap();
        let before = [&shared, &alone].map(token);
        let again = [&shared, &alone].map(token);
        assert_eq!(again, before, "a daemon that is started again");
        std::fs::remove_dir_all(&shared.runtime_dir).unwrap();
        let rebooted = [&shared, &alone].map(token);
        assert_ne!(rebooted[0], before[0]);
        assert_eq!(rebooted[1], before[1], "no other machine reaches that store");
    }

    #[test]
    fn what_the_configuration_says_wins_over_what_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "memory");
        let own = Config { public_ip: Some("10.0.0.9".parse().unwrap()), ..config.clone() };
        let id: MachineId = "m1".parse().unwrap();
        assert_eq!(record(&own, id.clone(), &[]).address, own.public_ip);
        assert_eq!(record(&config, id, &[]).address, facts::address());
    }
}
