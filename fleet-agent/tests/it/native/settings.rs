//! Each option that is honoured, by what it does to a process.
