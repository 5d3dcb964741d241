//! Where functions of a script begin, and whether they do in any case.

/// A function that is being read.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) line: usize,
    /// How many braces are open.
    pub(super) depth: usize,
}

/// The name of the function that begins in a command of these words, and whether it begins there as
/// every shell has it: behind nothing else, and without the word `function`.
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

/// How many conditions, loops and groups a command begins and ends.
pub(super) fn groups(texts: &[Option<String>]) -> (usize, usize) {
    let (mut begun, mut ended) = (0, 0);
    for at in 0..texts.len() {
        match text(texts, at).unwrap_or_default() {
            "if" | "case" | "for" | "while" | "until" | "{" | "(" => begun += 1,
            "fi" | "esac" | "done" | "}" | ")" => ended += 1,
            // Behind these, and behind the pattern of a case, another command stands.
            "then" | "elif" | "else" | "do" | "!" => {}
            pattern if pattern.ends_with(')') && !pattern.ends_with("()") => {}
            _ => break,
        }
    }
    (begun, ended)
}

fn text(texts: &[Option<String>], at: usize) -> Option<&str> {
    texts.get(at)?.as_deref()
}

/// What stands before `()`.
fn named(word: &str) -> Option<&str> {
    let (name, rest) = word.split_once("()")?;
    ["", "{"].contains(&rest).then_some(name)
}

fn is_name(text: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
    !text.is_empty() && text.chars().all(is_part)
}
