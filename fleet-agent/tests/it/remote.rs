//! A service manager in another process, over a socket.

mod clients;
mod conformance;
mod journal_errors;
mod outages;
mod served_manager;
mod unresponsive_server;
