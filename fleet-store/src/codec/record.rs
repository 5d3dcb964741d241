//! Pure: the wire forms of units, placements, claims, intents, the rebalancing request, lineages,
//! metadata and unit files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use fleet_core::manager::{ManagerInfo, NativeInfo};
use fleet_core::rebalancing::{RebalanceLimits, Rebalancing, RecentMove};
use fleet_core::{Intent, Resources, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    Claim, CodecError, Epoch, FORMAT, Generation, LAYOUT_FORMAT, LeaderClaim, Lineage,
    MachineRecord, Metadata, PLACEMENT_FORMAT, UnitRecord, decode, encode, format_error, parse,
    wire,
};
use crate::registry::ContentId;

#[derive(Serialize, Deserialize)]
struct WireUnit<'a> {
    v: u32,
    #[serde(borrow)]
    content: Cow<'a, str>,
    #[serde(borrow)]
    desired: Cow<'a, str>,
    generation: u64,
}

#[derive(Serialize, Deserialize)]
struct WirePlacement {
    v: u32,
    epoch: u64,
}

#[derive(Serialize, Deserialize)]
struct WireClaim {
    v: u32,
    id: String,
    token: String,
    joined: u64,
    address: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    api: String,
    metadata: BTreeMap<String, String>,
    version: String,
    #[serde(default, skip_serializing_if = "WireResources::is_nothing")]
    offers: WireResources,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manager: Option<WireManager>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cordoned: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    host: String,
    /// Milliseconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<u64>,
}

/// Amounts of resources; absent ones are zero.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireResources {
    cpu: u64,
    memory: u64,
    disk: u64,
}

impl WireResources {
    fn is_nothing(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.disk == 0
    }
}

/// A service manager. A kind of a later version is read as an unknown manager.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct WireManager {
    kind: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    root: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    users: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accept: Vec<String>,
}

impl WireManager {
    fn new(manager: &ManagerInfo) -> Self {
        let kind = manager.kind().to_owned();
        match manager.clone() {
            ManagerInfo::Systemd => Self { kind, ..Self::default() },
            ManagerInfo::Native(NativeInfo { root, users, groups, accept }) => {
                Self { kind, root, users, groups, accept }
            }
        }
    }

    fn info(self) -> Option<ManagerInfo> {
        let Self { kind, root, users, groups, accept } = self;
        match kind.as_str() {
            "systemd" => Some(ManagerInfo::Systemd),
            "native" => Some(ManagerInfo::Native(NativeInfo { root, users, groups, accept })),
            _ => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct WireIntent {
    v: u32,
    intent: WireIntentKind,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireIntentKind {
    Cordoned,
    Drained { min_available: u32 },
}

#[derive(Serialize, Deserialize)]
struct WireLeader {
    v: u32,
    machine: String,
    term: u64,
}

#[derive(Serialize, Deserialize)]
struct WireTerm {
    v: u32,
    term: u64,
}

#[derive(Serialize, Deserialize)]
struct WireLineage {
    v: u32,
    id: String,
    /// Base from which epochs and generations are counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    epoch_base: u64,
    /// Lineage whose content was restored or imported here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    predecessor: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[derive(Serialize, Deserialize)]
struct WireText {
    v: u32,
    value: String,
}

wire!(WireUnit<'_>, WireClaim, WireLeader, WireTerm, WireText, WireIntent);
wire!(WirePlacement = PLACEMENT_FORMAT, WireLineage = LAYOUT_FORMAT);

pub(crate) fn encode_unit(record: &UnitRecord) -> Vec<u8> {
    encode(&WireUnit {
        v: FORMAT,
        content: record.content.to_string().into(),
        desired: record.desired.as_str().into(),
        generation: record.generation.0,
    })
}

pub(crate) fn decode_unit(bytes: &[u8]) -> Result<UnitRecord, CodecError> {
    let wire: WireUnit<'_> = decode(bytes)?;
    Ok(UnitRecord {
        content: parse(&wire.content, "the hash of a unit file")?,
        desired: parse(&wire.desired, "a state")?,
        generation: Generation(wire.generation),
    })
}

/// Encodes a placement's value. The unit and the machine are in the key.
pub(crate) fn encode_placement(epoch: Epoch) -> Vec<u8> {
    encode(&WirePlacement { v: PLACEMENT_FORMAT, epoch: epoch.0 })
}

pub(crate) fn decode_placement(bytes: &[u8]) -> Result<Epoch, CodecError> {
    decode::<WirePlacement>(bytes).map(|wire| Epoch(wire.epoch))
}

pub(crate) fn encode_claim(claim: &Claim) -> Vec<u8> {
    let machine = &claim.machine;
    encode(&WireClaim {
        v: FORMAT,
        id: machine.id.to_string(),
        token: claim.token.clone(),
        joined: claim.joined,
        address: machine.address,
        api: machine.api.clone(),
        metadata: machine.metadata.clone(),
        version: machine.version.clone(),
        offers: WireResources {
            cpu: machine.offers.cpu,
            memory: machine.offers.memory,
            disk: machine.offers.disk,
        },
        manager: machine.manager.as_deref().map(WireManager::new),
        cordoned: machine.cordoned,
        host: machine.host.clone(),
        started: machine.started.map(Timestamp::as_millis),
    })
}

pub(crate) fn decode_claim(bytes: &[u8]) -> Result<Claim, CodecError> {
    let wire: WireClaim = decode(bytes)?;
    let machine = MachineRecord {
        id: parse(&wire.id, "a machine ID")?,
        address: wire.address,
        api: wire.api,
        metadata: Metadata::from_iter(wire.metadata),
        version: wire.version,
        offers: Resources {
            cpu: wire.offers.cpu,
            memory: wire.offers.memory,
            disk: wire.offers.disk,
        },
        manager: wire.manager.and_then(WireManager::info).map(Arc::new),
        cordoned: wire.cordoned,
        host: wire.host,
        started: wire.started.map(Timestamp::from_millis),
    };
    Ok(Claim { machine, token: wire.token, joined: wire.joined })
}

pub(crate) fn encode_intent(intent: Intent) -> Vec<u8> {
    let intent = match intent {
        Intent::Cordoned => WireIntentKind::Cordoned,
        Intent::Drained { min_available } => WireIntentKind::Drained { min_available },
    };
    encode(&WireIntent { v: FORMAT, intent })
}

pub(crate) fn decode_intent(bytes: &[u8]) -> Result<Intent, CodecError> {
    Ok(match decode::<WireIntent>(bytes)?.intent {
        WireIntentKind::Cordoned => Intent::Cordoned,
        WireIntentKind::Drained { min_available } => Intent::Drained { min_available },
    })
}

pub(crate) fn encode_leader(leader: &LeaderClaim) -> Vec<u8> {
    encode(&WireLeader { v: FORMAT, machine: leader.machine.to_string(), term: leader.term })
}

pub(crate) fn decode_leader(bytes: &[u8]) -> Result<LeaderClaim, CodecError> {
    let wire: WireLeader = decode(bytes)?;
    Ok(LeaderClaim { machine: parse(&wire.machine, "a machine ID")?, term: wire.term })
}

pub(crate) fn encode_term(term: u64) -> Vec<u8> {
    encode(&WireTerm { v: FORMAT, term })
}

pub(crate) fn decode_term(bytes: &[u8]) -> Result<u64, CodecError> {
    decode::<WireTerm>(bytes).map(|wire| wire.term)
}

pub(crate) fn encode_lineage(lineage: &Lineage) -> Vec<u8> {
    encode(&WireLineage {
        v: LAYOUT_FORMAT,
        id: lineage.to_string(),
        epoch_base: lineage.epoch_base(),
        predecessor: lineage.predecessor().map(str::to_owned),
    })
}

pub(crate) fn decode_lineage(bytes: &[u8]) -> Result<Lineage, CodecError> {
    let wire: WireLineage = decode(bytes)?;
    let lineage = parse::<Lineage>(&wire.id, "a lineage")?.with_epoch_base(wire.epoch_base);
    Ok(match wire.predecessor {
        Some(id) => lineage.with_predecessor(&parse::<Lineage>(&id, "a lineage")?),
        None => lineage,
    })
}

pub(crate) fn encode_text(value: &str) -> Vec<u8> {
    encode(&WireText { v: FORMAT, value: value.to_owned() })
}

pub(crate) fn decode_text(bytes: &[u8]) -> Result<String, CodecError> {
    decode::<WireText>(bytes).map(|wire| wire.value)
}

/// The first line of format one; a later format begins with another number.
const HEADER: &[u8] = b"{\"v\":1}\n";

pub(crate) fn encode_content(source: &[u8]) -> Vec<u8> {
    [HEADER, source].concat()
}

/// Returns the bytes of the unit file stored under `id`, after checking that the bytes match the
/// ID.
pub(crate) fn decode_content(id: ContentId, value: &[u8]) -> Result<&[u8], CodecError> {
    let source = value.strip_prefix(HEADER).filter(|source| ContentId::of(source) == id);
    source.ok_or_else(|| match format(value) {
        Some(found) if found != FORMAT => format_error(found, FORMAT),
        _ => CodecError::damaged("the content does not match the hash in its key"),
    })
}

/// Returns the format in the first line, if it has one.
fn format(value: &[u8]) -> Option<u32> {
    #[derive(serde::Deserialize)]
    struct Probe {
        v: u32,
    }
    let line = value.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice::<Probe>(line).ok().map(|probe| probe.v)
}

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

    const MINIMAL: &str = concat!(
        r#"{"v":1,"id":"m-1","token":"token","joined":1,"address":null,"metadata":{},"#,
        r#""version":"1.0.0"}"#,
    );

    fn claim(machine: MachineRecord) -> Claim {
        Claim { machine, token: "token".to_owned(), joined: 1 }
    }

    #[test]
    fn claim_without_optional_fields_round_trips() {
        let version = "1.0.0".to_owned();
        let minimal =
            claim(MachineRecord { version, ..MachineRecord::new("m-1".parse().unwrap()) });
        assert_eq!(decode_claim(MINIMAL.as_bytes()).unwrap(), minimal);
        assert_eq!(encode_claim(&minimal), MINIMAL.as_bytes());
    }

    #[test]
    fn claim_with_all_fields_round_trips() {
        let full = claim(MachineRecord {
            offers: Resources { cpu: 1500, memory: u64::MAX, disk: 7 },
            manager: Some(Arc::new(ManagerInfo::Native(NativeInfo {
                users: vec!["web".to_owned(), "7".to_owned()],
                accept: vec!["sandboxing".to_owned()],
                ..NativeInfo::default()
            }))),
            cordoned: true,
            host: "web-1".to_owned(),
            api: "https://web-1:4285".to_owned(),
            started: Some(Timestamp::from_millis(7)),
            ..MachineRecord::new("m-1".parse().unwrap())
        });
        let bytes = encode_claim(&full);
        assert_eq!(decode_claim(&bytes).unwrap(), full);
        let text = String::from_utf8(bytes).unwrap();
        let offers = r#""offers":{"cpu":1500,"memory":18446744073709551615,"disk":7}"#;
        assert!(text.contains(offers) && text.contains(r#""cordoned":true"#), "{text}");
        // An unknown service manager of a later version is ignored.
        let other = text.replace(r#""kind":"native""#, r#""kind":"other""#);
        assert_eq!(decode_claim(other.as_bytes()).unwrap().machine.manager, None);
        // An unknown resource of a later version is ignored.
        let less = text.replace(r#""memory":18446744073709551615,"#, r#""gpu":1,"#);
        assert_eq!(decode_claim(less.as_bytes()).unwrap().machine.offers.memory, 0);
    }

    #[test]
    fn content_round_trips() {
        let sources = [&b""[..], b"[Unit]\n", b"\xff\0", HEADER, b"{\"v\":2}\n[Unit]\n"];
        for source in sources {
            let id = ContentId::of(source);
            let value = encode_content(source);
            assert!(value.starts_with(b"{\"v\":1}\n"));
            assert_eq!(decode_content(id, &value).unwrap(), source);
        }
    }

    #[test]
    fn newer_format_differs_from_damage() {
        let id = ContentId::of(b"[Unit]\n");
        let newer = |value: &[u8]| match decode_content(id, value) {
            Err(CodecError::Newer { found, .. }) => Some(found),
            Err(CodecError::Damaged(_)) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(newer(b"{\"v\":2,\"packed\":true}\nxxxx"), Some(2));
        for damaged in [&b"{\"v\":1}\n[unit]\n"[..], b"[unit]\n", b"", b"{\"v\":0}\n"] {
            assert_eq!(newer(damaged), None);
        }
    }

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
