//! `run`: supervises units of files, or of a fleetd.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fleet_agent::native::{InitSupervisor, SupervisorConfig};
use fleet_agent::remote::{RequestHandler, ServiceManagerHandler, serve};
use fleet_agent::{NativeManager, SystemClock};
use fleet_core::graph::Settings;
use fleet_core::graph::systemd::AcceptedOptions;
use tokio::signal::unix::SignalKind;

use super::args::RunArgs;
use super::client::PROGRAM;
use super::paths::Listener;
use super::server::{FilesServer, FleetServer};
use super::shutdown::{StopSignals, UnitOwner, end, listen};
use super::sources::{Sources, log_error};
use super::{exit_with, paths, pid1};
use crate::fleetd::config::native::default_accept;
use crate::fleetd::config::{NativeSettings, default_runtime_dir};
use crate::ui::error::CliError;

/// Time to wait at the end for threads that still read files.
const GRACE: Duration = Duration::from_secs(1);

/// Idle time after which a blocking thread exits.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// Runs the command.
pub(super) fn run(args: &RunArgs) -> ExitCode {
    if let Err(error) = check(args).and_then(|()| check_proc_namespace()) {
        return exit_with(Err(error));
    }
    crate::ui::logging::start("info");
    if pid1::is_needed(args.reap) {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        let ended = pid1::run(&words, &directory(args));
        return ended.unwrap_or_else(|error| exit_with(Err(error)));
    }
    pid1::name_supervisor();
    abort_on_panic();
    crate::fleetd::prepare_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .enable_all()
        .build();
    let ran = runtime
        .map_err(|error| CliError::failed("cannot start the threads of fleet-init").because(error));
    let work = async |args: &RunArgs| {
        if args.fleet { run_fleet(args).await } else { run_files(args).await }
    };
    exit_with(ran.and_then(|runtime| {
        let done = runtime.block_on(work(args));
        // A read from a dead server must not delay the end.
        runtime.shutdown_timeout(GRACE);
        done
    }))
}

/// The state directory.
fn directory(args: &RunArgs) -> PathBuf {
    paths::state_dir(args.state_dir.as_deref(), if args.fleet { "fleet" } else { "init" })
}

/// The runtime directory, if this user has one.
fn runtime_directory(args: &RunArgs) -> Option<PathBuf> {
    let given = args.runtime_dir.as_ref();
    // Units with other working directories use the paths in it.
    given.and_then(|path| std::path::absolute(path).ok()).or_else(default_runtime_dir)
}

/// Returns a usage error if an option for fleetd's units is given without `--fleet`. clap does not
/// detect this error, because its `requires` has no effect if a path is given.
fn check(args: &RunArgs) -> Result<(), CliError> {
    let given = [
        (
            args.max_starting.is_some(),
            "--max-starting",
            "write `max-starting: N` in init.conf instead",
        ),
        (
            !args.accept.is_empty(),
            "--accept",
            "omit --accept: unit files of fleet-init have no systemd options",
        ),
        (
            !args.external.is_empty(),
            "--external",
            "write a unit of `type: virtual` for each external unit instead",
        ),
    ];
    match given.into_iter().find(|(is_given, ..)| *is_given && !args.fleet) {
        None => Ok(()),
        Some((_, option, help)) => {
            let error =
                CliError::usage(format!("{option} applies only with --fleet, not to unit files"));
            Err(error
                .help(help)
                .help("or replace the paths by --fleet, to run the units of fleetd"))
        }
    }
}

/// Refuses a `/proc` of another PID namespace, because its entries describe other processes.
fn check_proc_namespace() -> Result<(), CliError> {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(shown) if shown.as_os_str() != own.as_str() => {
            let error = CliError::failed(
                "/proc belongs to another PID namespace and does not show the processes of units",
            );
            Err(error
                .help("mount /proc again: `unshare --mount-proc`, or `mount -t proc proc /proc`"))
        }
        _ => Ok(()),
    }
}

/// Returns the unsupported options to ignore. The command line has checked their names.
fn accepted(names: &[String]) -> AcceptedOptions {
    let mut accepted = default_accept();
    names.iter().for_each(|name| drop(accepted.add(name)));
    accepted
}

async fn run_fleet(args: &RunArgs) -> Result<(), CliError> {
    let signals = StopSignals::listen()?;
    // Ignores HUP, which must not end this process. Must be the last handler: process 1 takes it as
    // the sign that the others are installed.
    let _hangups = listen(SignalKind::hangup())?;
    let listener = paths::listen(&paths::socket(args.socket.socket.as_deref())).await?;
    let directory = directory(args);
    let settings = NativeSettings {
        max_starting: args.max_starting.unwrap_or(NativeSettings::default().max_starting),
        accept: accepted(&args.accept),
        external: args.external.iter().cloned().collect(),
        runtime_dir: runtime_directory(args),
    };
    let manager = NativeManager::open(settings.config(&directory)).await;
    let manager = manager.map_err(|error| in_use(&directory).because(error))?;
    let units = ServiceManagerHandler::new(Arc::clone(&manager));
    let service = Arc::new(FleetServer { units, manager: Arc::clone(&manager) });
    let running = RunningInit { signals, listener, directory, service };
    running.serve_until_stopped(args, UnitOwner::Manager(manager), std::future::pending()).await
}

async fn run_files(args: &RunArgs) -> Result<(), CliError> {
    let mut signals = StopSignals::listen()?;
    // Last handler; before files are read. See `run_fleet`.
    let mut hangups = listen(SignalKind::hangup())?;
    let directory = directory(args);
    let sources = Sources::new(&args.paths, args.goal.clone(), directory.clone())?;
    let (listener, supervisor) = begin(args, &sources, &mut signals).await?;
    let service =
        Arc::new(FilesServer { supervisor: Arc::clone(&supervisor), sources: sources.clone() });
    let again = Arc::clone(&service);
    let reloads = async move {
        loop {
            hangups.recv().await;
            match again.reload().await {
                Ok(()) => tracing::info!("reloaded the unit files"),
                Err(error) => {
                    tracing::error!("cannot reload the unit files: keeping the previous units");
                    log_error(&error);
                }
            }
        }
    };
    let running = RunningInit { signals, listener, directory, service };
    running.serve_until_stopped(args, UnitOwner::InitSupervisor(supervisor), reloads).await?;
    sources.forget();
    Ok(())
}

/// Starts the supervisor with the definitions of the files, which are dropped afterwards.
async fn begin(
    args: &RunArgs,
    sources: &Sources,
    signals: &mut StopSignals,
) -> Result<(Listener, Arc<InitSupervisor>), CliError> {
    let clock = SystemClock::start();
    let Some(read) = signals.run_until_signal(sources.read_in_background(), &clock).await else {
        return Err(CliError::failed("stopped by a signal before the unit files were read"));
    };
    let read = read?;
    // The socket exists before anything runs, so that units can always be stopped.
    let listener = paths::listen(&paths::socket(args.socket.socket.as_deref())).await?;
    let mut config = SupervisorConfig::new(&sources.directory);
    config.runtime_directory = runtime_directory(args);
    let supervisor = InitSupervisor::start(config, read.graph.clone(), &read.settings).await;
    let supervisor = supervisor.map_err(|error| in_use(&sources.directory).because(error))?;
    sources.store(&read);
    log_chosen_goal(&supervisor, &read.settings).await?;
    Ok((listener, Arc::new(supervisor)))
}

/// Logs the current goal if it differs from the goal of the files or the command line. An earlier
/// `set-target` has then chosen it.
async fn log_chosen_goal(supervisor: &InitSupervisor, settings: &Settings) -> Result<(), CliError> {
    let cannot =
        |error| CliError::failed("cannot read the goal of the running units").because(error);
    let goal = supervisor.snapshot().await.map_err(cannot)?.desired.goal;
    if let Some(chosen) = goal.filter(|goal| settings.goal.as_ref() != Some(goal)) {
        tracing::info!(goal = %chosen, "keeping the goal of an earlier `fleet-init set-target`");
    }
    Ok(())
}

/// A fleet-init that supervises units.
struct RunningInit {
    signals: StopSignals,
    listener: Listener,
    directory: PathBuf,
    service: Arc<dyn RequestHandler>,
}

impl RunningInit {
    /// Serves the socket and runs `background`, until a signal requests the end.
    async fn serve_until_stopped(
        mut self,
        args: &RunArgs,
        units: UnitOwner,
        background: impl Future<Output = ()>,
    ) -> Result<(), CliError> {
        let Listener { listener, socket } = self.listener;
        let (place, directory) = (socket.path().display(), self.directory.display());
        tracing::info!(socket = %place, %directory, "listening for fleet-init commands");
        let clock = Arc::new(SystemClock::start());
        tokio::select! {
            () = serve(listener, self.service, PROGRAM, clock.clone()) => {}
            () = background => {}
            () = self.signals.next() => {}
        }
        // Closes the socket, so that no client restarts a stopped unit.
        drop(socket);
        tracing::info!("stopping all units");
        end(&units, &mut self.signals, args.stop_limit, &*clock).await
    }
}

fn in_use(directory: &Path) -> CliError {
    let error = CliError::failed(format!(
        "cannot run units with the state directory {}",
        directory.display()
    ));
    match paths::lock_holder(directory) {
        Some(process) => error.help(format!(
            "stop process {process}, which already uses that directory, or name another \
             directory with --state-dir"
        )),
        None => error,
    }
}

/// Makes a panic of any thread abort the process.
///
/// Otherwise the process would look alive without the panicked thread, but supervise nothing. After
/// the abort, the units keep running, and the next start of fleet-init adopts them.
pub(super) fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, Signal, setrlimit};

    const CHILD_MARKER: &str = "FLEET_TEST_PANIC";

    #[test]
    fn a_panic_of_any_thread_ends_the_program() {
        if std::env::var_os(CHILD_MARKER).is_some() {
            // Avoids a core dump.
            let none = Rlimit { current: Some(0), maximum: Some(0) };
            setrlimit(Resource::Core, none).expect("limits can be lowered");
            super::abort_on_panic();
            let thread = std::thread::spawn(|| panic!("a panic of the test"));
            drop(thread.join());
            return;
        }
        let program = std::env::current_exe().expect("path of the test program");
        let name = "a_panic_of_any_thread_ends_the_program";
        let output = Command::new(program).arg(name).env(CHILD_MARKER, "1").output();
        let status = output.expect("the test program can be run").status;
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}");
    }
}
