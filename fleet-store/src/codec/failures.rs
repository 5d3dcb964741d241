//! Encoding of counted failures.

use std::collections::BTreeMap;

use fleet_core::failures::{FailurePhase, FailureRecord};
use fleet_core::{Generation, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, decode, encode, parse, wire};

/// Times are in milliseconds since 1970 (UTC).
#[derive(Serialize, Deserialize)]
struct WireFailures {
    v: u32,
    hash: String,
    generation: u64,
    machines: BTreeMap<String, u32>,
    total: u32,
    phase: WirePhase,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WirePhase {
    Waiting { machine: String, until: u64 },
    Restarted { up_since: Option<u64> },
}

wire!(WireFailures);

pub(crate) fn encode_failures(record: &FailureRecord) -> Vec<u8> {
    let FailureRecord { hash, generation, machines, total, phase } = record;
    let machines = machines.iter().map(|(machine, count)| (machine.to_string(), *count)).collect();
    let phase = match phase {
        FailurePhase::Waiting { machine, until } => {
            WirePhase::Waiting { machine: machine.to_string(), until: until.as_millis() }
        }
        FailurePhase::Restarted { up_since } => {
            WirePhase::Restarted { up_since: up_since.map(Timestamp::as_millis) }
        }
    };
    let (hash, generation) = (hash.to_string(), generation.0);
    encode(&WireFailures { v: FORMAT, hash, generation, machines, total: *total, phase })
}

pub(crate) fn decode_failures(bytes: &[u8]) -> Result<FailureRecord, CodecError> {
    let wire: WireFailures = decode(bytes)?;
    let machines = wire.machines.into_iter();
    let machines = machines.map(|(id, count)| Ok((parse(&id, "a machine ID")?, count)));
    let phase = match wire.phase {
        WirePhase::Waiting { machine, until } => FailurePhase::Waiting {
            machine: parse(&machine, "a machine ID")?,
            until: Timestamp::from_millis(until),
        },
        WirePhase::Restarted { up_since } => {
            FailurePhase::Restarted { up_since: up_since.map(Timestamp::from_millis) }
        }
    };
    Ok(FailureRecord {
        hash: parse(&wire.hash, "a unit file's hash")?,
        generation: Generation(wire.generation),
        machines: machines.collect::<Result<_, CodecError>>()?,
        total: wire.total,
        phase,
    })
}

#[cfg(test)]
mod tests {
    use fleet_core::MachineId;
    use fleet_unitfile::UnitHash;

    use super::*;

    #[test]
    fn failures_read_back() {
        let at = Timestamp::from_millis(9);
        let machine: MachineId = "m1".parse().expect("it is a machine ID");
        let phases = [
            FailurePhase::Waiting { machine: machine.clone(), until: at },
            FailurePhase::Restarted { up_since: None },
            FailurePhase::Restarted { up_since: Some(at) },
        ];
        for phase in phases {
            let (hash, generation) = (UnitHash::from_bytes([3; 20]), Generation(2));
            let machines = BTreeMap::from([(machine.clone(), 3)]);
            let record = FailureRecord { hash, generation, machines, total: 4, phase };
            let read = decode_failures(&encode_failures(&record)).expect("it was just encoded");
            assert_eq!(read, record);
        }
    }
}
