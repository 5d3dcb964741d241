//! Pseudoterminals.

use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::process::Command;

use crate::fleetctl::DEADLINE;

/// A pseudoterminal, and all bytes written to it.
pub(crate) struct Terminal {
    master: OwnedFd,
    written: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Terminal {
    /// Opens a terminal of this size. The file is the end for the program.
    pub(crate) fn open(columns: u16, rows: u16) -> (Self, File) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (reader, read) = (master.try_clone().unwrap(), Arc::clone(&written));
        let reader = std::thread::spawn(move || {
            let (mut reader, mut bytes) = (File::from(reader), [0; 4096]);
            // Reading fails after the other end is closed.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                read.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        let terminal = Self { master, written, reader };
        terminal.resize(columns, rows);
        (terminal, slave)
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).unwrap();
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until the other end is closed, and returns all bytes written.
    pub(crate) async fn wait_until_closed(&self) -> String {
        self.wait_until("the program exits", |_| self.reader.is_finished()).await;
        self.text().replace("\r\n", "\n")
    }

    /// Waits until the written text meets a condition.
    pub(crate) async fn wait_until(&self, what: &str, reached: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !reached(&self.text()) {
            assert!(Instant::now() < deadline, "timeout: {what}: {:?}", self.text());
            tokio::task::yield_now().await;
        }
    }

    /// Types a text.
    pub(crate) fn type_text(&self, text: &str) {
        rustix::io::write(&self.master, text.as_bytes()).unwrap();
    }

    /// Returns the number of bytes that were written.
    pub(crate) fn written(&self) -> usize {
        self.written.lock().unwrap().len()
    }

    /// Returns the screen of a terminal of this size after the bytes from `start` on.
    pub(crate) fn screen(&self, columns: u16, rows: u16, start: usize) -> vt100::Screen {
        let size = |number: u16| NonZeroU16::new(number).unwrap();
        let mut parser = vt100::Parser::new(size(rows), size(columns), 0);
        parser.process(&self.written.lock().unwrap()[start..]);
        parser.screen().clone()
    }

    /// Returns whether the terminal echoes what is typed, and passes whole lines to the program.
    pub(crate) fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.master).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}

/// Returns a command that runs another one with its standard input as controlling terminal, as a
/// shell does.
pub(crate) fn controlled(command: &Command, terminal: File) -> Command {
    let inner = command.as_std();
    let mut outer = Command::new("setsid");
    outer.arg("--ctty").arg(inner.get_program()).args(inner.get_args()).kill_on_drop(true);
    outer.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    outer.current_dir(inner.get_current_dir().unwrap());
    outer.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap());
    outer.stderr(terminal);
    outer
}
