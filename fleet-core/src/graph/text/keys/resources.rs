//! Keys for resource limits.

use fleet_unitfile::{Size, parse_permyriad, parse_size};

use super::write::some;
use super::{Form, Key, number, read};
use crate::graph::text::diagnostic::Problems;
use crate::graph::text::types::Types;
use crate::graph::text::value::Value;

/// Declares a key with a number of bytes.
macro_rules! bytes {
    ($name:literal, $field:ident) => {
        Key::new(
            $name,
            Types::RUNNING,
            Form::Line,
            |value, draft, problems| draft.run().resources.$field = bytes(value, problems),
            |unit, _| some(unit.run.resources.$field.map(Size::Bytes)),
        )
    };
}

/// Declares a key with a number in a range.
macro_rules! count {
    ($name:literal, $field:ident, $range:expr) => {
        Key::new(
            $name,
            Types::RUNNING,
            Form::Line,
            |value, draft, problems| {
                draft.run().resources.$field = number(value, problems, $range);
            },
            |unit, _| some(unit.run.resources.$field),
        )
    };
}

pub(super) const KEYS: &[Key] = &[
    bytes!("memory-max", memory_max),
    bytes!("memory-high", memory_high),
    count!("tasks-max", tasks_max, 1..=u64::MAX),
    count!("cpu-weight", cpu_weight, 1..=10_000),
    Key::new(
        "cpu-quota",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| draft.run().resources.cpu_quota = quota(value, problems),
        |unit, _| some(unit.run.resources.cpu_quota.map(percent)),
    ),
    count!("io-weight", io_weight, 1..=10_000),
];

fn bytes(value: &Value, problems: &mut Problems) -> Option<u64> {
    if let Ok(Size::Bytes(bytes)) = parse_size(value.text()) {
        return Some(bytes);
    }
    read::refuse(value, problems, "write a number of bytes, perhaps with K, M, G or T");
    None
}

fn quota(value: &Value, problems: &mut Problems) -> Option<u64> {
    let quota = parse_permyriad(value.text()).ok().filter(|quota| *quota > 0);
    if quota.is_none() {
        read::refuse(value, problems, "write a percentage of one processor, such as 150%");
    }
    quota.map(u64::from)
}

/// Formats hundredths of a percent as a percentage.
fn percent(hundredths: u64) -> String {
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    if rest == 0 { format!("{whole}%") } else { format!("{whole}.{rest:02}%") }
}
