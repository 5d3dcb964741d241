//! Reads variables of a script as settings of its service.

use super::script::Value;
use super::service::{ServiceConverter, UnknownReason};
use super::tokens::{Piece, Token, tokens};
use crate::graph::EnvironmentFile;

/// Words, each as a list of pieces.
type Words = Vec<Vec<Piece>>;

impl ServiceConverter<'_, '_> {
    /// Returns a variable as text without variables in it.
    pub(super) fn text(&self, name: &str) -> Result<Option<(usize, String)>, UnknownReason> {
        match self.script.value(name) {
            None => Ok(None),
            Some((_, Value::Text(text))) if text.is_empty() => Ok(None),
            Some((line, Value::Text(text))) if !text.contains('$') => {
                Ok(Some((line, text.clone())))
            }
            Some((line, _)) => Err(unknown_value(line, name)),
        }
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, UnknownReason> {
        let Some((line, text)) = self.text(name)? else { return Ok(false) };
        match text.to_ascii_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Ok(true),
            "no" | "false" | "off" | "0" => Ok(false),
            _ => Err(unknown_value(line, name)),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, UnknownReason> {
        let Some((line, text)) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| unknown_value(line, name))
    }

    /// Returns a variable as the words of a command.
    pub(super) fn words(
        &mut self,
        name: &str,
    ) -> Result<Option<(usize, Vec<String>)>, UnknownReason> {
        let Some((line, words)) = self.split_words(name)? else { return Ok(None) };
        let words: Option<Vec<String>> =
            words.iter().map(|word| self.argument(word, line)).collect();
        words.map(|words| Some((line, words))).ok_or_else(|| unknown_value(line, name))
    }

    /// Splits the value of a variable into words, as the shell command `eval` does. Returns the
    /// words with the line of the variable, or `None` if there are no words.
    pub(super) fn split_words(&self, name: &str) -> Result<Option<(usize, Words)>, UnknownReason> {
        let Some((line, value)) = self.script.value(name) else { return Ok(None) };
        let Value::Text(text) = value else { return Err(unknown_value(line, name)) };
        let mut words = Vec::new();
        for (_, token) in tokens(text) {
            match token {
                Token::Word(word) => words.push(word),
                // A value may span several lines.
                Token::End if !text.contains(';') => {}
                _ => return Err(unknown_value(line, name)),
            }
        }
        Ok(Some((line, words)).filter(|(_, words)| !words.is_empty()))
    }

    /// Converts a word to a command argument of a stanza. Variables in the word are kept, because a
    /// conf.d file may set them. Returns `None` if only a shell can evaluate the word.
    fn argument(&mut self, word: &[Piece], line: usize) -> Option<String> {
        let mut text = String::new();
        for piece in word {
            match piece {
                Piece::Text(piece) => text.push_str(&piece.replace('$', "$$")),
                Piece::Variable { name, default: None, quoted, .. } => {
                    let whole = word.len() == 1 && !quoted;
                    let written = if whole { format!("${name}") } else { format!("${{{name}}}") };
                    text.push_str(&written);
                    self.take_from_conf_d(name, line);
                }
                _ => return None,
            }
        }
        Some(text)
    }

    fn take_from_conf_d(&mut self, name: &str, line: usize) {
        let path = format!("/etc/conf.d/{}", self.unit.name);
        let message = format!("`{name}` comes from {path}, which is read without a shell");
        let help = format!("write the assignments in {path} without variables and commands");
        self.report.loss((self.file, line), message, help);
        let file = EnvironmentFile { path, optional: true };
        let files = &mut self.unit.run.exec_environment.environment_files;
        if !files.contains(&file) {
            files.push(file);
        }
    }
}

pub(super) fn unknown_value(line: usize, name: &str) -> UnknownReason {
    (line, format!("the value of `{name}` cannot be determined from the script"))
}
