//! The machine's record and directories, and the resources and address of the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fleet_agent::native::native_info;
use fleet_agent::wall_time;
use fleet_core::manager::ManagerInfo;
use fleet_core::{MachineId, Resources};
use fleet_http::ListenAddress;
use fleet_store::registry::MachineRecord;

use super::config::{Config, ServiceManagerKind};
use super::{StartError, directories, identity};

/// Returns the directory for the machine's own files.
pub(crate) fn directory(config: &Config) -> PathBuf {
    config.data_dir.join("machine")
}

/// Returns the configured machine ID, or that of the host.
pub(crate) fn id(config: &Config) -> Result<MachineId, StartError> {
    match &config.machine_id {
        Some(id) => Ok(id.clone()),
        None => identity::host_machine_id(&directory(config)),
    }
}

/// Returns the configured address of the machine, or that of its default route.
pub(crate) fn address(config: &Config) -> Option<IpAddr> {
    config.public_ip.or_else(host_address)
}

/// Returns the machine's record, from its configuration, resources and listen addresses.
pub(crate) fn record(config: &Config, id: MachineId, listen: &[ListenAddress]) -> MachineRecord {
    let address = address(config);
    let api = config.auth.url(listen, address);
    MachineRecord {
        address,
        api: api.map_or_else(String::new, |url| url.to_string()),
        metadata: config.metadata.clone(),
        offers: config.offers.apply(resources(&config.data_dir)),
        manager: manager(&config.service_manager),
        ..base_record(id)
    }
}

/// Returns the service manager to publish. The settings of a fleet-init are not known here.
pub(crate) fn manager(kind: &ServiceManagerKind) -> Option<Arc<ManagerInfo>> {
    match kind {
        ServiceManagerKind::Native(settings) => {
            Some(Arc::new(ManagerInfo::Native(native_info(&settings.accept))))
        }
        ServiceManagerKind::FleetInit(_) => None,
        ServiceManagerKind::Systemd(_) => Some(Arc::new(ManagerInfo::Systemd)),
    }
}

/// Sets the offers of a machine that shares this host with others evenly.
pub(crate) fn with_share(record: MachineRecord, machines: u16, directory: &Path) -> MachineRecord {
    let part = |whole: u64| whole / u64::from(machines.max(1));
    let has = resources(directory);
    let offers = Resources { cpu: part(has.cpu), memory: part(has.memory), disk: part(has.disk) };
    MachineRecord { offers, ..record }
}

/// Returns a record with the host and the daemon's version and start time.
pub(crate) fn base_record(id: MachineId) -> MachineRecord {
    MachineRecord {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: identity::host(),
        started: Some(wall_time()),
        ..MachineRecord::new(id)
    }
}

/// Returns the directory for files that a reboot must invalidate: the machine's token, and the end
/// of the time in which the machine is certainly present.
///
/// With a shared store (etcd), this is the runtime directory. A copy of the machine's disk does not
/// contain this directory, so the copy cannot take over the presence of the original. A daemon that
/// restarts finds its token there, so its machine is present again immediately. After a reboot, the
/// token is gone, so the daemon must wait until the previous lease has expired.
///
/// With a private store, no other machine can reach the store. So the files stay in the data
/// directory, and a reboot causes no wait.
pub(crate) fn runtime_dir(config: &Config) -> Result<PathBuf, StartError> {
    if !config.store.is_etcd() {
        return Ok(directory(config));
    }
    let directory = &config.runtime_dir;
    directories::prepare_runtime_dir(directory)?;
    Ok(directory.clone())
}

/// Returns the CPU and memory of this host, and the size of the file system of `directory`. If a
/// resource cannot be determined, its amount is zero, so units cannot reserve it.
pub(crate) fn resources(directory: &Path) -> Resources {
    let resources = Resources { cpu: cpu(), memory: memory(), disk: disk(directory) };
    if resources.first_over(Resources::ZERO).is_none() {
        tracing::warn!(
            "cannot determine the CPU, memory and disk of this machine: units that reserve \
             resources cannot run on it"
        );
    }
    resources
}

/// Returns the source address that the kernel would use for remote hosts, preferring IPv4. No
/// packet is sent, because connecting a UDP socket only looks up a route. Returns `None` without a
/// route.
pub(crate) fn host_address() -> Option<IpAddr> {
    // Documentation addresses, which are routed like any remote address.
    let worlds: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    let way = |(from, to): (IpAddr, IpAddr)| {
        let socket = UdpSocket::bind(SocketAddr::new(from, 0)).ok()?;
        socket.connect(SocketAddr::new(to, 9)).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_loopback() && !address.is_unspecified()).then_some(address)
    };
    worlds.into_iter().find_map(way)
}

/// Returns the number of CPUs that this process may use, in thousandths.
fn cpu() -> u64 {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    u64::try_from(cores).unwrap_or(0).saturating_mul(1000)
}

fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    total(&text).unwrap_or(0)
}

/// Parses the line `MemTotal:  16326428 kB`, and returns bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Returns the total size of the file system.
fn disk(directory: &Path) -> u64 {
    let stat = rustix::fs::statvfs(directory);
    stat.map_or(0, |stat| stat.f_blocks.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::super::config::{RawConfig, RawEntry, RawValue, ValueOrigin};
    use super::*;

    fn config(folder: &Path, store: &str) -> Config {
        let path = |name: &str| folder.join(name).display().to_string();
        let (data, runtime) = (path("data"), path("run"));
        let found = |text: &str| {
            let (raw, origin) =
                (RawValue::Text(text.to_owned()), ValueOrigin::Flag("test".to_owned()));
            RawEntry { raw, origin }
        };
        let pairs = [("store", store), ("data_dir", &data), ("runtime_dir", &runtime)];
        let low: RawConfig = pairs.into_iter().map(|(key, text)| (key, found(text))).collect();
        Config::resolve(&low).unwrap()
    }

    #[cfg(feature = "etcd")]
    #[test]
    fn token_is_not_copied_with_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let shared = config(folder.path(), "etcd");
        let alone = config(folder.path(), "embedded");
        std::fs::create_dir_all(directory(&shared)).unwrap();
        let token = |config| identity::token(&runtime_dir(config).unwrap()).unwrap();
        let before = [&shared, &alone].map(token);
        let again = [&shared, &alone].map(token);
        assert_eq!(again, before, "after a restart of the daemon");
        std::fs::remove_dir_all(&shared.runtime_dir).unwrap();
        let rebooted = [&shared, &alone].map(token);
        assert_ne!(rebooted[0], before[0]);
        assert_eq!(rebooted[1], before[1], "the store is private");
    }

    #[test]
    fn configured_address_overrides_detected() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "memory");
        let own = Config { public_ip: Some("10.0.0.9".parse().unwrap()), ..config.clone() };
        let id: MachineId = "m1".parse().unwrap();
        assert_eq!(record(&own, id.clone(), &[]).address, own.public_ip);
        assert_eq!(record(&config, id, &[]).address, host_address());
    }

    #[test]
    fn host_has_all_resources() {
        let has = resources(Path::new("/"));
        assert!(has.cpu >= 1000 && has.memory > 1 << 20 && has.disk > 0, "{has}");
        assert_eq!(disk(Path::new("/nowhere")), 0);
        assert!(host_address().is_none_or(|address| !address.is_loopback()));
    }

    #[test]
    fn parses_meminfo() {
        let text = "MemTotal:       16326428 kB\nMemFree:         5125236 kB\n";
        assert_eq!(total(text), Some(16_326_428 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }
}
