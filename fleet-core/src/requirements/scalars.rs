//! Parsing of options with independent values: amounts, numbers, choices, preferences, expressions.

use fleet_unitfile::Span;

use super::parse::{SectionReader, depends_on_instance};
use super::{
    FleetOption, OnPartition, Preference, RequirementErrorKind as Kind, Reschedule, Spread,
    is_spread_key,
};
use crate::{Expression, Resource};

/// Weight of a preference or spread without an explicit weight.
const DEFAULT_WEIGHT: i32 = 1;

impl SectionReader<'_> {
    /// Resets an option to its default.
    pub(super) fn reset_scalar(&mut self, option: FleetOption) {
        let scalars = &mut self.scalars;
        match option {
            FleetOption::MachineMetadataExpr => scalars.metadata_expr = None,
            FleetOption::MaxPerMachine => scalars.max_per_machine = None,
            FleetOption::Prefer => scalars.prefer.clear(),
            FleetOption::Spread => scalars.spread.clear(),
            FleetOption::Reschedule => scalars.reschedule = Reschedule::default(),
            FleetOption::OnPartition => scalars.on_partition = OnPartition::default(),
            _ => {
                if let Some(resource) = option.reserves() {
                    scalars.reserve[resource] = 0;
                }
            }
        }
    }

    /// Parses a value after the expansion of specifiers.
    pub(super) fn read_scalar(&mut self, option: FleetOption, value: String, span: Span) {
        match option {
            FleetOption::MaxPerMachine => self.read_max_per_machine(value, span),
            FleetOption::Spread => self.read_spread(&value, span),
            FleetOption::Reschedule => match Reschedule::from_name(&value) {
                Some(choice) => self.scalars.reschedule = choice,
                None => self.refuse_choice(option, value, span),
            },
            FleetOption::OnPartition => match OnPartition::from_name(&value) {
                Some(choice) => self.scalars.on_partition = choice,
                None => self.refuse_choice(option, value, span),
            },
            _ => {}
        }
    }

    /// Parses a reserved amount. A percent sign at the very end (`150%`) is literal, so it need not
    /// be doubled like the percent sign of other values.
    pub(super) fn read_amount(
        &mut self,
        resource: Resource,
        option: FleetOption,
        value: &str,
        span: Span,
    ) {
        let (number, sign) = match value.strip_suffix('%') {
            Some(number) if !number.ends_with('%') => (number, "%"),
            _ => (value, ""),
        };
        let Some(number) = self.expand(option, number, span) else {
            return;
        };
        match resource.parse(&format!("{number}{sign}")) {
            Ok(amount) => self.scalars.reserve[resource] = amount,
            Err(cause) => self.reports.refuse(span, Kind::Amount { option, cause }),
        }
    }

    /// Parses an expression and joins it to earlier ones by `and`.
    pub(super) fn read_metadata_expr(&mut self, text: &str, span: Span) {
        let option = FleetOption::MachineMetadataExpr;
        let Some(demand) = self.read_expression(option, text, span) else {
            return;
        };
        let before = self.scalars.metadata_expr.take();
        match before.map_or(Ok(demand.clone()), |before| before.and(&demand)) {
            Ok(all) => self.scalars.metadata_expr = Some(all),
            Err(cause) => self.reports.refuse(span, Kind::Expression { option, cause }),
        }
    }

    /// Parses `weight: expression`, or an expression alone.
    pub(super) fn read_preference(&mut self, value: &str, span: Span) {
        let option = FleetOption::Prefer;
        if let Some(kind) = self.missing_colon(option, value) {
            return self.reports.refuse(span, kind);
        }
        let (weight, text) = split_weight(value);
        let end = span.end;
        let of_text = match value.len() == end - span.start {
            true => Span { start: end - text.len(), end },
            false => span,
        };
        let weight = self.read_weight(option, weight, span);
        let expression = self.read_expression(option, text, of_text);
        if let (Some(weight), Some(expression)) = (weight, expression) {
            let preference = Preference { weight, expression };
            if !self.scalars.prefer.contains(&preference) {
                self.scalars.prefer.push(preference);
            }
        }
    }

    /// Parses `weight: key`, or a key alone. If a key occurs several times, its last weight takes
    /// effect.
    fn read_spread(&mut self, value: &str, span: Span) {
        let option = FleetOption::Spread;
        if let Some(kind) = self.missing_colon(option, value) {
            return self.reports.refuse(span, kind);
        }
        let (weight, key) = split_weight(value);
        if !is_spread_key(key) {
            let value = key.to_owned();
            return self.reports.refuse(span, Kind::SpreadKey { value });
        }
        let Some(weight) = self.read_weight(option, weight, span) else {
            return;
        };
        match self.scalars.spread.iter_mut().find(|spread| spread.key == key) {
            Some(spread) => spread.weight = weight,
            None => self.scalars.spread.push(Spread { weight, key: key.to_owned() }),
        }
    }

    /// Returns an error if the colon after the weight seems to be missing, as in `5 zone` instead
    /// of `5: zone`. That is the case if the value is valid only without its leading number.
    fn missing_colon(&self, option: FleetOption, value: &str) -> Option<Kind> {
        let (weight, rest) = value.split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        weight.parse::<i32>().ok()?;
        let is_expression = |text| Expression::parse_of(text, self.name).is_ok();
        let missing = match option {
            FleetOption::Spread => !rest.is_empty() && !rest.contains([':', '=', ' ', '\t']),
            _ => !rest.starts_with(':') && !is_expression(value) && is_expression(rest),
        };
        let (weight, rest) = (weight.to_owned(), rest.to_owned());
        missing.then_some(Kind::MissingColon { option, weight, rest })
    }

    /// Parses the weight before a colon. Without a weight, returns the default.
    fn read_weight(&mut self, option: FleetOption, text: Option<&str>, span: Span) -> Option<i32> {
        let Some(text) = text else {
            return Some(DEFAULT_WEIGHT);
        };
        let text = self.expand(option, text, span)?;
        let (allowed, zero) = match option {
            FleetOption::Spread => (Spread::WEIGHTS, false),
            _ => (Preference::WEIGHTS, true),
        };
        let weight = text.parse().ok().filter(|weight| allowed.contains(weight));
        let weight = weight.filter(|weight| *weight != 0 || !zero);
        if weight.is_none() {
            self.reports.refuse(span, Kind::Weight { option, value: text });
        }
        weight
    }

    fn read_expression(
        &mut self,
        option: FleetOption,
        text: &str,
        span: Span,
    ) -> Option<Expression> {
        if self.name.is_template() && depends_on_instance(text) {
            return None;
        }
        match Expression::parse_of(text, self.name) {
            Ok(expression) => Some(expression),
            Err(cause) => {
                let span = within(span, text, cause.span);
                self.reports.refuse(span, Kind::Expression { option, cause });
                None
            }
        }
    }

    fn read_max_per_machine(&mut self, value: String, span: Span) {
        let digits = value.bytes().all(|b| b.is_ascii_digit());
        match value.parse() {
            Ok(limit @ 1..) if digits => self.scalars.max_per_machine = Some(limit),
            _ => self.reports.refuse(span, Kind::MaxPerMachine { value }),
        }
    }

    fn refuse_choice(&mut self, option: FleetOption, value: String, span: Span) {
        self.reports.refuse(span, Kind::Choice { option, value });
    }
}

/// Splits a value into weight and rest at its first colon, if the text before the colon is a
/// number. The number may contain specifiers.
fn split_weight(value: &str) -> (Option<&str>, &str) {
    let Some((weight, rest)) = value.split_once(':') else {
        return (None, value);
    };
    let weight = weight.trim_end();
    let digits = weight.strip_prefix(['-', '+']).unwrap_or(weight);
    let mut characters = digits.chars();
    let mut is_number = !digits.is_empty();
    while let Some(c) = characters.next() {
        is_number &= c.is_ascii_digit() || (c == '%' && characters.next().is_some());
    }
    if is_number { (Some(weight), rest.trim_start()) } else { (None, value) }
}

/// Returns the position in the file of a part of `text`, which itself is at `span`. If the text
/// does not appear literally in the file, or if the part is empty, returns `span`.
fn within(span: Span, text: &str, part: Span) -> Span {
    if span.end - span.start != text.len() || part.start == part.end {
        return span;
    }
    Span { start: span.start + part.start, end: span.start + part.end }
}
