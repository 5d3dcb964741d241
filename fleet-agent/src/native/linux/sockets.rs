//! Sockets and FIFOs at which services listen.
//!
//! This is one of the modules of the service manager that contain unsafe code: most options of
//! sockets, and the comparison of descriptors, have no safe interface in the libraries that we use.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::time::Duration;

use fleet_core::graph::systemd::{
    BindIpv6Only, ListenerKind, Socket, SocketAddress, SocketListener, SocketOptions,
};
use nix::libc;
use rustix::fs::{
    CWD, FileType, Mode, OFlags, fchmod, fcntl_getfl, fcntl_setfl, fstat, mknodat, open,
};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ip_freebind, set_ipv6_freebind, set_ipv6_v6only, set_socket_recv_buffer_size,
    set_socket_recv_buffer_size_force, set_socket_reuseaddr, set_socket_reuseport,
    set_socket_send_buffer_size, set_socket_send_buffer_size_force,
};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen,
    recv, socket_with,
};

/// Owner of paths; `None` keeps ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PathOwner {
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
}

/// Maximum number of connections or messages discarded at once. A sender that is faster must not
/// occupy the supervisor.
const MAX_FLUSHED: usize = 4096;

/// Opens a listener. Options that the kernel refuses are passed to `warn`.
pub(crate) fn open_listener(
    listener: &SocketListener,
    socket: &Socket,
    owner: PathOwner,
    warn: &mut dyn FnMut(&'static str, io::Error),
) -> io::Result<OwnedFd> {
    if let Some(path) = listener.path() {
        create_parents(Path::new(path), socket.directory_mode)?;
    }
    if listener.kind == ListenerKind::Fifo {
        return open_fifo(Path::new(listener.path().unwrap_or_default()), socket, owner, warn);
    }
    let (kind, flags) = (socket_type(listener.kind), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
    let opened = match &listener.address {
        SocketAddress::Path(path) => {
            let opened = socket_with(AddressFamily::UNIX, kind, flags, None)?;
            bind_path(&opened, Path::new(path), socket.mode, owner)?;
            opened
        }
        SocketAddress::Abstract(name) => {
            let opened = socket_with(AddressFamily::UNIX, kind, flags, None)?;
            bind(&opened, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
            opened
        }
        SocketAddress::Ip(address) => bind_ip(*address, kind, flags, &socket.options, warn)?,
        SocketAddress::Port(port) => {
            let address = SocketAddr::new(any_address(), *port);
            bind_ip(address, kind, flags, &socket.options, warn)?
        }
    };
    set_options(opened.as_fd(), listener, &socket.options, warn);
    if listener.kind != ListenerKind::Datagram {
        let backlog = socket.options.backlog.and_then(|most| i32::try_from(most).ok());
        listen(&opened, backlog.unwrap_or(i32::MAX))?;
    }
    Ok(opened)
}

fn socket_type(kind: ListenerKind) -> SocketType {
    match kind {
        ListenerKind::Datagram => SocketType::DGRAM,
        ListenerKind::SequentialPacket => SocketType::SEQPACKET,
        ListenerKind::Stream | ListenerKind::Fifo => SocketType::STREAM,
    }
}

/// Returns the address of a port without an address. On a machine with IPv6 it also takes traffic
/// of IPv4.
fn any_address() -> IpAddr {
    match Path::new("/proc/net/if_inet6").exists() {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn bind_ip(
    address: SocketAddr,
    kind: SocketType,
    flags: SocketFlags,
    options: &SocketOptions,
    warn: &mut dyn FnMut(&'static str, io::Error),
) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let opened = socket_with(family, kind, flags, None)?;
    if let (Some(only), true) = (options.bind_ipv6_only, address.is_ipv6()) {
        set_ipv6_v6only(&opened, only == BindIpv6Only::Ipv6Only)?;
    }
    if let Some(device) = &options.bind_to_device {
        set(opened.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())?;
    }
    let mut attempt = |option, result: rustix::io::Result<()>| {
        result.unwrap_or_else(|error| warn(option, error.into()));
    };
    if options.reuse_port {
        attempt("ReusePort", set_socket_reuseport(&opened, true));
    }
    if options.free_bind {
        let set = match address.is_ipv4() {
            true => set_ip_freebind(&opened, true),
            false => set_ipv6_freebind(&opened, true),
        };
        attempt("FreeBind", set);
    }
    if options.transparent {
        let (level, name) = match address.is_ipv4() {
            true => (libc::SOL_IP, libc::IP_TRANSPARENT),
            false => (libc::SOL_IPV6, libc::IPV6_TRANSPARENT),
        };
        set_number(opened.as_fd(), level, name, 1).unwrap_or_else(|error| {
            warn("Transparent", error);
        });
    }
    set_socket_reuseaddr(&opened, true)?;
    bind(&opened, &address)?;
    Ok(opened)
}

/// Binds a socket to a path. A socket that an earlier program has left there is replaced.
fn bind_path(opened: &OwnedFd, path: &Path, mode: u32, owner: PathOwner) -> io::Result<()> {
    // The kernel creates the path with the permissions of the socket, limited by our umask.
    fchmod(opened, Mode::from_raw_mode(mode))?;
    let address = SocketAddrUnix::new(path)?;
    match bind(opened, &address) {
        Err(Errno::ADDRINUSE) if is_socket(path) => {
            std::fs::remove_file(path)?;
            bind(opened, &address)?;
        }
        bound => bound?,
    }
    set_access(path, mode, owner)
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn open_fifo(
    path: &Path,
    socket: &Socket,
    owner: PathOwner,
    warn: &mut dyn FnMut(&'static str, io::Error),
) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(socket.mode);
    match mknodat(CWD, path, FileType::Fifo, mode, 0) {
        Err(Errno::EXIST) => {}
        created => created?,
    }
    // A FIFO that is open for writing too never ends.
    let flags =
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let opened = open(path, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::Fifo {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path is not a FIFO"));
    }
    set_access(path, socket.mode, owner)?;
    if let Some(size) = socket.options.pipe_size {
        set_pipe_size(&opened, size).unwrap_or_else(|error| warn("PipeSize", error));
    }
    Ok(opened)
}

fn set_pipe_size(fifo: &OwnedFd, size: u64) -> io::Result<()> {
    let size = libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX);
    // SAFETY: the call takes no pointer.
    #[expect(unsafe_code, reason = "the safe interface is in a part of rustix that is not built")]
    let answer = unsafe { libc::fcntl(fifo.as_raw_fd(), libc::F_SETPIPE_SZ, size) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets owner and permissions of a path.
fn set_access(path: &Path, mode: u32, owner: PathOwner) -> io::Result<()> {
    if owner != PathOwner::default() {
        chown(path, owner.uid, owner.gid)?;
    }
    std::fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Creates the missing parent directories of a path, with these permissions.
pub(crate) fn create_parents(path: &Path, mode: u32) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| create_directories(parent, mode))
}

/// Creates a directory and its missing parents, with these permissions.
pub(crate) fn create_directories(path: &Path, mode: u32) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|it| !it.exists()).collect();
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(mode).create(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => {
                created?;
                // Our umask does not count.
                std::fs::set_permissions(directory, Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}

/// Sets the options that need no particular time. As in systemd, a refused option is no failure.
fn set_options(
    socket: BorrowedFd<'_>,
    listener: &SocketListener,
    options: &SocketOptions,
    warn: &mut dyn FnMut(&'static str, io::Error),
) {
    let is_ipv4 = matches!(listener.address, SocketAddress::Ip(address) if address.is_ipv4());
    let is_ipv6 = !is_ipv4 && listener.path().is_none();
    let is_ipv6 = is_ipv6 && !matches!(listener.address, SocketAddress::Abstract(_));
    for (option, level, name, value) in numbers(options, is_ipv4, is_ipv6) {
        set_number(socket, level, name, value).unwrap_or_else(|error| warn(option, error));
    }
    if let Some(algorithm) = &options.tcp_congestion {
        set(socket, libc::SOL_TCP, libc::TCP_CONGESTION, algorithm.as_bytes())
            .unwrap_or_else(|error| warn("TCPCongestion", error));
    }
    // Only root may exceed the limit of the machine.
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    if let Some(size) = options.receive_buffer.map(bytes) {
        set_socket_recv_buffer_size_force(socket, size)
            .or_else(|_| set_socket_recv_buffer_size(socket, size))
            .unwrap_or_else(|error| warn("ReceiveBuffer", error.into()));
    }
    if let Some(size) = options.send_buffer.map(bytes) {
        set_socket_send_buffer_size_force(socket, size)
            .or_else(|_| set_socket_send_buffer_size(socket, size))
            .unwrap_or_else(|error| warn("SendBuffer", error.into()));
    }
}

/// A numeric option: its name in the unit file, and level, name and value for the kernel.
type NumericOption = (&'static str, libc::c_int, libc::c_int, i32);

fn numbers(options: &SocketOptions, is_ipv4: bool, is_ipv6: bool) -> Vec<NumericOption> {
    let (socket, tcp) = (libc::SOL_SOCKET, libc::SOL_TCP);
    let seconds = |span: Option<Duration>| {
        span.map(|span| i32::try_from(span.as_micros().div_ceil(1_000_000)).unwrap_or(i32::MAX))
    };
    let set = |flag: bool| flag.then_some(1);
    let probes = options.keep_alive_probes.and_then(|count| i32::try_from(count).ok());
    let mut all = vec![
        ("KeepAlive", socket, libc::SO_KEEPALIVE, set(options.keep_alive)),
        ("KeepAliveTimeSec", tcp, libc::TCP_KEEPIDLE, seconds(options.keep_alive_time)),
        ("KeepAliveIntervalSec", tcp, libc::TCP_KEEPINTVL, seconds(options.keep_alive_interval)),
        ("KeepAliveProbes", tcp, libc::TCP_KEEPCNT, probes),
        ("DeferAcceptSec", tcp, libc::TCP_DEFER_ACCEPT, seconds(options.defer_accept)),
        ("NoDelay", tcp, libc::TCP_NODELAY, set(options.no_delay)),
        ("Broadcast", socket, libc::SO_BROADCAST, set(options.broadcast)),
        ("PassCredentials", socket, libc::SO_PASSCRED, set(options.pass_credentials)),
        ("PassSecurity", socket, libc::SO_PASSSEC, set(options.pass_security)),
        ("Priority", socket, libc::SO_PRIORITY, options.priority),
        ("Mark", socket, libc::SO_MARK, options.mark),
    ];
    if is_ipv4 || is_ipv6 {
        all.push(("IPTOS", libc::SOL_IP, libc::IP_TOS, options.ip_tos));
    }
    if is_ipv4 {
        all.push(("IPTTL", libc::SOL_IP, libc::IP_TTL, options.ip_ttl));
        let pass = set(options.pass_packet_info);
        all.push(("PassPacketInfo", libc::SOL_IP, libc::IP_PKTINFO, pass));
    }
    if is_ipv6 {
        all.push(("IPTTL", libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, options.ip_ttl));
        let pass = set(options.pass_packet_info);
        all.push(("PassPacketInfo", libc::SOL_IPV6, libc::IPV6_RECVPKTINFO, pass));
    }
    all.into_iter()
        .filter_map(|(option, level, name, value)| Some((option, level, name, value?)))
        .collect()
}

fn set_number(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: i32,
) -> io::Result<()> {
    set(socket, level, name, &value.to_ne_bytes())
}

/// Sets an option of a socket.
fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `length` bytes of `value`, and keeps no pointer to them.
    #[expect(unsafe_code, reason = "no library that we use sets these options")]
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Discards the waiting connections and messages of a listener.
pub(crate) fn flush(descriptor: BorrowedFd<'_>, kind: ListenerKind) {
    // A service may have changed the mode, which it shares.
    let is_nonblocking =
        fcntl_getfl(descriptor).and_then(|flags| fcntl_setfl(descriptor, flags | OFlags::NONBLOCK));
    if is_nonblocking.is_err() {
        return;
    }
    let mut buffer = [0; 4096];
    for _ in 0..MAX_FLUSHED {
        let is_empty = match kind {
            ListenerKind::Stream | ListenerKind::SequentialPacket => {
                accept_with(descriptor, SocketFlags::CLOEXEC).is_err()
            }
            ListenerKind::Datagram => recv(descriptor, &mut buffer, RecvFlags::DONTWAIT).is_err(),
            ListenerKind::Fifo => rustix::io::read(descriptor, &mut buffer).is_err(),
        };
        if is_empty {
            return;
        }
    }
}

/// Returns whether two descriptors are duplicates of each other. Returns `false` if the kernel does
/// not compare descriptors.
pub(crate) fn is_same_file(a: &OwnedFd, b: &OwnedFd) -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let (a, b) = (a.as_raw_fd(), b.as_raw_fd());
    // SAFETY: the call only reads the table of descriptors of this process.
    #[expect(unsafe_code, reason = "no library that we use compares descriptors")]
    let answer = unsafe { libc::syscall(libc::SYS_kcmp, own, own, KCMP_FILE, a, b) };
    answer == 0
}
