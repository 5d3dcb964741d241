//! `run`: supervises units of files, or of a fleetd.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::remote::{RequestHandler, ServiceManagerHandler, serve_with};
use fleet_agent::{
    Clock as _, InitSupervisor, NativeManager, ServiceManager, SupervisorConfig, SystemClock,
    trim_heap, use_single_malloc_arena,
};
use fleet_core::graph::Settings;
use tokio::signal::unix::SignalKind;
use tokio::sync::Notify;

use super::answers::{ForFleet, OfFiles};
use super::args::RunArgs;
use super::asking::PROGRAM;
use super::ending::{Ends, Grip, end, listen};
use super::origin::{Origin, tell};
use super::places::Door;
use super::{defects, places, settle, warden};
use crate::fleetctl::error::CliError;
use crate::fleetd::config::NativeSettings;

/// Time at the end for threads that still read files.
const GRACE: Duration = Duration::from_secs(1);

/// Delay after a request of fleetd before memory is released.
const REST: Duration = Duration::from_secs(5);

/// Idle time after which a blocking thread exits.
const IDLE: Duration = Duration::from_secs(1);

/// Runs the command.
pub(super) fn run(args: &RunArgs) -> ExitCode {
    if let Err(error) = check(args).and_then(|()| own_processes()) {
        return settle(Err(error));
    }
    crate::fleetd::logging::start("info");
    if warden::is_needed(args.reap) {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        let ended = warden::run(&words, &directory(args));
        return ended.unwrap_or_else(|error| settle(Err(error)));
    }
    use_single_malloc_arena();
    defects::break_off();
    crate::fleetd::prepare_descriptors();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_keep_alive(IDLE).enable_all().build();
    let ran = runtime.map_err(|error| CliError::failed("cannot begin").because(error));
    let work = async |args: &RunArgs| {
        if args.fleet { run_fleet(args).await } else { run_files(args).await }
    };
    settle(ran.and_then(|runtime| {
        let done = runtime.block_on(work(args));
        // A read from a dead server must not delay the end.
        runtime.shutdown_timeout(GRACE);
        done
    }))
}

/// The state directory.
fn directory(args: &RunArgs) -> PathBuf {
    places::state_dir(args.state_dir.as_deref(), if args.fleet { "fleet" } else { "init" })
}

/// Refuses options for fleetd's units without `--fleet`. clap's `requires` does not apply if a path
/// is given.
fn check(args: &RunArgs) -> Result<(), CliError> {
    let given = [
        (args.max_starting.is_some(), "--max-starting", "write `max-starting: N` in init.conf"),
        (
            !args.accept.is_empty(),
            "--accept",
            "it is for units of systemd, which a fleetd hands on",
        ),
        (!args.external.is_empty(), "--external", "give a unit of type virtual for it"),
    ];
    match given.into_iter().find(|(is_given, ..)| *is_given && !args.fleet) {
        None => Ok(()),
        Some((_, option, help)) => {
            let error = CliError::usage(format!("{option} says nothing of units of files"));
            Err(error.help(help).help("with --fleet it is for those of a fleetd"))
        }
    }
}

/// Refuses a `/proc` of another PID namespace, since its contents would be about other processes.
fn own_processes() -> Result<(), CliError> {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(shown) if shown.as_os_str() != own.as_str() => {
            let error = CliError::failed("/proc shows the processes of another namespace");
            Err(error.help("mount its own: `unshare --mount-proc`, or `mount -t proc proc /proc`"))
        }
        _ => Ok(()),
    }
}

async fn run_fleet(args: &RunArgs) -> Result<(), CliError> {
    let ends = Ends::listen()?;
    // Ignores HUP, which must not end this process. Must be the last handler: process 1 takes it as
    // the sign that the others are installed.
    let _hangups = listen(SignalKind::hangup())?;
    let door = places::listen(&places::socket(args.socket.socket.as_deref())).await?;
    let directory = directory(args);
    let settings = NativeSettings {
        max_starting: args.max_starting.unwrap_or(NativeSettings::default().max_starting),
        accept: args.accept.iter().cloned().collect(),
        external: args.external.iter().cloned().collect(),
    };
    let manager = NativeManager::open(settings.config(&directory)).await;
    let manager = manager.map_err(|error| in_use(&directory).because(error))?;
    let shared: Arc<dyn ServiceManager> = manager.clone();
    let (units, asked) = (ServiceManagerHandler::new(shared), Arc::new(Notify::new()));
    let beside = give_back_at_rest(Arc::clone(&asked));
    let service = Arc::new(ForFleet { units, manager: Arc::clone(&manager), asked });
    let at_work = AtWork { ends, door, directory, service };
    at_work.until_the_end(args, Grip::Manager(manager), beside).await
}

/// Releases memory some time after requests: a fleetd that starts many units sends a burst and then
/// nothing.
async fn give_back_at_rest(asked: Arc<Notify>) {
    let clock = SystemClock::start();
    loop {
        asked.notified().await;
        clock.sleep(REST).await;
        trim_heap();
    }
}

async fn run_files(args: &RunArgs) -> Result<(), CliError> {
    let mut ends = Ends::listen()?;
    // Last handler; before files are read. See `run_fleet`.
    let mut hangups = listen(SignalKind::hangup())?;
    let directory = directory(args);
    let origin = Origin::new(&args.paths, args.goal.clone(), directory.clone())?;
    let (door, supervisor) = begin(args, &origin, &mut ends).await?;
    trim_heap();
    let service = Arc::new(OfFiles { supervisor: Arc::clone(&supervisor), origin: origin.clone() });
    let again = Arc::clone(&service);
    let reloads = async move {
        loop {
            hangups.recv().await;
            match again.reload().await {
                Ok(()) => tracing::info!("has read its units again"),
                Err(error) => {
                    tracing::error!("runs on with the units of before");
                    tell(&error);
                }
            }
        }
    };
    let at_work = AtWork { ends, door, directory, service };
    at_work.until_the_end(args, Grip::InitSupervisor(supervisor), reloads).await?;
    origin.forget();
    Ok(())
}

/// Starts the supervisor with the definitions of the files, which are dropped afterwards.
async fn begin(
    args: &RunArgs,
    origin: &Origin,
    ends: &mut Ends,
) -> Result<(Door, Arc<InitSupervisor>), CliError> {
    let clock = SystemClock::start();
    let Some(read) = ends.cut(origin.read_beside(), &clock).await else {
        return Err(CliError::failed("was told to end before it had read the files"));
    };
    let read = read?;
    // The socket exists before anything runs, so that units can always be stopped.
    let door = places::listen(&places::socket(args.socket.socket.as_deref())).await?;
    let config = SupervisorConfig::new(&origin.directory);
    let supervisor = InitSupervisor::start(config, read.graph.clone(), &read.settings).await;
    let supervisor = supervisor.map_err(|error| in_use(&origin.directory).because(error))?;
    origin.keep(&read);
    tell_of_choice(&supervisor, &read.settings).await?;
    Ok((door, Arc::new(supervisor)))
}

/// Logs if the chosen goal differs from the goal of the files or command line.
async fn tell_of_choice(supervisor: &InitSupervisor, settings: &Settings) -> Result<(), CliError> {
    let cannot = |error| CliError::failed("cannot run the units").because(error);
    let goal = supervisor.snapshot().await.map_err(cannot)?.desired.goal;
    if let Some(chosen) = goal.filter(|goal| settings.goal.as_ref() != Some(goal)) {
        tracing::info!(goal = %chosen, "goes on with the goal that set-target chose");
    }
    Ok(())
}

/// A fleet-init that supervises units.
struct AtWork {
    ends: Ends,
    door: Door,
    directory: PathBuf,
    service: Arc<dyn RequestHandler>,
}

impl AtWork {
    /// Serves the socket, and runs the other task, until a signal requests the end.
    async fn until_the_end(
        mut self,
        args: &RunArgs,
        units: Grip,
        beside: impl Future<Output = ()>,
    ) -> Result<(), CliError> {
        let Door { listener, socket } = self.door;
        let (place, directory) = (socket.path().display(), self.directory.display());
        tracing::info!(socket = %place, %directory, "runs units");
        let clock = Arc::new(SystemClock::start());
        tokio::select! {
            () = serve_with(listener, self.service, PROGRAM, clock.clone()) => {}
            () = beside => {}
            () = self.ends.next() => {}
        }
        // Closes the socket, so that no client restarts a stopped unit.
        drop(socket);
        tracing::info!("ends its units");
        end(&units, &mut self.ends, args.stop_limit, &*clock).await
    }
}

fn in_use(directory: &Path) -> CliError {
    let error = CliError::failed(format!("cannot run units from {}", directory.display()));
    match places::user_of(directory) {
        Some(process) => error.help(format!("process {process} runs units from there")),
        None => error,
    }
}
