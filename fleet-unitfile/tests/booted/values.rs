//! Random values of each kind: mostly valid, some invalid, some hostile.

use crate::options::Kind;
use crate::random::Random;
use crate::samples::*;

impl Kind {
    /// Generates a value, valid or not.
    pub(crate) fn value(self, random: &mut Random) -> String {
        let is_broken = random.once_in(5);
        let (good, broken) = match self {
            Self::Commands => return commands(random),
            Self::Units => return list(random, UNITS, BROKEN_UNITS),
            Self::Urls => return list(random, URLS, BROKEN_URLS),
            Self::Environment => return list(random, ENVIRONMENT, BROKEN_ENVIRONMENT),
            Self::Variables => return list(random, VARIABLES, BROKEN_VARIABLES),
            Self::Condition(_) => {
                let marks = random.pick(&["", "", "!", "|", "|!", "! ", "!|", "| !", "!!"]);
                return format!("{marks}{}", choose(random, PATHS, BROKEN_PATHS, is_broken));
            }
            Self::EnvironmentFile => {
                let marks = random.pick(&["", "", "-", "- ", "--"]);
                return format!("{marks}{}", choose(random, PATHS, BROKEN_PATHS, is_broken));
            }
            Self::WorkingDirectory => {
                let is_broken = is_broken && random.once_in(3);
                let place = match random.below(4) {
                    0 => "~",
                    _ => choose(random, PATHS, BROKEN_PATHS, is_broken),
                };
                return format!("{}{place}", random.pick(&["", "", "-"]));
            }
            Self::Limit => return limit(random),
            Self::Choice(words) => (words, BROKEN_BOOLS),
            Self::Memory if random.once_in(3) => (SHARES, BROKEN_SHARES),
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
        choose(random, good, broken, is_broken).to_owned()
    }
}

fn choose<'a>(
    random: &mut Random,
    good: &[&'a str],
    broken: &[&'a str],
    is_broken: bool,
) -> &'a str {
    random.pick(if is_broken { broken } else { good })
}

fn list(random: &mut Random, good: &[&str], broken: &[&str]) -> String {
    let mut words = Vec::new();
    for _ in 0..=random.below(4) {
        let is_broken = random.once_in(8);
        words.push(choose(random, good, broken, is_broken));
    }
    words.join(random.pick(&[" ", " ", "  ", "\t"]))
}

fn limit(random: &mut Random) -> String {
    let mut one = || {
        let is_broken = random.once_in(8);
        match random.below(3) {
            0 => choose(random, SIZES, BROKEN_SIZES, is_broken),
            _ => choose(random, NUMBERS, BROKEN_NUMBERS, is_broken),
        }
    };
    let (soft, hard) = (one(), one());
    if random.once_in(3) { format!("{soft}:{hard}") } else { soft.to_owned() }
}

fn commands(random: &mut Random) -> String {
    let mut all = command(random);
    while random.once_in(8) {
        let between = random.pick(&[" ; ", " ;", " \\; ", "; ", " ;; "]);
        all = format!("{all}{between}{}", command(random));
    }
    all
}

fn command(random: &mut Random) -> String {
    let is_broken = random.once_in(25);
    let program = choose(random, PROGRAMS, BROKEN_PROGRAMS, is_broken);
    let mut command = format!("{}{program}", random.pick(PREFIXES));
    for _ in 0..random.below(6) {
        let is_broken = random.once_in(60);
        command.push_str(random.pick(&[" ", " ", "  ", "\t"]));
        command.push_str(choose(random, WORDS, BROKEN_WORDS, is_broken));
    }
    command
}
