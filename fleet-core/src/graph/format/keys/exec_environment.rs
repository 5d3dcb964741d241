//! Keys of the execution environment and of resource limits.

use fleet_unitfile::Span;
use fleet_unitfile::values::{Size, WordError, cescape, parse_permyriad, parse_size, split_words};

use super::read::number;
use super::{Form, Key, read};
use crate::graph::format::diagnostic::{Code, Problems, short};
use crate::graph::format::lexer::Value;
use crate::graph::format::print::{list, some, unless, yes_or_no};
use crate::graph::format::stanza::{Draft, HostResource, Types};
use crate::graph::model::{
    Amount, DirectoryPath, EnvironmentFile, ExecEnvironment, ExecOutput, InitUnit, WorkingDirectory,
};

/// Declares a key for a kernel limit, by its kernel name.
macro_rules! limit {
    ($name:literal) => {
        Key::new(
            concat!("limit-", $name),
            Types::RUNNING,
            Form::Line,
            |value, draft, problems| {
                if let Some(limit) = read_limit(value, problems) {
                    draft.run().exec_environment.limits.insert($name, limit);
                }
            },
            |unit, _| some(unit.run.exec_environment.limits.get($name).map(write_limit)),
        )
    };
}

/// Declares a key with an account. By default there is no account.
macro_rules! account {
    ($name:literal, $field:ident, $resource:expr) => {
        Key::new(
            $name,
            Types::RUNNING,
            Form::Line,
            |value, draft, problems| {
                let account = word(value, problems);
                let needed = account.clone().map(|it| ($resource(it), value.span()));
                draft.host_resources.extend(needed);
                draft.run().exec_environment.$field = account;
            },
            |unit, _| some(unit.run.exec_environment.$field.as_ref()),
        )
    };
}

/// Declares a key with a number in a range.
macro_rules! number {
    ($name:literal, $field:ident, $range:expr) => {
        Key::new(
            $name,
            Types::RUNNING,
            Form::Line,
            |value, draft, problems| {
                draft.run().exec_environment.$field = number(value, problems, $range);
            },
            |unit, _| some(unit.run.exec_environment.$field),
        )
    };
}

pub(super) const KEYS: &[Key] = &[
    account!("user", user, HostResource::User),
    account!("group", group, HostResource::Group),
    Key::new(
        "groups",
        Types::RUNNING,
        Form::Fold,
        |value, draft, problems| {
            let groups = words(value, problems);
            let needed = groups.iter().map(|(it, span)| (HostResource::Group(it.clone()), *span));
            draft.host_resources.extend(needed);
            let names = groups.into_iter().map(|(name, _)| name).collect();
            draft.run().exec_environment.supplementary_groups = names;
        },
        |unit, _| list(&unit.run.exec_environment.supplementary_groups),
    ),
    Key::new("directory", Types::RUNNING, Form::Line, read_directory, write_directory),
    Key::new("env", Types::RUNNING, Form::Lines, read_variable, |unit, _| {
        let variables = unit.run.exec_environment.environment.iter();
        variables.map(|(name, value)| format!("{name}={}", quoted(value))).collect()
    }),
    Key::new("env-file", Types::RUNNING, Form::Lines, read_file, |unit, _| {
        let files = unit.run.exec_environment.environment_files.iter();
        files.map(|file| format!("{}{}", dash(file.optional), file.path)).collect()
    }),
    Key::new(
        "pass-env",
        Types::RUNNING,
        Form::Folds,
        |value, draft, problems| {
            let names = read::variables(value, problems);
            draft.run().exec_environment.pass_environment.extend(names);
        },
        |unit, _| list(&unit.run.exec_environment.pass_environment),
    ),
    Key::new("unset-env", Types::RUNNING, Form::Lines, read_unset, |unit, _| {
        unit.run.exec_environment.unset_environment.iter().map(|it| write_unset(it)).collect()
    }),
    Key::new("umask", Types::RUNNING, Form::Line, read_umask, |unit, _| {
        some(unit.run.exec_environment.umask.map(|mask| format!("{mask:04o}")))
    }),
    Key::new(
        "ignore-sigpipe",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            let ignores = read::yes_or_no(value, problems).unwrap_or_default();
            draft.run().exec_environment.ignore_sigpipe = ignores;
        },
        |unit, _| unless(&unit.run.exec_environment.ignore_sigpipe, &false, yes_or_no(true)),
    ),
    number!("nice", nice, -20..=19),
    number!("oom-score-adjust", oom_score_adjust, -1000..=1000),
    Key::new(
        "output",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| {
            draft.run().exec_environment.output = read_output(value, problems).unwrap_or_default();
        },
        |unit, _| {
            let output = &unit.run.exec_environment.output;
            unless(output, &ExecOutput::default(), write_output(output))
        },
    ),
    Key::new(
        "error-output",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| draft.run().exec_environment.error = read_output(value, problems),
        |unit, _| some(unit.run.exec_environment.error.as_ref().map(write_output)),
    ),
    limit!("as"),
    limit!("core"),
    limit!("cpu"),
    limit!("data"),
    limit!("fsize"),
    limit!("locks"),
    limit!("memlock"),
    limit!("msgqueue"),
    limit!("nice"),
    limit!("nofile"),
    limit!("nproc"),
    limit!("rss"),
    limit!("rtprio"),
    limit!("rttime"),
    limit!("sigpending"),
    limit!("stack"),
];

/// Reads a text without blanks.
fn word(value: &Value, problems: &mut Problems) -> Option<String> {
    let word = Some(value.text()).filter(|text| !text.contains([' ', '\t', ',']));
    if word.is_none() {
        read::refuse(value, problems, "write one word");
    }
    word.map(str::to_owned)
}

/// Reads a list of single words, each with its position.
fn words(value: &Value, problems: &mut Problems) -> Vec<(String, Span)> {
    let mut items = read::list(value, problems);
    items.retain(|(item, span)| {
        let is_word = !item.contains([' ', '\t']);
        if !is_word {
            let message = format!("`{}` is more than one word", short(item));
            problems.add(Code::BadValue, *span, message, "put a comma between two names");
        }
        is_word
    });
    items.into_iter().map(|(item, span)| (item.to_owned(), span)).collect()
}

fn read_directory(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let (optional, path) = optional(value.text());
    let place = match path {
        "/" => Some(DirectoryPath::Root),
        "~" => Some(DirectoryPath::Home),
        path => read::absolute(path).map(DirectoryPath::At),
    };
    match place {
        Some(place) => {
            if let DirectoryPath::At(path) = &place
                && !optional
            {
                let needed = HostResource::Directory(path.clone());
                draft.host_resources.push((needed, value.span()));
            }
            draft.run().exec_environment.directory = WorkingDirectory { path: place, optional }
        }
        None => read::refuse(value, problems, "write an absolute path or ~"),
    }
}

fn write_directory(unit: &InitUnit, _: &crate::graph::model::Timeouts) -> Vec<String> {
    let ExecEnvironment { directory, .. } = &unit.run.exec_environment;
    let place = match &directory.path {
        DirectoryPath::Root => "/",
        DirectoryPath::Home => "~",
        DirectoryPath::At(path) => path,
    };
    unless(directory, &WorkingDirectory::default(), format!("{}{place}", dash(directory.optional)))
}

/// Splits off a leading `-`, which marks an optional entry.
fn optional(text: &str) -> (bool, &str) {
    text.strip_prefix('-').map_or((false, text), |rest| (true, rest))
}

fn dash(optional: bool) -> &'static str {
    if optional { "-" } else { "" }
}

fn read_file(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let (optional, path) = optional(value.text());
    match read::absolute(path) {
        Some(path) => {
            if !optional {
                let needed = HostResource::EnvironmentFile(path.clone());
                draft.host_resources.push((needed, value.span()));
            }
            let file = EnvironmentFile { path, optional };
            draft.run().exec_environment.environment_files.push(file);
        }
        None => read::refuse(value, problems, "write an absolute path"),
    }
}

fn read_variable(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let Some((name, text)) = value.text().split_once('=') else {
        return read::refuse(value, problems, "write NAME=value");
    };
    if !read::variable(name, value.part(0..name.len()), problems) {
        return;
    }
    if let Some(text) = unquoted(value, text, problems) {
        draft.run().exec_environment.environment.push((name.to_owned(), text));
    }
}

fn read_unset(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    let (name, text) = match value.text().split_once('=') {
        Some((name, text)) => (name, Some(text)),
        None => (value.text(), None),
    };
    if !read::variable(name, value.part(0..name.len()), problems) {
        return;
    }
    let whole = match text {
        Some(text) => unquoted(value, text, problems).map(|text| format!("{name}={text}")),
        None => Some(name.to_owned()),
    };
    draft.run().exec_environment.unset_environment.extend(whole);
}

fn write_unset(entry: &str) -> String {
    match entry.split_once('=') {
        Some((name, text)) => format!("{name}={}", quoted(text)),
        None => entry.to_owned(),
    }
}

/// Reads a text at the end of a value, and removes its quotes if it begins with a quote. Returns
/// `None` and reports an error if the quotes are invalid.
fn unquoted(value: &Value, text: &str, problems: &mut Problems) -> Option<String> {
    if !text.starts_with(['"', '\'']) {
        return Some(text.to_owned());
    }
    let from = value.text().len() - text.len();
    let (at, message) = match split_words(text) {
        Ok(words) => match <[String; 1]>::try_from(words) {
            Ok([word]) => return Some(word),
            Err(_) => (0, "something follows the quoted value"),
        },
        Err(WordError::Escape { at }) => (at, "this backslash begins no escape"),
        Err(WordError::OpenQuote { at }) => (at, "this quote is not closed"),
        Err(_) => (0, "the escapes of this value do not form valid text"),
    };
    let help = "quote the whole value, and write \\\\ for a backslash and \\\" for a quote in it";
    problems.add(Code::BadQuoting, value.part(from + at..from + at + 1), message, help);
    None
}

/// Formats a text for the end of a value. Quotes the text only if reading it without quotes would
/// give a different text.
fn quoted(text: &str) -> String {
    let plain =
        text.trim() == text && !text.starts_with(['"', '\'']) && !text.contains(char::is_control);
    if plain { text.to_owned() } else { format!("\"{}\"", cescape(text)) }
}

fn read_umask(value: &Value, draft: &mut Draft, problems: &mut Problems) {
    const MOST: u32 = 0o777;
    let octal = value.text().bytes().all(|byte| byte.is_ascii_digit());
    let mask = u32::from_str_radix(value.text(), 8).ok().filter(|mask| octal && *mask <= MOST);
    if mask.is_none() {
        read::refuse(value, problems, "write an octal number up to 0777");
    }
    draft.run().exec_environment.umask = mask;
}

/// Reads where a unit writes its output.
pub(in crate::graph::format) fn read_output(
    value: &Value,
    problems: &mut Problems,
) -> Option<ExecOutput> {
    let (word, path) = value.text().split_once(':').unwrap_or((value.text(), ""));
    let output = match (word, read::absolute(path)) {
        ("log", None) if path.is_empty() => Some(ExecOutput::Log),
        ("null", None) if path.is_empty() => Some(ExecOutput::Null),
        ("inherit", None) if path.is_empty() => Some(ExecOutput::Inherit),
        ("file", Some(path)) => Some(ExecOutput::File(path)),
        ("append", Some(path)) => Some(ExecOutput::Append(path)),
        ("truncate", Some(path)) => Some(ExecOutput::Truncate(path)),
        _ => None,
    };
    if output.is_none() {
        let help = "write log, null, inherit, or file:, append: or truncate: with an absolute path";
        read::refuse(value, problems, help);
    }
    output
}

fn write_output(output: &ExecOutput) -> String {
    match output {
        ExecOutput::Log => "log".to_owned(),
        ExecOutput::Null => "null".to_owned(),
        ExecOutput::Inherit => "inherit".to_owned(),
        ExecOutput::File(path) => format!("file:{path}"),
        ExecOutput::Append(path) => format!("append:{path}"),
        ExecOutput::Truncate(path) => format!("truncate:{path}"),
    }
}

/// Reads a soft and a hard limit, such as `1024:none`. A single number, such as `1024`, sets both.
fn read_limit(value: &Value, problems: &mut Problems) -> Option<(Option<u64>, Option<u64>)> {
    let (soft, hard) = value.text().split_once(':').unwrap_or((value.text(), value.text()));
    let limit = one_limit(soft).zip(one_limit(hard));
    // `None` means no limit, which is greater than any number.
    let ordered =
        limit.filter(|(soft, hard)| hard.is_none_or(|hard| soft.is_some_and(|it| it <= hard)));
    if ordered.is_none() {
        let text = short(value.text());
        let message = format!("`{text}` is not a valid limit");
        let help = "write a number or none, or a soft and a hard limit such as 1024:4096";
        value.refuse(problems, Code::BadValue, message, help);
    }
    ordered
}

fn one_limit(text: &str) -> Option<Option<u64>> {
    match parse_size(text) {
        _ if text == "none" => Some(None),
        Ok(Size::Bytes(limit)) => Some(Some(limit)),
        _ => None,
    }
}

fn write_limit((soft, hard): &(Option<u64>, Option<u64>)) -> String {
    let text = |limit: &Option<u64>| limit.map_or("none".to_owned(), |limit| limit.to_string());
    if soft == hard { text(soft) } else { format!("{}:{}", text(soft), text(hard)) }
}

/// Declares a key with an amount of a resource.
macro_rules! amount {
    ($name:literal, $field:ident, $read:expr, $print:expr) => {
        Key::new(
            $name,
            Types::RUNNING,
            Form::Line,
            |value, draft, problems| draft.run().resources.$field = $read(value, problems),
            |unit, _| {
                some(unit.run.resources.$field.map(|amount| match amount {
                    Amount::Absolute(amount) => $print(amount),
                    Amount::Share(share) => percent(share.into()),
                }))
            },
        )
    };
}

/// Declares a key with a number in a range.
macro_rules! count {
    ($name:literal, $field:ident, $range:expr) => {
        Key::new(
            $name,
            Types::RUNNING,
            Form::Line,
            |value, draft, problems| {
                draft.run().resources.$field = number(value, problems, $range);
            },
            |unit, _| some(unit.run.resources.$field),
        )
    };
}

pub(super) const RESOURCE_KEYS: &[Key] = &[
    amount!("memory-max", memory_max, memory, print_bytes),
    amount!("memory-high", memory_high, memory, print_bytes),
    amount!("tasks-max", tasks_max, tasks, |count: u64| count.to_string()),
    count!("cpu-weight", cpu_weight, 1..=10_000),
    Key::new(
        "cpu-quota",
        Types::RUNNING,
        Form::Line,
        |value, draft, problems| draft.run().resources.cpu_quota = quota(value, problems),
        |unit, _| some(unit.run.resources.cpu_quota.map(percent)),
    ),
    count!("io-weight", io_weight, 1..=10_000),
];

fn memory(value: &Value, problems: &mut Problems) -> Option<Amount> {
    match parse_size(value.text()) {
        Ok(Size::Bytes(bytes)) => return Some(Amount::Absolute(bytes)),
        Ok(Size::Permyriad(share)) => return Some(Amount::Share(share)),
        _ => {}
    }
    let help = "write a number of bytes, perhaps with K, M, G or T, or a percentage of the memory";
    read::refuse(value, problems, help);
    None
}

fn tasks(value: &Value, problems: &mut Problems) -> Option<Amount> {
    match parse_size(value.text()) {
        Ok(Size::Permyriad(share)) => Some(Amount::Share(share)),
        _ => number(value, problems, 1..=u64::MAX).map(Amount::Absolute),
    }
}

fn print_bytes(bytes: u64) -> String {
    Size::Bytes(bytes).to_string()
}

fn quota(value: &Value, problems: &mut Problems) -> Option<u64> {
    let quota = parse_permyriad(value.text()).ok().filter(|quota| *quota > 0);
    if quota.is_none() {
        read::refuse(value, problems, "write a percentage of one processor, such as 150%");
    }
    quota.map(u64::from)
}

/// Formats hundredths of a percent as a percentage.
fn percent(hundredths: u64) -> String {
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    if rest == 0 { format!("{whole}%") } else { format!("{whole}.{rest:02}%") }
}
