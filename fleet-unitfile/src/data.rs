//! Serde implementations for names, options and findings.

use serde::de::Error as _;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::check::Finding;
use crate::file::canonical::{UnitHash, Writable, check};
use crate::file::option::{OptionView, UnitOption};
use crate::file::options::Options;
use crate::name::{UnitName, UnitType};
use crate::syntax::diagnostic::{Diagnostic, Location, Severity, Span};

/// Serializes by `Display` and deserializes by `FromStr`, so that invalid values are refused.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

as_text!(UnitName, UnitType, UnitHash);

/// The serialized fields of an option. `value` is the value as written, including its continuation
/// backslashes, so that deserializing yields an equal option.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OptionFields {
    section: String,
    name: String,
    value: String,
}

impl Serialize for UnitOption {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        option(self, serializer)
    }
}

/// Same form as a [`UnitOption`].
impl Serialize for OptionView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        option(*self, serializer)
    }
}

/// A sequence of options.
impl Serialize for Options<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.clone())
    }
}

fn option<'a, S: Serializer>(option: impl Writable<'a>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut fields = serializer.serialize_struct("UnitOption", 3)?;
    fields.serialize_field("section", option.section())?;
    fields.serialize_field("name", option.name())?;
    fields.serialize_field("value", &option.verbatim())?;
    fields.end()
}

impl<'de> Deserialize<'de> for UnitOption {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let OptionFields { section, name, value } = OptionFields::deserialize(deserializer)?;
        let option = Self::new(section, name, value);
        check(&option).map_err(D::Error::custom)?;
        Ok(option)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Span", 2)?;
        fields.serialize_field("start", &self.start)?;
        fields.serialize_field("end", &self.end)?;
        fields.end()
    }
}

impl Serialize for Location {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Location", 2)?;
        fields.serialize_field("line", &self.line)?;
        fields.serialize_field("column", &self.column)?;
        fields.end()
    }
}

impl Serialize for Severity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Severity, location and text of the diagnostic. It cannot be deserialized.
impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Diagnostic", 5)?;
        fields.serialize_field("severity", &self.severity())?;
        fields.serialize_field("span", &self.span())?;
        fields.serialize_field("location", &self.location())?;
        fields.serialize_field("message", &self.message())?;
        fields.serialize_field("help", self.help())?;
        fields.end()
    }
}

/// Like a [`Diagnostic`], with the finding's code in addition.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finding", 6)?;
        fields.serialize_field("code", self.code().as_str())?;
        fields.serialize_field("severity", &self.severity())?;
        fields.serialize_field("span", &self.span())?;
        fields.serialize_field("location", &self.location())?;
        fields.serialize_field("message", self.message())?;
        fields.serialize_field("help", self.help())?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::UnitFile;

    #[test]
    fn serde_data_round_trips() {
        let (unit, diagnostics) = UnitFile::parse_collecting("[A]\nK=a \\\n b\nno\n");
        let json = serde_json::to_string(&unit.options()).unwrap();
        assert_eq!(json, r#"[{"section":"A","name":"K","value":"a \\\n b"}]"#);
        let again: Vec<UnitOption> = serde_json::from_str(&json).unwrap();
        assert!(unit.options().eq(again));
        let name = UnitName::parse("a@1.service").unwrap();
        let (kind, hash) = (name.unit_type(), unit.hash());
        let json = serde_json::to_value((&name, kind, hash)).unwrap();
        assert_eq!(json, serde_json::json!(["a@1.service", "service", hash.to_string()]));
        assert_eq!(
            serde_json::from_value::<(UnitName, UnitType, UnitHash)>(json).unwrap(),
            (name, kind, hash)
        );
        let json = serde_json::to_value(&diagnostics[0]).unwrap();
        assert_eq!(json["severity"], "error");
        assert_eq!(json["location"], serde_json::json!({"line": 4, "column": 1}));
        assert_eq!(json["span"], serde_json::json!({"start": 13, "end": 15}));
        let json = serde_json::to_value(Finding::from(&diagnostics[0])).unwrap();
        assert_eq!((&json["code"], &json["severity"]), (&"U0007".into(), &"error".into()));
        assert_eq!(json["location"], serde_json::json!({"line": 4, "column": 1}));
    }

    #[test]
    fn invalid_data_is_refused_by_serde() {
        for json in [
            r#"{"section":"A","name":"K","value":"v\nL=w"}"#,
            r#"{"section":"A]","name":"K","value":"v"}"#,
            r#"{"section":"A","name":"K","value":"v","more":1}"#,
        ] {
            assert!(serde_json::from_str::<UnitOption>(json).is_err(), "{json}");
        }
        assert!(serde_json::from_str::<UnitName>("\"a.b\"").is_err());
        assert!(serde_json::from_str::<UnitHash>("\"00\"").is_err());
    }
}
