//! A service manager in another process, over a socket.

mod clients;
mod conforms;
mod outages;
mod served;
