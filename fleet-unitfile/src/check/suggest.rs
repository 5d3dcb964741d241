//! Spelling suggestions.

/// Returns the candidate most similar to a word, or `None` if no candidate is similar enough.
///
/// The comparison ignores case. It tolerates one edit for every four letters of the word, up to
/// four edits. An edit adds, removes or changes a letter, or swaps two neighbouring letters. A
/// candidate also matches if it begins with the word and the word has at least four letters. Of
/// several equally similar candidates, the first is returned.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = lower(word);
    let most = word.len().div_ceil(4).clamp(1, 4);
    // No name is that long, and the comparison would take time.
    if word.len() > 64 {
        return None;
    }
    let near = candidates.into_iter().filter_map(|candidate| {
        let other = lower(candidate);
        if word.len() >= 4 && other.starts_with(&word) {
            return Some((most, candidate));
        }
        let may_be = other.len().abs_diff(word.len()) <= most;
        let distance = may_be.then(|| distance(&word, &other))?;
        (distance <= most && distance < word.len()).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
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

    fn of(a: &str, b: &str) -> usize {
        distance(&lower(a), &lower(b))
    }

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
            assert_eq!((of(a, b), of(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn nearest_word_is_found_within_a_limit() {
        let words = ["After", "Before", "Requires", "Restart"];
        assert_eq!(nearest("afetr", words), Some("After"));
        assert_eq!(nearest("Require", words), Some("Requires"));
        assert_eq!(nearest("Requ", words), Some("Requires"));
        assert_eq!(nearest("Banana", words), None);
        assert_eq!(nearest("", words), None);
        assert_eq!(nearest("b", ["a"]), None);
    }
}
