//! Values of each kind: most of them good, some that look so, some hostile.

use crate::dice::Dice;
use crate::known::Kind;
use crate::samples::*;

impl Kind {
    /// A value, good or not.
    pub(crate) fn value(self, dice: &mut Dice) -> String {
        let is_broken = dice.once_in(5);
        let (good, broken) = match self {
            Self::Commands => return commands(dice),
            Self::Units => return list(dice, UNITS, BROKEN_UNITS),
            Self::Urls => return list(dice, URLS, BROKEN_URLS),
            Self::Environment => return list(dice, ENVIRONMENT, BROKEN_ENVIRONMENT),
            Self::Variables => return list(dice, VARIABLES, BROKEN_VARIABLES),
            Self::Condition(_) => {
                let marks = dice.pick(&["", "", "!", "|", "|!", "! ", "!|", "| !", "!!"]);
                return format!("{marks}{}", choose(dice, PATHS, BROKEN_PATHS, is_broken));
            }
            Self::EnvironmentFile => {
                let marks = dice.pick(&["", "", "-", "- ", "--"]);
                return format!("{marks}{}", choose(dice, PATHS, BROKEN_PATHS, is_broken));
            }
            Self::WorkingDirectory => {
                let is_broken = is_broken && dice.once_in(3);
                let place = match dice.below(4) {
                    0 => "~",
                    _ => choose(dice, PATHS, BROKEN_PATHS, is_broken),
                };
                return format!("{}{place}", dice.pick(&["", "", "-"]));
            }
            Self::Limit => return limit(dice),
            Self::Choice(words) => (words, BROKEN_BOOLS),
            Self::Memory if dice.once_in(3) => (SHARES, BROKEN_SHARES),
            Self::Bool => (BOOLS, BROKEN_BOOLS),
            Self::Calendar => (CALENDAR, BROKEN_CALENDAR),
            Self::Listen(_) => (ADDRESSES, BROKEN_ADDRESSES),
            Self::Memory => (SIZES, BROKEN_SIZES),
            Self::Mode => (MODES, BROKEN_MODES),
            Self::Monotonic(_) | Self::Span | Self::Timeout => (SPANS, BROKEN_SPANS),
            Self::Number(..) => (NUMBERS, BROKEN_NUMBERS),
            Self::Path | Self::Watch(_) => (PATHS, BROKEN_PATHS),
            Self::Quota => (SHARES, BROKEN_SHARES),
            Self::Text => (TEXTS, TEXTS),
        };
        choose(dice, good, broken, is_broken).to_owned()
    }
}

fn choose<'a>(dice: &mut Dice, good: &[&'a str], broken: &[&'a str], is_broken: bool) -> &'a str {
    dice.pick(if is_broken { broken } else { good })
}

fn list(dice: &mut Dice, good: &[&str], broken: &[&str]) -> String {
    let mut words = Vec::new();
    for _ in 0..=dice.below(4) {
        let is_broken = dice.once_in(8);
        words.push(choose(dice, good, broken, is_broken));
    }
    words.join(dice.pick(&[" ", " ", "  ", "\t"]))
}

fn limit(dice: &mut Dice) -> String {
    let mut one = || {
        let is_broken = dice.once_in(8);
        match dice.below(3) {
            0 => choose(dice, SIZES, BROKEN_SIZES, is_broken),
            _ => choose(dice, NUMBERS, BROKEN_NUMBERS, is_broken),
        }
    };
    let (soft, hard) = (one(), one());
    if dice.once_in(3) { format!("{soft}:{hard}") } else { soft.to_owned() }
}

fn commands(dice: &mut Dice) -> String {
    let mut all = command(dice);
    while dice.once_in(8) {
        let between = dice.pick(&[" ; ", " ;", " \\; ", "; ", " ;; "]);
        all = format!("{all}{between}{}", command(dice));
    }
    all
}

fn command(dice: &mut Dice) -> String {
    let is_broken = dice.once_in(25);
    let program = choose(dice, PROGRAMS, BROKEN_PROGRAMS, is_broken);
    let mut command = format!("{}{program}", dice.pick(PREFIXES));
    for _ in 0..dice.below(6) {
        let is_broken = dice.once_in(60);
        command.push_str(dice.pick(&[" ", " ", "  ", "\t"]));
        command.push_str(choose(dice, WORDS, BROKEN_WORDS, is_broken));
    }
    command
}
