//! Facts of this machine and of this process by which conditions are evaluated.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::system::uname;

/// Facts of a machine. Tests use other facts than those of the machine on which they run.
pub(super) struct Machine {
    /// Directory that contains `/proc`, `/sys`, `/run` and the other files that describe a machine.
    pub(super) root: PathBuf,
    /// The kernel's name of the architecture, such as `x86_64`.
    pub(super) architecture: String,
    /// Name by which a hypervisor introduces itself to the processor's programs.
    pub(super) hypervisor: Option<String>,
    /// Number of processors that this process may use.
    pub(super) cpus: u32,
    /// Environment of this process.
    pub(super) environment: Vec<(String, String)>,
    /// Directories with the credentials of this process.
    pub(super) credentials: Vec<PathBuf>,
    /// Returns whether the kernel accepts connections for audit.
    pub(super) has_audit: fn() -> bool,
}

/// Variables with the directories of credentials.
const CREDENTIALS: [&str; 2] = ["CREDENTIALS_DIRECTORY", "ENCRYPTED_CREDENTIALS_DIRECTORY"];

impl Machine {
    /// Returns the facts of this machine.
    pub(super) fn this() -> Self {
        let variables = std::env::vars_os();
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let cpus = rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count());
        Self {
            root: PathBuf::from("/"),
            architecture: uname().machine().to_string_lossy().into_owned(),
            hypervisor: hypervisor(),
            cpus,
            environment: variables.filter_map(text).collect(),
            credentials: CREDENTIALS.iter().filter_map(std::env::var_os).map(Into::into).collect(),
            has_audit: super::security::has_audit,
        }
    }

    /// Returns the place of a file that describes the machine.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns whether a file exists.
    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Reads a file without its trailing blanks.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        read(&self.path(path))
    }

    /// Reads the first line of a file; `None` if it is empty.
    pub(super) fn line(&self, path: &str) -> Option<String> {
        let text = self.read(path)?;
        text.lines().next().filter(|line| !line.is_empty()).map(str::to_owned)
    }

    /// Reads the value after a key at the start of a line, such as `MemTotal:`.
    pub(super) fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.read(path)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(value.trim().to_owned())
    }

    /// Returns the entries of a directory; none if it cannot be read.
    pub(super) fn entries(&self, path: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

/// Reads a file without its trailing blanks. Bytes that are not UTF-8 are replaced.
pub(super) fn read(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// Returns the name by which a hypervisor introduces itself, such as `KVMKVMKVM`. `None` means that
/// there is none, or that this architecture has no way to ask.
#[cfg(target_arch = "x86_64")]
fn hypervisor() -> Option<String> {
    /// The bit of `ecx` that only hypervisors set.
    const IS_VIRTUAL: u32 = 1 << 31;
    if cpuid(1).ecx & IS_VIRTUAL == 0 {
        return None;
    }
    let name = cpuid(0x4000_0000);
    let bytes = [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes).concat();
    Some(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn hypervisor() -> Option<String> {
    None
}

#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "newer compilers declare the instruction as safe")]
#[expect(unsafe_code, reason = "older compilers declare the instruction as unsafe")]
fn cpuid(leaf: u32) -> std::arch::x86_64::CpuidResult {
    // SAFETY: every processor of this architecture has the instruction, which only reads.
    unsafe { std::arch::x86_64::__cpuid(leaf) }
}
