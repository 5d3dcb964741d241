//! `fleetd dev`: a whole cluster in one process.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_core::{
    Metadata, Parsed, Requirements, Snapshot, Strictness, TargetState, Unit, machine_of_cycle,
    replaces_cycle,
};
use fleet_http::{Guard, Listen, Listener, Peers};
use fleet_store::{ExpectUnit, MachineRecord, NewUnit};
use fleet_unitfile::UnitName;

use super::cli::DevArgs;
use super::config::{NativeSettings, ServiceManagerKind, StoreKind};
use super::error::{Context as _, StartError};
use super::run::{self, Ends};
use super::wire_up::{MachineSetup, Running, Wiring};
use super::{identity, machine, say, summary};
use crate::findings;

/// How long a silent machine or engine of a development cluster counts as there.
const TTL: Duration = Duration::from_secs(10);

/// How long the units may take to come up before the summary is printed without them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs until Ctrl-C, then ends the units as well; another Ctrl-C does not wait for their end.
pub(crate) async fn run(args: DevArgs) -> Result<(), StartError> {
    let units = read_units(&args.units)?; // all are checked before anything starts
    let data_dir = data_dir(args.data_dir.as_deref())?;
    let mut ends = Ends::listen()?;
    let listeners = run::bind(&listen(&args.listen, &data_dir)?, &Guard::default()).await?;
    let endpoints: Vec<Listen> = listeners.iter().map(Listener::local_listen).cloned().collect();
    let wiring = wiring(&args, data_dir, listeners)?;
    let mut running = wiring.start().await?;
    let result = tokio::select! {
        error = live(&mut running, units, &endpoints) => Err(error),
        () = ends.next() => Ok(()),
    };
    // Whatever the reason for the end, no process is left behind unless somebody says so.
    say("\nEnding all units; Ctrl-C again does not wait for them");
    let ended = tokio::select! {
        ended = running.end_with_units() => ended,
        () = ends.next() => Err(StartError::new(
            "interrupted: what has not ended runs on, and \"fleetd dev\" on the same data takes \
             it back",
        )),
    };
    result.and(ended)
}

/// Brings the units up, and returns when the cluster cannot go on.
async fn live(running: &mut Running, units: Vec<NewUnit>, endpoints: &[Listen]) -> StartError {
    match bring_up(running, units, endpoints).await {
        Ok(()) => running.broken().await,
        Err(error) => error,
    }
}

async fn bring_up(
    running: &mut Running,
    units: Vec<NewUnit>,
    endpoints: &[Listen],
) -> Result<(), StartError> {
    running.joined().await;
    say(&summary::endpoints(running.mirror.snapshot().machines().len(), endpoints));
    for unit in units {
        let name = unit.name.clone();
        let put = running.registry.put_unit(unit, ExpectUnit::Any).await;
        let revision = put.context(|| format!("cannot launch {name}"))?;
        // What is waited for below is looked up in the mirror.
        running.mirror.wait_for(revision).await.context(|| format!("cannot see {name}"))?;
    }
    let _late = tokio::time::timeout(PATIENCE, summary::settled(&running.mirror)).await.is_err();
    say(&summary::units(&running.mirror.snapshot()));
    say(&summary::next_steps(&running.mirror.snapshot(), endpoints));
    Ok(())
}

fn wiring(
    args: &DevArgs,
    data_dir: PathBuf,
    listeners: Vec<Listener>,
) -> Result<Wiring, StartError> {
    let machine = |number| machine_of(&data_dir, number, args.machines);
    Ok(Wiring {
        store: StoreKind::Embedded,
        service_manager: ServiceManagerKind::Native(NativeSettings::default()),
        machines: (0..args.machines).map(machine).collect::<Result<_, _>>()?,
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

/// The machine of that number: they share this one, stand in three zones in turn, and every second
/// one has an SSD.
fn machine_of(data_dir: &Path, number: u16, machines: u16) -> Result<MachineSetup, StartError> {
    let directory = data_dir.join("machines").join(format!("{}", number + 1));
    make_dir(&directory)?;
    let zone = ["a", "b", "c"][usize::from(number % 3)];
    let disk = if number.is_multiple_of(2) { "ssd" } else { "hdd" };
    let name = format!("dev-{}", number + 1);
    let pairs = [("name", name.as_str()), ("zone", zone), ("disk", disk)];
    let metadata: Metadata = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let machine = MachineRecord {
        address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        metadata,
        ..machine::of_this_daemon(identity::kept_in(&directory)?)
    };
    let machine = machine::share(machine, machines, data_dir);
    let (token, until_boot) = (identity::token(&directory)?, directory.clone());
    Ok(MachineSetup { machine, token, directory, until_boot })
}

/// The directory that was asked for, or the one under the person's state directory.
fn data_dir(asked: Option<&Path>) -> Result<PathBuf, StartError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = || {
        let home = || Some(PathBuf::from(variable("HOME")?).join(".local/state"));
        Some(variable("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?.join("fleet/dev"))
    };
    let directory = asked.map(Path::to_owned).or_else(state).ok_or_else(|| {
        StartError::usage("there is no home directory: say where with --data-dir DIR")
    })?;
    make_dir(&directory)?;
    directory.canonicalize().context(|| format!("cannot use {}", directory.display()))
}

fn make_dir(directory: &Path) -> Result<(), StartError> {
    std::fs::create_dir_all(directory)
        .context(|| format!("cannot make {}: choose another --data-dir", directory.display()))
}

fn listen(asked: &[String], data_dir: &Path) -> Result<Vec<Listen>, StartError> {
    if asked.is_empty() {
        return Ok(vec![Listen::Unix(data_dir.join("fleet.sock"))]);
    }
    let parse = |text: &String| {
        text.parse().map_err(|error| StartError::usage(format!("--listen {text}: {error}")))
    };
    asked.iter().map(parse).collect()
}

/// Reads and checks unit files; a directory stands for the unit files in it.
///
/// Templates are submitted, everything else is launched.
fn read_units(paths: &[PathBuf]) -> Result<Vec<NewUnit>, StartError> {
    let mut units = Vec::new();
    for path in paths {
        for file in unit_files(path)? {
            units.push(read_unit(&file)?);
        }
    }
    units.sort_by(|a: &NewUnit, b| a.name.cmp(&b.name));
    refuse_circles(&units)?;
    Ok(units)
}

/// Units that lead to each other in a circle can never be placed.
fn refuse_circles(units: &[NewUnit]) -> Result<(), StartError> {
    let mut known = Snapshot::default();
    for NewUnit { name, file, desired } in units {
        let parsed = Requirements::parse(name, file, Strictness::Refuse);
        let Ok(Parsed { requirements, .. }) = parsed else { continue };
        let unit = Unit::new(name.clone(), file.clone(), requirements, *desired);
        if let Some(cycle) = machine_of_cycle(&known, &unit).or(replaces_cycle(&known, &unit)) {
            return Err(StartError::usage(format!("nothing was started: {cycle}")));
        }
        known.put_unit(unit);
    }
    Ok(())
}

fn unit_files(path: &Path) -> Result<Vec<PathBuf>, StartError> {
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
    let (file, findings) = findings::check(path, &name, &source);
    let Some(file) = file else {
        let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
        return Err(StartError::usage(format!("nothing was started\n{}", findings.join("\n"))));
    };
    let template = name.is_template();
    let desired = if template { TargetState::Inactive } else { TargetState::Launched };
    Ok(NewUnit { name, file, desired })
}
