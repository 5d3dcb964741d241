//! JSON decoding with the leniency of version 1 of the API.

use serde_json::Value;

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
    use super::*;

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
