//! Properties of the operating system: os-release, pretty hostname, architecture.

use std::fs;

use fleet_unitfile::Specifier;

use super::environment_file::parse_file;

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
