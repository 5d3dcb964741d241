//! Reads the `depend` function of a script.

use super::script::{Command, Script, Value};
use super::tokens::plain;
use crate::graph::convert::draft::Dependency;
use crate::graph::convert::note::Report;
use crate::graph::{EdgeKind, Target};

/// Remedy for parts that only a shell can evaluate.
const MANUAL_REMEDY: &str = "write the result on this machine into the stanza, as depends-ms, \
                             waits-for, after or provides";

/// Returns the additional targets and the dependencies of the service.
pub(super) fn read(
    script: &mut Script,
    file: usize,
    report: &mut Report<'_>,
) -> (Vec<Target>, Vec<Dependency>) {
    let mut reader =
        Reader { file, report, provides: Vec::new(), dependencies: Vec::new(), depth: 0 };
    let lost = script.unknown_from;
    if let Some(line) = lost {
        let message = "only a shell can evaluate the rest of `depend`: it is not converted";
        let help = "write the other dependencies of the service into the stanza, as depends-ms, \
                    waits-for, after and provides";
        reader.report.loss((file, line), message, help);
    }
    for command in std::mem::take(&mut script.depend) {
        if lost.is_none_or(|line| command.line < line) {
            reader.command(script, &command);
        }
    }
    (reader.provides, reader.dependencies)
}

struct Reader<'r, 'a> {
    file: usize,
    report: &'r mut Report<'a>,
    provides: Vec<Target>,
    dependencies: Vec<Dependency>,
    /// Number of open conditions and loops.
    depth: usize,
}

impl Reader<'_, '_> {
    fn command(&mut self, script: &mut Script, command: &Command) {
        let position = (self.file, command.line);
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
                let message =
                    "`keyword` is not converted: it tells OpenRC where and how to run the service";
                let help =
                    "to restrict where the service runs, write a `condition:` into the stanza";
                return self.report.loss(position, message, help);
            }
            "config" | ":" | "done" | "esac" | "fi" | "return" | "true" => return,
            _ => {
                let message = "`depend` has a command that only a shell can run";
                return self.report.loss(position, message, MANUAL_REMEDY);
            }
        };
        if !command.simple || self.depth > 0 {
            let message = format!("only a shell can evaluate whether `{first}` applies");
            return self.report.loss(position, message, MANUAL_REMEDY);
        }
        for word in &command.words[1..] {
            match script.evaluate(word, command.line) {
                Value::Text(text) if !text.contains('$') => {
                    for name in text.split_whitespace() {
                        self.name(&first, kind, before, name, command.line);
                    }
                }
                _ => {
                    let message = format!("only a shell can evaluate the arguments of `{first}`");
                    self.report.loss(position, message, MANUAL_REMEDY);
                }
            }
        }
    }

    fn name(&mut self, word: &str, kind: Option<EdgeKind>, before: bool, name: &str, line: usize) {
        let position = (self.file, line);
        let target = match Target::new(name) {
            Ok(target) if !name.starts_with(['-', '!']) => target,
            _ => {
                let message = format!("`{word} {name}` does not name a single service");
                return self.report.loss(position, message, "name the services in the stanza");
            }
        };
        match kind {
            Some(kind) => self.dependencies.push(Dependency { kind, target, before, line }),
            None => self.provides.push(target),
        }
    }
}
