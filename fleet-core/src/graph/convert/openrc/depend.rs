//! What `depend` says of other services.

use super::script::{Command, Script, Value};
use super::tokens::plain;
use crate::graph::convert::draft::Wish;
use crate::graph::convert::note::Report;
use crate::graph::{EdgeKind, Target};

/// What to do about what nobody can tell without running the script.
const BY_HAND: &str = "write what it comes to on this machine into the stanza";

/// What the service provides beside its name, and what it says of others.
pub(super) fn read(
    script: &mut Script,
    file: usize,
    report: &mut Report<'_>,
) -> (Vec<Target>, Vec<Wish>) {
    let mut reader = Reader { file, report, provides: Vec::new(), wishes: Vec::new(), depth: 0 };
    let lost = script.lost;
    if let Some(line) = lost {
        let message = "what `depend` says from here on, only a shell can tell";
        let help = "write depends-ms, waits-for, after and provides of it into the stanza";
        reader.report.loss((file, line), message, help);
    }
    for command in std::mem::take(&mut script.depend) {
        if lost.is_none_or(|line| command.line < line) {
            reader.command(script, &command);
        }
    }
    (reader.provides, reader.wishes)
}

struct Reader<'r, 'a> {
    file: usize,
    report: &'r mut Report<'a>,
    provides: Vec<Target>,
    wishes: Vec<Wish>,
    /// How many conditions and loops are open.
    depth: usize,
}

impl Reader<'_, '_> {
    fn command(&mut self, script: &mut Script, command: &Command) {
        let place = (self.file, command.line);
        let first = command.words.first().and_then(|word| plain(word)).unwrap_or_default();
        match first.as_str() {
            "if" | "case" | "for" | "while" | "until" => self.depth += 1,
            "fi" | "esac" | "done" => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        let (kind, before) = match first.as_str() {
            "need" => (Some(EdgeKind::DependsMs), false),
            "want" => (Some(EdgeKind::WaitsFor), false),
            "use" | "after" => (Some(EdgeKind::After), false),
            "before" => (Some(EdgeKind::After), true),
            "provide" => (None, false),
            "keyword" => {
                let message = "keywords say where and how OpenRC runs the service";
                let help = "write a `condition:` into the stanza, if it is not to run everywhere";
                return self.report.loss(place, message, help);
            }
            "config" | ":" | "done" | "esac" | "fi" | "return" | "true" => return,
            _ => {
                let message = "in `depend` something is done that only a shell can do";
                return self.report.loss(place, message, BY_HAND);
            }
        };
        if !command.simple || self.depth > 0 {
            let message = format!("whether `{first}` counts here, only a shell can tell");
            return self.report.loss(place, message, BY_HAND);
        }
        for word in &command.words[1..] {
            match script.evaluate(word, command.line) {
                Value::Text(text) if !text.contains('$') => {
                    for name in text.split_whitespace() {
                        self.name(&first, kind, before, name, command.line);
                    }
                }
                _ => {
                    let message = format!("what is behind `{first}`, only a shell can tell");
                    self.report.loss(place, message, BY_HAND);
                }
            }
        }
    }

    fn name(&mut self, word: &str, kind: Option<EdgeKind>, before: bool, name: &str, line: usize) {
        let place = (self.file, line);
        let target = match Target::new(name) {
            Ok(target) if !name.starts_with(['-', '!']) => target,
            _ => {
                let message = format!("`{word} {name}` names no single service");
                return self.report.loss(place, message, "name the services that it is about");
            }
        };
        match kind {
            Some(kind) => self.wishes.push(Wish { kind, target, before, line }),
            None => self.provides.push(target),
        }
    }
}
