//! A service script as far as it can be known without running it.

use std::collections::BTreeMap;

use super::function::{Function, beginning, groups};
use super::tokens::{DEEPEST, Piece, Token, plain, tokens, tokens_until_lost};
use crate::graph::text::MAX_FILE_SIZE;

/// How many bytes may be put in for variables of a script, which could double with each line.
const MOST_PUT_IN: usize = MAX_FILE_SIZE;

/// What a script says.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// Its variables, each with the line of its last assignment.
    pub(super) variables: BTreeMap<String, (usize, Value)>,
    /// Those among them that its processes see.
    pub(super) exported: Vec<String>,
    /// Its functions, with their lines.
    pub(super) functions: BTreeMap<String, usize>,
    /// The commands of `depend`.
    pub(super) depend: Vec<Command>,
    /// Lines outside of functions that do something else than to set variables.
    pub(super) others: Vec<usize>,
    /// The first line from which on only a shell can tell what the script says.
    pub(super) lost: Option<usize>,
    /// Defaults that a file in conf.d may replace, by the names of the variables.
    pub(super) defaults: BTreeMap<String, usize>,
    /// How many conditions, loops and groups are open outside of functions.
    open: usize,
    /// How many defaults are being read, each of which stands in the one before.
    depth: usize,
    /// How many bytes were put in for variables.
    put_in: usize,
}

/// A command, with its line.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) line: usize,
    pub(super) words: Vec<Vec<Piece>>,
    /// Whether its words are all that there is to it.
    pub(super) simple: bool,
}

/// The value of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// This text, in which `${NAME}` stands for a variable that is set elsewhere.
    Text(String),
    /// What only a shell can know.
    Unknown,
}

impl Script {
    /// Reads a script of the service of this name.
    pub(super) fn read(text: &str, name: &str) -> Self {
        let mut script = Self::default();
        for own in ["RC_SVCNAME", "SVCNAME"] {
            let value = (1, Value::Text(name.to_owned()));
            script.variables.insert(own.to_owned(), value);
        }
        let (commands, lost) = commands(text);
        script.lost = lost;
        let mut inside: Option<Function> = None;
        for command in commands {
            inside = match inside {
                Some(function) => script.inside(function, command),
                None => script.outside(&command),
            };
        }
        if let Some(open) = inside {
            script.lose(open.line);
        }
        script
    }

    fn lose(&mut self, line: usize) {
        self.lost = Some(self.lost.map_or(line, |known| known.min(line)));
    }

    /// Takes a command that stands in a function; says in which one the next stands.
    fn inside(&mut self, mut function: Function, mut command: Command) -> Option<Function> {
        let plain = |word: Option<&Vec<Piece>>| word.and_then(|word| plain(word));
        let first = plain(command.words.first());
        let (first, last) = (first.as_deref(), plain(command.words.last()));
        if function.depth == 0 && first != Some("{") {
            // Its body is in parentheses, or a single command.
            match function.name.as_str() {
                "depend" => self.lose(function.line),
                _ => self.others.push(function.line),
            }
            return self.outside(&command);
        }
        if first == Some("}") {
            function.depth -= 1;
            return Some(function).filter(|it| it.depth > 0);
        }
        function.depth += usize::from(last.as_deref() == Some("{"));
        if function.name == "depend" && first != Some("{") {
            // What stands in braces of its own may be behind a condition.
            command.simple &= function.depth == 1;
            self.depend.push(command);
        }
        Some(function)
    }

    /// Takes a command that stands in no function; says if one begins.
    fn outside(&mut self, command: &Command) -> Option<Function> {
        let texts: Vec<Option<String>> = command.words.iter().map(|word| plain(word)).collect();
        let first = texts.first()?.as_deref();
        let (begun, ended) = groups(&texts);
        self.open = (self.open + begun).saturating_sub(ended);
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
                    self.others.push(command.line);
                }
                return None;
            }
            _ => (false, &command.words[..]),
        };
        let sets = words.iter().all(|word| Self::assigns(word, export));
        if !command.simple || !sets {
            self.others.push(command.line);
            return None;
        }
        for word in words {
            self.assign(word, command.line, export);
        }
        None
    }

    /// Takes the beginning of a function, which may be there in some cases, or shells, only.
    fn begin(&mut self, name: &str, line: usize, always: bool) {
        self.functions.insert(name.to_owned(), line);
        match (name, always) {
            ("depend", false) => self.lose(line),
            // Of several, the last counts.
            ("depend", true) if self.lost.is_none_or(|lost| line < lost) => self.depend.clear(),
            (_, true) => {}
            (_, false) => self.others.push(line),
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

    /// The text of a word, once variables are put in.
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

    /// What is put in for a variable.
    fn variable(&mut self, name: &str, default: Option<&str>, sets: bool, line: usize) -> Value {
        match (self.variables.get(name), default) {
            (Some((_, Value::Text(value))), Some(default)) if value.is_empty() => {
                self.default_of(default, line)
            }
            (Some((_, Value::Text(value))), _) if value.len() <= MOST_PUT_IN - self.put_in => {
                self.put_in += value.len();
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

    /// A default, which may have others in it. How far one goes that is too deep in others, only a
    /// shell can tell.
    fn default_of(&mut self, text: &str, line: usize) -> Value {
        if self.depth == DEEPEST {
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

    /// The value of a variable, with its line.
    pub(super) fn value(&self, name: &str) -> Option<(usize, &Value)> {
        self.variables.get(name).map(|(line, value)| (*line, value))
    }
}

/// All commands of a text, and the line from which on they are not to be trusted. A function's `{`
/// may stand in the line of its name, or below.
fn commands(text: &str) -> (Vec<Command>, Option<usize>) {
    let mut commands: Vec<Command> = Vec::new();
    let mut open: Option<Command> = None;
    let mut joined = false;
    let (tokens, lost) = tokens_until_lost(text);
    for (line, token) in tokens {
        match token {
            Token::Word(word) => {
                let new = || Command { line, words: Vec::new(), simple: !joined };
                let command = open.get_or_insert_with(new);
                // `f() { a; }` in one line: what follows the brace is a command of its own.
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
                // A line that ends with an operator goes on in the next.
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
