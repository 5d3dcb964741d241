//! Tokens of a shell script.

use std::iter::Peekable;
use std::str::Chars;

/// Reads the tokens of a text one by one.
pub(super) struct Lexer<'a> {
    chars: Peekable<Chars<'a>>,
    line: usize,
    /// First line that only a shell can interpret.
    unknown_from: Option<usize>,
    /// Number of open substitutions.
    depth: usize,
}

impl<'a> Lexer<'a> {
    /// Creates a lexer at the start of a text.
    pub(super) fn new(text: &'a str) -> Self {
        Self { chars: text.chars().peekable(), line: 1, unknown_from: None, depth: 0 }
    }

    /// Returns the line from which the tokens are unreliable.
    pub(super) fn unknown_from(&self) -> Option<usize> {
        self.unknown_from
    }

    /// Returns the next token with its line.
    pub(super) fn next_token(&mut self) -> Option<(usize, Token)> {
        loop {
            let line = self.line;
            let next = *self.chars.peek()?;
            match next {
                ' ' | '\t' | '\r' => {
                    self.bump();
                }
                '#' => {
                    while self.chars.peek().is_some_and(|it| *it != '\n') {
                        self.bump();
                    }
                }
                '\\' if self.is_joined() => {}
                '\n' | ';' => {
                    self.bump();
                    return Some((line, Token::End));
                }
                '&' | '|' | '<' | '>' => {
                    self.bump();
                    if next == '<' && self.chars.peek() == Some(&'<') {
                        self.mark_unknown(line);
                    }
                    return Some((line, Token::Operator));
                }
                _ => return Some((line, Token::Word(self.word()))),
            }
        }
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.chars.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn mark_unknown(&mut self, line: usize) {
        self.unknown_from = Some(self.unknown_from.map_or(line, |known| known.min(line)));
    }

    /// Skips a backslash at the end of a line, which joins two lines.
    fn is_joined(&mut self) -> bool {
        let mut ahead = self.chars.clone();
        let joined = ahead.next() == Some('\\') && ahead.next() == Some('\n');
        if joined {
            self.bump();
            self.bump();
        }
        joined
    }

    fn word(&mut self) -> Vec<Piece> {
        let mut word = Vec::new();
        while let Some(&next) = self.chars.peek() {
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '<' | '>' => break,
                '\'' => {
                    self.bump();
                    match self.until('\'') {
                        Some(text) => push(&mut word, text),
                        None => word.push(Piece::Unknown),
                    }
                }
                '"' => {
                    self.bump();
                    self.double(&mut word);
                }
                _ => self.piece(&mut word, false),
            }
        }
        word
    }

    fn double(&mut self, word: &mut Vec<Piece>) {
        let line = self.line;
        push(word, String::new());
        while let Some(&next) = self.chars.peek() {
            if next == '"' {
                self.bump();
                return;
            }
            self.piece(word, true);
        }
        self.mark_unknown(line);
        word.push(Piece::Unknown);
    }

    /// Reads one character, variable or substitution.
    fn piece(&mut self, word: &mut Vec<Piece>, quoted: bool) {
        match self.bump() {
            Some('\\') => self.escape(word, quoted),
            Some('$') => self.dollar(word, quoted),
            Some('`') => {
                self.until('`');
                word.push(Piece::Unknown);
            }
            // Glob characters.
            Some('*' | '?' | '[') if !quoted => word.push(Piece::Unknown),
            Some(other) => push(word, other.to_string()),
            None => {}
        }
    }

    fn escape(&mut self, word: &mut Vec<Piece>, quoted: bool) {
        match self.bump() {
            Some('\n') => {}
            Some(next) if quoted && !"$`\"\\".contains(next) => push(word, format!("\\{next}")),
            Some(next) => push(word, next.to_string()),
            None => word.push(Piece::Unknown),
        }
    }

    fn dollar(&mut self, word: &mut Vec<Piece>, quoted: bool) {
        match self.chars.peek() {
            Some('{') => {
                self.bump();
                let inside = self.braced();
                word.push(in_braces(&inside, quoted));
            }
            Some('(') => {
                self.bump();
                self.substitution();
                word.push(Piece::Unknown);
            }
            Some(next) if next.is_ascii_alphabetic() || *next == '_' => {
                let mut name = String::new();
                let is_part = |it: &char| it.is_ascii_alphanumeric() || *it == '_';
                while self.chars.peek().is_some_and(is_part) {
                    name.extend(self.bump());
                }
                word.push(Piece::Variable { name, default: None, sets: false, quoted });
            }
            Some(next) if next.is_ascii_digit() || "@*#?-$!".contains(*next) => {
                self.bump();
                word.push(Piece::Unknown);
            }
            _ => push(word, "$".to_owned()),
        }
    }

    /// Returns the text up to the closing quote, if there is one.
    fn until(&mut self, end: char) -> Option<String> {
        let line = self.line;
        let mut text = String::new();
        while let Some(next) = self.bump() {
            if next == end {
                return Some(text);
            }
            text.push(next);
        }
        self.mark_unknown(line);
        None
    }

    fn braced(&mut self) -> String {
        let line = self.line;
        let mut text = String::new();
        let mut depth = 1;
        while let Some(next) = self.bump() {
            depth += i32::from(next == '{') - i32::from(next == '}');
            if depth == 0 {
                return text;
            }
            text.push(next);
        }
        self.mark_unknown(line);
        text
    }

    /// Skips a command substitution `$(…)`. If it is nested too deeply, only a shell can find its
    /// end, so the text from this line on is marked as unknown.
    fn substitution(&mut self) {
        if self.depth == MAX_DEPTH {
            return self.mark_unknown(self.line);
        }
        self.depth += 1;
        self.parenthesised();
        self.depth -= 1;
    }

    /// Skips the inside of `$(…)` including quotes.
    fn parenthesised(&mut self) {
        let line = self.line;
        let is_arithmetic = self.chars.peek() == Some(&'(');
        let mut depth = 1;
        while let Some(next) = self.bump() {
            match next {
                '\\' => {
                    self.bump();
                }
                '\'' => {
                    self.until('\'');
                }
                '"' => self.double(&mut Vec::new()),
                '<' if !is_arithmetic && self.chars.peek() == Some(&'<') => {
                    self.mark_unknown(self.line);
                }
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return;
            }
        }
        self.mark_unknown(line);
    }
}

fn push(word: &mut Vec<Piece>, text: String) {
    match word.last_mut() {
        Some(Piece::Text(before)) => before.push_str(&text),
        _ => word.push(Piece::Text(text)),
    }
}

/// Parses the inside of `${…}`.
fn in_braces(inside: &str, quoted: bool) -> Piece {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let end = inside.find(|it| !is_part(it)).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    let is_name = name.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
    let (default, sets) = match rest.strip_prefix(':').unwrap_or(rest) {
        "" if rest.is_empty() => (None, false),
        text => match (text.strip_prefix('-'), text.strip_prefix('=')) {
            (Some(default), _) => (Some(default), false),
            (_, Some(default)) => (Some(default), true),
            _ => return Piece::Unknown,
        },
    };
    let is_simple = |text: &&str| !text.contains(['`', '\\', '"', '\'']) && !text.contains("$(");
    if !is_name || default.is_some_and(|text| !is_simple(&text)) {
        return Piece::Unknown;
    }
    Piece::Variable { name: name.to_owned(), default: default.map(str::to_owned), sets, quoted }
}

/// Maximum nesting of substitutions, far more than service scripts use.
pub(super) const MAX_DEPTH: usize = 100;

/// A piece of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Literal characters.
    Text(String),
    /// A variable.
    Variable {
        /// Its name.
        name: String,
        /// Default value, as in `${NAME:-text}`.
        default: Option<String>,
        /// Whether the default is assigned to the variable (`${NAME:=text}`).
        sets: bool,
        /// Whether it is quoted, so that its value is not split into words.
        quoted: bool,
    },
    /// Text that only a shell can determine, such as `$(…)` or `${NAME%…}`.
    Unknown,
}

/// A shell token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word. An empty word was written as a pair of quotes.
    Word(Vec<Piece>),
    /// A newline or semicolon, which ends a command.
    End,
    /// An operator such as `&&` or `|`, or a redirection. The token does not record which one.
    /// Therefore the words around it do not describe the command completely.
    Operator,
}

/// Returns the tokens of a text with their lines.
pub(super) fn tokens(text: &str) -> Vec<(usize, Token)> {
    tokens_until_unknown(text).0
}

/// Returns the tokens of a text. Also returns the first line from which the tokens are unreliable,
/// if there is one. One of these begins on that line:
///
/// - a quote without an end
/// - a here-document, because its lines are not commands
/// - a substitution that has no end or is nested too deeply
pub(super) fn tokens_until_unknown(text: &str) -> (Vec<(usize, Token)>, Option<usize>) {
    let mut lexer = Lexer::new(text);
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next_token() {
        tokens.push(token);
    }
    (tokens, lexer.unknown_from())
}

/// Returns the text of a word that is fully known.
pub(super) fn plain(word: &[Piece]) -> Option<String> {
    let texts = word.iter().map(|piece| match piece {
        Piece::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words with `|` between them, variables in `<>`, `?` for unknown pieces.
    fn output(text: &str) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Variable { name, default, sets, quoted } => {
                let default = default.as_ref().map_or(String::new(), |it| format!("={it}"));
                let marks = [(*sets, "!"), (*quoted, "\"")];
                let marks: String =
                    marks.iter().filter(|(it, _)| *it).map(|(_, mark)| *mark).collect();
                format!("<{name}{default}{marks}>")
            }
            Piece::Unknown => "?".to_owned(),
        };
        let tokens = tokens(text).into_iter().map(|(line, token)| match token {
            Token::Word(word) => word.iter().map(piece).collect(),
            Token::End => format!(";{line}"),
            Token::Operator => "&".to_owned(),
        });
        tokens.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn words_split_as_in_a_shell() {
        for (text, expected) in [
            ("a b\tc", "a|b|c"),
            ("a 'b c' \"d e\"f", "a|b c|d ef"),
            ("a \\\n b # c\nd;e", "a|b|;2|d|;3|e"),
            ("a#b ''", "a#b|"),
            (r#""a\"b\x" \"c\ d"#, r#"a"b\x|"c d"#),
            ("$A \"$A.b\" ${B}c", "<A>|<A\">.b|<B>c"),
            ("${A:-x} ${A-y} \"${B:=z}\"", "<A=x>|<A=y>|<B=z!\">"),
            ("$(a b) `c d` ${A%x} $1 $$ ${A:+b} a*", "?|?|?|?|?|?|a?"),
            ("a=$ '$A'", "a=$|$A"),
            ("a && b | c > d", "a|&|&|b|&|c|&|d"),
            ("\"a", "a?"),
            ("${A:-${B}} ${A:-$(b)}", "<A=${B}>|?"),
            ("'a", "?"),
            ("$(a ')' \")\" \\) ) b", "?|b"),
        ] {
            assert_eq!(output(text), expected, "{text}");
        }
    }
    #[test]
    fn unknown_text_is_known_by_its_line() {
        for (text, expected) in [
            ("a\ncat <<EOF\nit's\n", Some(2)),
            ("a\nb 'c\nd", Some(2)),
            ("a\n\nb \"c\nd", Some(3)),
            ("a `b\n", Some(1)),
            ("a\n${b\n", Some(2)),
            ("a\n$(b\n", Some(2)),
            ("a $(cat <<x)", Some(1)),
            ("a\nb \"c\n$(cat <<x)\n", Some(2)),
            ("a <b $((1 << 2)) '<<' \"<<\" # <<\n", None),
        ] {
            assert_eq!(tokens_until_unknown(text).1, expected, "{text}");
        }
    }
}
