//! Request bodies: unit uploads, metadata changes, imports and plans. JSON is decoded with the
//! leniency of version 1 of the API.

use std::collections::BTreeMap;

use fleet_core::machine::MachineIdError;
use fleet_core::{Epoch, Intent, MachineId};
use fleet_store::registry::MetadataChange;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{CheckRequest, RolloutOptions, UnitOptionEntity};

/// Body of `PUT /units/<name>`: a unit to create or replace, or only a new desired state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
#[schema(example = json!({
    "desiredState": "launched",
    "source": "[Service]\nExecStart=/bin/sleep infinity\n",
}))]
pub struct PutUnit {
    /// The desired state.
    #[schema(pattern = "^(inactive|loaded|launched)$")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_state: Option<String>,
    /// Generation of a unit that this creates, for a unit of an imported cluster, whose schedule
    /// may have elapsed. Any other unit keeps its generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The unit's name. If given, it must match the name in the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The unit file as options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<UnitOptionEntity>>,
    /// The unit file as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The unit file in base64, if it is not UTF-8.
    #[serde(rename = "sourceBase64", skip_serializing_if = "Option::is_none")]
    pub source_base64: Option<String>,
}

/// A JSON patch operation of `PATCH /machines`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct MetadataOp {
    /// `add`, `replace` or `remove`.
    #[schema(pattern = "^(add|replace|remove)$", example = "add")]
    pub op: &'static str,
    /// `/<machine ID>/metadata/<key>`.
    #[schema(
        pattern = "^/[a-zA-Z0-9_.-]+/metadata/[a-zA-Z0-9_.-]+$",
        example = "/m1/metadata/rack"
    )]
    pub path: String,
    /// The new value, except for `remove`.
    #[schema(example = "r1")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Body of `POST /import`: the epoch and the intents of the imported cluster. Its units and
/// metadata are sent with other requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportRequest {
    /// Latest epoch of the imported cluster.
    pub epoch: u64,
    /// Intents of machines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intents: Vec<MachineIntent>,
}

/// Body of `POST /plan`: the writes to plan for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PlanRequest {
    /// Names of the units to destroy, after the writes in `units`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destroy: Vec<String>,
    /// Units to create or replace, or to give another desired state. Each must contain its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<PutUnit>,
}

/// Body of `POST /units`: writes of several units that are made together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct BulkRequest {
    /// Names of the units to destroy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destroy: Vec<String>,
    /// Hashes of the unit files that the cluster must have now, by unit name. An empty hash means
    /// that the unit must not exist. The write fails if one of them is wrong.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub expected_hashes: BTreeMap<String, String>,
    /// `revision` of the plan that this write carries out. The write fails if anything has changed
    /// since then that could change the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_unchanged_since: Option<String>,
    /// Names of the units to restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restart: Vec<String>,
    /// If given, units that change and are to run are updated in batches, by a rollout. Other
    /// writes are made at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutOptions>,
    /// Units to create or replace, or to give another desired state. Each must contain its name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<PutUnit>,
}

/// Requested maintenance of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineIntent {
    /// `cordoned` or `drained`.
    pub intent: String,
    /// Minimum number of instances of each template that must stay up during a drain.
    #[serde(default, rename = "keepUp", skip_serializing_if = "Option::is_none")]
    pub min_available: Option<u32>,
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
}

impl ImportRequest {
    pub(crate) fn new(epoch: Epoch, intents: &[(MachineId, Intent)]) -> Self {
        let intents = intents.iter().map(|(machine, intent)| MachineIntent {
            intent: super::convert::intent(*intent).to_owned(),
            min_available: intent.min_available(),
            machine_id: machine.to_string(),
        });
        Self { epoch: epoch.0, intents: intents.collect() }
    }
}

impl From<&MetadataChange> for MetadataOp {
    fn from(change: &MetadataChange) -> Self {
        match change {
            MetadataChange::Set { machine, key, value } => {
                Self { op: "add", path: path(machine, key), value: Some(value.clone()) }
            }
            MetadataChange::Remove { machine, key } => {
                Self { op: "remove", path: path(machine, key), value: None }
            }
        }
    }
}

fn path(machine: &MachineId, key: &str) -> String {
    format!("/{machine}/metadata/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Error of an invalid request body.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("unable to decode body: {0}")]
    Json(serde_json::Error),
    #[error("unable to decode body: {0} is null: leave the field out, or give it a value")]
    Null(String),
    #[error("unable to decode body: expected {expected}")]
    Shape { expected: &'static str },
    #[error("operation {}: {cause}", index + 1)]
    Change { index: usize, cause: MetadataChangeError },
    #[error("intent {}: {cause}", index + 1)]
    Machine { index: usize, cause: MachineIdError },
    #[error(
        "intent {}: write \"cordoned\" without keepUp, or \"drained\" with keepUp",
        index + 1
    )]
    Intent { index: usize },
}

/// Error of an invalid patch operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetadataChangeError {
    #[error("invalid op: expect add, remove, or replace, not {0:?}")]
    Op(String),
    #[error(
        "machine metadata path invalid: write /<machine ID>/metadata/<key>, \
         the key in letters, digits, \"_\", \".\" and \"-\""
    )]
    Path,
    #[error("machine metadata path invalid: {0}")]
    Machine(MachineIdError),
    #[error("invalid value: add and replace require a value")]
    NoValue,
    #[error("invalid value: it must be a string")]
    NotText,
}

/// Decodes the body of a unit `PUT`. A `null` body has no fields.
pub(crate) fn decode_put(body: &[u8]) -> Result<PutUnit, DecodeError> {
    let mut value = first_value(body).map_err(DecodeError::Json)?;
    if value.is_null() {
        return Ok(PutUnit::default());
    }
    if !value.is_object() {
        return Err(DecodeError::Shape { expected: "an object" });
    }
    normalize_names(
        &mut value,
        &["desiredState", "generation", "name", "options", "source", "sourceBase64"],
    );
    normalize_options(&mut value)?;
    serde_json::from_value(value).map_err(DecodeError::Json)
}

/// Decodes the body of an import, all of it or nothing.
pub(crate) fn decode_import(body: &[u8]) -> Result<(Epoch, Vec<(MachineId, Intent)>), DecodeError> {
    let all: ImportRequest = serde_json::from_slice(body).map_err(DecodeError::Json)?;
    let intent = |(index, it): (usize, MachineIntent)| {
        let machine = it.machine_id.parse();
        let machine = machine.map_err(|cause| DecodeError::Machine { index, cause })?;
        match (it.intent.as_str(), it.min_available) {
            ("cordoned", None) => Ok((machine, Intent::Cordoned)),
            ("drained", Some(min_available)) => Ok((machine, Intent::Drained { min_available })),
            _ => Err(DecodeError::Intent { index }),
        }
    };
    let intents = all.intents.into_iter().enumerate().map(intent).collect::<Result<_, _>>()?;
    Ok((Epoch(all.epoch), intents))
}

/// Decodes the body of a plan request. An empty body requests a plan for the current state.
pub(crate) fn decode_plan(body: &[u8]) -> Result<PlanRequest, DecodeError> {
    if body.is_empty() {
        return Ok(PlanRequest::default());
    }
    serde_json::from_slice(body).map_err(DecodeError::Json)
}

/// Decodes the body of a write of several units.
pub(crate) fn decode_bulk(body: &[u8]) -> Result<BulkRequest, DecodeError> {
    serde_json::from_slice(body).map_err(DecodeError::Json)
}

/// Decodes the body of a check request.
pub(crate) fn decode_check(body: &[u8]) -> Result<CheckRequest, DecodeError> {
    serde_json::from_slice(body).map_err(DecodeError::Json)
}

/// Normalizes the field names of each option. Returns an error if `options` or one of the options
/// is null, because a unit file cannot express that.
fn normalize_options(entity: &mut Value) -> Result<(), DecodeError> {
    let Some(options) = entity.get_mut("options") else {
        return Ok(());
    };
    if options.is_null() {
        return Err(DecodeError::Null("options".to_owned()));
    }
    for (index, option) in options.as_array_mut().into_iter().flatten().enumerate() {
        if option.is_null() {
            return Err(DecodeError::Null(format!("options[{index}]")));
        }
        normalize_names(option, &["name", "section", "value"]);
    }
    Ok(())
}

/// Decodes the body of a machine `PATCH`, all of it or nothing.
pub(crate) fn decode_patch(body: &[u8]) -> Result<Vec<MetadataChange>, DecodeError> {
    let value = first_value(body).map_err(DecodeError::Json)?;
    let ops = match value {
        Value::Null => Vec::new(),
        Value::Array(ops) => ops,
        _ => {
            return Err(DecodeError::Shape { expected: "an array of operations" });
        }
    };
    let change = |(index, mut op): (usize, Value)| {
        normalize_names(&mut op, &["op", "path", "value"]);
        decode_op(&op).map_err(|cause| DecodeError::Change { index, cause })
    };
    ops.into_iter().enumerate().map(change).collect()
}

fn decode_op(op: &Value) -> Result<MetadataChange, MetadataChangeError> {
    let text = |field| op.get(field).and_then(Value::as_str).unwrap_or_default();
    let removes = match text("op") {
        "add" | "replace" => false,
        "remove" => true,
        other => return Err(MetadataChangeError::Op(other.to_owned())),
    };
    let (machine, key) = decode_path(text("path"))?;
    if removes {
        return Ok(MetadataChange::Remove { machine, key });
    }
    let value = decode_value(op.get("value"))?;
    Ok(MetadataChange::Set { machine, key, value })
}

fn decode_path(path: &str) -> Result<(MachineId, String), MetadataChangeError> {
    let parts: Vec<&str> = path.split('/').collect();
    let ["", machine, "metadata", key] = parts[..] else {
        return Err(MetadataChangeError::Path);
    };
    let [machine, key] = [machine, key].map(unescape);
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
    if machine.is_empty() || key.is_empty() || !key.bytes().all(allowed) {
        return Err(MetadataChangeError::Path);
    }
    let machine = machine.parse().map_err(MetadataChangeError::Machine)?;
    Ok((machine, key))
}

/// Decodes the escapes of a JSON pointer: `~1` stands for `/`, and `~0` for `~`. The order matters:
/// `~01` must become `~1`, and not `/`.
fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Decodes the value of a metadata change. The value may be a string, as documented, or an object
/// with the field `value`, as fleet v1 required.
fn decode_value(value: Option<&Value>) -> Result<String, MetadataChangeError> {
    let mut value = value.cloned().unwrap_or_default();
    if value.is_object() {
        normalize_names(&mut value, &["value"]);
        value = value.get("value").cloned().unwrap_or_default();
    }
    match value {
        Value::String(text) if !text.is_empty() => Ok(text),
        Value::String(_) | Value::Null => Err(MetadataChangeError::NoValue),
        _ => Err(MetadataChangeError::NotText),
    }
}

/// Decodes the first JSON value of a body and ignores the rest.
pub(super) fn first_value(body: &[u8]) -> Result<Value, serde_json::Error> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter();
    match values.next() {
        Some(value) => value,
        // The parser returns the error for an empty body.
        None => serde_json::from_slice(body),
    }
}

/// Renames the fields of an object to the spelling in `known`, ignoring case: `NAME` becomes
/// `name`. If the object also has a field `name`, `NAME` is left as it is.
pub(super) fn normalize_names(value: &mut Value, known: &[&str]) {
    let Value::Object(fields) = value else { return };
    let names: Vec<String> = fields.keys().cloned().collect();
    for name in names {
        let Some(right) = known.iter().find(|right| right.eq_ignore_ascii_case(&name)) else {
            continue;
        };
        if *right == name || fields.contains_key(*right) {
            continue;
        }
        if let Some(value) = fields.remove(&name) {
            fields.insert((*right).to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts that are often JSON and often contain known fields.
    fn body() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("7".to_owned()),
            Just("\"add\"".to_owned()),
            Just("\"/m1/metadata/a~1b\"".to_owned()),
            "\"[a-z/~%]{0,4}\"",
        ];
        let name = prop::sample::select(vec![
            "op",
            "PATH",
            "value",
            "name",
            "options",
            "Options",
            "source",
            "desiredState",
        ]);
        let tree = leaf.prop_recursive(4, 24, 4, move |inner| {
            let field = (name.clone(), inner.clone()).prop_map(|(n, v)| format!("{n:?}:{v}"));
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(|all| format!("[{}]", all.join(","))),
                prop::collection::vec(field, 0..4).prop_map(|all| format!("{{{}}}", all.join(","))),
            ]
        });
        prop_oneof![4 => tree, 1 => "\\PC{0,20}"]
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_are_decoded_or_refused(body in body()) {
            let body = body.as_bytes();
            let refusals = [decode_put(body).err(), decode_patch(body).err()];
            for refusal in refusals.into_iter().chain([decode_import(body).err()]) {
                prop_assert!(refusal.is_none_or(|error| !error.to_string().is_empty()));
            }
        }

        #[test]
        fn metadata_changes_round_trip(
            machine in "[a-z0-9]{1,8}",
            key in "[A-Za-z0-9_.-]{1,8}",
            value in "\\PC{1,8}",
            removes: bool,
        ) {
            let machine: MachineId = machine.parse().unwrap();
            let change = match removes {
                true => MetadataChange::Remove { machine, key },
                false => MetadataChange::Set { machine, key, value },
            };
            let body = serde_json::to_vec(&[MetadataOp::from(&change)]).unwrap();
            prop_assert_eq!(decode_patch(&body).unwrap(), [change]);
        }
    }

    #[test]
    fn only_the_first_value_is_read() {
        let cases = [("1 2", Some(1)), ("  3", Some(3)), ("4]", Some(4)), ("", None), ("x", None)];
        for (text, expected) in cases {
            let value = first_value(text.as_bytes()).ok().and_then(|value| value.as_i64());
            assert_eq!(value, expected, "{text:?}");
        }
    }

    #[test]
    fn field_names_are_normalized() {
        let cases = [
            (r#"{"NAME":1}"#, r#"{"name":1}"#),
            (r#"{"NAME":1,"name":2}"#, r#"{"NAME":1,"name":2}"#),
            (r#"{"other":1}"#, r#"{"other":1}"#),
            ("[1]", "[1]"),
        ];
        for (text, expected) in cases {
            let mut value = first_value(text.as_bytes()).unwrap();
            normalize_names(&mut value, &["name"]);
            assert_eq!(value.to_string(), expected);
        }
    }
}
