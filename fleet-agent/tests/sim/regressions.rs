//! What went wrong once: a story for each, and the seeds that found it.
