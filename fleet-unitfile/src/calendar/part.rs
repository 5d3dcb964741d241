//! One part of a rhythm, such as its hours: numbers, ranges and steps.

/// Which numbers a part of a rhythm holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// None of them stands for all numbers.
    ranges: Vec<Range>,
}

impl Part {
    /// All numbers.
    pub(super) const ANY: Self = Self { ranges: Vec::new() };

    /// That number alone.
    pub(super) fn only(first: u32) -> Self {
        Self { ranges: vec![Range { first, last: None, step: None }] }
    }

    /// Reads ranges with commas between them, of which each has to fit; a star is all numbers.
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

    /// The ranges, in the order of their firsts.
    pub(super) fn sorted(&self) -> Vec<Range> {
        let mut ranges = self.ranges.clone();
        ranges.sort();
        ranges.dedup();
        ranges
    }

    /// The least number that is held and that is neither less than `from` nor more than `most`.
    pub(super) fn next(&self, from: u32, most: u32) -> Option<u32> {
        let next = match self.ranges.as_slice() {
            [] => Some(from),
            ranges => ranges.iter().filter_map(|range| range.next(from, most)).min(),
        };
        next.filter(|&next| next <= most)
    }

    /// The days of a month with so many of them, where this counts from its end.
    pub(super) fn turned(&self, days: u32) -> Self {
        let turn = |day: u32| (days + 1).saturating_sub(day);
        let turned = |range: &Range| match range.last {
            Some(last) => Range { first: turn(last), last: Some(turn(range.first)), ..*range },
            None => Range { first: turn(range.first), ..*range },
        };
        Self { ranges: self.ranges.iter().map(turned).collect() }
    }
}

/// `FIRST`, `FIRST..LAST`, and either with `/STEP`; one that holds nothing but its first is that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) last: Option<u32>,
    pub(super) step: Option<u32>,
}

impl Range {
    /// Reads a range, which without a step of its own has to hold at least one of `unit`, where
    /// that is more than one.
    pub(super) fn read(
        piece: &str,
        unit: u32,
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
        if step.is_none() && unit > 1 && length < unit {
            return None;
        }
        let step = step.unwrap_or(unit);
        let length = length - length % step;
        let goes_on = length > 0;
        Some(Self { first, last: goes_on.then_some(first + length), step: goes_on.then_some(step) })
    }

    /// Whether all of it lies within bounds; a step without a last has to lead somewhere.
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
