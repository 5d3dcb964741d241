//! A service manager in another process, over a socket.

mod broken;
mod clients;
mod conforms;
mod earlier;
mod outages;
mod served;
mod silent;
