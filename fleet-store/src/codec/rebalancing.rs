//! Pure: the wire form of the rebalancing request.

use std::borrow::Cow;

use fleet_core::rebalancing::{RebalanceLimits, Rebalancing, RecentMove};
use serde::{Deserialize, Serialize};

use super::{CodecError, FORMAT, decode, encode, parse, wire};

#[derive(Serialize, Deserialize)]
struct WireRebalancing<'a> {
    v: u32,
    max_in_flight: u32,
    gain: u32,
    min_available: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_moves: Option<u32>,
    moved: u32,
    #[serde(borrow)]
    moves: Vec<WireMove<'a>>,
}

#[derive(Serialize, Deserialize)]
struct WireMove<'a> {
    #[serde(borrow)]
    unit: Cow<'a, str>,
    #[serde(borrow)]
    from: Cow<'a, str>,
    #[serde(borrow)]
    to: Cow<'a, str>,
    was_active: bool,
}

wire!(WireRebalancing<'_>);

/// Encodes the request. The encoding is deterministic, because conditions compare it.
pub(crate) fn encode_rebalancing(request: &Rebalancing) -> Vec<u8> {
    let RebalanceLimits { max_in_flight, gain, min_available, max_moves } = request.limits;
    let moves = request.moves.iter().map(|(unit, it)| WireMove {
        unit: unit.as_str().into(),
        from: it.from.as_str().into(),
        to: it.to.as_str().into(),
        was_active: it.was_active,
    });
    encode(&WireRebalancing {
        v: FORMAT,
        max_in_flight,
        gain,
        min_available,
        max_moves,
        moved: request.moved,
        moves: moves.collect(),
    })
}

pub(crate) fn decode_rebalancing(bytes: &[u8]) -> Result<Rebalancing, CodecError> {
    let wire: WireRebalancing<'_> = decode(bytes)?;
    let moves = wire.moves.iter().map(|it| {
        let from = parse(&it.from, "a machine ID")?;
        let to = parse(&it.to, "a machine ID")?;
        Ok((parse(&it.unit, "a unit's name")?, RecentMove { from, to, was_active: it.was_active }))
    });
    let moves = moves.collect::<Result<_, CodecError>>()?;
    let WireRebalancing { max_in_flight, gain, min_available, max_moves, moved, .. } = wire;
    let limits = RebalanceLimits { max_in_flight, gain, min_available, max_moves };
    Ok(Rebalancing { limits, moved, moves })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = concat!(
        r#"{"v":1,"max_in_flight":3,"gain":1,"min_available":2,"max_moves":9,"moved":4,"moves":["#,
        r#"{"unit":"a.service","from":"m1","to":"m2","was_active":true}]}"#,
    );
    const NEW: &str =
        r#"{"v":1,"max_in_flight":1,"gain":0,"min_available":0,"moved":0,"moves":[]}"#;

    #[test]
    fn rebalancing_request_round_trips() {
        for text in [FULL, NEW] {
            let order = decode_rebalancing(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(encode_rebalancing(&order)).unwrap(), text);
        }
        let new = Rebalancing::new(RebalanceLimits::default());
        assert_eq!(decode_rebalancing(NEW.as_bytes()).unwrap(), new);
        let full = decode_rebalancing(FULL.as_bytes()).unwrap();
        assert_eq!((full.moved, full.limits.max_moves, full.limits.max_in_flight), (4, Some(9), 3));
        assert!(full.moves["a.service"].was_active);
    }

    #[test]
    fn invalid_rebalancing_request_is_refused() {
        let damaged = FULL.replace("a.service", "a");
        let newer = FULL.replace(r#""v":1"#, r#""v":2"#);
        for (text, damage) in [(damaged, true), (newer, false), (String::new(), true)] {
            let error = decode_rebalancing(text.as_bytes()).unwrap_err();
            assert_eq!(matches!(error, CodecError::Damaged(_)), damage, "{error}");
        }
    }
}
