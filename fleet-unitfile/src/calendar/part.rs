//! Parts of calendar events, and their normalized text.

use std::fmt;

use crate::calendar::Calendar;

/// The numbers that match a field of a calendar event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Part {
    /// Empty if every number matches.
    ranges: Vec<Range>,
}

impl Part {
    /// Matches every number.
    pub(super) const ANY: Self = Self { ranges: Vec::new() };

    /// Matches one number only.
    pub(super) fn only(first: u32) -> Self {
        Self { ranges: vec![Range { first, last: None, step: None }] }
    }

    /// Parses ranges that are separated by commas, or `*`, which matches every number. Returns
    /// `None` if `range` cannot parse one of them or `fits` rejects one.
    pub(super) fn read(
        text: &str,
        range: impl Fn(&str) -> Option<Range>,
        fits: impl Fn(&Range) -> bool,
    ) -> Option<Self> {
        if text == "*" {
            return Some(Self::ANY);
        }
        let ranges = text.split(',').map(|piece| range(piece).filter(&fits));
        Some(Self { ranges: ranges.collect::<Option<_>>()? })
    }

    /// Returns the distinct ranges, ordered by their first number.
    pub(super) fn sorted(&self) -> Vec<Range> {
        let mut ranges = self.ranges.clone();
        ranges.sort();
        ranges.dedup();
        ranges
    }

    /// Returns the least matching number between `from` and `most`, inclusive.
    pub(super) fn next(&self, from: u32, most: u32) -> Option<u32> {
        let next = match self.ranges.as_slice() {
            [] => Some(from),
            ranges => ranges.iter().filter_map(|range| range.next(from, most)).min(),
        };
        next.filter(|&next| next <= most)
    }

    /// Converts days counted from the end of a month to days counted from its start. `days` is the
    /// number of days in the month.
    pub(super) fn mirrored(&self, days: u32) -> Self {
        let mirror = |day: u32| (days + 1).saturating_sub(day);
        let mirrored = |range: &Range| match range.last {
            Some(last) => Range { first: mirror(last), last: Some(mirror(range.first)), ..*range },
            None => Range { first: mirror(range.first), ..*range },
        };
        Self { ranges: self.ranges.iter().map(mirrored).collect() }
    }
}

/// A range such as `5`, `5..9`, `5/2` or `5..9/2`. A range that contains only its first number,
/// such as `5..6/2`, is stored as that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) last: Option<u32>,
    pub(super) step: Option<u32>,
}

impl Range {
    /// Parses a range. `number` parses its ends and `steps` its step. `default_step` is the step of
    /// a range that is written without one.
    ///
    /// If `default_step` is greater than 1, a range written without a step must be at least
    /// `default_step` long. For seconds, for example, `default_step` is one second, and `1..1.5` is
    /// refused.
    pub(super) fn read(
        piece: &str,
        default_step: u32,
        number: impl Fn(&str) -> Option<u32>,
        steps: impl Fn(&str) -> Option<u32>,
    ) -> Option<Self> {
        let (range, step) = match piece.split_once('/') {
            Some((range, step)) => (range, Some(steps(step).filter(|step| *step > 0)?)),
            None => (piece, None),
        };
        let Some((first, last)) = range.split_once("..") else {
            return Some(Self { first: number(range)?, last: None, step });
        };
        let (first, last) = (number(first)?, number(last)?);
        let length = last.checked_sub(first)?;
        if step.is_none() && default_step > 1 && length < default_step {
            return None;
        }
        let step = step.unwrap_or(default_step);
        let length = length - length % step;
        let goes_on = length > 0;
        Some(Self { first, last: goes_on.then_some(first + length), step: goes_on.then_some(step) })
    }

    /// Returns `true` if the whole range is within the bounds. For a range without a last number,
    /// such as `50/15`, the number one step after the first must also be within the bounds.
    pub(super) fn is_within(&self, least: u32, most: u32) -> bool {
        let end = self.last.or(self.step.map(|step| self.first.saturating_add(step)));
        least <= self.first && self.first <= most && end.is_none_or(|end| end <= most)
    }

    fn next(&self, from: u32, most: u32) -> Option<u32> {
        if from <= self.first {
            return Some(self.first);
        }
        let step = self.step?;
        let next = (from - self.first).div_ceil(step).checked_mul(step)?.checked_add(self.first)?;
        Some(next).filter(|&next| next <= self.last.unwrap_or(most))
    }
}

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
