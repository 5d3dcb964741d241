//! Conditions on the kernel, the system and the boot.

use std::fs;

use fleet_core::graph::condition::{FieldComparison, VersionComparison};
use fleet_unitfile::values::{parse_bool, split_words_relaxed};

use super::machine::Machine;
use crate::native::linux::files::parse_file;

/// The version of systemd whose options the service manager honours.
const SYSTEMD_VERSION: &str = "252";

impl Machine {
    /// Evaluates `ConditionKernelCommandLine=`: a word or, if it has no equals sign, also an
    /// assignment to this name.
    pub(super) fn has_kernel_argument(&self, wanted: &str) -> bool {
        let is_name = !wanted.contains('=');
        let assigns = |given: &str| given.split_once('=').is_some_and(|(name, _)| name == wanted);
        self.command_line().iter().any(|given| given == wanted || (is_name && assigns(given)))
    }

    /// Returns the value of a flag in the kernel command line. A name without a value means `yes`.
    pub(super) fn command_line_flag(&self, name: &str) -> Option<bool> {
        let value = |word: &str| match word.strip_prefix(name)? {
            "" => Some(true),
            rest => parse_bool(rest.strip_prefix('=')?),
        };
        self.command_line().iter().rev().find_map(|word| value(word))
    }

    /// Returns the words of the kernel command line. In a container, the command line of the first
    /// process takes its place.
    fn command_line(&self) -> Vec<String> {
        let is_container = self.container().is_some();
        let path = if is_container { "/proc/1/cmdline" } else { "/proc/cmdline" };
        let bytes = fs::read(self.path(path)).unwrap_or_default();
        let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
        split_words_relaxed(&line)
            .unwrap_or_else(|_| line.split_whitespace().map(str::to_owned).collect())
    }

    /// Evaluates `ConditionKernelVersion=`.
    pub(super) fn has_kernel_version(&self, wanted: &str) -> Option<bool> {
        Some(VersionComparison::parse(wanted)?.holds(&self.kernel_version()?))
    }

    fn kernel_version(&self) -> Option<String> {
        self.line("/proc/sys/kernel/osrelease")
    }

    /// Evaluates `ConditionVersion=`.
    pub(super) fn has_version(&self, wanted: &str) -> Option<bool> {
        match VersionComparison::parse_component(wanted)? {
            ("kernel", comparison) => Some(comparison.holds(&self.kernel_version()?)),
            ("systemd", comparison) => Some(comparison.holds(SYSTEMD_VERSION)),
            _ => None,
        }
    }

    /// Evaluates `ConditionKernelModuleLoaded=`.
    pub(super) fn has_kernel_module(&self, name: &str) -> bool {
        let name = name.replace('-', "_");
        let module = format!("/sys/module/{name}");
        // A module that is part of the kernel has no state.
        let is_live = || self.line(&format!("{module}/initstate")).is_none_or(|it| it == "live");
        !name.contains('/') && !name.starts_with('.') && self.exists(&module) && is_live()
    }

    /// Evaluates `ConditionOSRelease=`. A missing field counts as empty.
    pub(super) fn has_os_release(&self, wanted: &str) -> Option<bool> {
        let text = self.read("/etc/os-release").or_else(|| self.read("/usr/lib/os-release"))?;
        let fields = parse_file(&text);
        let value = |field: &str| {
            let assigned = fields.iter().rev().find(|(name, _)| name == field);
            assigned.map_or("", |(_, value)| value.as_str())
        };
        let all = FieldComparison::parse_os_release(wanted)?;
        Some(all.iter().all(|it| it.comparison.holds(value(&it.field))))
    }

    /// Returns whether the machine boots for the first time.
    pub(super) fn is_first_boot(&self) -> bool {
        self.command_line_flag("systemd.condition-first-boot")
            .unwrap_or_else(|| self.exists("/run/systemd/first-boot"))
    }
}
