//! The real `fleet-init`, and the real `fleetctl` against a real server on a unix socket. The
//! engine and the agents behind it are played by a puppet, so that every unit behaves as its test
//! says.

mod apply;
mod balance;
mod bring_up;
mod cluster;
mod errors;
mod fleet_init;
mod fleetctl;
mod foretell;
mod lists;
mod look;
mod machines;
mod moving;
mod paper;
mod puppet;
mod relay;
mod scale;
mod schema;
mod show;
mod ssh;
mod take_down;
mod terminal;
mod thief;
mod thrift;
mod usage;
mod waiting;
