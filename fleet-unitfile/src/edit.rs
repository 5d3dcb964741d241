//! Edits that leave every other byte of the source as it is.

use crate::join::Logical;
use crate::lines::{Lines, ends_in_open_backslash, is_line_end, line_end_length, trim_end};
use crate::option::UnitOption;

/// The source with `option` in place of the last one of its section and name; where there is
/// none, after the last option of its section; where there is none either, at the end.
///
/// The option is one that can be written, and `options` are those of the source.
pub(crate) fn with(source: &[u8], options: &[UnitOption], option: &UnitOption) -> Vec<u8> {
    let is_of_section = |it: &&UnitOption| it.section() == option.section();
    let mut of_section = options.iter().rev().filter(is_of_section);
    let Some(last) = of_section.clone().next() else {
        return appended(source, option);
    };
    match of_section.find(|it| it.name() == option.name()) {
        Some(old) => replaced(source, old, option),
        None => inserted(source, last, option),
    }
}

/// The source without the given options, which are some of its own in their order.
pub(crate) fn without<'a>(source: &[u8], options: impl Iterator<Item = &'a UnitOption>) -> Vec<u8> {
    let mut left = Vec::with_capacity(source.len());
    let mut kept = 0;
    for option in options {
        let (start, end) = whole_lines(source, option);
        left.extend_from_slice(&source[kept..start]);
        kept = end;
    }
    left.extend_from_slice(&source[kept..]);
    left
}

fn replaced(source: &[u8], old: &UnitOption, new: &UnitOption) -> Vec<u8> {
    let (span, value) = (old.span(), old.value_span());
    let (end, _) = end_of(source, old);
    // Within one line the spacing around "=" can stay. A value that begins in a later line
    // cannot be exchanged alone: a new one that starts with "#" would be a comment there.
    let one_line = !source[span.start..end].iter().any(|&byte| is_line_end(byte));
    if one_line && value.start < value.end {
        spliced(&source[..value.start], new.verbatim(), &source[end..])
    } else {
        spliced(&source[..span.start], &line(new), &source[end..])
    }
}

fn inserted(source: &[u8], after: &UnitOption, new: &UnitOption) -> Vec<u8> {
    let (end, unfinished) = end_of(source, after);
    // An empty line ends a value whose last backslash would take in the new option.
    let parting = if unfinished { "\n\n" } else { "\n" };
    spliced(&source[..end], &(parting.to_owned() + &line(new)), &source[end..])
}

/// The text between two parts of a source, the second of which begins with a line end, if it
/// has anything in it.
fn spliced(before: &[u8], text: &str, after: &[u8]) -> Vec<u8> {
    // A carriage return would be one line end with the line feed before it, and leave no empty
    // line to end the value.
    let open = text.ends_with('\n') && !after.is_empty() && !after.starts_with(b"\n");
    let guard: &[u8] = if open { b"\n" } else { b"" };
    [before, text.as_bytes(), guard, after].concat()
}

fn appended(source: &[u8], new: &UnitOption) -> Vec<u8> {
    let parting = match source.last() {
        None => "",
        Some(b'\n') => "\n",
        Some(_) => "\n\n",
    };
    let header = format!("{parting}[{}]\n{}\n", new.section(), line(new));
    [source, header.as_bytes()].concat()
}

fn line(option: &UnitOption) -> String {
    format!("{}={}", option.name(), option.verbatim())
}

/// Where the text of the last line of an option ends, and whether another was to follow it.
fn end_of(source: &[u8], option: &UnitOption) -> (usize, bool) {
    let mut lines = Lines::new(source, option.span().start);
    let first = lines.next().expect("an option of the source has a line in it");
    let logical = Logical::starting_with(first, &mut lines);
    (logical.last().start + logical.last().text.len(), logical.unfinished)
}

/// From the first byte of the line that an option begins in to the last one of its line end;
/// only the option itself, where what stands before it is a part of the same logical line.
fn whole_lines(source: &[u8], option: &UnitOption) -> (usize, usize) {
    let (start, (end, _)) = (option.span().start, end_of(source, option));
    let before = trim_end(&source[..start]);
    let ends = last_run(before);
    let is_alone = ends > 0 && !ends_in_open_backslash(&before[..before.len() - ends]);
    if is_alone { (before.len(), end + line_end_length(&source[end..])) } else { (start, end) }
}

/// How many bytes at the end of a text are line ends that differ from each other.
fn last_run(text: &[u8]) -> usize {
    let mut run = 0;
    for &byte in text.iter().rev() {
        if !is_line_end(byte) || text[text.len() - run..].contains(&byte) {
            break;
        }
        run += 1;
    }
    run
}
