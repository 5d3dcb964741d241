//! Evaluates the `Condition…=` and `Assert…=` settings of a unit on this machine, as systemd does.
//!
//! | module | topic |
//! |---|---|
//! | `machine` | facts of this machine and of this process |
//! | `paths` | files and directories |
//! | `virtualization` | virtual machines, containers, user namespaces |
//! | `hardware` | processor, firmware, power supply |
//! | `cgroups` | control groups, memory, pressure |
//! | `kernel` | kernel, distribution, boot |
//! | `security` | security technologies, capabilities, accounts, credentials, environment, host |

mod cgroups;
mod hardware;
mod kernel;
mod machine;
mod paths;
mod security;
#[cfg(test)]
mod tests;
mod virtualization;

use fleet_core::graph::condition::CountLimit;
use fleet_core::graph::{ConditionKind, ConditionResult, ConditionTest, UnitCondition};
use fleet_unitfile::values::parse_bool;

use self::machine::Machine;

/// Evaluates the conditions of a unit, and returns `Ok` if the unit may start. Otherwise the error
/// holds the unmet condition. The flag is `true` if this counts as a failure (`Assert…=`), and
/// `false` if the start is only skipped (`Condition…=`). `in_stanza` is `true` if the
/// conditions come from a stanza, and not from a systemd unit file.
///
/// `environment` are the variables that each process of a unit gets. They count as a part of the
/// supervisor's environment.
pub(crate) fn check_conditions(
    conditions: &[UnitCondition],
    in_stanza: bool,
    environment: &[(String, String)],
) -> Result<(), (String, bool)> {
    if conditions.is_empty() {
        return Ok(());
    }
    let mut machine = Machine::this();
    machine.environment.extend_from_slice(environment);
    match UnitCondition::judge(conditions, |test| machine.check(test)) {
        ConditionResult::Start => Ok(()),
        ConditionResult::Skip(condition) => Err((unmet(condition, in_stanza), false)),
        ConditionResult::Fail(condition) => Err((unmet(condition, in_stanza), true)),
    }
}

fn unmet(condition: &UnitCondition, in_stanza: bool) -> String {
    if in_stanza {
        let key = if condition.assert { "assert" } else { "condition" };
        return format!("its `{key}: {condition}` does not hold");
    }
    let setting = if condition.assert { "Assert" } else { "Condition" };
    let negated = if condition.negated { "!" } else { "" };
    let ConditionTest { kind, argument, .. } = &condition.test;
    format!("its {setting}{}={negated}{argument} does not hold", kind.option())
}

impl Machine {
    /// Evaluates a test. Returns `None` if it cannot be evaluated; then it does not hold, negated
    /// or not.
    fn check(&self, test: &ConditionTest) -> Option<bool> {
        let wanted = test.argument.as_str();
        Some(match test.kind {
            kind if kind.takes_path() => self.check_path(kind, wanted),
            ConditionKind::FirstBoot => self.is_first_boot() == parse_bool(wanted)?,
            ConditionKind::Host => self.is_host(wanted),
            ConditionKind::Architecture => self.has_architecture(wanted),
            ConditionKind::Firmware => self.has_firmware(wanted)?,
            ConditionKind::Virtualization => self.is_virtual(wanted),
            ConditionKind::AcPower => self.has_external_power() == parse_bool(wanted)?,
            ConditionKind::Memory => self.has_memory(wanted)?,
            ConditionKind::Cpus => CountLimit::parse(wanted)?.holds(self.cpus),
            ConditionKind::CpuFeature => self.has_cpu_feature(wanted),
            ConditionKind::MemoryPressure => self.is_pressure_low("memory", wanted)?,
            ConditionKind::CpuPressure => self.is_pressure_low("cpu", wanted)?,
            ConditionKind::IoPressure => self.is_pressure_low("io", wanted)?,
            ConditionKind::ControlGroupController => self.has_controllers(wanted),
            ConditionKind::KernelCommandLine => self.has_kernel_argument(wanted),
            ConditionKind::KernelVersion => self.has_kernel_version(wanted)?,
            ConditionKind::KernelModuleLoaded => self.has_kernel_module(wanted),
            ConditionKind::Version => self.has_version(wanted)?,
            ConditionKind::OsRelease => self.has_os_release(wanted)?,
            ConditionKind::Security => self.has_security(wanted),
            ConditionKind::Capability => self.has_capability(wanted)?,
            ConditionKind::Credential => self.has_credential(wanted),
            ConditionKind::Environment => self.has_variable(wanted),
            ConditionKind::User => security::is_user(wanted),
            ConditionKind::Group => security::is_in_group(wanted),
            _ => return None,
        })
    }
}
