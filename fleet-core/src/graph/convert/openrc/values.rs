//! Variables of a script as what its service is made of.

use super::script::Value;
use super::service::{Own, Why};
use super::tokens::{Piece, Token, tokens};
use crate::graph::EnvironmentFile;

/// Words, each with its pieces.
type Words = Vec<Vec<Piece>>;

impl Own<'_, '_> {
    /// A variable as one text without others in it.
    pub(super) fn text(&self, name: &str) -> Result<Option<(usize, String)>, Why> {
        match self.script.value(name) {
            None => Ok(None),
            Some((_, Value::Text(text))) if text.is_empty() => Ok(None),
            Some((line, Value::Text(text))) if !text.contains('$') => {
                Ok(Some((line, text.clone())))
            }
            Some((line, _)) => Err(not_read(line, name)),
        }
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Why> {
        let Some((line, text)) = self.text(name)? else { return Ok(false) };
        match text.to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Ok(true),
            "no" | "false" | "off" | "0" => Ok(false),
            _ => Err(not_read(line, name)),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Why> {
        let Some((line, text)) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| not_read(line, name))
    }

    /// A variable as words of a command.
    pub(super) fn words(&mut self, name: &str) -> Result<Option<(usize, Vec<String>)>, Why> {
        let Some((line, words)) = self.parted(name)? else { return Ok(None) };
        let words: Option<Vec<String>> =
            words.iter().map(|word| self.argument(word, line)).collect();
        words.map(|words| Some((line, words))).ok_or_else(|| not_read(line, name))
    }

    /// A variable as words, which a shell reads once more; nothing if there are none.
    pub(super) fn parted(&self, name: &str) -> Result<Option<(usize, Words)>, Why> {
        let Some((line, value)) = self.script.value(name) else { return Ok(None) };
        let Value::Text(text) = value else { return Err(not_read(line, name)) };
        let mut words = Vec::new();
        for (_, token) in tokens(text) {
            match token {
                Token::Word(word) => words.push(word),
                // A value goes over several lines.
                Token::End if !text.contains(';') => {}
                _ => return Err(not_read(line, name)),
            }
        }
        Ok(Some((line, words)).filter(|(_, words)| !words.is_empty()))
    }

    /// A word as commands of stanzas have it: its variables are those that conf.d may set.
    fn argument(&mut self, word: &[Piece], line: usize) -> Option<String> {
        let mut text = String::new();
        for piece in word {
            match piece {
                Piece::Text(piece) => text.push_str(&piece.replace('$', "$$")),
                Piece::Variable { name, default: None, quoted, .. } => {
                    let whole = word.len() == 1 && !quoted;
                    let spelt = if whole { format!("${name}") } else { format!("${{{name}}}") };
                    text.push_str(&spelt);
                    self.take_from_conf_d(name, line);
                }
                _ => return None,
            }
        }
        Some(text)
    }

    fn take_from_conf_d(&mut self, name: &str, line: usize) {
        let path = format!("/etc/conf.d/{}", self.unit.name);
        let message = format!("`{name}` comes from {path}, which no shell reads any more");
        let help = "write its assignments without variables and commands in them";
        self.report.loss((self.file, line), message, help);
        let file = EnvironmentFile { path, optional: true };
        let files = &mut self.unit.run.exec_environment.environment_files;
        if !files.contains(&file) {
            files.push(file);
        }
    }
}

pub(super) fn not_read(line: usize, name: &str) -> Why {
    (line, format!("`{name}` has a value that cannot be told from the script"))
}
