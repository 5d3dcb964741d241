//! The built-in programs that the units of this example run.
//!
//! | `ExecStart=` | what the unit does |
//! |---|---|
//! | `tick MILLISECONDS` | writes a line at this interval until it is stopped |
//! | `say WORD...` | writes each word on a line, and waits until it is stopped |
//! | `exit STATUS` | exits at once |
//! | `task STATUS` | exits at once, and counts as started only after it has exited |
//! | `linger FILE` | ignores the request to stop until the file exists |

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_agent::ServiceError;
use fleet_unitfile::values::split_words;
use fleet_unitfile::{OptionView, UnitFile, UnitName};
use tokio::sync::watch;

/// A program with its arguments.
#[derive(Clone)]
pub(crate) enum Program {
    Tick(Duration),
    Say(Vec<String>),
    Exit(i32),
    Task(i32),
    Linger(PathBuf),
}

impl Program {
    /// Parses the program from a unit file.
    pub(crate) fn read(unit: &UnitName, file: &UnitFile) -> Result<Self, ServiceError> {
        let option = file.values("Service", "ExecStart").last();
        let line = option.map_or(0, |option| file.location(option.span().start).line);
        let bad = |problem: String| ServiceError::BadSetting { unit: unit.clone(), line, problem };
        let value = option.map_or("", OptionView::value);
        let words = split_words(value).map_err(|error| bad(error.to_string()))?;
        Self::from_words(&words).ok_or_else(|| {
            bad(format!(
                "{value:?} is no program: write ExecStart= with tick MILLISECONDS, say WORD..., \
                 exit STATUS, task STATUS or linger FILE"
            ))
        })
    }

    fn from_words(words: &[String]) -> Option<Self> {
        let (name, arguments) = words.split_first()?;
        Some(match (name.as_str(), arguments) {
            ("tick", [millis]) => {
                let millis: NonZeroU64 = millis.parse().ok()?;
                Self::Tick(Duration::from_millis(millis.get()))
            }
            ("say", words) => Self::Say(words.to_vec()),
            ("exit", [status]) => Self::Exit(status.parse().ok()?),
            ("task", [status]) => Self::Task(status.parse().ok()?),
            ("linger", [path]) => Self::Linger(path.into()),
            _ => return None,
        })
    }

    /// Whether a unit with this program counts as started only after the program has exited, like a
    /// systemd unit with `Type=oneshot`.
    pub(crate) fn is_task(&self) -> bool {
        matches!(self, Self::Task(_))
    }

    /// Runs until the program exits or is stopped, and returns the exit status.
    pub(crate) async fn run(
        self,
        mut write: impl FnMut(&str),
        stop_signal: &mut watch::Receiver<bool>,
    ) -> i32 {
        match self {
            Self::Exit(status) | Self::Task(status) => return status,
            Self::Tick(period) => {
                let mut round = 0_u64;
                loop {
                    round += 1;
                    write(&format!("tick {round}"));
                    if tokio::time::timeout(period, stopped(stop_signal)).await.is_ok() {
                        break;
                    }
                }
            }
            Self::Say(words) => {
                words.iter().for_each(|word| write(word));
                stopped(stop_signal).await;
            }
            Self::Linger(path) => {
                stopped(stop_signal).await;
                wait_for_file(&path, stop_signal).await;
            }
        }
        0
    }
}

/// Waits until the unit is stopped, or until its machine loses its power.
async fn stopped(stop_signal: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _stopped = stop_signal.wait_for(|stop_signal| *stop_signal).await.is_ok();
}

async fn wait_for_file(path: &Path, stop_signal: &watch::Receiver<bool>) {
    while stop_signal.has_changed().is_ok()
        && !matches!(tokio::fs::try_exists(path).await, Ok(true))
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
