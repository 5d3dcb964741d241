//! Units that somebody else runs on the machine, and how it is seen that they are up.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::systemd::{CompileOptions, CompiledUnit, compile};
use fleet_unitfile::{UnitFile, UnitName};
use tokio::net::TcpStream;

use crate::Clock;

/// How long passes from one look to the next while a unit is waited for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a connection may take that is to show that a unit is up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A unit that somebody else runs on this machine: when those who depend on it may go on.
///
/// It is written `up`, `path:FILE` or `tcp:HOST:PORT`. What is looked for is looked for once a
/// second while somebody waits for it, and from then on taken to be up for as long as it is needed.
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
    /// It is taken to be up.
    Up,
    /// It is up once there is something at this absolute path.
    Path(PathBuf),
    /// It is up once connections are taken at this host and port.
    Tcp(String),
}

/// What is no way to see that a unit is up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not say when a unit is up: write up, path:/absolute/file or tcp:host:port")]
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
    /// Looks whether it is up.
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

    /// Waits until it is up.
    pub(crate) async fn wait_until_up(&self, clock: &dyn Clock) {
        while !self.is_up(clock).await {
            clock.sleep_until(clock.now().after(POLL_INTERVAL)).await;
        }
    }
}

/// What stands in the graph for a unit that is waited for. Its commands are never run.
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
    fn what_it_is_seen_by_is_read_or_refused() {
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
    fn what_stands_in_for_a_unit_has_its_name_whatever_its_type() {
        for name in ["docker.service", "network-online.target", "a.mount"] {
            let unit = stand_in(&name.parse().expect("it is a name")).unit;
            assert_eq!((unit.name.as_str(), unit.provides[0].as_str()), (name, name));
            assert!(!unit.is_virtual() && unit.timeouts.start.is_none());
        }
    }
}
