//! The normalized form of calendar events, as printed by `systemd-analyze calendar`.

use std::fmt;

use super::Calendar;
use super::part::{Part, Range};

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

const SECOND: u32 = 1_000_000;

impl fmt::Display for Calendar {
    /// Formats the normalized form, as `systemd-analyze calendar` prints it, such as
    /// `Mon..Fri *-*-* 06:30:00`. Parsing it gives an event that elapses at the same times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_week(f, self.weekdays)?;
        write_part(f, &self.years, 4, 1)?;
        f.write_str("-")?;
        write_part(f, &self.months, 2, 1)?;
        let counts_from_end = self.from_end && self.days != Part::ANY;
        f.write_str(if counts_from_end { "~" } else { "-" })?;
        write_part(f, &self.days, 2, 1)?;
        f.write_str(" ")?;
        write_part(f, &self.hours, 2, 1)?;
        f.write_str(":")?;
        write_part(f, &self.minutes, 2, 1)?;
        f.write_str(":")?;
        write_part(f, &self.micros, 2, SECOND)?;
        match self.zone() {
            None => Ok(()),
            Some(_) if self.is_utc() => f.write_str(" UTC"),
            Some(zone) => write!(f, " {zone}"),
        }
    }
}

/// Writes the weekdays and a blank, or nothing for the whole week. Three days or more in a row are
/// a range.
fn write_week(f: &mut fmt::Formatter<'_>, bits: u8) -> fmt::Result {
    let is_in = |day: usize| bits & 1 << day != 0;
    if (0..DAYS.len()).all(is_in) {
        return Ok(());
    }
    let mut separator = "";
    let mut day = 0;
    while day < DAYS.len() {
        let end = (day..DAYS.len()).find(|day| !is_in(*day)).unwrap_or(DAYS.len());
        match end - day {
            0 => {}
            1 => write!(f, "{separator}{}", DAYS[day])?,
            2 => write!(f, "{separator}{},{}", DAYS[day], DAYS[end - 1])?,
            _ => write!(f, "{separator}{}..{}", DAYS[day], DAYS[end - 1])?,
        }
        if end > day {
            separator = ",";
        }
        day = end + 1;
    }
    f.write_str(" ")
}

/// Writes a field. Its numbers have at least `width` digits and are in units of which `one` makes
/// one.
fn write_part(f: &mut fmt::Formatter<'_>, part: &Part, width: usize, one: u32) -> fmt::Result {
    let ranges = part.sorted();
    let every_second = [Range { first: 0, last: None, step: Some(SECOND) }];
    if ranges.is_empty() || one == SECOND && ranges == every_second {
        return f.write_str("*");
    }
    for (i, Range { first, last, step }) in ranges.into_iter().enumerate() {
        if i > 0 {
            f.write_str(",")?;
        }
        write_number(f, first, width, one)?;
        if let Some(last) = last {
            f.write_str("..")?;
            write_number(f, last, width, one)?;
        }
        if let Some(step) = step.filter(|step| last.is_none() || *step != one) {
            f.write_str("/")?;
            write_number(f, step, 1, one)?;
        }
    }
    Ok(())
}

fn write_number(f: &mut fmt::Formatter<'_>, number: u32, width: usize, one: u32) -> fmt::Result {
    write!(f, "{:0width$}", number / one)?;
    match number % one {
        0 => Ok(()),
        fraction => write!(f, ".{fraction:06}"),
    }
}
