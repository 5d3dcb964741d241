//! What the processes of a run say of themselves, and the search for a main process that is no
//! child of ours.

use std::io;
use std::path::Path;
use std::sync::Arc;

use fleet_core::graph::{Kind, NotifyAccess, Readiness};

use super::Driver;
use crate::native::cgroup::Group;
use crate::native::life::{Phase, ProcessId};
use crate::native::notify::{NotifySocket, Said};
use crate::native::pidfile::{self, Arrival};
use crate::native::proc::{Watched, child, is_of_run, started};
use crate::native::ready::line_that_matches;

/// How many messages are taken at once. The kernel keeps no more than this of those who wait.
const AT_ONCE: usize = 512;

impl Driver {
    /// Listens to the processes of the present run, if its unit has them say something.
    pub(super) fn listen(&mut self) {
        self.notify = None;
        if !self.may_be_told() || self.invocation.is_empty() {
            return;
        }
        match NotifySocket::open(&self.invocation) {
            Ok(socket) => self.notify = Some(socket),
            Err(error) => {
                tracing::error!(%error, unit = %self.unit, "cannot hear what a unit says");
            }
        }
    }

    /// Whether anybody may say anything in the present run, or may come to.
    fn may_be_told(&self) -> bool {
        match self.spec.run.notify_access {
            NotifyAccess::None => false,
            // Its main process has ended, or it has none at all.
            NotifyAccess::Main => {
                let phase = self.service.memory().phase;
                phase != Phase::Exited && self.spec.kind != Kind::BackgroundScripted
            }
            NotifyAccess::Exec | NotifyAccess::All => true,
        }
    }

    /// Lets go of the socket as soon as nobody may say anything any more, and has one again if it
    /// is for others to speak by now.
    pub(super) fn listen_if_told(&mut self) {
        let (hears, active) = (self.notify.is_some(), !self.service.is_at_rest());
        match self.may_be_told() {
            false => self.notify = None,
            true if !hears && active => self.listen(),
            true => {}
        }
    }

    /// Takes what was said and not heard yet: what a process says before its end counts before it.
    pub(super) fn hear(&mut self) {
        for _ in 0..AT_ONCE {
            match self.notify.as_ref().map(NotifySocket::waiting) {
                Some(Ok(Some(said))) => self.on_said(&said),
                Some(Ok(None)) => {}
                // There is no other, or who waits for one is told why.
                Some(Err(_)) | None => return,
            }
        }
    }

    pub(super) fn on_heard(&mut self, heard: io::Result<Said>) {
        match heard {
            Ok(said) => self.on_said(&said),
            Err(error) => {
                tracing::error!(%error, unit = %self.unit, "cannot hear what a unit says any more");
                self.notify = None;
            }
        }
    }

    fn on_said(&mut self, said: &Said) {
        if !self.counts(said.sender) {
            tracing::debug!(unit = %self.unit, sender = said.sender, "not for it to say");
            return self.on_said_in_vain(said);
        }
        if said.notice.is_ready && self.spec.kind == Kind::ForegroundNotified {
            self.problem = None;
        }
        if let Some(pid) = said.notice.main {
            self.on_main_named(pid);
        }
        self.service.on_notice(&said.notice, self.machine.now());
    }

    /// Remembers that a unit was said to be ready by one who may not: it is why it never is.
    fn on_said_in_vain(&mut self, said: &Said) {
        let awaits = self.spec.kind == Kind::ForegroundNotified
            && self.service.memory().phase == Phase::Start;
        let who = match self.spec.run.notify_access {
            NotifyAccess::Main => "the main process may",
            NotifyAccess::Exec => "the main process and those of its other commands may",
            NotifyAccess::All => "the unit's own processes may, until they were waited for",
            NotifyAccess::None => return,
        };
        if said.notice.is_ready && awaits {
            let option = self.called("NotifyAccess=", "notify-access");
            let sender = said.sender;
            self.problem =
                Some(format!("process {sender} said READY=1, and only {who}: see {option}"));
        }
    }

    /// What the unit's own file calls an option: as systemd does, or by the key of a stanza.
    fn called(&self, option: &'static str, key: &'static str) -> &'static str {
        if self.directory.has_unit_file() { option } else { key }
    }

    /// Whether what that process says counts.
    fn counts(&self, sender: u32) -> bool {
        let memory = self.service.memory();
        let is = |process: Option<ProcessId>| process.is_some_and(|it| it.pid == sender);
        let (main, control) = (is(memory.main), is(memory.control));
        match self.spec.run.notify_access {
            NotifyAccess::None => false,
            NotifyAccess::Main => main,
            NotifyAccess::Exec => main || control,
            NotifyAccess::All => main || control || self.was_own(sender),
        }
    }

    /// The process of that number, if it runs and is one of the run's.
    fn own(&self, pid: u32) -> Option<ProcessId> {
        let find = || -> io::Result<Option<ProcessId>> {
            let Some(process) = started(pid)? else { return Ok(None) };
            Ok(self.is_own(process)?.then_some(process))
        };
        find().unwrap_or_else(|error| self.cannot_tell(pid, &error))
    }

    /// Whether the process of that number is one of the run's, or was and has ended since: who says
    /// something last of all may have ended before it is heard.
    fn was_own(&self, pid: u32) -> bool {
        let find = || -> io::Result<bool> {
            let Some(process) = child(pid)? else { return Ok(false) };
            let had = |group: &Group| group.had(pid);
            let is_own = self.is_own(process)? || self.group.as_ref().map_or(Ok(false), had)?;
            // Else the number was given to another one meanwhile.
            Ok(is_own && child(pid)? == Some(process))
        };
        find().unwrap_or_else(|error| self.cannot_tell(pid, &error))
    }

    fn cannot_tell<T: Default>(&self, pid: u32, error: &io::Error) -> T {
        tracing::warn!(%error, pid, unit = %self.unit, "cannot tell whose process it is");
        T::default()
    }

    fn is_own(&self, process: ProcessId) -> io::Result<bool> {
        is_of_run(process, self.group.as_ref(), &self.invocation, &self.leaders)
    }

    pub(super) fn on_main_named(&mut self, pid: u32) {
        if self.service.memory().main.is_some_and(|main| main.pid == pid) {
            return;
        }
        match self.own(pid).filter(|process| process.pid != std::process::id()) {
            Some(process) => self.have_as_main(process),
            None => tracing::warn!(unit = %self.unit, pid, "names a stranger as its main process"),
        }
    }

    fn have_as_main(&mut self, process: ProcessId) {
        if let Err(why) = self.take_as_main(process, Watched::open) {
            let (unit, pid) = (&self.unit, process.pid);
            tracing::warn!(%unit, pid, why, "cannot have it as its main process");
        }
    }

    /// Looks for the process that the file of the unit names, until there is one.
    pub(super) fn await_main(&mut self) {
        let Kind::BackgroundPidfile { path } = &self.spec.kind else { return };
        // The watch begins before the look, so that nothing falls between the two.
        match Arrival::of(Path::new(path)) {
            Ok(arrival) => self.arrival = Some(arrival),
            Err(error) => {
                tracing::error!(%error, unit = %self.unit, "cannot wait for its pid file");
            }
        }
        self.look_for_main();
    }

    pub(super) fn look_for_main(&mut self) {
        let spec = Arc::clone(&self.spec);
        let Kind::BackgroundPidfile { path } = &spec.kind else { return };
        let read = pidfile::read(Path::new(path), self.owner, |process| self.is_own(process));
        let taken = read.and_then(|process| {
            let in_words = |why| format!("{path} names process {}, which {why}", process.pid);
            self.take_as_main(process, Watched::open).map_err(in_words)
        });
        match taken {
            Ok(()) => (self.arrival, self.problem) = (None, None),
            Err(problem) => {
                self.problem = Some(self.called("PIDFile=", "pidfile: ").to_owned() + &problem);
            }
        }
    }

    /// Takes the process for the main one that the file of the unit names, if it names another:
    /// what goes on as another process writes so before it ends.
    pub(super) fn look_for_successor(&mut self) {
        let Kind::BackgroundPidfile { path } = &self.spec.kind else { return };
        let read = pidfile::read(Path::new(path), self.owner, |process| self.is_own(process));
        let named = read.ok().filter(|process| self.service.memory().main != Some(*process));
        if let Some(process) = named {
            self.have_as_main(process);
        }
    }

    /// Has the log keep all that a process may write before anybody looks for a line of it.
    pub(super) fn keep_output(&mut self) {
        if let Kind::ForegroundSupervised(Readiness::Line(_)) = &self.spec.kind {
            self.unread = Some(self.log.reading(self.log_from));
        }
    }

    /// Looks for a line of the output of this run that says that the unit is ready.
    pub(super) fn await_line(&mut self) {
        if let Kind::ForegroundSupervised(Readiness::Line(pattern)) = &self.spec.kind {
            let (log, pattern) = (Arc::clone(&self.log), pattern.clone());
            let clock = Arc::clone(&self.machine.clock);
            let reading = self.unread.take().unwrap_or_else(|| log.reading(self.log_from));
            self.line = Some(Box::pin(line_that_matches(log, reading, pattern, clock)));
        }
    }

    pub(super) fn on_line(&mut self, found: io::Result<()>) {
        match found {
            Ok(()) => self.service.on_line(self.machine.now()),
            Err(error) => {
                tracing::error!(%error, unit = %self.unit, "cannot read what it writes");
                self.problem = Some(format!("its output cannot be read: {error}"));
            }
        }
    }
}
