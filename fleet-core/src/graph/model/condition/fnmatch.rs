//! Patterns of the shell.

/// Returns whether a pattern of the shell matches the whole text, as `fnmatch(3)` without flags.
/// `*` and `?` also match a slash and a leading dot. A bracket expression may contain ranges and
/// classes such as `[:alpha:]`, and is negated by `!` or `^`. A backslash quotes the next
/// character.
///
/// ```
/// use fleet_core::graph::condition::fnmatch;
///
/// assert!(fnmatch("6.1*-[!a-f]?", "6.12-x1"));
/// assert!(!fnmatch("6.?", "6.12"));
/// ```
#[must_use]
pub fn fnmatch(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut position) = (0, 0);
    // Where to continue if the characters after the last star do not match.
    let mut retry = None;
    loop {
        if pattern.get(at) == Some(&'*') {
            at += 1;
            retry = Some((at, position));
            continue;
        }
        if at == pattern.len() && position == text.len() {
            return true;
        }
        let matched = text.get(position).and_then(|given| match_one(&pattern, at, *given));
        if let Some(next) = matched {
            (at, position) = (next, position + 1);
            continue;
        }
        match retry {
            Some((after, from)) if from < text.len() => {
                (at, position) = (after, from + 1);
                retry = Some((after, from + 1));
            }
            _ => return false,
        }
    }
}

/// Matches one character with the pattern's part at `at`. Returns the end of that part.
fn match_one(pattern: &[char], at: usize, given: char) -> Option<usize> {
    match *pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => match bracket(pattern, at + 1, given) {
            Some((matches, end)) => matches.then_some(end),
            // A bracket that is never closed stands for itself.
            None => (given == '[').then_some(at + 1),
        },
        // At the end of a pattern, `fnmatch` matches nothing with a backslash.
        '\\' => (*pattern.get(at + 1)? == given).then_some(at + 2),
        literal => (literal == given).then_some(at + 1),
    }
}

/// Matches a character with the bracket expression that begins at `at`, after the bracket. Returns
/// the result and the end of the expression.
fn bracket(pattern: &[char], mut at: usize, given: char) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(at)?, '!' | '^');
    at += usize::from(negated);
    let (start, mut found) = (at, false);
    loop {
        let mut first = *pattern.get(at)?;
        if first == ']' && at > start {
            return Some((found != negated, at + 1));
        }
        if first == '['
            && pattern.get(at + 1) == Some(&':')
            && let Some(length) = pattern[at + 2..].windows(2).position(|it| it == [':', ']'])
        {
            let class: String = pattern[at + 2..at + 2 + length].iter().collect();
            found |= is_in_class(&class, given);
            at += length + 4;
            continue;
        }
        if first == '\\' {
            at += 1;
            first = *pattern.get(at)?;
        }
        at += 1;
        let mut last = first;
        if pattern.get(at) == Some(&'-') && pattern.get(at + 1).is_some_and(|it| *it != ']') {
            at += 1;
            if pattern[at] == '\\' {
                at += 1;
            }
            last = *pattern.get(at)?;
            at += 1;
        }
        found |= (first..=last).contains(&given);
    }
}

fn is_in_class(class: &str, given: char) -> bool {
    match class {
        "alnum" => given.is_ascii_alphanumeric(),
        "alpha" => given.is_ascii_alphabetic(),
        "blank" => matches!(given, ' ' | '\t'),
        "cntrl" => given.is_ascii_control(),
        "digit" => given.is_ascii_digit(),
        "graph" => given.is_ascii_graphic(),
        "lower" => given.is_ascii_lowercase(),
        "print" => given == ' ' || given.is_ascii_graphic(),
        "punct" => given.is_ascii_punctuation(),
        "space" => given.is_ascii_whitespace() || given == '\x0b',
        "upper" => given.is_ascii_uppercase(),
        "xdigit" => given.is_ascii_hexdigit(),
        _ => false,
    }
}

/// Maximum number of patterns that braces expand to.
const MAX_EXPANSION: usize = 1000;

/// Expands alternatives in braces: `/{a,b}/*` stands for `/a/*` and `/b/*`. Braces that are not
/// closed, and `{}`, stay as they are. Returns at most a thousand patterns.
#[must_use]
pub fn expand_braces(pattern: &str) -> Vec<String> {
    let (mut output, mut open) = (Vec::new(), vec![pattern.to_owned()]);
    while let Some(next) = open.pop() {
        if output.len() + open.len() >= MAX_EXPANSION {
            break;
        }
        match first_braces(&next) {
            Some((start, parts, end)) => {
                let (before, after) = (&next[..start], &next[end..]);
                let expanded = parts.iter().map(|part| format!("{before}{part}{after}"));
                open.extend(expanded.rev());
            }
            None => output.push(next),
        }
    }
    output
}

/// Finds the first braces: the start, the alternatives, and the end.
fn first_braces(pattern: &str) -> Option<(usize, Vec<&str>, usize)> {
    let (mut depth, mut start, mut from, mut parts) = (0_usize, 0, 0, Vec::new());
    let mut characters = pattern.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '{' if depth == 0 && pattern[at..].starts_with("{}") => drop(characters.next()),
            '{' => {
                if depth == 0 {
                    (start, from) = (at, at + 1);
                }
                depth += 1;
            }
            ',' if depth == 1 => {
                parts.push(&pattern[from..at]);
                from = at + 1;
            }
            '}' if depth == 1 => {
                parts.push(&pattern[from..at]);
                return Some((start, parts, at + 1));
            }
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_in_the_shell() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*", ".a/b", true),
            ("**a**", "bab", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("?", "ä", true),
            ("?", "", false),
            ("[ab]x", "bx", true),
            ("[a-c]", "d", false),
            ("[!a-c]", "d", true),
            ("[^a-c]", "a", false),
            ("[]]", "]", true),
            ("[!]]", "]", false),
            ("[a-]", "-", true),
            ("[\\]a]", "]", true),
            ("[[:digit:]x]", "7", true),
            ("[[:digit:]x]", "y", false),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a", false),
        ] {
            assert_eq!(fnmatch(pattern, text), expected, "{pattern} and {text}");
        }
    }

    #[test]
    fn braces_are_expanded() {
        for (pattern, expected) in [
            ("/a", &["/a"][..]),
            ("/{a,b}/*", &["/a/*", "/b/*"]),
            ("{a,b}{c,}", &["ac", "a", "bc", "b"]),
            ("{a,{b,c}d}", &["a", "bd", "cd"]),
            ("{}", &["{}"]),
            ("{a", &["{a"]),
            ("\\{a,b}", &["\\{a,b}"]),
        ] {
            assert_eq!(expand_braces(pattern), expected, "{pattern}");
        }
        assert!(expand_braces(&"{a,b}".repeat(30)).len() <= MAX_EXPANSION);
    }

    proptest! {
        #[test]
        fn star_in_front_matches_at_least_as_much(
            pattern in r"[ab*?\[\]!:\\{},-]{0,12}", text in "[ab!-]{0,8}",
        ) {
            let wider = format!("*{pattern}");
            prop_assert!(!fnmatch(&pattern, &text) || fnmatch(&wider, &text));
            prop_assert!(!expand_braces(&pattern).is_empty());
        }

        #[test]
        fn quoted_text_matches_itself(text in r"[ab*?\[\]!\\-]{0,12}") {
            let quoted: String = text.chars().flat_map(|it| ['\\', it]).collect();
            prop_assert!(fnmatch(&quoted, &text));
            prop_assert!(fnmatch("*", &text));
        }
    }
}
