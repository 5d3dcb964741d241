//! How far a process comes between its beginning and its program, and what keeps it from that.

use std::io;

use rustix::io::Errno;

/// What is done for a process until its program begins, in this order.
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

/// A process did not come to its program.
#[derive(Debug)]
pub(crate) struct SpawnError {
    /// What could not be done.
    pub(crate) step: ExecStep,
    /// Why.
    pub(crate) error: io::Error,
}

/// That in the child, which can neither allocate nor tell more than a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StepError(pub(crate) ExecStep, pub(crate) Errno);

impl StepError {
    /// Both in one number, which is never 0.
    pub(crate) fn code(self) -> i32 {
        (self.0 as i32) << 16 | self.1.raw_os_error()
    }

    /// Something failed in that step.
    pub(crate) fn at(step: ExecStep) -> impl Fn(Errno) -> Self {
        move |errno| Self(step, errno)
    }
}

impl SpawnError {
    /// What the number tells that a child has left.
    pub(crate) fn from_code(number: i32) -> Self {
        let step = usize::try_from(number >> 16).ok().and_then(|at| ALL.get(at));
        let error = io::Error::from_raw_os_error(number & 0xffff);
        Self { step: step.copied().unwrap_or(ExecStep::Program), error }
    }
}

/// It did not even begin.
impl From<io::Error> for SpawnError {
    fn from(error: io::Error) -> Self {
        Self { step: ExecStep::Begin, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_tells_what_failed_and_why() {
        for step in ALL {
            let number = StepError(step, Errno::ACCESS).code();
            let told = SpawnError::from_code(number);
            assert_eq!((told.step, told.error.kind()), (step, io::ErrorKind::PermissionDenied));
            assert_ne!(number, 0);
        }
    }
}
