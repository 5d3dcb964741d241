//! Users and groups of the supervisor and of a unit's processes, and the values of specifiers on
//! this machine.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use fleet_core::graph::{DirectoryPath, ExecEnvironment};
use fleet_unitfile::SpecifierContext;
use fleet_unitfile::specifier::Specifier;
use nix::unistd::{Gid, Group, Uid, User as Account};

use super::dynamic_user::DynamicIds;
use super::files::parse_file;
use crate::files::create_private_dir;

/// The user of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) home: String,
    pub(crate) shell: String,
}

/// Numeric user and groups of a process; `None` keeps fleet's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// All supplementary groups.
    pub(crate) groups: Option<Vec<u32>>,
    pub(crate) user: Option<User>,
    /// Whether the user may exist only while the unit runs.
    pub(crate) is_dynamic: bool,
}

/// Shells that refuse logins, which count as no shell.
const NO_SHELLS: [&str; 8] = [
    "/bin/nologin",
    "/sbin/nologin",
    "/usr/bin/nologin",
    "/usr/sbin/nologin",
    "/bin/false",
    "/usr/bin/false",
    "/bin/true",
    "/usr/bin/true",
];

/// The user that systemd treats as having no home and no shell.
const NOBODY_USER: &str = "nobody";

impl User {
    /// Returns the environment variables about the user. Leaves out `HOME` or `SHELL` if systemd
    /// treats this value of the account as missing (for example the shell `/sbin/nologin`).
    pub(crate) fn variables(&self) -> impl Iterator<Item = (String, String)> + use<> {
        let is_user = self.name != NOBODY_USER;
        let (home, shell) = (Path::new(&self.home), Path::new(&self.shell));
        let has_home = is_user && home.is_absolute() && home != Path::new("/");
        let lets_in = !NO_SHELLS.iter().any(|none| Path::new(none) == shell);
        let has_shell = is_user && shell.is_absolute() && lets_in;
        // Without redundant components.
        let home: PathBuf = home.components().collect();
        let variables = [
            ("HOME", has_home.then(|| home.display().to_string())),
            ("USER", Some(self.name.clone())),
            ("LOGNAME", Some(self.name.clone())),
            ("SHELL", has_shell.then(|| self.shell.clone())),
        ];
        variables.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)))
    }
}

/// Reason why a user or group is unknown, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnknownAccount {
    User(String),
    Group(String),
}

/// Looks up the user and groups of a unit in the current accounts of the machine. A unit with a
/// dynamic user has taken `dynamic` before.
pub(crate) fn look_up(
    exec_env: &ExecEnvironment,
    dynamic: Option<&DynamicIds>,
) -> Result<Identity, UnknownAccount> {
    let mut identity = Identity { is_dynamic: dynamic.is_some(), ..Identity::default() };
    if let Some(DynamicIds { user, uid, gid, .. }) = dynamic {
        (identity.uid, identity.gid) = (Some(*uid), Some(*gid));
        // It has no shell, and as a home only that of the supervisor, as under systemd.
        let needs_home = exec_env.directory.path == DirectoryPath::Home;
        let home = needs_home.then(own_home).flatten().unwrap_or_default();
        let shell = String::new();
        identity.user = Some(User { name: user.clone(), home, shell });
    } else if let Some(name) = &exec_env.user {
        let unknown = || UnknownAccount::User(format!("there is no user {name:?} on this machine"));
        let account = account(name).ok_or_else(unknown)?;
        identity.uid = Some(account.uid.as_raw());
        identity.gid = Some(account.gid.as_raw());
        identity.user = Some(User {
            name: account.name,
            home: account.dir.to_string_lossy().into_owned(),
            shell: account.shell.to_string_lossy().into_owned(),
        });
    }
    if let Some(name) = exec_env.group.as_ref().filter(|_| dynamic.is_none()) {
        identity.gid = Some(group(name)?);
    }
    identity.groups = groups(exec_env, &identity)?;
    // Setting the identity that one already has would need root.
    identity.uid = identity.uid.filter(|&uid| uid != Uid::effective().as_raw());
    identity.gid = identity.gid.filter(|&gid| gid != Gid::effective().as_raw());
    Ok(identity)
}

/// Returns the supplementary groups of a process: those of its user and those that the unit names.
/// Returns `None` if the process keeps the daemon's groups. This is the case if the unit changes
/// neither user nor groups, or if the daemon does not run as root. (Only root can set supplementary
/// groups.)
fn groups(
    exec_env: &ExecEnvironment,
    identity: &Identity,
) -> Result<Option<Vec<u32>>, UnknownAccount> {
    let more = &exec_env.supplementary_groups;
    let is_asked = identity.uid.is_some() || identity.gid.is_some() || !more.is_empty();
    if !is_asked || !Uid::effective().is_root() {
        return Ok(None);
    }
    let own = identity.gid.map_or_else(Gid::effective, Gid::from_raw);
    let user = identity.user.as_ref().and_then(|user| CString::new(user.name.as_str()).ok());
    let of_user = user.map(|user| nix::unistd::getgrouplist(&user, own)).transpose();
    let failed =
        |error| UnknownAccount::Group(format!("cannot look up the groups of its user: {error}"));
    let of_user = of_user.map_err(failed)?;
    let mut all: BTreeSet<u32> =
        of_user.unwrap_or_default().iter().map(|gid| gid.as_raw()).collect();
    for name in more {
        all.insert(group(name)?);
    }
    Ok(Some(all.into_iter().collect()))
}

/// Returns the home directory of fleet's own user. As for systemd, `HOME` counts before the user
/// database, except for root.
pub(crate) fn own_home() -> Option<String> {
    let is_root = Uid::effective().is_root();
    if let Some(home) = absolute_variable("HOME").filter(|_| !is_root) {
        return Some(home);
    }
    let account = Account::from_uid(Uid::effective()).ok().flatten()?;
    Some(account.dir.to_string_lossy().into_owned())
}

/// Returns whether this machine has a user of this name or number.
#[must_use]
pub fn user_exists(name: &str) -> bool {
    account(name).is_some()
}

/// Returns whether this machine has a group of this name or number.
#[must_use]
pub fn group_exists(name: &str) -> bool {
    group(name).is_ok()
}

fn account(name: &str) -> Option<Account> {
    let by_name = Account::from_name(name).ok().flatten();
    by_name.or_else(|| Account::from_uid(Uid::from_raw(name.parse().ok()?)).ok().flatten())
}

/// Looks up a group by name or number. Even a group given by number has to exist.
fn group(name: &str) -> Result<u32, UnknownAccount> {
    let by_name = Group::from_name(name).ok().flatten();
    let found =
        by_name.or_else(|| Group::from_gid(Gid::from_raw(name.parse().ok()?)).ok().flatten());
    let unknown = || UnknownAccount::Group(format!("there is no group {name:?} on this machine"));
    found.map(|group| group.gid.as_raw()).ok_or_else(unknown)
}

/// Returns the specifier values of this machine that depend neither on the user nor on the boot ID:
/// host name, kernel release and machine ID. Specifiers for directories have the values of the
/// system manager. Specifiers whose value cannot be read are left out.
#[must_use]
pub fn machine_specifiers() -> SpecifierContext {
    static_specifiers().fold(SpecifierContext::system_manager(), |specifiers, (specifier, text)| {
        specifiers.with(specifier, text)
    })
}

fn static_specifiers() -> impl Iterator<Item = (Specifier, String)> {
    let known = [
        (Specifier::HostName, first_line("/proc/sys/kernel/hostname")),
        (Specifier::KernelRelease, first_line("/proc/sys/kernel/osrelease")),
        (Specifier::MachineId, first_line("/etc/machine-id")),
    ];
    known.into_iter().filter_map(|(specifier, text)| Some((specifier, text?)))
}

/// Returns the current values of all specifiers. Specifiers whose value cannot be read are left
/// out, and a unit that uses one of these is refused.
pub(crate) fn specifiers() -> SpecifierContext {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    let user = Account::from_uid(uid).ok().flatten();
    let group = Group::from_gid(gid).ok().flatten().map(|group| group.name);
    let home = own_home();
    let base = if uid.is_root() {
        SpecifierContext::system_manager()
    } else {
        own_directories(uid, home.as_deref(), absolute_variable)
    };
    let known = [
        (
            Specifier::BootId,
            first_line("/proc/sys/kernel/random/boot_id").map(|id| id.replace('-', "")),
        ),
        (Specifier::GroupId, Some(gid.to_string())),
        (Specifier::GroupName, group),
        (Specifier::HomeDirectory, home),
        (Specifier::Shell, user.as_ref().map(|user| user.shell.to_string_lossy().into_owned())),
        (Specifier::UserId, Some(uid.to_string())),
        (Specifier::UserName, user.map(|user| user.name)),
    ];
    let known = known.into_iter().filter_map(|(specifier, text)| Some((specifier, text?)));
    known
        .chain(static_specifiers())
        .chain(os_specifiers())
        .fold(base, |specifiers, (specifier, text)| specifiers.with(specifier, text))
}

/// Returns the value of an environment variable that holds an absolute path.
fn absolute_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|path| path.starts_with('/'))
}

/// Returns the directories of a non-root user's service manager. `variable` looks up a path in the
/// environment. Without a login session there is no runtime directory, so one below the state
/// directory takes its place, which is created.
fn own_directories(
    uid: Uid,
    home: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> SpecifierContext {
    let directory = |name: &str, below: &str| {
        variable(name).or_else(|| home.map(|home| format!("{home}/{below}")))
    };
    let state = directory("XDG_STATE_HOME", ".local/state");
    let usual = variable("XDG_RUNTIME_DIR").unwrap_or_else(|| format!("/run/user/{uid}"));
    let runtime = match &state {
        Some(state) if !Path::new(&usual).is_dir() => {
            let own = format!("{state}/run");
            // Units that need it report the failure.
            drop(create_private_dir(Path::new(&own)));
            own
        }
        _ => usual,
    };
    let known = [
        (Specifier::CacheDirectory, directory("XDG_CACHE_HOME", ".cache")),
        (Specifier::ConfigurationDirectory, directory("XDG_CONFIG_HOME", ".config")),
        (Specifier::LogDirectory, state.as_ref().map(|state| format!("{state}/log"))),
        (Specifier::StateDirectory, state),
        (Specifier::RuntimeDirectory, Some(runtime)),
        (Specifier::TemporaryDirectory, Some("/tmp".to_owned())),
        (Specifier::VarTemporaryDirectory, Some("/var/tmp".to_owned())),
    ];
    let known = known.into_iter().filter_map(|(specifier, path)| Some((specifier, path?)));
    known.fold(SpecifierContext::new(), |all, (specifier, path)| all.with(specifier, path))
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(str::to_owned).filter(|line| !line.is_empty())
}

/// Paths of os-release; the first existing one counts.
pub(crate) const RELEASES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// Specifiers and their fields in os-release.
const FIELDS: [(Specifier, &str); 6] = [
    (Specifier::BuildId, "BUILD_ID"),
    (Specifier::ImageId, "IMAGE_ID"),
    (Specifier::ImageVersion, "IMAGE_VERSION"),
    (Specifier::OsId, "ID"),
    (Specifier::VariantId, "VARIANT_ID"),
    (Specifier::VersionId, "VERSION_ID"),
];

/// systemd's names of architectures, by those of Rust.
const ARCHITECTURES: [(&str, &str); 8] = [
    ("aarch64", "arm64"),
    ("arm", "arm"),
    ("loongarch64", "loongarch64"),
    ("powerpc64", if cfg!(target_endian = "little") { "ppc64-le" } else { "ppc64" }),
    ("riscv64", "riscv64"),
    ("s390x", "s390x"),
    ("x86", "x86"),
    ("x86_64", "x86-64"),
];

/// Returns the specifiers about the operating system.
pub(crate) fn os_specifiers() -> impl Iterator<Item = (Specifier, String)> {
    let release = RELEASES.iter().find_map(|path| fs::read_to_string(path).ok());
    // systemd also treats a missing field as empty.
    let fields = release
        .into_iter()
        .flat_map(|text| FIELDS.map(|(fact, name)| (fact, field(&text, name).unwrap_or_default())));
    let info = fs::read_to_string("/etc/machine-info").ok();
    let pretty = info.and_then(|text| field(&text, "PRETTY_HOSTNAME"));
    let pretty =
        pretty.filter(|name| !name.is_empty()).map(|name| (Specifier::PrettyHostName, name));
    let built_for = |(name, _): &&(&str, &str)| *name == std::env::consts::ARCH;
    let architecture = ARCHITECTURES.iter().find(built_for);
    fields
        .chain(pretty)
        .chain(architecture.map(|(_, it)| (Specifier::Architecture, (*it).to_owned())))
}

/// Returns the last value of a variable in an environment file.
fn field(text: &str, name: &str) -> Option<String> {
    let given = parse_file(text).into_iter().rfind(|(given, _)| given == name);
    given.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verified with systemd 252.
    #[test]
    fn nologin_shells_and_root_home_are_left_out() {
        for (account, expected) in [
            ("u /home/u /bin/sh", "HOME=/home/u USER=u LOGNAME=u SHELL=/bin/sh"),
            ("u /nonexistent /usr/sbin/nologin", "HOME=/nonexistent USER=u LOGNAME=u"),
            ("u / /bin/sh", "USER=u LOGNAME=u SHELL=/bin/sh"),
            ("u /// /sbin/./nologin", "USER=u LOGNAME=u"),
            ("u relative /bin/true", "USER=u LOGNAME=u"),
            ("u /home/./u//x/ sh", "HOME=/home/u/x USER=u LOGNAME=u"),
            ("u /a/../b /usr/bin/false", "HOME=/a/../b USER=u LOGNAME=u"),
            ("nobody /home/n /bin/sh", "USER=nobody LOGNAME=nobody"),
            ("root /root /bin/bash", "HOME=/root USER=root LOGNAME=root SHELL=/bin/bash"),
        ] {
            let [name, home, shell] =
                [0, 1, 2].map(|at| account.split(' ').nth(at).expect("it has three").to_owned());
            let variables = User { name, home, shell }.variables();
            let formatted: Vec<String> =
                variables.map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(formatted.join(" "), expected, "{account}");
        }
    }

    #[test]
    fn numeric_group_must_exist() {
        assert_eq!((group("0"), group("root")), (Ok(0), Ok(0)));
        let unknown =
            UnknownAccount::Group("there is no group \"4000000000\" on this machine".to_owned());
        assert_eq!(group("4000000000"), Err(unknown));
    }

    #[test]
    fn common_specifiers_are_known() {
        let name = "web@1.service".parse().expect("it is a name");
        let text = specifiers().expand("%H %l %v %b %t %S %C %L %E %U %G %i", &name);
        let text = text.expect("all of it is known");
        assert_eq!(text.split(' ').filter(|word| !word.is_empty()).count(), 12, "{text}");
        let text = specifiers().expand("%a%q", &name).expect("all of it is known");
        assert!(!text.is_empty());
        // Most systems leave out most fields; without os-release there are none.
        if RELEASES.iter().any(|path| Path::new(path).exists()) {
            specifiers().expand("%A%B%M%W%o%w", &name).expect("all of it is known");
        }
    }

    #[test]
    fn directories_follow_the_environment() {
        let name = "web.service".parse().expect("it is a name");
        let home = tempfile::tempdir().expect("a directory can be made");
        let path = home.path().to_str().expect("it is text");
        let uid = Uid::from_raw(4_000_000_000);
        let show = |variable: &dyn Fn(&str) -> Option<String>| {
            let user = own_directories(uid, Some(path), variable);
            let text = user.expand("%t %S %C %L %E", &name).expect("all of it is known");
            text.replace(path, "~")
        };
        let expected = "~/.local/state/run ~/.local/state ~/.cache ~/.local/state/log ~/.config";
        assert_eq!(show(&|_| None), expected);
        assert!(home.path().join(".local/state/run").is_dir());
        let variable = |name: &str| (name == "XDG_STATE_HOME").then(|| format!("{path}/s"));
        assert_eq!(show(&variable), "~/s/run ~/s ~/.cache ~/s/log ~/.config");
        let variable = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| path.to_owned());
        assert!(show(&variable).starts_with("~ ~/.local/state "));
    }

    #[test]
    fn last_os_release_field_counts() {
        let text = "# ID=no\nVERSION_ID=\"12\"\nID=one\nID=debian\nIMAGE_ID=\"a \"'b'\n\
                    BUILD_ID=\"1\\\n2\"\n";
        let read = |name| field(text, name);
        assert_eq!(read("VERSION_ID").as_deref(), Some("12"));
        assert_eq!(read("ID").as_deref(), Some("debian"));
        assert_eq!(read("IMAGE_ID").as_deref(), Some("a b"));
        assert_eq!(read("BUILD_ID").as_deref(), Some("12"), "it goes over two lines");
        assert_eq!(read("VERSION"), None);
    }
}
