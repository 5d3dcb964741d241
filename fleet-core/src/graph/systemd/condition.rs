//! Compiles `Condition…=` and `Assert…=`.

use super::accept::OptionGroup::Lifecycle;
use super::support::Unsupported;
use super::value::{ValueContext, absolute};
use crate::graph::model::{ConditionKind, ConditionTest, UnitCondition};

/// Conditions that are newer than those that are checked.
pub(super) const NEWER: Unsupported = Unsupported::new(
    Lifecycle,
    "is not supported: only the conditions of systemd 252 are checked here, and \
     a few newer ones: make the check in an ExecCondition= command",
);

/// Conditions of a target.
pub(super) const OF_TARGET: Unsupported = Unsupported::new(
    Lifecycle,
    "is not supported in a target, which runs nothing that could be skipped: move it to the \
     services that the target needs",
);

/// The options that are checked.
pub(super) const CONDITIONS: &[&str] = &[
    "AssertACPower",
    "AssertArchitecture",
    "AssertCPUFeature",
    "AssertCPUPressure",
    "AssertCPUs",
    "AssertCapability",
    "AssertControlGroupController",
    "AssertCredential",
    "AssertDirectoryNotEmpty",
    "AssertEnvironment",
    "AssertFileIsExecutable",
    "AssertFileNotEmpty",
    "AssertFirstBoot",
    "AssertGroup",
    "AssertHost",
    "AssertIOPressure",
    "AssertKernelCommandLine",
    "AssertKernelModuleLoaded",
    "AssertKernelVersion",
    "AssertMemory",
    "AssertMemoryPressure",
    "AssertNeedsUpdate",
    "AssertOSRelease",
    "AssertPathExists",
    "AssertPathExistsGlob",
    "AssertPathIsDirectory",
    "AssertPathIsEncrypted",
    "AssertPathIsMountPoint",
    "AssertPathIsReadWrite",
    "AssertPathIsSocket",
    "AssertPathIsSymbolicLink",
    "AssertSecurity",
    "AssertUser",
    "AssertVersion",
    "AssertVirtualization",
    "ConditionACPower",
    "ConditionArchitecture",
    "ConditionCPUFeature",
    "ConditionCPUPressure",
    "ConditionCPUs",
    "ConditionCapability",
    "ConditionControlGroupController",
    "ConditionCredential",
    "ConditionDirectoryNotEmpty",
    "ConditionEnvironment",
    "ConditionFileIsExecutable",
    "ConditionFileNotEmpty",
    "ConditionFirmware",
    "ConditionFirstBoot",
    "ConditionGroup",
    "ConditionHost",
    "ConditionIOPressure",
    "ConditionKernelCommandLine",
    "ConditionKernelModuleLoaded",
    "ConditionKernelVersion",
    "ConditionMemory",
    "ConditionMemoryPressure",
    "ConditionNeedsUpdate",
    "ConditionOSRelease",
    "ConditionPathExists",
    "ConditionPathExistsGlob",
    "ConditionPathIsDirectory",
    "ConditionPathIsEncrypted",
    "ConditionPathIsMountPoint",
    "ConditionPathIsReadWrite",
    "ConditionPathIsSocket",
    "ConditionPathIsSymbolicLink",
    "ConditionSecurity",
    "ConditionUser",
    "ConditionVersion",
    "ConditionVirtualization",
];

/// Adds a condition from `Condition…=` or an assertion from `Assert…=`. An empty value removes all
/// earlier conditions or, if the option is `Assert…=`, all earlier assertions.
pub(super) fn add_condition(
    list: &mut Vec<UnitCondition>,
    option: &str,
    value: &str,
    unit: &ValueContext<'_>,
) -> Result<(), String> {
    let assert = option.starts_with("Assert");
    let name = option.trim_start_matches("Assert").trim_start_matches("Condition");
    let kind = ConditionKind::of_option(name).ok_or("is not a known condition: remove it")?;
    if value.is_empty() {
        list.retain(|condition| condition.assert != assert);
        return Ok(());
    }
    let (any, value) = marked(value, '|');
    let (negated, value) = marked(value, '!');
    let text = unit.expand(value)?;
    if text.is_empty() {
        return Err("is empty: write what to check".to_owned());
    }
    let argument = if kind.takes_path() { absolute(&text)? } else { text };
    let test = ConditionTest::new(kind, argument.as_str())
        .map_err(|remedy| format!("is {argument:?}: {remedy}"))?;
    list.push(UnitCondition { test, negated, any, assert });
    Ok(())
}

fn marked(value: &str, mark: char) -> (bool, &str) {
    value.strip_prefix(mark).map_or((false, value), |rest| (true, rest.trim_start()))
}
