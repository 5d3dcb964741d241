//! Resources and address of the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

use fleet_core::Resources;

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
pub(crate) fn address() -> Option<IpAddr> {
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
    use super::*;

    #[test]
    fn host_has_all_resources() {
        let has = resources(Path::new("/"));
        assert!(has.cpu >= 1000 && has.memory > 1 << 20 && has.disk > 0, "{has}");
        assert_eq!(disk(Path::new("/nowhere")), 0);
        assert!(address().is_none_or(|address| !address.is_loopback()));
    }

    #[test]
    fn parses_meminfo() {
        let text = "MemTotal:       16326428 kB\nMemFree:         5125236 kB\n";
        assert_eq!(total(text), Some(16_326_428 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }
}
