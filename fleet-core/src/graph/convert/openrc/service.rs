//! Converts a parsed script that sets variables to a unit.

use super::lexer::{Piece, Token, plain, tokens};
use super::script::{Script, Value};
use crate::graph::convert::draft::{Report, call_script};
use crate::graph::model::{
    Command, ConditionKind, ConditionTest, DirectoryPath, EnvironmentFile, ExecOutput, InitUnit,
    Name, Readiness, Restart, ServiceType, Target, UnitCondition, WorkingDirectory,
};

/// Functions that change how a service starts or stops.
const STEP_FUNCTIONS: [&str; 6] =
    ["start", "start_post", "start_pre", "stop", "stop_post", "stop_pre"];

/// Variables that OpenRC honours but a converted unit does not. Their use is reported, because some
/// of them confine the service.
const UNSUPPORTED: [&str; 27] = [
    "SSD_IONICELEVEL",
    "SSD_STARTWAIT",
    "capabilities",
    "chroot",
    "command_progress",
    "error_logger",
    "extra_commands",
    "extra_started_commands",
    "extra_stopped_commands",
    "healthcheck_delay",
    "healthcheck_timer",
    "in_background_fake",
    "input_file",
    "merge_stderr",
    "no_new_privs",
    "notify",
    "oom_score_adj",
    "opts",
    "output_logger",
    "procname",
    "ready",
    "respawn_delay_cap",
    "respawn_delay_step",
    "secbits",
    "start_inactive",
    "start_stop_daemon_args",
    "supervise_daemon_args",
];

/// Environment variables for OpenRC's start program. They are not meant for the daemon.
const STARTER_VARIABLES: [&str; 4] =
    ["SSD_IONICELEVEL", "SSD_NICELEVEL", "SSD_OOM_SCORE_ADJ", "SSD_STARTWAIT"];

/// Reason why the commands of a script are unknown: line and description.
pub(super) type UnknownReason = (usize, String);

/// Returns the unit of a script. If the script's variables determine all commands, the unit runs
/// these itself; otherwise it calls the script.
pub(super) fn unit(
    name: Name,
    script: &mut Script,
    file: usize,
    report: &mut Report<'_>,
) -> InitUnit {
    let provides = [Target::from(&name)];
    let mut unit = InitUnit::new_virtual(name, provides);
    if let Some((_, Value::Text(text))) = script.value("description") {
        unit.description = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    unit.restart = Restart::never();
    let bare = unit.clone();
    let note_count = report.note_count();
    let mut converter = ServiceConverter { script, file, report, unit };
    let native = converter.unknown_reason().map_or_else(|| converter.native(), Err);
    match native {
        Ok(unit) => {
            converter.report_unsupported();
            unit
        }
        Err((line, why)) => {
            // Earlier notes and settings do not apply, because the script handles them.
            converter.unit = bare;
            converter.report.truncate(note_count);
            converter.script_call(line, &why)
        }
    }
}

pub(super) struct ServiceConverter<'r, 'a> {
    pub(super) script: &'r mut Script,
    pub(super) file: usize,
    pub(super) report: &'r mut Report<'a>,
    pub(super) unit: InitUnit,
}

impl ServiceConverter<'_, '_> {
    /// Returns the reason why the commands of the script cannot be determined, or `None` if they
    /// can.
    fn unknown_reason(&self) -> Option<UnknownReason> {
        if let Some(line) = self.script.unknown_from {
            let why = "only a shell can evaluate the script from here on";
            return Some((line, why.to_owned()));
        }
        if let Some(line) = self.script.other_lines.first() {
            let why = "a line outside functions does more than set variables";
            return Some((*line, why.to_owned()));
        }
        let step =
            STEP_FUNCTIONS.iter().find_map(|step| self.script.functions.get(*step).zip(Some(step)));
        step.map(|(line, step)| (*line, format!("`{step}` is a function")))
    }

    /// Returns the unit that calls the script.
    fn script_call(&mut self, line: usize, why: &str) -> InitUnit {
        let path = script_path(self.report.path(self.file));
        let message = format!("{why}, which only OpenRC can run: the unit calls {path}");
        let help = "write its commands into the stanza, as exec-start-pre, exec-start and \
                    exec-stop; or keep OpenRC installed, and where OpenRC has not booted the \
                    machine, have a oneshot before it run `rc-status` and `touch \
                    /run/openrc/softlevel`, without which openrc-run refuses to start and to stop";
        self.report.loss((self.file, line), message, help);
        let call = |what: &str| {
            let arguments = ["--nodeps", what].map(str::to_owned);
            vec![Command::new(path.clone(), arguments)]
        };
        let mut unit = self.unit.clone();
        call_script(&mut unit, self.file, self.report, call);
        if self.script.functions.contains_key("reload") {
            unit.run.reload = call("reload");
            unit.timeouts.reload = None;
        }
        unit
    }

    fn native(&mut self) -> Result<InitUnit, UnknownReason> {
        let Some((line, command)) = self.words("command")? else {
            let message = "there is no `command`, so the unit is virtual";
            let help =
                "if the unit should run something, give the stanza another type and an exec-start";
            self.report.remark((self.file, 1), message, help);
            self.report_unused_requirements();
            return Ok(self.unit.clone());
        };
        let supervised = match self.text("supervisor")? {
            None => false,
            Some((_, name)) if name == "supervise-daemon" => true,
            Some((line, name)) => return Err((line, format!("its supervisor is `{name}`"))),
        };
        let background = self.flag("command_background")?;
        let pidfile = self.text("pidfile")?;
        let more = if supervised { "command_args_foreground" } else { "command_args_background" };
        let mut arguments = command.into_iter();
        let program = arguments.next().unwrap_or_default();
        let mut arguments: Vec<String> = arguments.collect();
        for name in ["command_args", more] {
            arguments.extend(self.words(name)?.map(|(_, words)| words).unwrap_or_default());
        }
        if program.contains('$') {
            return Err((line, "`command` has a variable that is set elsewhere".to_owned()));
        }
        self.unit.kind = match pidfile {
            _ if supervised => ServiceType::ForegroundSupervised(Readiness::Executed),
            Some((line, path)) if background => {
                let message = format!("fleet-init does not write the process ID to {path}");
                let help = "use `fleet-init status` to get the process ID";
                self.report.remark((self.file, line), message, help);
                ServiceType::ForegroundSupervised(Readiness::Executed)
            }
            Some((_, path)) => ServiceType::BackgroundPidfile { path },
            None => {
                let why = "without `pidfile` and `supervisor` its main process is unknown";
                return Err((line, why.to_owned()));
            }
        };
        self.unit.run.start = vec![Command::new(program, arguments)];
        self.priorities()?;
        self.exec_environment()?;
        self.exit_settings(supervised)?;
        self.required()?;
        Ok(self.unit.clone())
    }

    fn exec_environment(&mut self) -> Result<(), UnknownReason> {
        let user = self.text("command_user")?;
        let directory = self.text("directory")?;
        let (output, error) = (self.text("output_log")?, self.text("error_log")?);
        let umask = self.text("umask")?;
        let mut exported = std::mem::take(&mut self.script.exported);
        exported.retain(|name| !STARTER_VARIABLES.contains(&name.as_str()));
        let around = &mut self.unit.run.exec_environment;
        if let Some((_, user)) = user {
            let (user, group) = user.split_once(':').unwrap_or((user.as_str(), ""));
            around.user = Some(user.to_owned()).filter(|it| !it.is_empty());
            around.group = Some(group.to_owned()).filter(|it| !it.is_empty());
        }
        if let Some((_, path)) = directory {
            around.directory = WorkingDirectory { path: DirectoryPath::At(path), optional: false };
        }
        around.output = output.map(|(_, path)| ExecOutput::Append(path)).unwrap_or_default();
        around.error = error.map(|(_, path)| ExecOutput::Append(path));
        if let Some((line, text)) = umask {
            let umask = u32::from_str_radix(&text, 8).map_err(|_| unknown_value(line, "umask"))?;
            around.umask = Some(umask);
        }
        for name in exported {
            match self.script.value(&name) {
                Some((_, Value::Text(text))) if !text.contains("${") => {
                    self.unit.run.exec_environment.environment.push((name, text.clone()));
                }
                Some((line, _)) => return Err(unknown_value(line, &name)),
                None => self.unit.run.exec_environment.pass_environment.push(name),
            }
        }
        Ok(())
    }

    /// Sets the nice level and the OOM score adjustment. OpenRC's start program reads both from its
    /// environment, so a variable that the script does not export is reported and not applied.
    fn priorities(&mut self) -> Result<(), UnknownReason> {
        for name in STARTER_VARIABLES {
            let exported = self.script.exported.iter().any(|it| it == name);
            if exported && self.script.value(name).is_none() {
                let message = format!("`{name}` is set outside the script: it is not converted");
                let help = "write the value into the stanza, as nice or oom-score-adjust";
                self.report.loss((self.file, 1), message, help);
            }
        }
        let nice = self.level("SSD_NICELEVEL", -20, 19)?;
        let oom_score_adjust = self.level("SSD_OOM_SCORE_ADJ", -1000, 1000)?;
        let around = &mut self.unit.run.exec_environment;
        (around.nice, around.oom_score_adjust) = (nice, oom_score_adjust);
        Ok(())
    }

    fn level(&mut self, name: &str, least: i32, most: i32) -> Result<Option<i32>, UnknownReason> {
        let Some((line, text)) = self.text(name)? else { return Ok(None) };
        let level: i32 = text.parse().map_err(|_| unknown_value(line, name))?;
        if !(least..=most).contains(&level) {
            return Err(unknown_value(line, name));
        }
        if self.script.exported.iter().any(|it| it == name) {
            return Ok(Some(level));
        }
        let message =
            format!("`{name}` is not exported: OpenRC ignores it, and it is not converted");
        let help = "if the value should apply, write nice or oom-score-adjust into the stanza";
        self.report.loss((self.file, line), message, help);
        Ok(None)
    }

    /// Reports settings that OpenRC honours and the unit does not.
    fn report_unsupported(&mut self) {
        let variables = self.script.variables.iter();
        let known = variables
            .filter(|(name, _)| UNSUPPORTED.contains(&name.as_str()) || name.starts_with("rc_"));
        for (name, (line, _)) in known {
            let message = format!("the setting `{name}` is not converted");
            let help = "if the stanza format has an equivalent key, add it to the stanza";
            self.report.loss((self.file, *line), message, help);
        }
        for (name, line) in &self.script.functions {
            if name != "depend" {
                let message =
                    format!("the function `{name}` is not converted: fleet-init cannot call it");
                let help =
                    "move its commands to a separate script; write reload commands as exec-reload";
                self.report.loss((self.file, *line), message, help);
            }
        }
        for (name, line) in &self.script.defaults {
            let message =
                format!("`{name}` is converted with the script's default: conf.d is not read");
            let help = format!("if conf.d sets `{name}`, write that value into the stanza");
            self.report.loss((self.file, *line), message, help);
        }
    }
}

/// Returns the path of the script on the target machine.
pub(in crate::graph::convert) fn script_path(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if path.starts_with('/') && folder.ends_with("/init.d") {
        return path.to_owned();
    }
    format!("/etc/init.d/{name}")
}

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

impl ServiceConverter<'_, '_> {
    /// Adds assertions for required directories and files.
    pub(super) fn required(&mut self) -> Result<(), UnknownReason> {
        for (name, kind) in [
            ("required_dirs", ConditionKind::PathIsDirectory),
            ("required_files", ConditionKind::PathExists),
        ] {
            let Some((line, words)) = self.split_words(name)? else { continue };
            for word in words {
                let Some(path) = plain(&word) else {
                    self.report_unknown_path(name, line, &word);
                    continue;
                };
                // A path that no stanza can express is reported when the unit is printed.
                let test = ConditionTest { kind, argument: path };
                let condition = UnitCondition { test, negated: false, any: false, assert: true };
                self.unit.run.conditions.push(condition);
            }
        }
        Ok(())
    }

    /// Reports a path with a variable, which an assertion cannot contain.
    fn report_unknown_path(&mut self, name: &str, line: usize, word: &[Piece]) {
        let written = word.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Variable { name, .. } => format!("${{{name}}}"),
            Piece::Unknown => "…".to_owned(),
        });
        let path: String = written.collect();
        let message =
            format!("`{name}` has `{path}`, which is not checked: only a shell can evaluate it");
        let help = "write `assert: path-exists PATH` into the stanza, or path-is-directory";
        self.report.loss((self.file, line), message, help);
    }

    /// Reports requirements of a virtual unit, which has no assertions.
    pub(super) fn report_unused_requirements(&mut self) {
        for name in ["required_dirs", "required_files"] {
            if let Some((line, _)) = self.script.value(name) {
                let message = format!("`{name}` is not checked, because the unit is virtual");
                let help =
                    "make the unit a oneshot that runs /bin/true, with `assert: path-exists PATH`";
                self.report.loss((self.file, line), message, help);
            }
        }
    }
}
