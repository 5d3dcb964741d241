//! Spelling suggestions: "did you mean …?".

/// Longest word in characters for which candidates are compared, because comparing takes time.
const MAX_WORD: usize = 64;

/// Returns the candidate most similar to a word, or `None` if no candidate is similar enough.
///
/// The comparison ignores case. It tolerates one [edit](edit_distance) for every four letters of
/// the word, but none if one of them has a single letter. A candidate that begins with a word of
/// four letters or more counts as one edit away. Of several equally similar candidates, the first
/// is returned.
///
/// ```
/// use fleet_unitfile::spelling::suggest;
///
/// assert_eq!(suggest("Restrat", ["After", "Restart"]), Some("Restart"));
/// assert_eq!(suggest("Banana", ["After", "Restart"]), None);
/// ```
pub fn suggest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = lower(word);
    if word.len() > MAX_WORD {
        return None;
    }
    let limit = word.len().div_ceil(4);
    let near = candidates.into_iter().filter_map(|candidate| {
        let other = lower(candidate);
        if word.len() >= 4 && other.starts_with(&word) {
            return Some((1, candidate));
        }
        let may_be = other.len().abs_diff(word.len()) <= limit;
        let distance = may_be.then(|| distance(&word, &other))?;
        (distance <= limit && distance < word.len().min(other.len()))
            .then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Returns the number of edits that change one word to another, ignoring case. An edit adds,
/// removes or changes a letter, or swaps two neighbouring letters.
pub fn edit_distance(one: &str, other: &str) -> usize {
    distance(&lower(one), &lower(other))
}

fn lower(text: &str) -> Vec<char> {
    text.chars().map(|c| c.to_ascii_lowercase()).collect()
}

/// Computes the Damerau-Levenshtein distance (optimal string alignment).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let change = last[j] + usize::from(x != y);
            let mut best = change.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("Type", "type", 0),
            ("ExecStrat", "ExecStart", 1),
            ("Enviroment", "Environment", 1),
            ("Aftre", "After", 1),
            ("Descriptiom", "Description", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!((edit_distance(a, b), edit_distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn nearest_word_is_found_within_a_limit() {
        let words = ["After", "Before", "Requires", "Restart"];
        assert_eq!(suggest("afetr", words), Some("After"));
        assert_eq!(suggest("Require", words), Some("Requires"));
        assert_eq!(suggest("Requ", words), Some("Requires"));
        assert_eq!(suggest("Banana", words), None);
        assert_eq!(suggest("", words), None);
        assert_eq!(suggest("bd", ["db"]), Some("db"));
        assert_eq!(suggest("b", ["a"]), None);
        assert_eq!(suggest("aa", ["a"]), None);
    }
}
