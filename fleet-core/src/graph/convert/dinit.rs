//! Converts service descriptions of dinit.
//!
//! Dependencies, types and most settings have an equivalent. Every other setting is reported.

use std::time::Duration;

use super::draft::{Dependency, Draft, Report, as_stanza, name_of};
use crate::graph::model::{
    Command, DelayGrowth, DirectoryPath, EdgeKind, EnvironmentFile, ExecOutput, InitUnit, KillMode,
    Name, OnCleanExit, Readiness, Restart, RestartLimit, RestartWhen, ServiceType, Signal, Target,
    Timeouts,
};

/// Settings without an equivalent: the effect of their loss, and a remedy.
const UNSUPPORTED: [(&str, &str, &str); 25] = [
    ("always-chain", CHAIN, "name that service in waits-for of the unit of the goal"),
    ("capabilities", "the unit keeps all capabilities", WRAP),
    ("chain-to", CHAIN, "name that service in waits-for of the unit of the goal"),
    ("consumer-of", "the output of another unit is not passed on", "write output: into its stanza"),
    ("depends-ms.d", DIRECTORY, "name its services in depends-ms of the stanza"),
    ("depends-on.d", DIRECTORY, "name its services in depends-on of the stanza"),
    ("inittab-id", UTMP, WRAP),
    ("inittab-line", UTMP, WRAP),
    ("ioprio", "the unit has the usual I/O priority", WRAP),
    ("log-buffer-size", "the size of the log is that of all units", "no other size can be set"),
    ("log-processor", "the output is not passed on", "write output: into the stanza"),
    ("logfile-gid", LOG_FILE, "create the file before the start"),
    ("logfile-permissions", LOG_FILE, "create the file before the start"),
    ("logfile-uid", LOG_FILE, "create the file before the start"),
    ("no-new-privs", "processes of the unit can gain privileges", WRAP),
    ("ready-notification", READY, "write type: foreground-notified, or ready-grep"),
    ("run-in-cgroup", "the unit has a control group of its own", WRAP),
    ("securebits", "the unit has the usual securebits", WRAP),
    ("socket-gid", SOCKET, "open the socket in the program itself"),
    ("socket-listen", SOCKET, "open the socket in the program itself"),
    ("socket-permissions", SOCKET, "open the socket in the program itself"),
    ("socket-uid", SOCKET, "open the socket in the program itself"),
    ("export-passwd-vars", VARIABLES, "write env: HOME=… into the stanza"),
    ("export-service-name", VARIABLES, "write env: DINIT_SERVICE=… into the stanza"),
    ("waits-for.d", DIRECTORY, "name its services in waits-for of the stanza"),
];
const CHAIN: &str = "no other service starts when this one ends";
const DIRECTORY: &str = "the directory is not read";
const LOG_FILE: &str = "the log file gets the usual owner and permissions";
const READY: &str = "the unit counts as ready as soon as it runs";
const SOCKET: &str = "no socket is opened for the unit";
const UTMP: &str = "no login record is written";
const VARIABLES: &str = "the variables are not set";
const WRAP: &str = "if the unit needs it, start the program by a command that sets it";

/// Words of `options` and `load-options`: `true` if they have no effect here.
const OPTIONS: [(&str, bool); 16] = [
    ("always-chain", false),
    ("export-passwd-vars", false),
    ("export-service-name", false),
    ("kill-all-on-stop", false),
    ("no-new-privs", false),
    ("no-sub-vars", true),
    ("pass-cs-fd", false),
    ("runs-on-console", false),
    ("shares-console", false),
    ("skippable", false),
    ("start-interruptible", true),
    ("starts-log", true),
    ("starts-on-console", false),
    ("starts-rwfs", true),
    ("sub-vars", true),
    ("unmask-intr", true),
];

/// Returns the units with their dependencies.
pub(super) fn drafts(files: &[(usize, &str)], report: &mut Report<'_>) -> Vec<Draft> {
    files.iter().filter_map(|(file, text)| draft(*file, text, report)).collect()
}

fn draft(file: usize, text: &str, report: &mut Report<'_>) -> Option<Draft> {
    let name = name_of(file, report)?;
    let mut reader = Reader::new(file, report, name);
    for (line, text) in logical_lines(text) {
        reader.line(line, text.trim());
    }
    let (unit, dependencies) = reader.finish()?;
    let unit = as_stanza(&unit, file, report, |_| None)?;
    Some(Draft { dependencies, ..Draft::new(file, report, unit) })
}

/// Returns the lines with their numbers, each joined with the lines that continue it. A comment
/// does not continue, and neither does a line that ends with an escaped backslash.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (at, text) in text.lines().enumerate() {
        let backslashes = text.len() - text.trim_end_matches('\\').len();
        let is_comment = !continues && text.trim_start().starts_with('#');
        let next = backslashes % 2 == 1 && !is_comment;
        let text = if next { &text[..text.len() - 1] } else { text };
        match lines.last_mut() {
            Some((_, line)) if continues => line.push_str(text),
            _ => lines.push((at + 1, text.to_owned())),
        }
        continues = next;
    }
    lines
}

/// Splits a value at blanks. Removes quotes, escapes and a comment. Returns `None` if a quote or an
/// escape has no end.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' => word.get_or_insert_default().push(characters.next()?),
            '#' if !quoted && word.is_none() => break,
            blank if blank.is_whitespace() && !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    (!quoted).then_some(words)
}

/// Replaces `$$` by `$`. Returns `None` if the text has a variable.
fn without_variables(text: &str) -> Option<String> {
    let rest = text.replace("$$", "");
    (!rest.contains('$')).then(|| text.replace("$$", "$"))
}

struct Reader<'r, 'a> {
    file: usize,
    report: &'r mut Report<'a>,
    unit: InitUnit,
    dependencies: Vec<Dependency>,
    /// Value of `type`, with its line.
    kind: (usize, String),
    pid_file: Option<String>,
    /// Lines of `restart` and `smooth-recovery`, if they are on.
    restart: Option<usize>,
    smooth: Option<usize>,
    limit: (u32, Duration),
}

impl<'r, 'a> Reader<'r, 'a> {
    fn new(file: usize, report: &'r mut Report<'a>, name: Name) -> Self {
        let provides = [Target::from(&name)];
        let mut unit = InitUnit::new_virtual(name, provides);
        unit.timeouts.start = Some(Duration::from_secs(60));
        unit.timeouts.stop = Some(Duration::from_secs(10));
        unit.restart.when = RestartWhen::Never;
        unit.restart.delay = Duration::from_millis(200);
        Self {
            file,
            report,
            unit,
            dependencies: Vec::new(),
            kind: (1, String::new()),
            pid_file: None,
            restart: None,
            smooth: None,
            limit: (3, Duration::from_secs(10)),
        }
    }

    fn line(&mut self, line: usize, text: &str) {
        if text.is_empty() || text.starts_with('#') {
            return;
        }
        if let Some(command) = text.strip_prefix('@') {
            if !command.starts_with("meta") {
                let message = format!("`{text}` is not converted: the other file is not read");
                let help = "copy the settings of that file into this one";
                self.report.loss((self.file, line), message, help);
            }
            return;
        }
        let Some((name, value)) = text.split_once(['=', ':']) else {
            let message = format!("`{text}` is no setting: it is not converted");
            return self.report.loss((self.file, line), message, "write NAME = VALUE");
        };
        let (name, adds) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
        let Some(words) = words(value) else {
            let why = "has a quote or an escape without an end";
            return self.refuse(line, name.trim(), why, "close the quote, or write \\\\");
        };
        let plain: Option<Vec<String>> = words.iter().map(|it| without_variables(it)).collect();
        let Some(words) = plain else {
            let why = "has a variable, whose value is unknown here";
            return self.refuse(line, name.trim(), why, "write the value of the variable");
        };
        self.setting(line, name.trim(), words, adds);
    }

    fn refuse(&mut self, line: usize, name: &str, why: &str, help: &str) {
        self.report.loss((self.file, line), format!("`{name}` {why}: it is not converted"), help);
    }

    fn setting(&mut self, line: usize, name: &str, words: Vec<String>, adds: bool) {
        let value = words.join(" ");
        if value.is_empty() && ["env-file", "logfile", "run-as", "working-dir"].contains(&name) {
            return self.refuse(line, name, "has no value", "write a value, or delete the line");
        }
        let environment = &mut self.unit.run.exec_environment;
        match name {
            "type" => self.kind = (line, value),
            "description" => self.unit.description = value,
            "command" => set_command(&mut self.unit.run.start, words, adds),
            "stop-command" => set_command(&mut self.unit.run.stop, words, adds),
            "depends-on" => self.depend(line, EdgeKind::DependsOn, &value, false),
            "depends-ms" => self.depend(line, EdgeKind::DependsMs, &value, false),
            "waits-for" => self.depend(line, EdgeKind::WaitsFor, &value, false),
            "after" => self.depend(line, EdgeKind::After, &value, false),
            "before" => self.depend(line, EdgeKind::After, &value, true),
            "restart" => self.restart(line, &value),
            "smooth-recovery" => match boolean(&value) {
                Some(is_on) => self.smooth = is_on.then_some(line),
                None => self.refuse(line, name, "is neither true nor false", "write true or false"),
            },
            "working-dir" => environment.directory.path = DirectoryPath::At(value),
            "env-file" => {
                let file = EnvironmentFile { path: value, optional: false };
                environment.environment_files.push(file);
            }
            "run-as" => {
                let (user, group) = value.split_once(':').unwrap_or((&value, ""));
                environment.user = Some(user.to_owned());
                environment.group = Some(group.to_owned()).filter(|it| !it.is_empty());
            }
            // `log-type = none` wins in any order.
            "logfile" if environment.output == ExecOutput::Null => {}
            "logfile" => environment.output = ExecOutput::Append(value),
            "log-type" => self.log_type(line, &value),
            "pid-file" => self.pid_file = Some(value),
            "options" | "load-options" => words.iter().for_each(|word| self.option(line, word)),
            "term-signal" | "termsignal" => match Signal::parse(&value) {
                Some(signal) => self.unit.run.kill.signal = signal,
                None => self.refuse(line, name, "names no known signal", "write exec-stop"),
            },
            _ if name.starts_with("rlimit-") => self.limit(line, name, &value),
            _ => self.number(line, name, &value),
        }
    }

    fn depend(&mut self, line: usize, kind: EdgeKind, value: &str, before: bool) {
        match Target::new(value) {
            Ok(target) => self.dependencies.push(Dependency { kind, target, before, line }),
            Err(problem) => {
                let message = format!("`{value}` is not a valid target name: {problem}");
                let help = "give the service a name of letters, digits and `_-.@:`";
                self.report.loss((self.file, line), message, help);
            }
        }
    }

    fn restart(&mut self, line: usize, value: &str) {
        let when = match (value, boolean(value)) {
            ("on-failure", _) => RestartWhen::OnFailure,
            (_, Some(true)) => RestartWhen::Always,
            (_, Some(false)) => RestartWhen::Never,
            (_, None) => {
                let help = "write true, on-failure or false";
                return self.refuse(line, "restart", &format!("is `{value}`"), help);
            }
        };
        self.restart = (when != RestartWhen::Never).then_some(line);
        self.unit.restart.when = when;
    }

    fn log_type(&mut self, line: usize, value: &str) {
        match value {
            "none" => self.unit.run.exec_environment.output = ExecOutput::Null,
            "file" | "buffer" => {}
            _ => self.refuse(line, "log-type", "passes the output on", "write output:"),
        }
    }

    fn option(&mut self, line: usize, word: &str) {
        if word == "signal-process-only" {
            self.unit.run.kill.mode = KillMode::Process;
            return;
        }
        match OPTIONS.iter().find(|(name, _)| *name == word) {
            Some((_, true)) => {
                let message = format!("option `{word}` has no effect here");
                self.report.remark((self.file, line), message, "no action is needed");
            }
            _ => self.refuse(line, &format!("option {word}"), "has no equivalent", WRAP),
        }
    }

    fn limit(&mut self, line: usize, name: &str, value: &str) {
        let known = [("nofile", "nofile"), ("core", "core"), ("data", "data"), ("addrspace", "as")];
        let known = known.iter().find(|(limit, _)| name == format!("rlimit-{limit}"));
        let bound = |text: &str| match text {
            "-" => Some(None),
            number => number.parse().ok().map(Some),
        };
        let (soft, hard) = value.split_once(':').unwrap_or((value, value));
        match (known, bound(soft), bound(hard)) {
            (Some((_, key)), Some(soft), Some(hard)) => {
                self.unit.run.exec_environment.limits.insert(key, (soft, hard));
            }
            (None, ..) => self.refuse(line, name, "is unknown", "write limit-… into the stanza"),
            _ => self.refuse(line, name, "needs both limits here", "write SOFT:HARD"),
        }
    }

    /// Reads a setting with a number, and reports any setting that is left.
    fn number(&mut self, line: usize, name: &str, value: &str) {
        let timeout = |span: Duration| (!span.is_zero()).then_some(span);
        let seconds = value.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
        match (name, seconds) {
            ("start-timeout", Some(span)) => self.unit.timeouts.start = timeout(span),
            ("stop-timeout", Some(span)) => self.unit.timeouts.stop = timeout(span),
            ("restart-delay", Some(span)) => self.unit.restart.delay = span,
            ("restart-limit-interval", Some(span)) => self.limit.1 = span,
            ("restart-limit-count", _) if value.parse::<u32>().is_ok() => {
                self.limit.0 = value.parse().unwrap_or_default();
            }
            ("nice", _) if value.parse::<i32>().is_ok() => {
                self.unit.run.exec_environment.nice = value.parse().ok();
            }
            ("oom-score-adj", _) if value.parse::<i32>().is_ok() => {
                self.unit.run.exec_environment.oom_score_adjust = value.parse().ok();
            }
            _ => self.unconverted(line, name, value),
        }
    }

    fn unconverted(&mut self, line: usize, name: &str, value: &str) {
        const NUMBERS: [&str; 7] = [
            "nice",
            "oom-score-adj",
            "restart-delay",
            "restart-limit-count",
            "restart-limit-interval",
            "start-timeout",
            "stop-timeout",
        ];
        if let Some((_, effect, help)) = UNSUPPORTED.iter().find(|(known, ..)| *known == name) {
            let message = format!("`{name}` is not converted: {effect}");
            self.report.loss((self.file, line), message, *help);
        } else if NUMBERS.contains(&name) {
            self.refuse(line, name, &format!("is `{value}`"), "write a number");
        } else {
            let help = "if the setting matters, write its meaning into the stanza";
            self.refuse(line, name, "is an unknown setting", help);
        }
    }

    /// Returns the unit. Reports a type or settings that do not fit together.
    fn finish(self) -> Option<(InitUnit, Vec<Dependency>)> {
        let Self { file, report, mut unit, dependencies, kind: (line, kind), .. } = self;
        let has_stop = !unit.run.stop.is_empty();
        unit.kind = match (kind.as_str(), self.pid_file) {
            ("process", _) => ServiceType::ForegroundSupervised(Readiness::Executed),
            ("bgprocess", Some(path)) => ServiceType::BackgroundPidfile { path },
            ("scripted", _) if has_stop => ServiceType::BackgroundScripted,
            ("scripted", _) => ServiceType::Oneshot { remain: true },
            ("internal", _) => ServiceType::Virtual,
            ("triggered", _) => {
                let message = "the unit is active at once, and waits for no trigger";
                let help = "write an exec-start that waits for the event";
                report.loss((file, line), message, help);
                ServiceType::Virtual
            }
            ("bgprocess", None) => {
                report.left_out(file, line, "a bgprocess needs a pid-file", "write a pid-file");
                return None;
            }
            _ => {
                let why = format!("`{kind}` is no type of a service");
                report.left_out(file, line, why, "write a type, such as `type = process`");
                return None;
            }
        };
        let supervised = ["process", "bgprocess"].contains(&kind.as_str());
        if !supervised && let Some(line) = self.restart {
            let message = format!("`restart` has no effect on a unit of type {kind}");
            report.remark((file, line), message, "no action is needed");
        }
        if let Some(line) = self.smooth.filter(|_| supervised) {
            let message = "a restart also stops the units that depend on this one by depends-on";
            let help = "write depends-ms instead into the stanzas of those units";
            report.loss((file, line), message, help);
            if unit.restart.when == RestartWhen::Never {
                unit.restart.when = RestartWhen::Always;
            }
        }
        if unit.is_virtual() {
            unit.timeouts = Timeouts::default();
        }
        if supervised {
            unit.run.on_clean_exit = OnCleanExit::Complete;
            let (count, interval) = self.limit;
            if unit.restart.when != RestartWhen::Never && count > 0 && !interval.is_zero() {
                let burst = count.saturating_add(1);
                unit.restart.limit = RestartLimit::Starts { burst, interval };
            }
            unit.restart.growth = DelayGrowth::Factor(1);
            unit.restart.max_delay = unit.restart.delay;
        } else {
            unit.restart = Restart::never();
        }
        Some((unit, dependencies))
    }
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "true" | "yes" => Some(true),
        "false" | "no" => Some(false),
        _ => None,
    }
}

/// Sets the command, or adds arguments to it.
fn set_command(commands: &mut Vec<Command>, words: Vec<String>, adds: bool) {
    if let Some(command) = commands.last_mut().filter(|_| adds) {
        command.arguments.extend(words);
        return;
    }
    let verbatim = words.iter().any(|word| word.contains('$'));
    let mut words = words.into_iter();
    let command = words.next().map(|it| Command { verbatim, ..Command::new(it, words) });
    *commands = command.into_iter().collect();
}
