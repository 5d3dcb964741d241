//! The kinds of conditions.

use fleet_unitfile::values::parse_bool;

use super::argument::{CountLimit, FieldComparison, PressureLimit, SizeLimit, VersionComparison};

macro_rules! kinds {
    ($($(#[$doc:meta])+ $kind:ident, $word:literal, $option:literal;)+) => {
        /// What a condition checks. systemd's option of a kind is `Condition` and the name of the
        /// kind, such as `ConditionPathExists=`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ConditionKind {
            $($(#[$doc])+ $kind,)+
        }

        impl ConditionKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Returns the word of the kind in a stanza, such as `path-exists`.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)+
                }
            }

            /// Returns systemd's name of the kind, such as `PathExists`.
            #[must_use]
            pub const fn option(self) -> &'static str {
                match self {
                    $(Self::$kind => $option,)+
                }
            }
        }
    };
}

kinds! {
    /// The path exists.
    PathExists, "path-exists", "PathExists";
    /// A path exists that matches the pattern.
    PathExistsGlob, "path-exists-glob", "PathExistsGlob";
    /// The path is a directory.
    PathIsDirectory, "path-is-directory", "PathIsDirectory";
    /// The path is a symbolic link.
    PathIsSymbolicLink, "path-is-symbolic-link", "PathIsSymbolicLink";
    /// A file system is mounted at the path.
    PathIsMountPoint, "path-is-mount-point", "PathIsMountPoint";
    /// The path exists and its file system is writable.
    PathIsReadWrite, "path-is-read-write", "PathIsReadWrite";
    /// The path is on a block device that dm-crypt encrypts.
    PathIsEncrypted, "path-is-encrypted", "PathIsEncrypted";
    /// The path is a socket.
    PathIsSocket, "path-is-socket", "PathIsSocket";
    /// The path is a directory with entries other than hidden files and backups.
    DirectoryNotEmpty, "directory-not-empty", "DirectoryNotEmpty";
    /// The path is a file that is not empty.
    FileNotEmpty, "file-not-empty", "FileNotEmpty";
    /// The path is an executable file.
    FileIsExecutable, "file-is-executable", "FileIsExecutable";
    /// `/usr` is newer than the last update of the directory.
    NeedsUpdate, "needs-update", "NeedsUpdate";
    /// The machine boots for the first time, or not.
    FirstBoot, "first-boot", "FirstBoot";
    /// The argument equals the machine id, or is a pattern that matches the host name.
    Host, "host", "Host";
    /// The processor has this architecture.
    Architecture, "architecture", "Architecture";
    /// The firmware is of this kind, or has this property.
    Firmware, "firmware", "Firmware";
    /// The machine is virtual, or not, or of this kind.
    Virtualization, "virtualization", "Virtualization";
    /// The machine has external power, or not.
    AcPower, "ac-power", "ACPower";
    /// The machine has this much memory.
    Memory, "memory", "Memory";
    /// The supervisor may use this many processors.
    Cpus, "cpus", "CPUs";
    /// The processor has this feature.
    CpuFeature, "cpu-feature", "CPUFeature";
    /// The memory pressure is at most this high.
    MemoryPressure, "memory-pressure", "MemoryPressure";
    /// The processor pressure is at most this high.
    CpuPressure, "cpu-pressure", "CPUPressure";
    /// The pressure of input and output is at most this high.
    IoPressure, "io-pressure", "IOPressure";
    /// These controllers of control groups are available, or this version of control groups.
    ControlGroupController, "control-group-controller", "ControlGroupController";
    /// The kernel command line contains this word, or an assignment to this name.
    KernelCommandLine, "kernel-command-line", "KernelCommandLine";
    /// The version of the kernel fits.
    KernelVersion, "kernel-version", "KernelVersion";
    /// This kernel module is loaded.
    KernelModuleLoaded, "kernel-module-loaded", "KernelModuleLoaded";
    /// The version of the kernel or of systemd fits.
    Version, "version", "Version";
    /// The values in `/etc/os-release` fit.
    OsRelease, "os-release", "OSRelease";
    /// This security technology is in use.
    Security, "security", "Security";
    /// The supervisor's bounding set contains this capability.
    Capability, "capability", "Capability";
    /// The supervisor was given a credential of this name.
    Credential, "credential", "Credential";
    /// The supervisor's environment contains this variable, or this assignment.
    Environment, "environment", "Environment";
    /// The supervisor runs as this user, given by name or number. `@system` matches every system
    /// user.
    User, "user", "User";
    /// The supervisor is in this group, given by name or number.
    Group, "group", "Group";
}

impl ConditionKind {
    /// Finds a kind by systemd's name of it.
    #[must_use]
    pub fn of_option(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.option() == name)
    }

    /// Returns whether the argument is a path.
    #[must_use]
    pub fn takes_path(self) -> bool {
        matches!(
            self,
            Self::PathExists
                | Self::PathExistsGlob
                | Self::PathIsDirectory
                | Self::PathIsSymbolicLink
                | Self::PathIsMountPoint
                | Self::PathIsReadWrite
                | Self::PathIsEncrypted
                | Self::PathIsSocket
                | Self::DirectoryNotEmpty
                | Self::FileNotEmpty
                | Self::FileIsExecutable
                | Self::NeedsUpdate
        )
    }

    /// Checks the form of an argument. The error is the remedy.
    pub(super) fn check(self, argument: &str) -> Result<(), &'static str> {
        let (is_fine, remedy) = match self {
            kind if kind.takes_path() => (argument.starts_with('/'), "write an absolute path"),
            Self::AcPower | Self::FirstBoot => (parse_bool(argument).is_some(), "write yes or no"),
            Self::Memory => {
                (SizeLimit::parse(argument).is_some(), "write a number of bytes such as >=2G")
            }
            Self::Cpus => {
                (CountLimit::parse(argument).is_some(), "write a number of processors such as >=2")
            }
            Self::KernelVersion => {
                (VersionComparison::parse(argument).is_some(), "write a comparison such as >=6.1")
            }
            Self::Version => {
                let read = VersionComparison::parse_component(argument);
                let is_known = read.is_some_and(|(component, _)| component != "glibc");
                (is_known, "write a comparison such as kernel>=6.1, of kernel or systemd")
            }
            Self::OsRelease => {
                let read = FieldComparison::parse_os_release(argument);
                (read.is_some(), "write a comparison such as ID=debian")
            }
            Self::Firmware => {
                let field = argument.strip_prefix("smbios-field(");
                let read = |text: &str| FieldComparison::parse_smbios(text.strip_suffix(')')?);
                let is_fine = field.is_none_or(|text| read(text).is_some());
                (is_fine, "write a comparison such as smbios-field(sys_vendor $= QEMU*)")
            }
            Self::MemoryPressure | Self::CpuPressure | Self::IoPressure => {
                let read = PressureLimit::parse(argument);
                (read.is_some(), "write a limit such as 10% or system.slice:10%/1min")
            }
            _ => (true, ""),
        };
        match (argument.is_empty(), is_fine) {
            (true, _) if remedy.is_empty() => Err("write its argument"),
            (_, true) => Ok(()),
            (_, false) => Err(remedy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::model::ConditionTest;

    #[test]
    fn words_are_the_names_of_the_options() {
        for kind in ConditionKind::ALL {
            let plain = kind.word().replace('-', "");
            assert_eq!(plain, kind.option().to_ascii_lowercase());
            assert_eq!(ConditionKind::of_option(kind.option()), Some(*kind));
        }
    }

    #[test]
    fn arguments_without_the_form_of_their_kind_are_refused() {
        for (option, fine, wrong) in [
            ("PathExistsGlob", "/a/*", "a/*"),
            ("NeedsUpdate", "/etc", "etc"),
            ("ACPower", "true", "sometimes"),
            ("FirstBoot", "no", "maybe"),
            ("Memory", ">1G", "much"),
            ("CPUs", "2", "two"),
            ("KernelVersion", ">=5 <7", ">="),
            ("Version", "systemd >=252", "glibc >=2.36"),
            ("OSRelease", "ID=debian", "debian"),
            ("Firmware", "smbios-field(a = b)", "smbios-field(a)"),
            ("Firmware", "later-kind", "smbios-field(a=b"),
            ("IOPressure", "10%", "10"),
            ("Virtualization", "later-kind", ""),
        ] {
            let kind = ConditionKind::of_option(option).unwrap();
            let test = ConditionTest::new(kind, fine).unwrap();
            assert_eq!((test.kind, test.argument.as_str()), (kind, fine));
            let remedy = ConditionTest::new(kind, wrong).unwrap_err();
            assert!(remedy.starts_with("write "), "{option}={wrong}: {remedy}");
        }
    }
}
