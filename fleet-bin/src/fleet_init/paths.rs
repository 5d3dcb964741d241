//! Default socket and directories of a fleet-init, and its listener.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_agent::{Clock as _, SystemClock};
use fleet_http::ListenError;
use fleet_http::server::{SocketFile, listen_unix};
use tokio::net::{UnixListener, UnixStream};

use crate::ui::error::CliError;

/// Environment variable with the socket; ignored if empty.
const SOCKET: &str = "FLEET_INIT_SOCKET";

/// Time to wait for a socket in use. The process that listens there may be about to exit.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to wait for a socket in use if the process that listened there has exited. A child that
/// this process forked just before its exit keeps the socket open until the child calls exec.
const CLOSE_TIMEOUT_WITH_CHILDREN: Duration = Duration::from_secs(5);

/// Interval at which a socket in use is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Looks up an environment variable.
type Environment<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

/// Returns the path of the socket: `given`, or else the value of [`SOCKET`] in the environment, or
/// else the default path for this user.
pub(super) fn socket(given: Option<&Path>) -> PathBuf {
    let chosen = chosen(given, std::env::var_os(SOCKET));
    chosen.unwrap_or_else(|| default_socket(is_root(), &environment))
}

fn chosen(given: Option<&Path>, named: Option<OsString>) -> Option<PathBuf> {
    let named = named.filter(|name| !name.is_empty());
    given.map(Path::to_owned).or_else(|| named.map(PathBuf::from))
}

/// Returns `given`, or else the default state directory for units of this kind (`init` or `fleet`).
pub(super) fn state_dir(given: Option<&Path>, kind: &str) -> PathBuf {
    let default = || default_state_dir(is_root(), &environment).join(kind);
    given.map_or_else(default, Path::to_owned)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn default_socket(is_root: bool, environment: Environment<'_>) -> PathBuf {
    if is_root {
        return PathBuf::from("/run/fleet/init.sock");
    }
    match environment("XDG_RUNTIME_DIR") {
        Some(directory) => directory.join("fleet/init.sock"),
        None => default_state_dir(is_root, environment).join("init.sock"),
    }
}

fn default_state_dir(is_root: bool, environment: Environment<'_>) -> PathBuf {
    if is_root {
        return PathBuf::from("/var/lib/fleet-init");
    }
    let state = environment("XDG_STATE_HOME");
    let home = || environment("HOME").unwrap_or_else(std::env::temp_dir);
    state.unwrap_or_else(|| home().join(".local/state")).join("fleet-init")
}

/// Creates missing parent directories.
pub(super) fn make_parents(path: &Path) -> Result<(), CliError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = DirBuilder::new().recursive(true).mode(0o755).create(parent);
    made.map_err(|error| {
        CliError::failed(format!("cannot create the directory {}", parent.display())).because(error)
    })
}

/// A listening socket.
pub(super) struct Listener {
    pub(super) listener: UnixListener,
    /// The socket file, removed on drop.
    pub(super) socket: SocketFile,
}

/// Listens at a path. Only this user and root may connect.
///
/// Replaces a socket file at which no process listens. Returns an error if the socket stays in use.
pub(super) async fn listen(path: &Path) -> Result<Listener, CliError> {
    make_parents(path)?;
    let (listener, socket) = match listen_when_free(path).await {
        Ok(both) => both,
        Err(error @ ListenError::InUse(_)) => return Err(in_use(path, error).await),
        Err(error) => {
            let error = CliError::failed("cannot listen for fleet-init commands").because(error);
            return Err(error.help("name another socket with --socket"));
        }
    };
    Ok(Listener { listener, socket })
}

async fn listen_when_free(path: &Path) -> Result<(UnixListener, SocketFile), ListenError> {
    let clock = SystemClock::start();
    let begin = clock.now();
    loop {
        let listened = listen_unix(path, 0o600).await;
        let is_in_use = matches!(listened, Err(ListenError::InUse(_)));
        if !is_in_use || clock.now() >= begin.after(close_timeout(listener(path).await)) {
            return listened;
        }
        clock.sleep(RETRY_INTERVAL).await;
    }
}

fn close_timeout(listener: Option<i32>) -> Duration {
    match listener {
        Some(pid) if !Path::new(&format!("/proc/{pid}")).exists() => CLOSE_TIMEOUT_WITH_CHILDREN,
        _ => CLOSE_TIMEOUT,
    }
}

/// Returns the process that listens at a path, if the kernel reports it.
async fn listener(path: &Path) -> Option<i32> {
    UnixStream::connect(path).await.and_then(|other| other.peer_cred()).ok()?.pid()
}

/// Returns the error for a socket in use.
async fn in_use(path: &Path, error: ListenError) -> CliError {
    match listener(path).await {
        Some(pid) => {
            let error =
                CliError::failed(format!("process {pid} already listens at {}", path.display()));
            error.help(format!("stop process {pid} first, or name another socket with --socket"))
        }
        None => {
            let error = CliError::failed("cannot listen for fleet-init commands").because(error);
            error.help(format!(
                "stop the process that listens at {}, or name another socket with --socket",
                path.display()
            ))
        }
    }
}

/// Returns the process that holds the lock of a state directory.
pub(super) fn lock_holder(directory: &Path) -> Option<u32> {
    let file = std::fs::metadata(directory.join("lock")).ok()?;
    let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let place = format!("{:02x}:{:02x}:{}", device.0, device.1, file.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // 6: FLOCK  ADVISORY  WRITE 3048 fe:00:5324803 0 EOF
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>().as_slice() {
        [_, "FLOCK", _, _, process, on, ..] if *on == place => process.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn defaults_are_writable_for_the_user() {
        let none = |_: &str| None;
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/h"));
        let all = |name: &str| Some(Path::new("/x").join(name));
        let defaults = |root, environment: Environment<'_>| {
            let both = [default_socket(root, environment), default_state_dir(root, environment)];
            both.map(|path| path.display().to_string())
        };
        assert_eq!(defaults(true, &none), ["/run/fleet/init.sock", "/var/lib/fleet-init"]);
        let state = "/h/.local/state/fleet-init";
        assert_eq!(defaults(false, &home), [&format!("{state}/init.sock"), state]);
        let expected = ["/x/XDG_RUNTIME_DIR/fleet/init.sock", "/x/XDG_STATE_HOME/fleet-init"];
        assert_eq!(defaults(false, &all), expected);
    }

    #[test]
    fn an_empty_variable_names_no_socket() {
        let given = Path::new("/a");
        let chosen = |given, named: &str| chosen(given, Some(named.into()));
        assert_eq!(chosen(None, ""), None);
        assert_eq!(chosen(None, "b").as_deref(), Some(Path::new("b")));
        assert_eq!(chosen(Some(given), "b").as_deref(), Some(given));
    }

    #[tokio::test]
    async fn abandoned_socket_is_replaced_and_used_one_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/s");
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("abandoned")).unwrap());
        let replaced = listen(&folder.path().join("abandoned")).await.unwrap();
        drop(replaced);
        assert!(!folder.path().join("abandoned").exists(), "the socket file was not removed");
        let listener = listen(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = listen(&path).await.err().unwrap().to_string();
        assert!(error.contains("already listens at"), "{error}");
        assert!(path.exists(), "the other file was removed");
        drop(listener);
    }

    /// Regression: a fleet-init that was restarted right after a crash to stop the units could not
    /// start. It found the socket still in use, so the units were killed.
    #[tokio::test]
    async fn a_socket_about_to_close_is_awaited() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let before = UnixListener::bind(&path).unwrap();
        let next = async { listen(&path).await.map(drop).map_err(|error| error.to_string()) };
        let closing = async {
            before.accept().await.unwrap();
            drop(before);
        };
        assert_eq!(tokio::join!(next, closing).0, Ok(()));
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(close_timeout(Some(i32::MAX)) > close_timeout(Some(own)));
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "words").unwrap();
        let error = listen(&path).await.err().unwrap().parts().0;
        assert!(error.contains("is not a socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "words");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(listen(&link).await.is_err() && link.is_symlink(), "a link to a file is kept, too");
    }

    #[tokio::test]
    async fn a_file_that_replaced_the_socket_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = listen(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "words").unwrap();
        drop(listener);
        assert!(path.exists(), "the other file was removed");
    }
}
