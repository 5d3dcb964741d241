//! `fleetd dev`: a whole cluster in one process.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_core::cycle::{machine_of_cycle, replaces_cycle, start_after_cycle};
use fleet_core::requirements::ParsedRequirements;
use fleet_core::{Metadata, Requirements, Snapshot, Strictness, TargetState, Unit};
use fleet_http::{AuthPolicy, ListenAddress, Listener, Peers};
use fleet_store::registry::{ExpectUnit, MachineRecord, NewUnit};
use fleet_unitfile::UnitName;

use super::config::{NativeSettings, ServiceManagerKind, StoreKind};
use super::offline::StorePolicy;
use super::run::{ShutdownSignals, config_error};
use super::wire_up::{DaemonParts, MachineSetup, RunningDaemon};
use super::{Context as _, DevArgs, StartError, directories, identity, machine, run, say, summary};
use crate::ui::unit_text::UnitText;
use crate::ui::{findings, global_args};

/// Lease duration of machines and of the engine in a development cluster. A machine or engine that
/// has not renewed its lease for this time counts as gone.
const TTL: Duration = Duration::from_secs(10);

/// Time that units have to come up before the summary is printed.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the cluster until Ctrl-C, and then stops its units. A second Ctrl-C exits at once and
/// leaves the remaining units running.
pub(crate) async fn run(args: DevArgs) -> Result<(), StartError> {
    let units = read_units(&args.units)?; // All files are checked before anything starts
    let data_dir = data_dir(args.data_dir.as_deref())?;
    let mut signals = ShutdownSignals::listen()?;
    let listeners = run::bind(&listen(&args.listen, &data_dir)?, &AuthPolicy::default()).await?;
    let endpoints: Vec<ListenAddress> =
        listeners.iter().map(Listener::local_address).cloned().collect();
    let wiring = wiring(&args, data_dir, listeners)?;
    let mut running = wiring.start().await?;
    let result = tokio::select! {
        error = run_cluster(&mut running, units, &endpoints) => Err(error),
        () = signals.next() => Ok(()),
    };
    // No process is left behind, except after a second Ctrl-C.
    say("\nStopping all units; press Ctrl-C again to exit without waiting");
    let ended = tokio::select! {
        ended = running.end_with_units() => ended,
        () = signals.next() => Err(StartError::new(
            "interrupted: the remaining units keep running, and \"fleetd dev\" on the same data \
             adopts them",
        )),
    };
    result.and(ended)
}

/// Launches the units, and returns when the cluster fails.
async fn run_cluster(
    running: &mut RunningDaemon,
    units: Vec<NewUnit>,
    endpoints: &[ListenAddress],
) -> StartError {
    match launch_units(running, units, endpoints).await {
        Ok(()) => running.wait_failed().await,
        Err(error) => error,
    }
}

async fn launch_units(
    running: &mut RunningDaemon,
    units: Vec<NewUnit>,
    endpoints: &[ListenAddress],
) -> Result<(), StartError> {
    let earlier = summary::first_snapshot(&running.mirror).await;
    running.joined().await;
    say(&summary::endpoints(running.mirror.snapshot().machines().len(), endpoints));
    for unit in units {
        let name = unit.name.clone();
        let put = running.registry.put_unit(unit, ExpectUnit::Any).await;
        let revision = put.context(|| format!("cannot launch {name}"))?;
        // The code below looks the unit up in the mirror.
        running
            .mirror
            .wait_for(revision)
            .await
            .context(|| format!("cannot read {name} back from the store"))?;
    }
    let settled = summary::wait_settled(&running.mirror, earlier);
    let _late = tokio::time::timeout(SETTLE_TIMEOUT, settled).await.is_err();
    say(&summary::units(&running.mirror.snapshot()));
    say(&summary::next_steps(&running.mirror.snapshot(), endpoints, is_found(endpoints)));
    Ok(())
}

/// Whether fleetctl finds the cluster without an endpoint: at the default socket of a development
/// cluster, unless this host has a daemon.
fn is_found(endpoints: &[ListenAddress]) -> bool {
    let directory = global_args::default(&|name| std::env::var_os(name));
    let socket =
        directory.and_then(|it| it.canonicalize().ok()).map(|it| it.join(global_args::SOCKET));
    let socket = socket.map(ListenAddress::Unix);
    !Path::new("/run/fleet.sock").exists() && endpoints.iter().any(|it| Some(it) == socket.as_ref())
}

fn wiring(
    args: &DevArgs,
    data_dir: PathBuf,
    listeners: Vec<Listener>,
) -> Result<DaemonParts, StartError> {
    let settings = NativeSettings::for_dev(args.native.0.clone()).map_err(config_error)?;
    let service_manager = ServiceManagerKind::Native(settings);
    let manager = machine::manager(&service_manager);
    let machine = |number| {
        let mut setup = machine_of(&data_dir, number, args.machines)?;
        setup.machine.manager.clone_from(&manager);
        Ok(setup)
    };
    Ok(DaemonParts {
        store: StoreKind::Embedded,
        service_manager,
        machines: (0..args.machines).map(machine).collect::<Result<_, StartError>>()?,
        data_dir,
        listeners,
        peers: Peers::default(),
        engine: true,
        agent_ttl: TTL,
        engine_ttl: TTL,
        token_limit: 100,
        strictness: Strictness::Refuse,
    })
}

/// Returns the setup of one of the machines, which all run on this host. The machines get the zones
/// `a`, `b` and `c` in turn as metadata, and every second machine has an SSD.
fn machine_of(data_dir: &Path, number: u16, machines: u16) -> Result<MachineSetup, StartError> {
    let all = data_dir.join("machines");
    let directory = all.join(format!("{}", number + 1));
    directories::create_private(&all)?;
    directories::create_private(&directory)?;
    let zone = ["a", "b", "c"][usize::from(number % 3)];
    let disk = if number.is_multiple_of(2) { "ssd" } else { "hdd" };
    let name = format!("dev-{}", number + 1);
    let pairs = [("name", name.as_str()), ("zone", zone), ("disk", disk)];
    let metadata: Metadata = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let machine = MachineRecord {
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        metadata,
        ..machine::base_record(identity::stored_id_or(&directory, &name)?)
    };
    let machine = machine::with_share(machine, machines, data_dir);
    let (token, runtime_dir) = (identity::token(&directory)?, directory.clone());
    // It stops its units when it ends, so none is left to protect.
    let store_policy = StorePolicy::Any;
    Ok(MachineSetup { machine, token, directory, runtime_dir, store_policy })
}

/// Returns the requested directory, or by default one below the user's state directory.
fn data_dir(requested: Option<&Path>) -> Result<PathBuf, StartError> {
    let default = || global_args::default(&|name| std::env::var_os(name));
    let directory = requested.map(Path::to_owned).or_else(default).ok_or_else(|| {
        StartError::usage(
            "cannot choose a data directory: neither XDG_STATE_HOME nor HOME is set; specify \
                 --data-dir DIR",
        )
    })?;
    directories::prepare_data_dir(&directory, directories::DEV_DATA_DIR_MODE)?;
    directory
        .canonicalize()
        .context(|| format!("cannot use the data directory {}", directory.display()))
}

fn listen(requested: &[String], data_dir: &Path) -> Result<Vec<ListenAddress>, StartError> {
    if requested.is_empty() {
        return Ok(vec![ListenAddress::Unix(data_dir.join(global_args::SOCKET))]);
    }
    let parse = |text: &String| {
        text.parse().map_err(|error| StartError::usage(format!("--listen {text}: {error}")))
    };
    requested.iter().map(parse).collect()
}

/// Reads and checks the unit files at these paths, with their drop-ins. The path of a directory
/// selects all unit files in it.
///
/// The desired state of a template is inactive, and that of any other unit is launched.
fn read_units(paths: &[PathBuf]) -> Result<Vec<NewUnit>, StartError> {
    let mut units = Vec::new();
    for path in paths {
        let orphans = findings::orphaned_drop_ins(path)
            .map_err(|error| StartError::because("cannot look for drop-ins", error))?;
        if let Some(orphan) = orphans.first() {
            return Err(StartError::usage(format!("nothing was started: {orphan}")));
        }
        for file in unit_files(path)? {
            units.push(read_unit(&file)?);
        }
    }
    units.sort_by(|a: &NewUnit, b| a.name.cmp(&b.name));
    refuse_cycles(&units)?;
    Ok(units)
}

/// Refuses units that form a cycle, since they can never be placed or started.
fn refuse_cycles(units: &[NewUnit]) -> Result<(), StartError> {
    let mut known = Snapshot::default();
    for NewUnit { name, file, desired } in units {
        let parsed = Requirements::parse(name, file, Strictness::Refuse);
        let Ok(ParsedRequirements { requirements, .. }) = parsed else { continue };
        let unit = Unit::new(name.clone(), file.clone(), requirements, *desired);
        if let Some(cycle) = machine_of_cycle(&known, &unit).or(replaces_cycle(&known, &unit)) {
            return Err(StartError::usage(format!("nothing was started: {cycle}")));
        }
        known.put_unit(unit);
    }
    match start_after_cycle(&known, units.iter().map(|unit| &unit.name)) {
        Some(cycle) => Err(StartError::usage(format!("nothing was started: {cycle}"))),
        None => Ok(()),
    }
}

fn unit_files(path: &Path) -> Result<Vec<PathBuf>, StartError> {
    if !path.exists() {
        return Err(StartError::usage(format!(
            "no unit file or directory {}: specify an existing path",
            path.display()
        )));
    }
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = path.read_dir().context(|| format!("cannot read {}", path.display()))?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(files.filter(|file| file.is_file() && unit_name(file).is_ok()).collect())
}

fn unit_name(path: &Path) -> Result<UnitName, StartError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    UnitName::parse(&name)
        .map_err(|error| StartError::usage(format!("{}: {error}", path.display())))
}

fn read_unit(path: &Path) -> Result<NewUnit, StartError> {
    let name = unit_name(path)?;
    let source = std::fs::read(path).context(|| format!("cannot read {}", path.display()))?;
    let text = UnitText::read(&name, path, &source)
        .map_err(|error| StartError::because("cannot read drop-ins", error))?;
    let (file, findings) = findings::check_text(&name, &text);
    let Some(file) = file else {
        let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
        return Err(StartError::usage(format!(
            "nothing was started: a unit file has errors\n{}",
            findings.join("\n")
        )));
    };
    let template = name.is_template();
    let desired = if template { TargetState::Inactive } else { TargetState::Launched };
    Ok(NewUnit { name, file, desired })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_path_is_not_reported_as_a_bad_unit_name() {
        let error = read_units(&[PathBuf::from("/nonexist")]).unwrap_err().to_string();
        assert_eq!(error, "no unit file or directory /nonexist: specify an existing path");
    }
}
