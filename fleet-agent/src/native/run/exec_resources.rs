//! Files that the service manager provides to the processes of a run: credentials and private
//! temporary directories, besides the directories that the unit names.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use fleet_core::graph::ExecEnvironment;
use fleet_core::graph::exec_options::{
    Credential, CredentialSource, DirectoryKind, PreserveRuntime,
};
use fleet_core::graph::sandbox::SandboxSwitch;

use super::exec_directories::create_directories;
use super::process::SpawnFailure;
use crate::native::linux::files::remove_tree;
use crate::native::linux::identity::Identity;

/// Exit statuses of systemd for these files.
const CREDENTIALS: i32 = 243;
const NAMESPACE: i32 = 226;

/// Maximum size of a credential in bytes, as in systemd.
const MAX_CREDENTIAL: u64 = 1024 * 1024;

/// Places of the files of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecResources {
    /// The run's own directory in `/tmp` and in `/var/tmp`.
    private_tmp: [PathBuf; 2],
    credentials: PathBuf,
}

impl ExecResources {
    /// Returns the places for a run of a unit. The directories of credentials are in `credentials`.
    pub(crate) fn new(unit: &str, invocation: &str, credentials: &Path) -> Self {
        let name = format!("fleet-private-{invocation}-{}", unit.replace('/', "-"));
        Self {
            private_tmp: ["/tmp", "/var/tmp"].map(|base| Path::new(base).join(&name)),
            credentials: credentials.join(unit),
        }
    }

    /// Creates all files that do not exist yet. Returns the environment variables that name them.
    pub(crate) fn create(
        &self,
        exec: &ExecEnvironment,
        identity: &Identity,
    ) -> Result<Vec<(&'static str, String)>, SpawnFailure> {
        let mut variables = Vec::new();
        for kind in DirectoryKind::ALL {
            let group = exec.directories.of(kind);
            if group.paths.is_empty() {
                continue;
            }
            let is_private = identity.is_dynamic && exec.directories.may_be_private(kind);
            create_directories(kind, group, is_private, identity)?;
            let paths: Vec<&str> = group.paths.iter().map(|(path, _)| &**path).collect();
            variables.push((kind.variable(), paths.join(":")));
        }
        if !exec.credentials.is_empty() {
            let write = |credential| self.write_credential(credential, &exec.credentials, identity);
            self.create_credentials_directory().map_err(|error| {
                let directory = self.credentials.display();
                failure(CREDENTIALS, format!("cannot create {directory}"), &error)
            })?;
            exec.credentials.iter().try_for_each(write)?;
            let directory = self.credentials.display().to_string();
            variables.push(("CREDENTIALS_DIRECTORY", directory));
        }
        if exec.sandbox.has(SandboxSwitch::PrivateTmp) {
            for directory in &self.private_tmp {
                create_private_tmp(directory).map_err(|error| {
                    failure(NAMESPACE, format!("cannot create {}", directory.display()), &error)
                })?;
            }
        }
        Ok(variables)
    }

    /// Returns the directories that the processes see as `/tmp` and `/var/tmp`.
    pub(crate) fn private_tmp(&self) -> [String; 2] {
        self.private_tmp.each_ref().map(|directory| directory.join("tmp").display().to_string())
    }

    /// Removes the files after the end of the run. `restarts` says whether the unit is to run
    /// again. Files that cannot be removed are reported to `warn`.
    pub(crate) fn remove(
        &self,
        exec: &ExecEnvironment,
        restarts: bool,
        warn: impl Fn(&io::Error, &Path),
    ) {
        let mut all: Vec<&Path> = Vec::new();
        let mut all_links: Vec<&Path> = Vec::new();
        let keeps = match exec.directories.preserve_runtime {
            PreserveRuntime::No => false,
            PreserveRuntime::Restart => restarts,
            PreserveRuntime::Yes => true,
        };
        let group = exec.directories.of(DirectoryKind::Runtime);
        let runtime = &group.paths;
        let private: Vec<PathBuf> = match exec.sandbox.has(SandboxSwitch::DynamicUser) {
            true => runtime.iter().map(|(path, _)| group.private_path(path).into()).collect(),
            false => Vec::new(),
        };
        for (path, links) in runtime.iter().filter(|_| !keeps) {
            all.push(Path::new(path));
            all_links.extend(links.iter().map(Path::new));
        }
        all.extend(private.iter().filter(|_| !keeps).map(PathBuf::as_path));
        if !exec.credentials.is_empty() {
            all.push(&self.credentials);
        }
        if exec.sandbox.has(SandboxSwitch::PrivateTmp) {
            all.extend(self.private_tmp.iter().map(PathBuf::as_path));
        }
        // In place of a link there may be a directory of another program.
        all.extend(all_links.into_iter().filter(|link| link.is_symlink()));
        for path in all {
            let removed = match fs::symlink_metadata(path) {
                Ok(found) if found.is_dir() => remove_tree(path),
                Ok(_) => fs::remove_file(path),
                Err(error) => Err(error),
            };
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => warn(&error, path),
                _ => {}
            }
        }
    }

    fn create_credentials_directory(&self) -> io::Result<()> {
        if let Some(base) = self.credentials.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(base)?;
        }
        // The directory stays ours, so that the unit's user cannot replace a credential.
        match DirBuilder::new().mode(0o711).create(&self.credentials) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        }
    }

    /// Writes a credential. Of two with the same name, the one from a file counts if the file
    /// exists.
    fn write_credential(
        &self,
        credential: &Credential,
        all: &[Credential],
        identity: &Identity,
    ) -> Result<(), SpawnFailure> {
        let is_text = |it: &Credential| matches!(it.source, CredentialSource::Text(_));
        let mut same = all.iter().filter(|it| it.id == credential.id);
        let is_file = |it: &&Credential| match &it.source {
            CredentialSource::File(path) => Path::new(path).exists(),
            CredentialSource::Text(_) => false,
        };
        let contents = match &credential.source {
            CredentialSource::Text(_) if same.clone().any(|it| is_file(&it)) => return Ok(()),
            CredentialSource::Text(text) => text.clone().into_bytes(),
            CredentialSource::File(path) => match read_credential(path) {
                Ok(contents) => contents,
                Err(error) if error.kind() == io::ErrorKind::NotFound && same.any(is_text) => {
                    return Ok(());
                }
                Err(error) => {
                    let action = format!("cannot read the credential {path}");
                    return Err(failure(CREDENTIALS, action, &error));
                }
            },
        };
        let file = self.credentials.join(&credential.id);
        let write = || -> io::Result<()> {
            drop(fs::remove_file(&file));
            let mut options = File::options();
            options.write(true).create_new(true).mode(0o400);
            let mut opened = options.open(&file)?;
            opened.write_all(&contents)?;
            fchown(&opened, identity.uid, identity.gid)
        };
        write().map_err(|error| {
            failure(CREDENTIALS, format!("cannot write the credential {}", credential.id), &error)
        })
    }
}

fn read_credential(path: &str) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    File::open(path)?.take(MAX_CREDENTIAL + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > MAX_CREDENTIAL {
        return Err(io::Error::other("it has more than 1 MiB"));
    }
    Ok(contents)
}

pub(super) fn failure(code: i32, action: String, error: &io::Error) -> SpawnFailure {
    SpawnFailure::of(code, format!("{action}: {error}"), error)
}

/// Creates a directory that only root can enter, with a `tmp` in it that everyone can use.
fn create_private_tmp(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    // Others can create files beside it, so it may be theirs.
    let found = fs::symlink_metadata(directory)?;
    let is_ours = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    if !found.is_dir() || !is_ours {
        return Err(io::Error::other("it belongs to another user"));
    }
    let inner = directory.join("tmp");
    match fs::create_dir(&inner) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        created => created?,
    }
    fs::set_permissions(&inner, Permissions::from_mode(0o1777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_directories_are_removed_unless_preserved() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let at = |name: &str| home.path().join(name).display().to_string();
        let resources = ExecResources::new("a.service", "1", &home.path().join("credentials"));
        for (preserve, restarts, is_kept) in [
            (PreserveRuntime::No, true, false),
            (PreserveRuntime::Restart, true, true),
            (PreserveRuntime::Restart, false, false),
            (PreserveRuntime::Yes, false, true),
        ] {
            let mut exec = ExecEnvironment::default();
            let [runtime, state, ..] = &mut exec.directories.kinds;
            runtime.paths = vec![(at("r/a"), vec![at("link")])];
            runtime.mode = 0o750;
            state.paths = vec![(at("s"), Vec::new())];
            exec.directories.preserve_runtime = preserve;
            let variables = resources.create(&exec, &Identity::default());
            let variables = variables.expect("they can be created");
            assert_eq!(variables, [("RUNTIME_DIRECTORY", at("r/a")), ("STATE_DIRECTORY", at("s"))]);
            let mode = |path: &str| fs::metadata(at(path)).expect("it exists").mode() & 0o7777;
            assert_eq!((mode("r/a"), mode("link"), mode("s")), (0o750, 0o750, 0o755));
            fs::write(at("r/a/file"), "").expect("it can be written");
            resources.remove(&exec, restarts, |error, path| panic!("{error} {path:?}"));
            let exists = |path: &str| Path::new(&at(path)).exists();
            assert_eq!((exists("r/a"), exists("link"), exists("s")), (is_kept, is_kept, true));
        }
    }

    #[test]
    fn credentials_of_files_override_texts() {
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().join("secret").display().to_string();
        let resources = ExecResources::new("a.service", "1", &home.path().join("credentials"));
        let named = |source| Credential { id: "key".to_owned(), source };
        let credentials = vec![
            named(CredentialSource::Text("text".to_owned())),
            named(CredentialSource::File(path.clone())),
        ];
        let exec = ExecEnvironment { credentials, ..ExecEnvironment::default() };
        let read = || {
            resources.create(&exec, &Identity::default()).expect("they can be created");
            fs::read_to_string(home.path().join("credentials/a.service/key")).expect("it exists")
        };
        assert_eq!(read(), "text");
        fs::write(&path, "file").expect("it can be written");
        assert_eq!(read(), "file");
        let alone = ExecEnvironment { credentials: exec.credentials[1..].into(), ..exec.clone() };
        fs::remove_file(&path).expect("it exists");
        let failed = resources.create(&alone, &Identity::default()).expect_err("no file");
        assert_eq!(failed.end, crate::native::linux::exit::ProcessExit::Code(CREDENTIALS));
        resources.remove(&exec, false, |error, path| panic!("{error} {path:?}"));
        assert!(!home.path().join("credentials/a.service").exists());
    }
}
