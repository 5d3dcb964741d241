//! Options of `[Install]` that do not fit the unit.

use super::code::FindingCode;
use super::specifiers::expanded;
use super::value_error::{ValueError, quoted, words};
use crate::name::UnitName;
use crate::option::OptionView;
use crate::unit_type::UnitType;

/// The options of `[Install]` that name units.
pub(super) const OPTIONS: [&str; 5] = ["Alias", "Also", "RequiredBy", "UpheldBy", "WantedBy"];

/// Checks an option of `[Install]` that `systemctl enable` would refuse or ignore.
pub(super) fn check(name: &UnitName, option: OptionView<'_>) -> Vec<ValueError> {
    if option.section() != "Install" || option.value().is_empty() {
        return Vec::new();
    }
    match option.name() {
        "Alias" => {
            let each = words(option.value());
            each.filter_map(|word| Some(alias(name, word.1)?.at_word(word))).collect()
        }
        "DefaultInstance" => default_instance(name, option.value()).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn alias(name: &UnitName, alias: &str) -> Option<ValueError> {
    let unit_type = name.unit_type();
    let error = |message, help| Some(ValueError::new(FindingCode::Install, message, help));
    if !may_have_aliases(unit_type) {
        let message = format!("a {unit_type} unit cannot have an alias");
        return error(message, "remove the alias".to_owned());
    }
    // An alias that is no name has a finding of its own.
    let other = UnitName::parse(&expanded(alias, name)?).ok()?;
    if other.unit_type() != unit_type {
        let message = format!("{} is not an alias of the type {unit_type}", quoted(alias));
        return error(message, format!("write {}.{unit_type}", other.stem()));
    }
    if name.is_template() && other.instance().is_none() {
        let message = format!("{} cannot be the alias of a template", quoted(alias));
        return error(message, format!("write {}@.{unit_type}", other.stem()));
    }
    None
}

fn may_have_aliases(unit_type: UnitType) -> bool {
    use UnitType::{Device, Path, Service, Socket, Target, Timer};
    matches!(unit_type, Device | Path | Service | Socket | Target | Timer)
}

fn default_instance(name: &UnitName, value: &str) -> Option<ValueError> {
    if !name.is_template() {
        let message = "only a template has a default instance".to_owned();
        return Some(ValueError::new(FindingCode::Install, message, "remove the option"));
    }
    let instance = expanded(value, name)?;
    let is_letter = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    (!instance.chars().all(is_letter)).then(|| {
        let message = format!("{} is not the name of an instance", quoted(value));
        let help = "use letters, digits and \":-_.\\@\", and escape the other characters";
        ValueError::new(FindingCode::Install, message, help)
    })
}
