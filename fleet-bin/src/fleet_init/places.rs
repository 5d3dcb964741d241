//! Where a fleet-init listens and keeps its files, if nobody says so.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::fleetctl::error::CliError;

/// The environment, to find directories by.
type Environment<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

/// The socket of this user's fleet-init.
pub(super) fn socket(given: Option<&Path>) -> PathBuf {
    given.map_or_else(|| default_socket(is_root(), &environment), Path::to_owned)
}

/// The directory of this user's fleet-init that runs units of that kind.
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

/// Makes the directories above a path that are missing.
pub(super) fn make_parents(path: &Path) -> Result<(), CliError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let made = DirBuilder::new().recursive(true).mode(0o755).create(parent);
    made.map_err(|error| {
        CliError::failed(format!("cannot make {}", parent.display())).because(error)
    })
}

/// Where others knock.
pub(super) struct Door {
    pub(super) listener: UnixListener,
    pub(super) socket: Socket,
}

/// The file of a socket, which goes with this.
pub(super) struct Socket {
    path: PathBuf,
    /// By which it is known again: another one in its place is somebody else's.
    file: Option<(u64, u64)>,
}

impl Socket {
    fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), file: file_of(path) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.file.is_some() && self.file == file_of(&self.path) {
            // One that is gone already is what is wanted.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn file_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Listens at a path, in the place of one who listens there no more. Only this user and root get a
/// connection.
pub(super) async fn listen(path: &Path) -> Result<Door, CliError> {
    make_parents(path)?;
    let cannot = || CliError::failed(format!("cannot listen at {}", path.display()));
    make_room(path).await?;
    let listener = UnixListener::bind(path).map_err(|error| cannot().because(error))?;
    let socket = Socket::of(path);
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, private).map_err(|error| cannot().because(error))?;
    Ok(Door { listener, socket })
}

/// Removes a socket at which nobody listens any more, which a refused connection alone proves.
async fn make_room(path: &Path) -> Result<(), CliError> {
    let cannot = || CliError::failed(format!("cannot listen at {}", path.display()));
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        let error = CliError::failed(format!("{} is there, and is no socket", path.display()));
        return Err(error.help("choose another place with --socket"));
    }
    match UnixStream::connect(path).await {
        Ok(other) => {
            let who = other.peer_cred().ok().and_then(|other| other.pid());
            let who = who.map_or_else(|| "somebody".to_owned(), |pid| format!("process {pid}"));
            let error = CliError::failed(format!("{who} listens at {} already", path.display()));
            Err(error.help("choose another place with --socket, or end the other one first"))
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| cannot().because(error))
        }
        // Whoever removed it meanwhile has made room.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot().because(error).help("choose another place with --socket")),
    }
}

/// The process that has a directory for itself to run units from.
pub(super) fn user_of(directory: &Path) -> Option<u32> {
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
    use super::*;

    #[test]
    fn defaults_are_where_the_user_may_write() {
        let none = |_: &str| None;
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/h"));
        let all = |name: &str| Some(Path::new("/x").join(name));
        let places = |root, environment: Environment<'_>| {
            let both = [default_socket(root, environment), default_state_dir(root, environment)];
            both.map(|path| path.display().to_string())
        };
        assert_eq!(places(true, &none), ["/run/fleet/init.sock", "/var/lib/fleet-init"]);
        let state = "/h/.local/state/fleet-init";
        assert_eq!(places(false, &home), [&format!("{state}/init.sock"), state]);
        let expected = ["/x/XDG_RUNTIME_DIR/fleet/init.sock", "/x/XDG_STATE_HOME/fleet-init"];
        assert_eq!(places(false, &all), expected);
    }

    #[tokio::test]
    async fn a_socket_that_was_left_is_replaced_and_one_that_is_used_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/s");
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("left")).unwrap());
        let left = listen(&folder.path().join("left")).await.unwrap();
        drop(left);
        assert!(!folder.path().join("left").exists(), "its file is left");
        let door = listen(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = listen(&path).await.err().unwrap().to_string();
        assert!(error.contains("listens at"), "{error}");
        assert!(path.exists(), "it is somebody else's");
        drop(door);
    }

    #[tokio::test]
    async fn what_is_no_socket_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        std::fs::write(&path, "words").unwrap();
        let error = listen(&path).await.err().unwrap().to_string();
        assert!(error.contains("is no socket"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "words");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(listen(&link).await.is_err() && link.is_symlink(), "nor is a link to it");
    }

    #[tokio::test]
    async fn what_has_taken_the_place_of_its_socket_stays_when_that_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let door = listen(&path).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "words").unwrap();
        drop(door);
        assert!(path.exists(), "it is somebody else's");
    }
}
