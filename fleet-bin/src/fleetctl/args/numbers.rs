//! Pure: parsers for numbers on the command line.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Returns a parser for numbers within these bounds.
pub(crate) fn number<N>(
    bounds: RangeInclusive<N>,
) -> impl Fn(&str) -> Result<N, String> + Clone + Send + Sync + 'static
where
    N: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        let (least, most) = (bounds.start(), bounds.end());
        number.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_outside_bounds_names_the_bounds() {
        let read = number(1..=100_u32);
        assert_eq!((read("1"), read("100")), (Ok(1), Ok(100)));
        for text in ["", "x", "0", "101", "-1", "1.5", "4294967296"] {
            assert_eq!(read(text).unwrap_err(), "expected a whole number from 1 to 100", "{text}");
        }
    }
}
