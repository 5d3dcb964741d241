//! Parsing of `HealthCheck=` and of the options that adjust the check.

use std::time::Duration;

use fleet_unitfile::Span;
use fleet_unitfile::specifier::expand_fleet_specifiers;

use super::parse::{SectionReader, Spanned};
use super::{FleetOption, RequirementErrorKind as Kind};
use crate::health::{HealthCheck, HealthCheckError, HealthTarget};

/// The options read so far. They may be in any order.
#[derive(Default)]
pub(super) struct HealthOptions {
    target: Option<Spanned<HealthTarget>>,
    interval: Option<Duration>,
    timeout: Option<Duration>,
    threshold: Option<u32>,
}

impl HealthOptions {
    /// Resets an option to its default. Returns `false` if the option is of another kind.
    pub(super) fn reset(&mut self, option: FleetOption) -> bool {
        match option {
            FleetOption::HealthCheck => self.target = None,
            FleetOption::HealthInterval => self.interval = None,
            FleetOption::HealthTimeout => self.timeout = None,
            FleetOption::HealthThreshold => self.threshold = None,
            _ => return false,
        }
        true
    }

    /// Returns the health check, if there is one.
    pub(super) fn finish(self) -> Option<HealthCheck> {
        let default = HealthCheck::new(self.target?.value);
        Some(HealthCheck {
            interval: self.interval.unwrap_or(default.interval),
            timeout: self.timeout.unwrap_or(default.timeout),
            threshold: self.threshold.unwrap_or(default.threshold),
            ..default
        })
    }
}

impl SectionReader<'_> {
    /// Parses a `HealthCheck=`. A command is split into words before specifiers are expanded, so
    /// that the unit's name cannot change the split.
    pub(super) fn read_health_check(&mut self, value: &str, span: Span) {
        let option = FleetOption::HealthCheck;
        let Some(expanded) = self.expand(option, value, span) else {
            return;
        };
        let parsed = match HealthTarget::command_words(value) {
            None => expanded.parse(),
            Some(words) => words.and_then(|words| {
                let expand = |word: &String| expand_fleet_specifiers(word, self.name);
                // Fails only if an escape stands for a percent sign.
                let words = words.iter().map(expand).collect::<Result<_, _>>();
                HealthTarget::from_words(words.map_err(|_| HealthCheckError::Words)?)
            }),
        };
        let target = match parsed {
            Ok(target) => target,
            Err(cause) => {
                let value = value.to_owned();
                return self.reports.refuse(span, Kind::HealthCheck { option, value, cause });
            }
        };
        match &self.health.target {
            None => self.health.target = Some(Spanned { value: target, span }),
            Some(first) if first.value == target => {}
            Some(first) => {
                let line = self.reports.line(first.span);
                self.reports.refuse(span, Kind::SeveralHealthChecks { line });
            }
        }
    }

    /// Parses an option that adjusts the health check, after the expansion of specifiers.
    pub(super) fn read_health_setting(&mut self, option: FleetOption, value: String, span: Span) {
        let health = &mut self.health;
        let parsed = match option {
            FleetOption::HealthInterval => {
                HealthCheck::parse_interval(&value).map(|it| health.interval = Some(it))
            }
            FleetOption::HealthTimeout => {
                HealthCheck::parse_timeout(&value).map(|it| health.timeout = Some(it))
            }
            FleetOption::HealthThreshold => {
                HealthCheck::parse_threshold(&value).map(|it| health.threshold = Some(it))
            }
            _ => Ok(()),
        };
        if let Err(cause) = parsed {
            self.reports.refuse(span, Kind::HealthCheck { option, value, cause });
        }
    }
}
