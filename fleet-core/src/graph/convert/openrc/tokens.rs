//! Shell words, as far as they are known without a shell.

use super::lexer::Lexer;

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
