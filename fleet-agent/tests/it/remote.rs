//! A service manager in another process, over a socket.

mod journal_errors;
mod clients;
mod conformance;
mod other_versions;
mod outages;
mod served_manager;
mod unresponsive_server;
