//! How far a process comes between its beginning and its program, and what keeps it from that.

use std::io;

use rustix::io::Errno;

/// What is done for a process until its program begins, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
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

const ALL: [Step; 11] = [
    Step::Begin,
    Step::Output,
    Step::Session,
    Step::Group,
    Step::OomScore,
    Step::Nice,
    Step::Limits,
    Step::Groups,
    Step::Identity,
    Step::Directory,
    Step::Program,
];

/// A process did not come to its program.
#[derive(Debug)]
pub(crate) struct NotBegun {
    /// What could not be done.
    pub(crate) step: Step,
    /// Why.
    pub(crate) error: io::Error,
}

/// That in the child, which can neither allocate nor tell more than a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) Step, pub(crate) Errno);

impl Failed {
    /// Both in one number, which is never 0.
    pub(crate) fn number(self) -> i32 {
        (self.0 as i32) << 16 | self.1.raw_os_error()
    }

    /// Something failed in that step.
    pub(crate) fn at(step: Step) -> impl Fn(Errno) -> Self {
        move |errno| Self(step, errno)
    }
}

impl NotBegun {
    /// What the number tells that a child has left.
    pub(crate) fn of_number(number: i32) -> Self {
        let step = usize::try_from(number >> 16).ok().and_then(|at| ALL.get(at));
        let error = io::Error::from_raw_os_error(number & 0xffff);
        Self { step: step.copied().unwrap_or(Step::Program), error }
    }
}

/// It did not even begin.
impl From<io::Error> for NotBegun {
    fn from(error: io::Error) -> Self {
        Self { step: Step::Begin, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_tells_what_failed_and_why() {
        for step in ALL {
            let number = Failed(step, Errno::ACCESS).number();
            let told = NotBegun::of_number(number);
            assert_eq!((told.step, told.error.kind()), (step, io::ErrorKind::PermissionDenied));
            assert_ne!(number, 0);
        }
    }
}
