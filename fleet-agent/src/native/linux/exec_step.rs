//! The steps between the spawn and the exec of a process, and the errors of these steps.

use std::io;

use rustix::io::Errno;

/// The steps before a program runs, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExecStep {
    Begin,
    Output,
    Session,
    Group,
    OomScore,
    Nice,
    Limits,
    Groups,
    Identity,
    Directory,
    Program,
}

const ALL: [ExecStep; 11] = [
    ExecStep::Begin,
    ExecStep::Output,
    ExecStep::Session,
    ExecStep::Group,
    ExecStep::OomScore,
    ExecStep::Nice,
    ExecStep::Limits,
    ExecStep::Groups,
    ExecStep::Identity,
    ExecStep::Directory,
    ExecStep::Program,
];

/// A process that did not reach its exec.
#[derive(Debug)]
pub(crate) struct SpawnError {
    /// The failed step.
    pub(crate) step: ExecStep,
    /// The cause.
    pub(crate) error: io::Error,
}

/// The failed step and its error, as the child reports them. Both fit into one number, because the
/// child can neither allocate nor return more than a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepError(pub(crate) ExecStep, pub(crate) Errno);

impl StepError {
    /// Encodes the step and the error in one number, which is never 0.
    pub(crate) fn code(self) -> i32 {
        (self.0 as i32) << 16 | self.1.raw_os_error()
    }

    /// Creates the error of this step.
    pub(crate) fn at(step: ExecStep) -> impl Fn(Errno) -> Self {
        move |errno| Self(step, errno)
    }
}

impl SpawnError {
    /// Decodes the number that a failed child has returned.
    pub(crate) fn from_code(number: i32) -> Self {
        let step = usize::try_from(number >> 16).ok().and_then(|at| ALL.get(at));
        let error = io::Error::from_raw_os_error(number & 0xffff);
        Self { step: step.copied().unwrap_or(ExecStep::Program), error }
    }
}

/// Converts an error from before the creation of the process.
impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        Self { step: ExecStep::Begin, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_error_round_trips_as_number() {
        for step in ALL {
            let number = StepError(step, Errno::ACCESS).code();
            let decoded = SpawnError::from_code(number);
            assert_eq!(
                (decoded.step, decoded.error.kind()),
                (step, io::ErrorKind::PermissionDenied)
            );
            assert_ne!(number, 0);
        }
    }
}
