//! Values of unit file specifiers on this machine, among them properties of the operating system.

use std::fs;

use fleet_unitfile::SpecifierContext;
use fleet_unitfile::specifier::Specifier;
use nix::unistd::{Gid, Group, Uid, User as Account};

use super::environment_file::parse_file;

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
    let home = user.as_ref().map(|user| user.dir.to_string_lossy().into_owned());
    let base = if uid.is_root() {
        SpecifierContext::system_manager()
    } else {
        own_directories(uid, home.as_deref())
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

/// Returns the directories of a non-root user's service manager.
fn own_directories(uid: Uid, home: Option<&str>) -> SpecifierContext {
    let specifiers = SpecifierContext::new()
        .with(Specifier::RuntimeDirectory, format!("/run/user/{uid}"))
        .with(Specifier::TemporaryDirectory, "/tmp")
        .with(Specifier::VarTemporaryDirectory, "/var/tmp");
    let Some(home) = home else { return specifiers };
    [
        (Specifier::CacheDirectory, ".cache"),
        (Specifier::ConfigurationDirectory, ".config"),
        (Specifier::LogDirectory, ".local/state/log"),
        (Specifier::StateDirectory, ".local/state"),
    ]
    .into_iter()
    .fold(specifiers, |specifiers, (specifier, below)| {
        specifiers.with(specifier, format!("{home}/{below}"))
    })
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

    #[test]
    fn common_specifiers_are_known() {
        let name = "web@1.service".parse().expect("it is a name");
        let text = specifiers().expand("%H %l %v %b %t %S %C %L %E %U %G %i", &name);
        let text = text.expect("all of it is known");
        assert_eq!(text.split(' ').filter(|word| !word.is_empty()).count(), 12, "{text}");
        let text = specifiers().expand("%a%q", &name).expect("all of it is known");
        assert!(!text.is_empty());
        // Most systems leave out most fields; without os-release there are none.
        if RELEASES.iter().any(|path| std::path::Path::new(path).exists()) {
            specifiers().expand("%A%B%M%W%o%w", &name).expect("all of it is known");
        }
        let user = own_directories(Uid::from_raw(7), Some("/home/me"));
        let text = user.expand("%t %S %C %L %E", &name).expect("all of it is known");
        let expected = "/run/user/7 /home/me/.local/state /home/me/.cache \
                        /home/me/.local/state/log /home/me/.config";
        assert_eq!(text, expected);
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
