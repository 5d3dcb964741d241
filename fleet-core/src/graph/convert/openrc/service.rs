//! What a service script runs.

use super::script::{Script, Value};
use super::values::not_read;
use crate::graph::convert::draft::call_script;
use crate::graph::convert::note::Report;
use crate::graph::{
    Command, DirectoryPath, ExecOutput, InitUnit, Name, Readiness, Restart, ServiceType, Target,
    WorkingDirectory,
};

/// Functions that change how a service is started or stopped.
const STEPS: [&str; 6] = ["start", "start_post", "start_pre", "stop", "stop_post", "stop_pre"];

/// Variables that OpenRC goes by and nothing here does. What is confined by them is not any more.
const UNKNOWN: [&str; 27] = [
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

/// Variables of the environment that are for what starts a daemon, and not for the daemon.
const OF_STARTER: [&str; 4] =
    ["SSD_IONICELEVEL", "SSD_NICELEVEL", "SSD_OOM_SCORE_ADJ", "SSD_STARTWAIT"];

/// Why what a script runs cannot be known: the line, and what is there.
pub(super) type Why = (usize, String);

/// The unit of a script: what its variables say, or else a call of the script.
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
    let told = report.told();
    let mut own = Own { script, file, report, unit };
    let native = own.refusal().map_or_else(|| own.native(), Err);
    match native {
        Ok(unit) => {
            own.not_known();
            unit
        }
        Err((line, why)) => {
            // What was found, and told, before that is for the script to do.
            own.unit = bare;
            own.report.take_back(told);
            own.called(line, &why)
        }
    }
}

pub(super) struct Own<'r, 'a> {
    pub(super) script: &'r mut Script,
    pub(super) file: usize,
    pub(super) report: &'r mut Report<'a>,
    pub(super) unit: InitUnit,
}

impl Own<'_, '_> {
    /// What speaks against knowing what the script runs.
    fn refusal(&self) -> Option<Why> {
        if let Some(line) = self.script.lost {
            let why = "what the script says from here on only a shell can tell";
            return Some((line, why.to_owned()));
        }
        if let Some(line) = self.script.others.first() {
            let why = "a line outside of functions does more than to set variables";
            return Some((*line, why.to_owned()));
        }
        let step = STEPS.iter().find_map(|step| self.script.functions.get(*step).zip(Some(step)));
        step.map(|(line, step)| (*line, format!("`{step}` is a function")))
    }

    /// The unit that calls the script.
    fn called(&mut self, line: usize, why: &str) -> InitUnit {
        let path = script_path(self.report.path(self.file));
        let message = format!("{why}, which only OpenRC can run: the unit calls {path}");
        let help = "write what it runs into the stanza, as exec-start-pre, exec-start and \
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

    fn native(&mut self) -> Result<InitUnit, Why> {
        let Some((line, command)) = self.words("command")? else {
            let message = "there is no `command`, so the unit is virtual";
            let help = "give the stanza another type and an exec-start, if it is to run something";
            self.report.remark((self.file, 1), message, help);
            self.required_of_none();
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
                let message = format!("nobody writes the process id to {path} any more");
                let help = "see `fleet-init status` for it";
                self.report.remark((self.file, line), message, help);
                ServiceType::ForegroundSupervised(Readiness::Executed)
            }
            Some((_, path)) => ServiceType::BackgroundPidfile { path },
            None => {
                let why = "without `pidfile` and `supervisor` nobody can tell which process it is";
                return Err((line, why.to_owned()));
            }
        };
        self.unit.run.start = vec![Command::new(program, arguments)];
        self.weights()?;
        self.exec_environment()?;
        self.ends(supervised)?;
        self.required()?;
        Ok(self.unit.clone())
    }

    fn exec_environment(&mut self) -> Result<(), Why> {
        let user = self.text("command_user")?;
        let directory = self.text("directory")?;
        let (output, error) = (self.text("output_log")?, self.text("error_log")?);
        let umask = self.text("umask")?;
        let mut exported = std::mem::take(&mut self.script.exported);
        exported.retain(|name| !OF_STARTER.contains(&name.as_str()));
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
            let umask = u32::from_str_radix(&text, 8).map_err(|_| not_read(line, "umask"))?;
            around.umask = Some(umask);
        }
        for name in exported {
            match self.script.value(&name) {
                Some((_, Value::Text(text))) if !text.contains("${") => {
                    self.unit.run.exec_environment.environment.push((name, text.clone()));
                }
                Some((line, _)) => return Err(not_read(line, &name)),
                None => self.unit.run.exec_environment.pass_environment.push(name),
            }
        }
        Ok(())
    }

    /// How its processes weigh, which is in variables that what starts them finds only if they are
    /// exported.
    fn weights(&mut self) -> Result<(), Why> {
        for name in OF_STARTER {
            let exported = self.script.exported.iter().any(|it| it == name);
            if exported && self.script.value(name).is_none() {
                let message = format!("`{name}` is set elsewhere, and is not honoured");
                let help = "write what does the same into the stanza, if there is something";
                self.report.loss((self.file, 1), message, help);
            }
        }
        let nice = self.level("SSD_NICELEVEL", -20, 19)?;
        let oom_score_adjust = self.level("SSD_OOM_SCORE_ADJ", -1000, 1000)?;
        let around = &mut self.unit.run.exec_environment;
        (around.nice, around.oom_score_adjust) = (nice, oom_score_adjust);
        Ok(())
    }

    fn level(&mut self, name: &str, least: i32, most: i32) -> Result<Option<i32>, Why> {
        let Some((line, text)) = self.text(name)? else { return Ok(None) };
        let level: i32 = text.parse().map_err(|_| not_read(line, name))?;
        if !(least..=most).contains(&level) {
            return Err(not_read(line, name));
        }
        if self.script.exported.iter().any(|it| it == name) {
            return Ok(Some(level));
        }
        let message = format!("`{name}` is not exported, so that it is not honoured");
        let help = "write nice or oom-score-adjust into the stanza, if it is to count";
        self.report.loss((self.file, line), message, help);
        Ok(None)
    }

    /// Tells what else is said that OpenRC would go by.
    fn not_known(&mut self) {
        let variables = self.script.variables.iter();
        let known = variables
            .filter(|(name, _)| UNKNOWN.contains(&name.as_str()) || name.starts_with("rc_"));
        for (name, (line, _)) in known {
            let message = format!("`{name}` is not honoured");
            let help = "write what does the same into the stanza, if there is something";
            self.report.loss((self.file, *line), message, help);
        }
        for (name, line) in &self.script.functions {
            if name != "depend" {
                let message = format!("the function `{name}` cannot be called any more");
                let help = "make it a script of its own; what is to be done for a reload is an \
                            exec-reload";
                self.report.loss((self.file, *line), message, help);
            }
        }
        for (name, line) in &self.script.defaults {
            let message = format!("`{name}` has its default, whatever is in conf.d");
            let help = "if it is set there, write that value into the stanza";
            self.report.loss((self.file, *line), message, help);
        }
    }
}

/// Where the script is on a machine that runs it.
pub(in crate::graph::convert) fn script_path(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if path.starts_with('/') && folder.ends_with("/init.d") {
        return path.to_owned();
    }
    format!("/etc/init.d/{name}")
}
