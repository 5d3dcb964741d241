//! The settings of a timer as they are collected, option by option.

use std::time::Duration;

use fleet_unitfile::{Calendar, UnitName, UnitType};

use super::{RandomizedDelay, Timer, TimerBase, Trigger};
use crate::graph::systemd::draft::Flaws;
use crate::graph::systemd::value::{In, delay, flag, shown};

/// What was said so far.
#[derive(Debug, Default)]
pub(in crate::graph::systemd) struct TimerDraft {
    unit: Option<UnitName>,
    triggers: Vec<Trigger>,
    random: Duration,
    fixed: bool,
    persistent: bool,
    remains: Option<bool>,
}

impl TimerDraft {
    /// Takes over an option of `[Timer]` that is honoured.
    pub(in crate::graph::systemd) fn take(
        &mut self,
        name: &str,
        value: &str,
        unit: &In<'_>,
    ) -> Result<(), String> {
        match name {
            "FixedRandomDelay" => self.fixed = flag(value)?,
            "Persistent" => self.persistent = flag(value)?,
            "RandomizedDelaySec" => {
                self.random = delay(value, "write how much later it may elapse at most")?;
            }
            "RemainAfterElapse" => self.remains = Some(flag(value)?),
            "Unit" => self.take_unit(value, unit)?,
            // Whichever of them is empty takes all of them back.
            _ if value.is_empty() => self.triggers.clear(),
            _ => self.triggers.push(trigger(name, value, unit)?),
        }
        Ok(())
    }

    fn take_unit(&mut self, value: &str, unit: &In<'_>) -> Result<(), String> {
        if value.is_empty() {
            return Ok(());
        }
        let name: UnitName = unit.expand(value)?.parse().map_err(shown)?;
        if name.is_template() {
            return Err(format!("names the template {name}: name an instance of it"));
        }
        if !matches!(name.unit_type(), UnitType::Service | UnitType::Target) {
            return Err(format!("names {name}: write the name of a .service unit"));
        }
        if let Some(first) = self.unit.as_ref().filter(|first| **first != name) {
            return Err(format!("names {name}, and {first} was named before: write one of them"));
        }
        self.unit = Some(name);
        Ok(())
    }

    /// What is wrong with the whole.
    pub(in crate::graph::systemd) fn flaws(&self, has_conditions: bool) -> Flaws {
        let mut flaws = Flaws::default();
        if self.triggers.is_empty() {
            let problem = "it never elapses: write OnCalendar=, OnBootSec= or the like";
            flaws.refused.push((None, problem.to_owned()));
        }
        if has_conditions {
            let problem = "it has conditions, but nothing is run for a timer that could be left \
                           out: put them into the unit that it starts";
            flaws.refused.push((None, problem.to_owned()));
        }
        let has_calendar = self.triggers.iter().any(|it| matches!(it, Trigger::Calendar(_)));
        if self.persistent && !has_calendar {
            let text = "means nothing without OnCalendar=";
            flaws.remarked.push((("Timer", "Persistent"), text));
        }
        if self.fixed && self.random.is_zero() {
            let text = "means nothing without RandomizedDelaySec=";
            flaws.remarked.push((("Timer", "FixedRandomDelay"), text));
        }
        flaws
    }

    /// The timer. What is not said is as systemd has it.
    pub(in crate::graph::systemd) fn timer(&self, unit: &In<'_>) -> Result<Timer, String> {
        let usual = || format!("{}.service", unit.name.stem());
        let started = match &self.unit {
            Some(named) => named.clone(),
            None => usual().parse().map_err(shown)?,
        };
        let fixed = || RandomizedDelay::Fixed(fixed(self.random, unit));
        Ok(Timer {
            unit: started,
            triggers: self.triggers.clone(),
            delay: if self.fixed { fixed() } else { RandomizedDelay::Random(self.random) },
            persistent: self.persistent,
            remains: self.remains.unwrap_or(true),
        })
    }
}

fn trigger(name: &str, value: &str, unit: &In<'_>) -> Result<Trigger, String> {
    let text = unit.expand(value)?;
    let origin = match name {
        "OnCalendar" => {
            let calendar: Calendar = text.parse().map_err(shown)?;
            return Ok(Trigger::Calendar(calendar));
        }
        "OnActiveSec" => TimerBase::Active,
        "OnBootSec" => TimerBase::Boot,
        "OnStartupSec" => TimerBase::Startup,
        "OnUnitActiveSec" => TimerBase::UnitActive,
        _ => TimerBase::UnitInactive,
    };
    let span = delay(&text, "it would never elapse: take it out")?;
    Ok(Trigger::After(origin, span))
}

/// Less than the longest, and the same for the same timer of the same machine each time.
fn fixed(longest: Duration, unit: &In<'_>) -> Duration {
    // Without the machine's identity the name alone has to do.
    let machine = unit.expand("%m").unwrap_or_default();
    let longest = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    let bytes = machine.bytes().chain([0]).chain(unit.name.as_str().bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Duration::from_micros(hash.checked_rem(longest).unwrap_or(0))
}
