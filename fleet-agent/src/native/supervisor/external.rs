//! External units, which this service manager does not run, and the probes for these units.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::systemd::{CompileOptions, CompiledUnit, compile};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::net::TcpStream;

use crate::Clock;

/// Interval between two probes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout for a connection to a TCP address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A unit that this service manager does not run, with the condition under which it counts as up.
///
/// The text form is `up`, `path:FILE` or `tcp:HOST:PORT`. While another unit waits for the external
/// unit, the service manager probes the path or address once a second. Once a probe succeeds, the
/// external unit counts as up for as long as it is needed.
///
/// ```
/// use fleet_agent::External;
///
/// let docker: External = "path:/run/docker.sock".parse()?;
/// assert_eq!(docker, External::Path("/run/docker.sock".into()));
/// assert!("path:docker.sock".parse::<External>().is_err());
/// # Ok::<(), fleet_agent::BadExternal>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum External {
    /// Always counts as up.
    Up,
    /// Up once this absolute path exists.
    Path(PathBuf),
    /// Up once this host and port accept connections.
    Tcp(String),
}

/// Error for a text that is not an [`External`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not say when an external unit is active: write \"up\" (always), \
     \"path:/absolute/file\" (if the file exists) or \"tcp:host:port\" (if the port accepts \
     connections)"
)]
pub struct BadExternal(String);

impl FromStr for External {
    type Err = BadExternal;

    fn from_str(text: &str) -> Result<Self, BadExternal> {
        let bad = || BadExternal(text.to_owned());
        match text.split_once(':') {
            None if text == "up" => Ok(Self::Up),
            Some(("path", path)) if path.starts_with('/') => Ok(Self::Path(path.into())),
            Some(("tcp", address)) => {
                let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
                let good = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0);
                good.then(|| Self::Tcp(address.to_owned())).ok_or_else(bad)
            }
            _ => Err(bad()),
        }
    }
}

impl External {
    /// Probes the unit once.
    pub(crate) async fn is_up(&self, clock: &dyn Clock) -> bool {
        match self {
            Self::Up => true,
            Self::Path(path) => tokio::fs::try_exists(path).await.unwrap_or(false),
            Self::Tcp(address) => {
                let timeout = clock.sleep_until(clock.now().after(CONNECT_TIMEOUT));
                tokio::select! {
                    connected = TcpStream::connect(address) => connected.is_ok(),
                    () = timeout => false,
                }
            }
        }
    }

    /// Waits until the unit is up.
    pub(crate) async fn wait_until_up(&self, clock: &dyn Clock) {
        while !self.is_up(clock).await {
            clock.sleep_until(clock.now().after(POLL_INTERVAL)).await;
        }
    }
}

/// Compiles the placeholder that represents an external unit in the graph. The supervisor never
/// runs the commands of the placeholder.
pub(crate) fn stand_in(unit: &UnitName) -> CompiledUnit {
    let text = "[Unit]\nDefaultDependencies=no\n[Service]\nType=notify\nTimeoutSec=infinity\n\
                ExecStart=/bin/false\n";
    let file = UnitFile::parse(text).expect("it is well formed");
    let service = UnitName::parse("stand-in.service").expect("it is a name of a unit");
    let mut compiled =
        compile(&service, &file, &CompileOptions::default()).expect("it can be compiled");
    let name = fleet_core::graph::Name::new(unit.as_str());
    let name = name.expect("each name of a unit of systemd is one of the graph");
    let unit = Arc::make_mut(&mut compiled.unit);
    unit.provides = vec![fleet_core::graph::Target::from(&name)];
    unit.name = name;
    compiled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_conditions_are_parsed_or_refused() {
        for (text, external) in [
            ("up", External::Up),
            ("path:/run/a b", External::Path("/run/a b".into())),
            ("tcp:localhost:80", External::Tcp("localhost:80".to_owned())),
            ("tcp:[::1]:80", External::Tcp("[::1]:80".to_owned())),
        ] {
            assert_eq!(text.parse(), Ok(external));
        }
        for text in ["", "down", "up:", "path:", "path:a", "tcp:", "tcp:a", "tcp::80", "tcp:a:0"] {
            let bad = text.parse::<External>().expect_err("it says nothing");
            assert!(bad.to_string().starts_with(&format!("{text:?} does not say")), "{bad}");
        }
    }

    #[test]
    fn a_stand_in_has_the_name_of_its_unit() {
        for name in ["docker.service", "network-online.target", "a.mount"] {
            let unit = stand_in(&name.parse().expect("it is a name")).unit;
            assert_eq!((unit.name.as_str(), unit.provides[0].as_str()), (name, name));
            assert!(!unit.is_virtual() && unit.timeouts.start.is_none());
        }
    }
}
