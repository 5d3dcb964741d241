//! File descriptors that services get at their start: sockets that listen for them, and descriptors
//! that they have stored.
//!
//! ```text
//! sockets of activators ─┐
//!                        ├── DescriptorTable ── PassedDescriptors ──> process of the service
//! FDSTORE=1 messages ────┘
//! ```
//!
//! All state is in memory: the next daemon listens again, and knows no stored descriptors.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use fleet_core::graph::systemd::ServiceDescriptors;
use fleet_unitfile::UnitName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::lock::lock;
use crate::native::linux::sockets::is_same_file;

/// Name of a stored descriptor without `FDNAME=`.
const STORED: &str = "stored";

/// A descriptor with the name by which a service recognizes it.
#[derive(Debug, Clone)]
pub(crate) struct NamedDescriptor {
    pub(crate) name: String,
    pub(crate) descriptor: Arc<OwnedFd>,
    /// Whether a stored descriptor is removed once its other end is closed.
    pub(crate) removed_on_hangup: bool,
}

/// Descriptors of all services.
#[derive(Debug, Default)]
pub(crate) struct DescriptorTable(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// Open sockets.
    sockets: BTreeMap<UnitName, OpenSocket>,
    services: BTreeMap<String, Service>,
}

#[derive(Debug)]
struct OpenSocket {
    /// The service that it starts.
    service: UnitName,
    descriptors: Vec<NamedDescriptor>,
}

#[derive(Debug, Default)]
struct Service {
    settings: ServiceDescriptors,
    stored: Vec<NamedDescriptor>,
}

impl NamedDescriptor {
    /// Creates the descriptor of a socket.
    pub(crate) fn of_socket(name: &str, descriptor: Arc<OwnedFd>) -> Self {
        Self { name: name.to_owned(), descriptor, removed_on_hangup: false }
    }

    /// Returns whether the other end is closed, or the descriptor has an error.
    fn has_hung_up(&self) -> bool {
        let mut polled = [PollFd::new(&*self.descriptor, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0)
    }
}

impl AsFd for NamedDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl DescriptorTable {
    /// Sets the descriptor settings of a loaded service.
    pub(crate) fn set_service(&self, unit: &str, settings: ServiceDescriptors) {
        let mut tables = lock(&self.0);
        if settings == ServiceDescriptors::default() {
            tables.services.remove(unit);
        } else {
            tables.services.entry(unit.to_owned()).or_default().settings = settings;
        }
    }

    /// Removes a service that is no longer loaded.
    pub(crate) fn forget_service(&self, unit: &str) {
        lock(&self.0).services.remove(unit);
    }

    /// Sets the descriptors of a socket that listens for a service.
    pub(crate) fn open_socket(
        &self,
        socket: &UnitName,
        service: &UnitName,
        descriptors: Vec<NamedDescriptor>,
    ) {
        let open = OpenSocket { service: service.clone(), descriptors };
        lock(&self.0).sockets.insert(socket.clone(), open);
    }

    /// Removes the descriptors of a socket.
    pub(crate) fn close_socket(&self, socket: &UnitName) {
        lock(&self.0).sockets.remove(socket);
    }

    /// Returns the descriptors that a service gets: those of sockets in the order of their names,
    /// and then the stored ones.
    pub(crate) fn of_service(&self, unit: &str) -> Vec<NamedDescriptor> {
        let mut tables = lock(&self.0);
        let Tables { sockets, services } = &mut *tables;
        let service = services.get_mut(unit);
        let none = ServiceDescriptors::default();
        let settings = service.as_ref().map_or(&none, |service| &service.settings);
        let gets = |(socket, open): &(&UnitName, &OpenSocket)| {
            open.service.as_str() == unit || settings.sockets.contains(*socket)
        };
        let open = sockets.iter().filter(gets).flat_map(|(_, open)| &open.descriptors);
        let mut all: Vec<NamedDescriptor> = open.cloned().collect();
        for socket in &all {
            set_nonblocking(socket.as_fd(), settings.non_blocking);
        }
        if let Some(service) = service {
            service.remove_hung_up();
            all.extend(service.stored.iter().cloned());
        }
        all
    }

    /// Stores descriptors of a service. Returns the number of descriptors for which there was no
    /// room.
    pub(crate) fn store(
        &self,
        unit: &str,
        name: Option<&str>,
        removed_on_hangup: bool,
        descriptors: Vec<Arc<OwnedFd>>,
    ) -> usize {
        let mut tables = lock(&self.0);
        let Some(service) = tables.services.get_mut(unit) else { return descriptors.len() };
        let most = usize::try_from(service.settings.store_max).unwrap_or(usize::MAX);
        let mut refused = 0;
        for descriptor in descriptors {
            let same = |it: &NamedDescriptor| is_same_file(&it.descriptor, &descriptor);
            if service.stored.iter().any(same) {
                continue;
            }
            if service.stored.len() >= most {
                service.remove_hung_up();
            }
            if service.stored.len() >= most {
                refused += 1;
                continue;
            }
            let name = name.unwrap_or(STORED).to_owned();
            service.stored.push(NamedDescriptor { name, descriptor, removed_on_hangup });
        }
        refused
    }

    /// Removes the stored descriptors of this name.
    pub(crate) fn remove_stored(&self, unit: &str, name: &str) {
        if let Some(service) = lock(&self.0).services.get_mut(unit) {
            service.stored.retain(|stored| stored.name != name);
        }
    }

    /// Closes all stored descriptors of a service that has ended and is not to start again.
    pub(crate) fn release(&self, unit: &str) {
        if let Some(service) = lock(&self.0).services.get_mut(unit) {
            service.stored.clear();
        }
    }

    /// Returns the sockets that a service names.
    pub(crate) fn named_sockets(&self, unit: &str) -> BTreeSet<UnitName> {
        let tables = lock(&self.0);
        tables.services.get(unit).map(|it| it.settings.sockets.clone()).unwrap_or_default()
    }
}

impl Service {
    fn remove_hung_up(&mut self) {
        self.stored.retain(|stored| !stored.removed_on_hangup || !stored.has_hung_up());
    }
}

/// Sets or clears the non-blocking mode. The service may have changed it, since all processes with
/// the socket share the mode.
fn set_nonblocking(descriptor: BorrowedFd<'_>, non_blocking: bool) {
    let set = fcntl_getfl(descriptor).and_then(|flags| {
        let mut wanted = flags;
        wanted.set(OFlags::NONBLOCK, non_blocking);
        if wanted == flags { Ok(()) } else { fcntl_setfl(descriptor, wanted) }
    });
    if let Err(error) = set {
        tracing::warn!(%error, "cannot set the mode of a socket before passing it to its service");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn settings(store_max: u32) -> ServiceDescriptors {
        ServiceDescriptors { store_max, ..ServiceDescriptors::default() }
    }

    fn pair() -> (Arc<OwnedFd>, UnixStream) {
        let (own, other) = UnixStream::pair().expect("it can be created");
        (Arc::new(own.into()), other)
    }

    fn names(table: &DescriptorTable) -> Vec<String> {
        table.of_service("a.service").into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn sockets_precede_stored_descriptors() {
        let table = DescriptorTable::default();
        let mut own = settings(2);
        own.sockets.insert("named.socket".parse().expect("it is a name"));
        table.set_service("a.service", own);
        let (descriptor, _other) = pair();
        assert_eq!(table.store("a.service", None, true, vec![Arc::clone(&descriptor)]), 0);
        for (socket, service) in
            [("z.socket", "a.service"), ("named.socket", "b.service"), ("c.socket", "b.service")]
        {
            let name = |text: &str| text.parse::<UnitName>().expect("it is a name");
            let (socket, service) = (name(socket), name(service));
            let named = NamedDescriptor::of_socket(socket.as_str(), pair().0);
            table.open_socket(&socket, &service, vec![named]);
        }
        assert_eq!(names(&table), ["named.socket", "z.socket", "stored"]);
        table.close_socket(&"z.socket".parse().expect("it is a name"));
        assert_eq!(names(&table), ["named.socket", "stored"]);
    }

    #[test]
    fn store_is_bounded_and_keeps_each_file_once() {
        let table = DescriptorTable::default();
        let [(a, _a), (b, _b), (c, _c)] = [pair(), pair(), pair()];
        assert_eq!(table.store("a.service", None, true, vec![Arc::clone(&a)]), 1, "no room");
        table.set_service("a.service", settings(2));
        let again = Arc::new(a.try_clone().expect("it can be duplicated"));
        assert_eq!(table.store("a.service", Some("x"), true, vec![a, again, b]), 0);
        assert_eq!(table.store("a.service", Some("y"), true, vec![c]), 1);
        assert_eq!(names(&table), ["x", "x"]);
        table.remove_stored("a.service", "x");
        assert!(names(&table).is_empty());
    }

    #[test]
    fn closed_descriptor_leaves_the_store_unless_unpolled() {
        let table = DescriptorTable::default();
        table.set_service("a.service", settings(2));
        let [(a, other_a), (b, other_b)] = [pair(), pair()];
        table.store("a.service", Some("polled"), true, vec![a]);
        table.store("a.service", Some("kept"), false, vec![b]);
        drop((other_a, other_b));
        assert_eq!(names(&table), ["kept"]);
        table.release("a.service");
        assert!(names(&table).is_empty());
    }
}
