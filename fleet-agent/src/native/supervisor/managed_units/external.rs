//! External units, which this manager does not run, but which loaded units need.
//!
//! An external unit that has to be probed has a placeholder in the graph, its stand-in. The
//! stand-in starts when a unit needs the external unit, and is active once a probe succeeds. It has
//! no processes and no stored state.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fleet_core::graph::systemd::{CompileOptions, CompiledUnit, Relation, RelationKind, compile};
use fleet_core::graph::{
    ActionKind, Activity, DerivedState, EventKind, Incarnation, Name, ObservedUnit, Phase,
    StatusReport, Target, UnitAction, WaitReason,
};
use fleet_unitfile::{UnitFile, UnitName};
use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::super::core::Core;
use super::super::run_task::{RunReceiver, RunReport, run_channel};
use super::super::units::RunHandle;
use super::ManagedUnits;
use super::status::{Definition, LoadedUnit, name_of};
use crate::Clock;
use crate::native::run::machine::state::{RunState, ServicePhase};
use crate::service_manager::WAITS_FOR;

/// All external units.
#[derive(Default)]
pub(super) struct ExternalRegistry {
    assumed_active: BTreeSet<UnitName>,
    probed: BTreeMap<Name, (External, CompiledUnit)>,
    /// Well-known units that are probed as soon as a unit requires them.
    well_known: BTreeMap<UnitName, External>,
}

/// Units of systemd that are active on any machine that is up.
const STANDARD_UNITS: [&str; 36] = [
    "-.mount",
    "-.slice",
    "basic.target",
    "cryptsetup.target",
    "default.target",
    "first-boot-complete.target",
    "getty.target",
    "graphical.target",
    "integritysetup.target",
    "local-fs-pre.target",
    "local-fs.target",
    "machines.target",
    "multi-user.target",
    "network-online.target",
    "network-pre.target",
    "network.target",
    "nss-lookup.target",
    "nss-user-lookup.target",
    "paths.target",
    "remote-cryptsetup.target",
    "remote-fs-pre.target",
    "remote-fs.target",
    "remote-veritysetup.target",
    "rpcbind.target",
    "slices.target",
    "sockets.target",
    "swap.target",
    "sysinit.target",
    "system.slice",
    "systemd-journald.service",
    "systemd-journald.socket",
    "time-set.target",
    "time-sync.target",
    "timers.target",
    "user.slice",
    "veritysetup.target",
];

/// Well-known units that often run outside of fleet, with the sockets that show that they are up.
const WELL_KNOWN: [(&str, &str); 8] = [
    ("containerd.service", "/run/containerd/containerd.sock"),
    ("crio.service", "/run/crio/crio.sock"),
    ("dbus.service", "/run/dbus/system_bus_socket"),
    ("dbus.socket", "/run/dbus/system_bus_socket"),
    ("docker.service", "/run/docker.sock"),
    ("docker.socket", "/run/docker.sock"),
    ("podman.service", "/run/podman/podman.sock"),
    ("podman.socket", "/run/podman/podman.sock"),
];

impl ExternalRegistry {
    pub(super) fn new(all: BTreeMap<UnitName, External>) -> Self {
        let name = |text: &str| UnitName::parse(text).expect("it is the name of a unit");
        let mut externals = Self {
            assumed_active: STANDARD_UNITS.into_iter().map(name).collect(),
            well_known: WELL_KNOWN
                .into_iter()
                .map(|(unit, path)| (name(unit), External::Path(path.into())))
                .collect(),
            ..Self::default()
        };
        for (unit, external) in all {
            externals.assumed_active.remove(&unit);
            externals.well_known.remove(&unit);
            if external == External::Up {
                externals.assumed_active.insert(unit);
            } else {
                externals.probed.insert(name_of(&unit), (external, stand_in(&unit)));
            }
        }
        externals
    }

    /// Adds the well-known units among those that a loaded unit requires. They are probed from then
    /// on.
    pub(super) fn require<'a>(&mut self, relations: impl IntoIterator<Item = &'a Relation>) {
        for relation in relations {
            let is_required = matches!(
                relation.kind,
                RelationKind::BindsTo | RelationKind::Requires | RelationKind::Requisite
            );
            if is_required && let Some(external) = self.well_known.remove(&relation.unit) {
                let unit = &relation.unit;
                self.probed.insert(name_of(unit), (external, stand_in(unit)));
            }
        }
    }

    /// Returns the units that always count as up.
    pub(super) fn assumed_active(&self) -> &BTreeSet<UnitName> {
        &self.assumed_active
    }

    /// Returns a probed unit by the name of its stand-in.
    pub(super) fn get(&self, name: &Name) -> Option<&External> {
        self.probed.get(name).map(|(external, _)| external)
    }

    /// Returns the stand-ins of the probed units, by name.
    pub(super) fn stand_ins(&self) -> impl Iterator<Item = (&Name, &CompiledUnit)> {
        self.probed.iter().map(|(name, (_, compiled))| (name, compiled))
    }

    /// Probes all units, and returns those that are up.
    pub(super) async fn find_up(&self, clock: &dyn Clock) -> Vec<Name> {
        let probes = self
            .probed
            .iter()
            .map(async |(name, (external, _))| external.is_up(clock).await.then(|| name.clone()));
        join_all(probes).await.into_iter().flatten().collect()
    }

    /// Returns the observed state of an external unit that was already up when this manager was
    /// opened. The planner takes this state over.
    pub(super) fn observed_up(
        &self,
        name: &Name,
        run: Incarnation,
        clock: &dyn Clock,
    ) -> ObservedUnit {
        let unit = self.probed.get(name).map(|(_, compiled)| Arc::clone(&compiled.unit));
        ObservedUnit {
            phase: Phase::Active(Activity::Running),
            since: clock.now(),
            active_since: Some(clock.now()),
            incarnation: Some(run),
            definition: unit,
            processes: true,
            ..ObservedUnit::default()
        }
    }
}

/// Task of a started stand-in. If the first probe fails, the task reports why units wait for the
/// external unit. Once the external unit is up, the task reports the stand-in as ready. When the
/// task is asked to stop, it reports that the stand-in has ended.
struct ExternalWatch {
    external: External,
    clock: Arc<dyn Clock>,
    unit: Name,
    incarnation: Incarnation,
    receiver: RunReceiver,
    reports: mpsc::Sender<RunReport>,
}

impl ExternalWatch {
    async fn run(mut self) {
        let (mut is_up, mut is_missing) = (false, false);
        loop {
            tokio::select! {
                update = self.receiver.next() => {
                    let Some((_, action)) = update else { return };
                    if matches!(action, Some(ActionKind::Stop { .. } | ActionKind::Kill)) {
                        return self.report(Some(EventKind::AllGone), ServicePhase::Dead).await;
                    }
                }
                found = self.external.probe(&*self.clock, is_missing), if !is_up => {
                    (is_up, is_missing) = (found, !found);
                    let (event, phase) = match found {
                        true => (Some(EventKind::Ready), ServicePhase::Running),
                        false => (None, ServicePhase::Start),
                    };
                    self.report(event, phase).await;
                }
            }
        }
    }

    async fn report(&self, event: Option<EventKind>, phase: ServicePhase) {
        let is_missing = phase == ServicePhase::Start;
        let report = RunReport {
            unit: self.unit.clone(),
            incarnation: self.incarnation,
            events: event.into_iter().collect(),
            run_state: Arc::new(RunState { phase, ..RunState::default() }),
            problem: is_missing.then(|| self.external.wait_reason(&self.unit)),
        };
        // The supervisor may be gone.
        drop(self.reports.send(report).await);
    }
}

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
/// use fleet_agent::native::External;
///
/// let docker: External = "path:/run/docker.sock".parse()?;
/// assert_eq!(docker, External::Path("/run/docker.sock".into()));
/// assert!("path:docker.sock".parse::<External>().is_err());
/// # Ok::<(), fleet_agent::native::BadExternal>(())
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
    /// Starts the task of a stand-in, which waits for the unit to be up.
    pub(in super::super) fn watch(
        self,
        clock: Arc<dyn Clock>,
        action: &UnitAction,
        reports: mpsc::Sender<RunReport>,
    ) -> RunHandle {
        let (sender, receiver) = run_channel();
        let (unit, incarnation) = (action.unit.clone(), action.incarnation);
        let watch = ExternalWatch { external: self, clock, unit, incarnation, receiver, reports };
        let task = tokio::spawn(watch.run()).abort_handle();
        RunHandle { incarnation, sender, task }
    }

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

    /// Probes the unit: once, or until it is up. Returns whether it is up.
    async fn probe(&self, clock: &dyn Clock, until_up: bool) -> bool {
        if until_up {
            self.wait_until_up(clock).await;
            return true;
        }
        self.is_up(clock).await
    }

    /// Returns why units wait for this unit, which is not up, with the remedy.
    fn wait_reason(&self, unit: &Name) -> String {
        let missing = match self {
            Self::Up => "it is not up".to_owned(),
            Self::Path(path) => format!("nothing is at {}", path.display()),
            Self::Tcp(address) => format!("nothing answers at {address}"),
        };
        format!(
            "{WAITS_FOR}{unit}: {missing}; start {unit} on the machine, or set when it counts as \
             up: native_external in the configuration, or --native-external of \"fleetd dev\""
        )
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
    let name = Name::new(unit.as_str());
    let name = name.expect("each name of a unit of systemd is one of the graph");
    let unit = Arc::make_mut(&mut compiled.unit);
    unit.provides = vec![Target::from(&name)];
    unit.name = name;
    compiled
}

impl ManagedUnits {
    /// Marks the units that depend on an external unit, also through other units, because the
    /// reason why they wait may have changed.
    pub(super) fn touch_dependents(&mut self, external: &Name) {
        let depends = |loaded: &LoadedUnit, name: &Name| match &loaded.definition {
            Definition::Valid(compiled) => {
                compiled.relations.iter().any(|it| it.unit.as_str() == name.as_str())
            }
            Definition::Invalid(_) => false,
        };
        let (mut found, mut unread) = (BTreeSet::new(), vec![external.clone()]);
        while let Some(name) = unread.pop() {
            for (dependent, loaded) in &self.loaded_units {
                if depends(loaded, &name) && found.insert(dependent.clone()) {
                    unread.push(dependent.clone());
                }
            }
        }
        self.touched.append(&mut found);
    }

    /// Returns why a unit in this state waits for an external unit, if it does. It may wait for
    /// another unit that waits for the external one.
    pub(super) fn external_wait(&self, core: &Core, state: &StatusReport) -> Option<String> {
        self.external_wait_of(core, state, &mut BTreeSet::new())
    }

    fn external_wait_of(
        &self,
        core: &Core,
        state: &StatusReport,
        visited: &mut BTreeSet<Name>,
    ) -> Option<String> {
        let DerivedState::Waiting(WaitReason::Dependencies(targets)) = &state.state else {
            return None;
        };
        targets.iter().find_map(|target| {
            let name = Name::new(target.as_str()).ok()?;
            if self.is_loaded(&name) {
                if !visited.insert(name.clone()) {
                    return None;
                }
                let why = self.external_wait_of(core, &core.planner.status(&name)?, visited)?;
                return Some(format!("{WAITS_FOR}{name}, which {why}"));
            }
            self.graph.external(&name)?;
            core.units.get(&name)?.problem.clone()
        })
    }
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
