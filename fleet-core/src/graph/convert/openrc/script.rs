//! Contents of a service script, as far as they can be determined without a shell.

use std::collections::BTreeMap;

use super::lexer::{MAX_DEPTH, Piece, Token, plain, tokens, tokens_until_unknown};
use crate::graph::format::MAX_FILE_SIZE;

/// Maximum number of bytes that variable expansion may add to a script. Without a limit,
/// assignments such as `b=$a$a` could double the text with every line.
const MAX_EXPANDED_BYTES: usize = MAX_FILE_SIZE;

/// Contents of a script.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// Variables, with the lines of their last assignments.
    pub(super) variables: BTreeMap<String, (usize, Value)>,
    /// Exported variables.
    pub(super) exported: Vec<String>,
    /// Functions with their lines.
    pub(super) functions: BTreeMap<String, usize>,
    /// Commands of `depend`.
    pub(super) depend: Vec<Command>,
    /// Lines outside functions that do more than set variables.
    pub(super) other_lines: Vec<usize>,
    /// First line from which only a shell can interpret the script.
    pub(super) unknown_from: Option<usize>,
    /// Variables with defaults that a conf.d file may override, with their lines.
    pub(super) defaults: BTreeMap<String, usize>,
    /// Number of open conditions, loops and groups outside functions.
    open: usize,
    /// Nesting depth of the default that is being read.
    depth: usize,
    /// Number of bytes expanded so far.
    expanded_bytes: usize,
}

/// A command with its line.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) words: Vec<Vec<Piece>>,
    /// Whether the command consists of its words only.
    pub(super) simple: bool,
}

/// Value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Text, in which `${NAME}` stands for a variable set elsewhere.
    Text(String),
    /// Known only to a shell.
    Unknown,
}

impl Script {
    /// Reads the script of the service with this name.
    pub(super) fn read(text: &str, name: &str) -> Self {
        let mut script = Self::default();
        for own in ["RC_SVCNAME", "SVCNAME"] {
            let value = (1, Value::Text(name.to_owned()));
            script.variables.insert(own.to_owned(), value);
        }
        let (commands, lost) = commands(text);
        script.unknown_from = lost;
        let mut inside: Option<Function> = None;
        for command in commands {
            inside = match inside {
                Some(function) => script.inside(function, command),
                None => script.outside(&command),
            };
        }
        if let Some(open) = inside {
            script.mark_unknown(open.line);
        }
        script
    }

    fn mark_unknown(&mut self, line: usize) {
        self.unknown_from = Some(self.unknown_from.map_or(line, |known| known.min(line)));
    }

    /// Handles a command inside a function. Returns the function that the next command is in, if
    /// any.
    fn inside(&mut self, mut function: Function, mut command: Command) -> Option<Function> {
        let plain = |word: Option<&Vec<Piece>>| word.and_then(|word| plain(word));
        let first = plain(command.words.first());
        let (first, last) = (first.as_deref(), plain(command.words.last()));
        if function.depth == 0 && first != Some("{") {
            // The body is in parentheses, or a single command.
            match function.name.as_str() {
                "depend" => self.mark_unknown(function.line),
                _ => self.other_lines.push(function.line),
            }
            return self.outside(&command);
        }
        if first == Some("}") {
            function.depth -= 1;
            return Some(function).filter(|it| it.depth > 0);
        }
        function.depth += usize::from(last.as_deref() == Some("{"));
        if function.name == "depend" && first != Some("{") {
            // A command in nested braces may depend on a condition.
            command.simple &= function.depth == 1;
            self.depend.push(command);
        }
        Some(function)
    }

    /// Handles a command outside functions. Returns the function that it begins, if any.
    fn outside(&mut self, command: &Command) -> Option<Function> {
        let texts: Vec<Option<String>> = command.words.iter().map(|word| plain(word)).collect();
        let first = texts.first()?.as_deref();
        let (opened, ended) = count_compound_commands(&texts);
        self.open = (self.open + opened).saturating_sub(ended);
        if let Some((name, usual)) = beginning(&texts) {
            self.begin(name, command.line, usual && command.simple && self.open == 0);
            let opens = texts.iter().any(|it| it.as_deref().is_some_and(|it| it.ends_with('{')));
            let (name, line) = (name.to_owned(), command.line);
            return Some(Function { name, line, depth: usize::from(opens) });
        }
        let (export, words) = match first {
            Some("export") => (true, &command.words[1..]),
            Some(":") => {
                let mut known = |word| self.evaluate(word, command.line) != Value::Unknown;
                if !command.words[1..].iter().all(|word| known(word)) {
                    self.other_lines.push(command.line);
                }
                return None;
            }
            _ => (false, &command.words[..]),
        };
        let sets = words.iter().all(|word| Self::assigns(word, export));
        if !command.simple || !sets {
            self.other_lines.push(command.line);
            return None;
        }
        for word in words {
            self.assign(word, command.line, export);
        }
        None
    }

    /// Records the beginning of a function. `always` is false if a condition decides whether the
    /// function is defined, or if not all shells accept its syntax.
    fn begin(&mut self, name: &str, line: usize, always: bool) {
        self.functions.insert(name.to_owned(), line);
        match (name, always) {
            ("depend", false) => self.mark_unknown(line),
            // The last of several definitions counts.
            ("depend", true) if self.unknown_from.is_none_or(|lost| line < lost) => {
                self.depend.clear();
            }
            (_, true) => {}
            (_, false) => self.other_lines.push(line),
        }
    }

    fn assigns(word: &[Piece], export: bool) -> bool {
        let Some(Piece::Text(text)) = word.first() else { return false };
        let (name, has_value) = match text.split_once('=') {
            Some((name, _)) => (name, true),
            None => (text.as_str(), false),
        };
        let is_name = !name.is_empty()
            && !name.starts_with(|it: char| it.is_ascii_digit())
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_');
        is_name && (has_value || export && word.len() == 1)
    }

    fn assign(&mut self, word: &[Piece], line: usize, export: bool) {
        let Some(Piece::Text(text)) = word.first() else { return };
        let Some((name, rest)) = text.split_once('=') else {
            return self.exported.push(text.clone());
        };
        let mut value = vec![Piece::Text(rest.to_owned())];
        value.extend(word[1..].iter().cloned());
        let value = self.evaluate(&value, line);
        self.variables.insert(name.to_owned(), (line, value));
        if export {
            self.exported.push(name.to_owned());
        }
    }

    /// Returns the text of a word with variables expanded.
    pub(super) fn evaluate(&mut self, word: &[Piece], line: usize) -> Value {
        let mut text = String::new();
        for piece in word {
            let value = match piece {
                Piece::Text(piece) => {
                    text.push_str(piece);
                    continue;
                }
                Piece::Unknown => Value::Unknown,
                Piece::Variable { name, default, sets, .. } => {
                    self.variable(name, default.as_deref(), *sets, line)
                }
            };
            match value {
                Value::Text(value) => text.push_str(&value),
                Value::Unknown => return Value::Unknown,
            }
        }
        Value::Text(text)
    }

    /// Returns the expansion of a variable.
    fn variable(&mut self, name: &str, default: Option<&str>, sets: bool, line: usize) -> Value {
        match (self.variables.get(name), default) {
            (Some((_, Value::Text(value))), Some(default)) if value.is_empty() => {
                self.default_of(default, line)
            }
            (Some((_, Value::Text(value))), _)
                if value.len() <= MAX_EXPANDED_BYTES - self.expanded_bytes =>
            {
                self.expanded_bytes += value.len();
                Value::Text(value.clone())
            }
            (Some(_), _) => Value::Unknown,
            (None, Some(default)) => {
                self.defaults.insert(name.to_owned(), line);
                let value = self.default_of(default, line);
                if sets {
                    self.variables.insert(name.to_owned(), (line, value.clone()));
                }
                value
            }
            (None, None) => Value::Text(format!("${{{name}}}")),
        }
    }

    /// Expands the default value of a variable, which may contain further defaults. If they are
    /// nested too deeply, returns [`Value::Unknown`], because only a shell can evaluate them.
    fn default_of(&mut self, text: &str, line: usize) -> Value {
        if self.depth == MAX_DEPTH {
            return Value::Unknown;
        }
        self.depth += 1;
        let value = match tokens(&format!("\"{text}\"")).as_slice() {
            [(_, Token::Word(word))] => self.evaluate(word, line),
            _ => Value::Unknown,
        };
        self.depth -= 1;
        value
    }

    /// Returns the value of a variable with its line.
    pub(super) fn value(&self, name: &str) -> Option<(usize, &Value)> {
        self.variables.get(name).map(|(line, value)| (*line, value))
    }
}

/// Splits a text into commands. Also returns the line from which they are unreliable, if there is
/// one. A command ends after a `{`, so the first command of a function's body is always separate.
fn commands(text: &str) -> (Vec<Command>, Option<usize>) {
    let mut commands: Vec<Command> = Vec::new();
    let mut open: Option<Command> = None;
    let mut joined = false;
    let (tokens, lost) = tokens_until_unknown(text);
    for (line, token) in tokens {
        match token {
            Token::Word(word) => {
                let new = || Command { line, words: Vec::new(), simple: !joined };
                let command = open.get_or_insert_with(new);
                // In `f() { a; }` the text after the brace is a command of its own.
                let begins = command.words.last().and_then(|it| plain(it));
                if begins.is_some_and(|it| it == "{" || it.ends_with("(){")) {
                    commands.extend(open.replace(Command {
                        line,
                        words: vec![word],
                        simple: true,
                    }));
                } else {
                    command.words.push(word);
                }
            }
            Token::End => {
                // A line that ends with an operator continues on the next.
                joined &= open.is_none();
                commands.extend(open.take());
            }
            Token::Operator => {
                if let Some(command) = &mut open {
                    command.simple = false;
                }
                commands.extend(open.take());
                joined = true;
            }
        }
    }
    commands.extend(open);
    (commands, lost)
}

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
