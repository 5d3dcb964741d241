//! What the API is asked: the body of a `PUT` of a unit, of a `PATCH` of machines, and of a `POST`
//! of what another cluster hands over.

use fleet_core::{Epoch, Intent, MachineId, MachineIdError};
use fleet_store::MetadataChange;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::UnitOption;
use super::json::{first_value, settle_names};

/// The body of `PUT /units/<name>`: a unit to create or replace, or a state to change.
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
    /// The unit's name; if given, the one in the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The unit file as options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<UnitOption>>,
    /// The unit file as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The unit file in base64, for one that is not UTF-8.
    #[serde(rename = "sourceBase64", skip_serializing_if = "Option::is_none")]
    pub source_base64: Option<String>,
}

/// One operation of `PATCH /machines`, a JSON patch.
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

/// The body of `POST /import`: what a cluster that comes in hands over beside units and metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct HandOver {
    /// To which epoch the other cluster has come.
    pub epochs: u64,
    /// What is to become of machines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intents: Vec<MachineIntent>,
}

/// The body of `POST /plan`: what a plan is asked for of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PlanRequest {
    /// The names of units that would be destroyed, after the others are there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destroy: Vec<String>,
    /// Units that would be created, replaced or brought to another desired state, each with its
    /// name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<PutUnit>,
}

/// What is to become of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineIntent {
    /// `cordoned` or `drained`.
    pub intent: String,
    /// How many instances of a template must be up while it is drained.
    #[serde(default, rename = "keepUp", skip_serializing_if = "Option::is_none")]
    pub keep_up: Option<u32>,
    /// The machine's ID.
    #[serde(rename = "machineID")]
    pub machine_id: String,
}

impl HandOver {
    pub(crate) fn new(epochs: Epoch, intents: &[(MachineId, Intent)]) -> Self {
        let intents = intents.iter().map(|(machine, intent)| MachineIntent {
            intent: super::convert::intent(*intent).to_owned(),
            keep_up: intent.keep_up(),
            machine_id: machine.to_string(),
        });
        Self { epochs: epochs.0, intents: intents.collect() }
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

/// Why a body is not what it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("unable to decode body: {0}")]
    Json(serde_json::Error),
    #[error("unable to decode body: {0} is null: leave the field out, or give it a value")]
    Null(String),
    #[error("unable to decode body: expected {expected}")]
    Shape { expected: &'static str },
    #[error("operation {index}: {cause}")]
    Change { index: usize, cause: MetadataChangeError },
    #[error("intents[{index}]: {cause}")]
    Machine { index: usize, cause: MachineIdError },
    #[error("intents[{index}]: write \"cordoned\", or \"drained\" with keepUp")]
    Intent { index: usize },
}

/// Why an operation of a patch cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetadataChangeError {
    #[error("invalid op: expect add, remove, or replace")]
    Op,
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

/// Reads the body of a `PUT` of a unit. A body of `null` has no fields.
pub(crate) fn decode_put(body: &[u8]) -> Result<PutUnit, DecodeError> {
    let mut value = first_value(body).map_err(DecodeError::Json)?;
    if value.is_null() {
        return Ok(PutUnit::default());
    }
    if !value.is_object() {
        return Err(DecodeError::Shape { expected: "an object" });
    }
    settle_names(&mut value, &["desiredState", "name", "options", "source", "sourceBase64"]);
    settle_options(&mut value)?;
    serde_json::from_value(value).map_err(DecodeError::Json)
}

/// Reads the body of a `POST` of what another cluster hands over, all of it or nothing.
pub(crate) fn decode_hand_over(
    body: &[u8],
) -> Result<(Epoch, Vec<(MachineId, Intent)>), DecodeError> {
    let all: HandOver = serde_json::from_slice(body).map_err(DecodeError::Json)?;
    let intent = |(index, it): (usize, MachineIntent)| {
        let machine = it.machine_id.parse();
        let machine = machine.map_err(|cause| DecodeError::Machine { index, cause })?;
        match (it.intent.as_str(), it.keep_up) {
            ("cordoned", None) => Ok((machine, Intent::Cordoned)),
            ("drained", Some(keep_up)) => Ok((machine, Intent::Drained { keep_up })),
            _ => Err(DecodeError::Intent { index }),
        }
    };
    let intents = all.intents.into_iter().enumerate().map(intent).collect::<Result<_, _>>()?;
    Ok((Epoch(all.epochs), intents))
}

/// Reads the body of a `POST` that asks for a plan. An empty one asks for that of things as they
/// are.
pub(crate) fn decode_plan(body: &[u8]) -> Result<PlanRequest, DecodeError> {
    if body.is_empty() {
        return Ok(PlanRequest::default());
    }
    serde_json::from_slice(body).map_err(DecodeError::Json)
}

/// Settles the names of each option's fields. An option that is null means nothing that a unit file
/// could say, so it is refused, and so is a list that is null.
fn settle_options(entity: &mut Value) -> Result<(), DecodeError> {
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
        settle_names(option, &["name", "section", "value"]);
    }
    Ok(())
}

/// Reads the body of a `PATCH` of machines, all of it or nothing.
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
        settle_names(&mut op, &["op", "path", "value"]);
        decode_op(&op).map_err(|cause| DecodeError::Change { index, cause })
    };
    ops.into_iter().enumerate().map(change).collect()
}

fn decode_op(op: &Value) -> Result<MetadataChange, MetadataChangeError> {
    let text = |field| op.get(field).and_then(Value::as_str).unwrap_or_default();
    let removes = match text("op") {
        "add" | "replace" => false,
        "remove" => true,
        _ => return Err(MetadataChangeError::Op),
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

/// Undoes the escapes of a JSON pointer; the order matters, for `~01` is `~1`.
fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// The documented plain string, or the object that the old program wanted in its place.
fn decode_value(value: Option<&Value>) -> Result<String, MetadataChangeError> {
    let mut value = value.cloned().unwrap_or_default();
    if value.is_object() {
        settle_names(&mut value, &["value"]);
        value = value.get("value").cloned().unwrap_or_default();
    }
    match value {
        Value::String(text) if !text.is_empty() => Ok(text),
        Value::String(_) | Value::Null => Err(MetadataChangeError::NoValue),
        _ => Err(MetadataChangeError::NotText),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Texts that are often JSON, and often of the fields that count.
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
        fn whatever_comes_is_read_or_refused_in_words(body in body()) {
            let body = body.as_bytes();
            let refusals = [decode_put(body).err(), decode_patch(body).err()];
            for refusal in refusals.into_iter().chain([decode_hand_over(body).err()]) {
                prop_assert!(refusal.is_none_or(|error| !error.to_string().is_empty()));
            }
        }

        #[test]
        fn what_a_client_sends_is_what_a_server_reads(
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
}
