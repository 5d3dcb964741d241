//! Arguments of conditions that have parts: limits and comparisons.

use std::cmp::Ordering;

use fleet_unitfile::values::{Size, parse_permyriad, parse_size, split_words};

use super::fnmatch::fnmatch;
use super::version::compare_versions;

/// The way in which two values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `$=`: a pattern of the shell matches.
    Matches,
    /// `!$=`: a pattern of the shell does not match.
    DiffersFromPattern,
    /// `=`: the texts are equal. For numbers this is `==`.
    Is,
    /// `!=`: the texts are not equal. For numbers this is `<>`.
    IsNot,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `==`
    Equal,
    /// `<>`
    Unequal,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
}

/// The operators; none is the start of a later one.
const OPERATORS: [(&str, Operator); 10] = [
    ("$=", Operator::Matches),
    ("!$=", Operator::DiffersFromPattern),
    ("<>", Operator::Unequal),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
    ("==", Operator::Equal),
    ("=", Operator::Is),
    ("!=", Operator::IsNot),
];

/// Characters that may begin an operator.
const OPERATOR_STARTS: [char; 5] = ['!', '<', '=', '>', '$'];

impl Operator {
    /// Splits a text that begins with an operator.
    fn split(text: &str) -> Option<(Self, &str)> {
        OPERATORS.iter().find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?)))
    }

    /// Splits a number with an optional operator. Without one, the number is the least value.
    fn split_number(text: &str) -> Option<(Self, &str)> {
        let (operator, number) = Self::split(text).unwrap_or((Self::GreaterOrEqual, text));
        let fits = !matches!(operator, Self::Matches | Self::DiffersFromPattern);
        fits.then_some((operator, number.trim_start()))
    }

    /// Returns whether the operator accepts this order of its operands.
    fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Matches | Self::Is | Self::Equal => order.is_eq(),
            Self::DiffersFromPattern | Self::IsNot | Self::Unequal => order.is_ne(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Greater => order.is_gt(),
        }
    }
}

/// A comparison with a version, a text or a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comparison {
    /// The way in which the values are compared.
    pub operator: Operator,
    /// The expected value.
    pub operand: String,
}

impl Comparison {
    /// Returns whether the comparison is true of a value.
    #[must_use]
    pub fn holds(&self, actual: &str) -> bool {
        match self.operator {
            Operator::Matches => fnmatch(&self.operand, actual),
            Operator::DiffersFromPattern => !fnmatch(&self.operand, actual),
            Operator::Is => actual == self.operand,
            Operator::IsNot => actual != self.operand,
            operator => operator.accepts(compare_versions(actual, &self.operand)),
        }
    }
}

/// Comparisons with one version, which have to hold together: the argument of
/// `ConditionKernelVersion=`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionComparison(Vec<Comparison>);

impl VersionComparison {
    /// Reads the comparisons, separated by blanks. A comparison without an operator is a pattern.
    /// Only after the first operator, a blank may follow.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = split_words(text).ok()?.into_iter();
        let mut all = Vec::new();
        while let Some(word) = words.next() {
            let (operator, operand) =
                Operator::split(word.trim()).unwrap_or((Operator::Matches, word.trim()));
            let operand = match operand.trim_start() {
                "" if all.is_empty() => words.next()?,
                "" => return None,
                operand => operand.to_owned(),
            };
            all.push(Comparison { operator, operand });
        }
        (!all.is_empty()).then_some(Self(all))
    }

    /// Reads the argument of `ConditionVersion=`: the component, which is `kernel` if it is
    /// missing, and the comparisons with its version.
    #[must_use]
    pub fn parse_component(text: &str) -> Option<(&str, Self)> {
        let end = text.find(|it: char| OPERATOR_STARTS.contains(&it) || it.is_whitespace());
        let (component, rest) = text.split_at(end.unwrap_or(text.len()));
        match component {
            "kernel" | "systemd" | "glibc" => Some((component, Self::parse(rest)?)),
            _ => Some(("kernel", Self::parse(text)?)),
        }
    }

    /// Returns whether all comparisons are true of a version.
    #[must_use]
    pub fn holds(&self, version: &str) -> bool {
        self.0.iter().all(|comparison| comparison.holds(version))
    }
}

/// A comparison of the value of a named field: a part of `ConditionOSRelease=`, and the argument of
/// `smbios-field()` in `ConditionFirmware=`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldComparison {
    /// Name of the field.
    pub field: String,
    /// Comparison with its value.
    pub comparison: Comparison,
}

impl FieldComparison {
    /// Reads comparisons such as `ID=debian`, separated by blanks.
    #[must_use]
    pub fn parse_os_release(text: &str) -> Option<Vec<Self>> {
        let words = split_words(text).ok()?;
        let all = words.iter().map(|word| {
            let (field, comparison) = Self::split(word)?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let is_field = field.chars().all(is_name) && !field.starts_with(char::is_numeric);
            let operand = comparison.operand.as_str();
            let fits = is_field && !operand.is_empty() && !operand.starts_with(char::is_whitespace);
            fits.then(|| Self { field: field.to_owned(), comparison })
        });
        all.collect::<Option<Vec<_>>>().filter(|all| !all.is_empty())
    }

    /// Reads the comparison inside the parentheses of `smbios-field(FIELD OPERATOR VALUE)`.
    #[must_use]
    pub fn parse_smbios(text: &str) -> Option<Self> {
        let (field, Comparison { operator, operand }) = Self::split(text)?;
        let field = field.trim_end().to_owned();
        if field.contains('/') || field == "." || field == ".." {
            return None;
        }
        let mut words = split_words(&operand).ok()?.into_iter();
        let operand = words.next().filter(|_| words.next().is_none())?;
        Some(Self { field, comparison: Comparison { operator, operand } })
    }

    fn split(text: &str) -> Option<(&str, Comparison)> {
        let (field, rest) = text.split_at(text.find(OPERATOR_STARTS)?);
        let (operator, operand) = Operator::split(rest)?;
        let operand = operand.to_owned();
        (!field.is_empty()).then_some((field, Comparison { operator, operand }))
    }
}

/// A limit of a size in bytes: the argument of `ConditionMemory=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit(Operator, u64);

impl SizeLimit {
    /// Reads an operator, which is `>=` if it is missing, and a number of bytes with a suffix.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (operator, size) = Operator::split_number(text)?;
        match parse_size(size) {
            Ok(Size::Bytes(bytes)) => Some(Self(operator, bytes)),
            _ => None,
        }
    }

    /// Returns whether the limit is kept.
    #[must_use]
    pub fn holds(self, bytes: u64) -> bool {
        self.0.accepts(bytes.cmp(&self.1))
    }
}

/// A limit of a number: the argument of `ConditionCPUs=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLimit(Operator, u32);

impl CountLimit {
    /// Reads an operator, which is `>=` if it is missing, and a whole number.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (operator, number) = Operator::split_number(text)?;
        Some(Self(operator, number.parse().ok()?))
    }

    /// Returns whether the limit is kept.
    #[must_use]
    pub fn holds(self, count: u32) -> bool {
        self.0.accepts(count.cmp(&self.1))
    }
}

/// The most pressure under which a unit starts: the argument of `ConditionMemoryPressure=`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PressureLimit {
    /// Path of the slice's control group below the root, if the pressure is that of a slice.
    pub slice: Option<String>,
    /// Key of the average in the kernel's file, such as `avg300`.
    pub average: &'static str,
    /// Maximum in ten-thousandths.
    pub permyriad: u32,
}

/// The time spans of averages, with the keys of the kernel.
const AVERAGES: [(&str, &str); 3] = [("10sec", "avg10"), ("1min", "avg60"), ("5min", "avg300")];

impl PressureLimit {
    /// Reads `SLICE:SHARE/TIME`. Without a slice, the pressure is that of the machine. Without a
    /// time, it is the average of five minutes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (slice, limit) = match text.split_once(':') {
            Some((slice, limit)) => (Some(slice_path(slice.trim())?), limit),
            None => (None, text),
        };
        let (share, time) = limit.split_once('/').unwrap_or((limit, "5min"));
        let known = |(name, _): &&(&str, &str)| *name == time.trim();
        let (_, average) = AVERAGES.iter().find(known)?;
        Some(Self { slice, average, permyriad: parse_permyriad(share.trim()).ok()? })
    }
}

/// Returns the path of a slice's control group: `a-b.slice` is in `a.slice`.
fn slice_path(name: &str) -> Option<String> {
    let stem = name.strip_suffix(".slice")?;
    if stem == "-" {
        return Some(String::new());
    }
    let is_fine = |part: &str| !part.is_empty() && !part.contains('/');
    if !stem.split('-').all(is_fine) {
        return None;
    }
    let ends = stem.match_indices('-').map(|(at, _)| at).chain([stem.len()]);
    let path: Vec<String> = ends.map(|end| format!("{}.slice", &stem[..end])).collect();
    Some(path.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared() {
        for (text, expected) in [
            ("6.*", Some(true)),
            ("5.* ", Some(false)),
            ("=6.1.0-9-amd64", Some(true)),
            ("=6.1.0", Some(false)),
            ("!=6.1.0", Some(true)),
            (">=6.1", Some(true)),
            (">= 6.1", Some(true)),
            ("< 6.1", Some(false)),
            (">=6 <6.2", Some(true)),
            (">=6 <6.1", Some(false)),
            ("'>= 6' \"<7\"", Some(true)),
            ("==6.1.0-9-amd64", Some(true)),
            ("<>6.1.0-9-amd64", Some(false)),
            ("$=*-amd64", Some(true)),
            ("!$=*-amd64", Some(false)),
            ("<=6.1.0-9-amd64 $=*-arm64", Some(false)),
            (">=", None),
            (">=6 <", None),
            ("'6", None),
            ("", None),
        ] {
            let output = VersionComparison::parse(text).map(|it| it.holds("6.1.0-9-amd64"));
            assert_eq!(output, expected, "{text}");
        }
    }

    #[test]
    fn version_of_a_component_is_split() {
        for (text, component, holds) in [
            ("systemd>=252", "systemd", true),
            ("systemd >= 252", "systemd", true),
            ("kernel <252", "kernel", false),
            (">=253", "kernel", false),
            ("2*", "kernel", true),
            ("glibc=252", "glibc", true),
        ] {
            let (name, comparison) = VersionComparison::parse_component(text).unwrap();
            assert_eq!((name, comparison.holds("252")), (component, holds), "{text}");
        }
        assert_eq!(VersionComparison::parse_component("systemd"), None);
    }

    #[test]
    fn fields_are_compared() {
        for (text, expected) in [
            ("ID=debian", Some("ID:debian")),
            ("ID=debian VERSION_ID>=12", Some("ID:debian VERSION_ID:12")),
            ("NAME='a b'", Some("NAME:a b")),
            ("ID", None),
            ("ID=", None),
            ("=a", None),
            ("ID= a", None),
            ("'ID= a'", None),
            ("1D=a", None),
            ("A.B=a", None),
            ("", None),
        ] {
            let read = FieldComparison::parse_os_release(text);
            let format = |it: &FieldComparison| format!("{}:{}", it.field, it.comparison.operand);
            let output = read.map(|all| all.iter().map(format).collect::<Vec<_>>().join(" "));
            assert_eq!(output.as_deref(), expected, "{text}");
        }
        let vendor = FieldComparison::parse_smbios("sys_vendor $= \"A B*\"").unwrap();
        assert_eq!(vendor.field, "sys_vendor");
        assert!(vendor.comparison.holds("A B Inc.") && !vendor.comparison.holds("A"));
        for text in ["sys_vendor", "a=", "a=b c", "../a=b", "=b", ""] {
            assert_eq!(FieldComparison::parse_smbios(text), None, "{text}");
        }
    }

    #[test]
    fn limits_are_kept() {
        for (text, expected) in [
            ("2G", Some(true)),
            (">2G", Some(false)),
            ("<=2G", Some(true)),
            ("= 2G", Some(true)),
            ("!=2G", Some(false)),
            ("<>1G", Some(true)),
            ("==2147483648", Some(true)),
            ("$=2G", None),
            ("10%", None),
            ("infinity", None),
            ("much", None),
        ] {
            let output = SizeLimit::parse(text).map(|it| it.holds(2 << 30));
            assert_eq!(output, expected, "{text}");
        }
        for (text, expected) in [
            ("4", Some(true)),
            (">4", Some(false)),
            ("< 5", Some(true)),
            ("-1", None),
            ("4K", None),
        ] {
            let output = CountLimit::parse(text).map(|it| it.holds(4));
            assert_eq!(output, expected, "{text}");
        }
    }

    #[test]
    fn pressure_has_a_slice_and_a_time() {
        for (text, expected) in [
            ("10%", Some((None, "avg300", 1000))),
            ("0.5%/10sec", Some((None, "avg10", 50))),
            ("a-b.slice: 5‰ / 1min", Some((Some("a.slice/a-b.slice"), "avg60", 50))),
            ("-.slice:1%", Some((Some(""), "avg300", 100))),
            ("10", None),
            ("10%/2min", None),
            ("a.service:10%", None),
            ("a--b.slice:10%", None),
            ("../a.slice:10%", None),
            (":10%", None),
            ("", None),
        ] {
            let read = PressureLimit::parse(text);
            let output = read.as_ref().map(|it| (it.slice.as_deref(), it.average, it.permyriad));
            assert_eq!(output, expected, "{text}");
        }
    }
}
