//! Recognizes the functions of a script.

/// A function that is being read.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    /// Number of open braces.
    pub(super) depth: usize,
}

/// Returns the name of the function that these words begin to define, or `None` if they begin no
/// definition. The second value is `true` if the name is the first word (`start()`). It is `false`
/// if the definition depends on a condition (`if … start()`), or uses the keyword `function`, which
/// not all shells know.
pub(super) fn beginning(texts: &[Option<String>]) -> Option<(&str, bool)> {
    (0..texts.len()).find_map(|at| {
        let (first, second) = (text(texts, at)?, text(texts, at + 1));
        match first {
            "function" => named(second?).or_else(|| is_name(second?).then_some(second?)),
            _ if second.is_some_and(|it| it == "()" || it == "(){") => Some(first),
            _ => named(first),
        }
        .filter(|name| is_name(name))
        .map(|name| (name, at == 0 && first != "function"))
    })
}

/// Returns how many conditions, loops and groups a command opens, and how many it closes.
pub(super) fn count_compound_commands(texts: &[Option<String>]) -> (usize, usize) {
    let (mut opened, mut ended) = (0, 0);
    for at in 0..texts.len() {
        match text(texts, at).unwrap_or_default() {
            "if" | "case" | "for" | "while" | "until" | "{" | "(" => opened += 1,
            "fi" | "esac" | "done" | "}" | ")" => ended += 1,
            // Another command follows these words, and the pattern of a case.
            "then" | "elif" | "else" | "do" | "!" => {}
            pattern if pattern.ends_with(')') && !pattern.ends_with("()") => {}
            _ => break,
        }
    }
    (opened, ended)
}

fn text(texts: &[Option<String>], at: usize) -> Option<&str> {
    texts.get(at)?.as_deref()
}

/// Returns the text before `()`.
fn named(word: &str) -> Option<&str> {
    let (name, rest) = word.split_once("()")?;
    ["", "{"].contains(&rest).then_some(name)
}

fn is_name(text: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    !text.is_empty() && text.chars().all(is_part)
}
