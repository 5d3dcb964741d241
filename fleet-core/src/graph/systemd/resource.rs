//! Resource limits of a unit.

use fleet_unitfile::{Size, parse_permyriad, parse_size};

use super::value::{number, read_resettable, unreadable};
use crate::graph::ResourceLimits;

/// Applies one option; an empty value resets it.
pub(super) fn apply(
    resources: &mut ResourceLimits,
    option: &str,
    value: &str,
) -> Result<(), String> {
    match option {
        "MemoryMax" => resources.memory_max = memory(value)?,
        "MemoryHigh" => resources.memory_high = memory(value)?,
        "TasksMax" => resources.tasks_max = tasks(value)?,
        "CPUWeight" => resources.cpu_weight = weight(value)?,
        "IOWeight" => resources.io_weight = weight(value)?,
        _ => resources.cpu_quota = quota(value)?,
    }
    Ok(())
}

fn memory(value: &str) -> Result<Option<u64>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    match parse_size(value).map_err(unreadable)? {
        Size::Bytes(bytes) => Ok(Some(bytes)),
        Size::Infinity => Ok(None),
        _ => Err(format!("is {value:?}, a share of the machine: write bytes, such as 512M")),
    }
}

fn tasks(value: &str) -> Result<Option<u64>, String> {
    match value {
        "infinity" => Ok(None),
        _ if value.ends_with(['%', '‰', '‱']) => {
            Err(format!("is {value:?}, a share of the machine: write a number"))
        }
        _ => read_resettable(value, |value| number(value, 1, u64::MAX)),
    }
}

fn weight(value: &str) -> Result<Option<u64>, String> {
    read_resettable(value, |value| number(value, 1, 10_000))
}

fn quota(value: &str) -> Result<Option<u64>, String> {
    if value.is_empty() {
        return Ok(None);
    }
    match parse_permyriad(value).map_err(unreadable)? {
        0 => Err(format!("is {value:?}: write a share of one processor, such as 150%")),
        share => Ok(Some(share.into())),
    }
}
