//! The limit of attempts in one plan. It ends a plan that would otherwise never end, whether by a
//! defect of the planner or by a custom rule that contradicts itself.
//!
//! A plan makes progress with every kept assignment. Without progress, each waiting unit is tried
//! once, and at most once more because of earlier changes. Further attempts cannot succeed. A plan
//! with very many assignments moves units to and fro.

/// Counter of the attempts in one plan.
#[derive(Debug, Default)]
pub(super) struct AttemptCounter {
    /// Attempts since the last kept assignment.
    fruitless: usize,
    /// Length of the undo log after the last kept assignment.
    log_length: usize,
    /// Length of the undo log at the first attempt.
    start: Option<usize>,
    is_exhausted: bool,
}

/// Sizes of an index that determine the limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanSize {
    /// Number of assignments that the units can have: one per unit, or one per machine for a global
    /// unit.
    pub(super) assignments: usize,
    pub(super) log_length: usize,
}

impl AttemptCounter {
    /// Attempts without progress per unit.
    const MAX_FRUITLESS: usize = 4;
    /// Assignments and removals per possible assignment.
    const MAX_CHANGES: usize = 32;
    /// Attempts and changes that are always allowed.
    const MIN: usize = 1024;

    /// Counts an attempt that is about to be made. Returns whether the plan may still make it.
    pub(super) fn count(&mut self, size: PlanSize) -> bool {
        let PlanSize { assignments, log_length } = size;
        let changes = log_length.saturating_sub(*self.start.get_or_insert(log_length));
        if log_length == self.log_length {
            self.fruitless += 1;
        } else {
            (self.fruitless, self.log_length) = (0, log_length);
        }
        self.is_exhausted |= self.fruitless > Self::MIN + Self::MAX_FRUITLESS * assignments
            || changes > Self::MIN + Self::MAX_CHANGES * assignments;
        !self.is_exhausted
    }

    /// Returns whether the limit was reached.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Creates a counter that allows no attempt.
    #[cfg(test)]
    pub(super) fn exhausted() -> Self {
        Self { is_exhausted: true, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of attempts that are allowed if the undo log grows by `growth` entries
    /// before each attempt.
    fn allowed(assignments: usize, growth: usize) -> usize {
        let mut counter = AttemptCounter::default();
        let sizes = (0..).map(|at| PlanSize { assignments, log_length: 7 + at * growth });
        sizes.take_while(|size| counter.count(*size)).count()
    }

    #[test]
    fn attempts_end_without_progress_and_without_end_of_changes() {
        assert_eq!(allowed(0, 0), 1025, "no progress");
        assert_eq!(allowed(100, 0), 1425, "no progress");
        assert_eq!(allowed(100, 1), 1024 + 3200 + 1, "a change before each attempt");
        assert_eq!(allowed(100, 100), 43, "many changes before each attempt");
    }
}
