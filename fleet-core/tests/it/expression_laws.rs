//! Properties of all expressions, compared with a naive implementation.

use fleet_core::{Expression, Metadata};
use proptest::prelude::*;

/// An expression tree without any normalization.
#[derive(Debug, Clone)]
enum Naive {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Exists(String),
    Is(String, String),
    Differs(String, String),
    In(String, Vec<String>),
    Compare(String, &'static str, i32),
}

/// Writes every part in parentheses and quotation marks.
fn write(naive: &Naive) -> String {
    let quote = |text: &String| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let join = |parts: &[Naive], by| parts.iter().map(write).collect::<Vec<_>>().join(by);
    match naive {
        Naive::All(parts) => format!("({})", join(parts, " and ")),
        Naive::Any(parts) => format!("({})", join(parts, " or ")),
        Naive::Not(part) => format!("(not {})", write(part)),
        Naive::Exists(key) => format!("(exists {})", quote(key)),
        Naive::Is(key, value) => format!("({}={})", quote(key), quote(value)),
        Naive::Differs(key, value) => format!("({}!={})", quote(key), quote(value)),
        Naive::In(key, values) => {
            let values: Vec<String> = values.iter().map(quote).collect();
            format!("({} in ({}))", quote(key), values.join(","))
        }
        Naive::Compare(key, sign, tenths) => {
            let sign_of = if *tenths < 0 { "-" } else { "" };
            let size = tenths.unsigned_abs();
            format!("({}{sign}{sign_of}{}.{})", quote(key), size / 10, size % 10)
        }
    }
}

fn eval(naive: &Naive, machine: &Metadata) -> bool {
    match naive {
        Naive::All(parts) => parts.iter().filter(|part| !eval(part, machine)).count() == 0,
        Naive::Any(parts) => parts.iter().filter(|part| eval(part, machine)).count() > 0,
        Naive::Not(part) => !eval(part, machine),
        Naive::Exists(key) => machine.keys().any(|other| other == key),
        Naive::Is(key, value) => machine.iter().any(|it| it == (key, value)),
        Naive::Differs(key, value) => !machine.iter().any(|it| it == (key, value)),
        Naive::In(key, values) => values.iter().any(|v| machine.iter().any(|it| it == (key, v))),
        Naive::Compare(key, sign, tenths) => {
            let number = machine.get(key).and_then(|value| value.parse::<f64>().ok());
            number.is_some_and(|number| match *sign {
                "<" => number < f64::from(*tenths) / 10.0,
                ">" => number > f64::from(*tenths) / 10.0,
                "<=" => number <= f64::from(*tenths) / 10.0,
                _ => number >= f64::from(*tenths) / 10.0,
            })
        }
    }
}

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "and", "c d", "e\"f"]).prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    let values = vec!["x", "y", "1", "-1.5", "2.0", "not", "(", "a\\b", "é ü"];
    prop::sample::select(values).prop_map(str::to_owned)
}

fn naive() -> impl Strategy<Value = Naive> {
    let signs = prop::sample::select(vec!["<", ">", "<=", ">="]);
    let leaf = prop_oneof![
        key().prop_map(Naive::Exists),
        (key(), value()).prop_map(|(key, value)| Naive::Is(key, value)),
        (key(), value()).prop_map(|(key, value)| Naive::Differs(key, value)),
        (key(), prop::collection::vec(value(), 1..4)).prop_map(|(key, all)| Naive::In(key, all)),
        (key(), signs, -30..30).prop_map(|(key, sign, tenths)| Naive::Compare(key, sign, tenths)),
    ];
    leaf.prop_recursive(5, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(Naive::All),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Naive::Any),
            inner.prop_map(|part| Naive::Not(Box::new(part))),
        ]
    })
}

fn machine() -> impl Strategy<Value = Metadata> {
    prop::collection::btree_map(key(), value(), 0..4)
}

proptest! {
    #[test]
    fn evaluation_agrees_with_the_naive_evaluator(naive in naive(), machine in machine()) {
        let text = write(&naive);
        let expression: Expression = text.parse().unwrap();
        prop_assert_eq!(expression.eval(&machine), eval(&naive, &machine), "{}", text);
        prop_assert_eq!(expression.first_false(&machine).is_none(), eval(&naive, &machine));
    }

    #[test]
    fn canonical_text_parses_to_the_same_expression(naive in naive(), machine in machine()) {
        let expression: Expression = write(&naive).parse().unwrap();
        let again: Expression = expression.to_string().parse().unwrap();
        prop_assert_eq!(&again, &expression);
        prop_assert_eq!(again.to_string(), expression.to_string());
        prop_assert_eq!(again.eval(&machine), expression.eval(&machine), "{}", expression);
    }

    #[test]
    fn first_false_part_is_false_by_itself(naive in naive(), machine in machine()) {
        let expression: Expression = write(&naive).parse().unwrap();
        let Some(part) = expression.first_false(&machine) else { return Ok(()) };
        let part: Expression = part.part.parse().unwrap();
        prop_assert!(!part.eval(&machine));
    }

    #[test]
    fn expression_error_is_within_the_text(
        text in "(a|in|and|or|not|exists|1|=|!=|<|\\(|\\)|,|\"|\\\\| |é|&){0,12}",
    ) {
        match text.parse::<Expression>() {
            Ok(expression) => {
                prop_assert_eq!(expression.to_string().parse(), Ok(expression));
            }
            Err(error) => {
                prop_assert!(text.get(error.span.start..error.span.end).is_some());
                prop_assert!(!error.help().is_empty());
            }
        }
    }
}
