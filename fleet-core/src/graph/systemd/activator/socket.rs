//! Settings of a `.socket` file.

use std::time::Duration;

use fleet_unitfile::values::{Size, parse_size};
use fleet_unitfile::{UnitName, UnitType};

use super::super::draft::UnitProblems;
use super::super::exec_environment::account;
use super::super::value::{ValueContext, choice, flag, number, read_resettable, span, unreadable};
use super::{
    Activator, ActivatorSource, LimitDraft, ListenerKind, SocketListener, mode, refused,
    started_unit, take_unit,
};
use crate::graph::model::UnitCondition;

/// Settings of a `.socket` unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// At least one listener, in the order of the file.
    pub listeners: Vec<SocketListener>,
    /// Name of the descriptors, by which the service recognizes them (`FileDescriptorName=`).
    pub name: String,
    /// Owner of paths, by name or number (`SocketUser=`).
    pub user: Option<String>,
    /// Group of paths, by name or number (`SocketGroup=`).
    pub group: Option<String>,
    /// Permissions of paths (`SocketMode=`).
    pub mode: u32,
    /// Permissions of created parent directories (`DirectoryMode=`).
    pub directory_mode: u32,
    /// Symlinks to the only path (`Symlinks=`).
    pub symlinks: Vec<String>,
    /// Whether paths and symlinks are removed when the socket stops (`RemoveOnStop=`).
    pub remove_on_stop: bool,
    /// Whether traffic that the service has not read is discarded when the service ends
    /// (`FlushPending=`).
    pub flush_pending: bool,
    /// Options of the kernel.
    pub options: SocketOptions,
}

/// Options of the kernel for the sockets of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Maximum number of connections that wait to be accepted.
    pub backlog: Option<u32>,
    /// Whether IPv6 sockets take IPv4 traffic too; `None` leaves the default of the kernel.
    pub bind_ipv6_only: Option<BindIpv6Only>,
    /// Network interface whose traffic is received.
    pub bind_to_device: Option<String>,
    /// Whether datagrams may be sent to broadcast addresses.
    pub broadcast: bool,
    /// How long a connection without data waits before it is accepted.
    pub defer_accept: Option<Duration>,
    /// Whether an address may be bound that no interface has yet.
    pub free_bind: bool,
    /// Type of service of IP packets.
    pub ip_tos: Option<i32>,
    /// Time to live of IP packets.
    pub ip_ttl: Option<i32>,
    /// Whether idle connections are probed.
    pub keep_alive: bool,
    /// Idle time before the first probe.
    pub keep_alive_time: Option<Duration>,
    /// Time between probes.
    pub keep_alive_interval: Option<Duration>,
    /// Number of probes without an answer that end a connection.
    pub keep_alive_probes: Option<u32>,
    /// Mark for the packet filter.
    pub mark: Option<i32>,
    /// Whether small packets are sent without delay.
    pub no_delay: bool,
    /// Whether the credentials of senders are received.
    pub pass_credentials: bool,
    /// Whether the destination of each packet is received.
    pub pass_packet_info: bool,
    /// Whether the security contexts of senders are received.
    pub pass_security: bool,
    /// Size of a FIFO in bytes.
    pub pipe_size: Option<u64>,
    /// Priority of packets.
    pub priority: Option<i32>,
    /// Size of the receive buffer in bytes.
    pub receive_buffer: Option<u64>,
    /// Whether several sockets may be bound to one address.
    pub reuse_port: bool,
    /// Size of the send buffer in bytes.
    pub send_buffer: Option<u64>,
    /// Algorithm of the congestion control.
    pub tcp_congestion: Option<String>,
    /// Whether foreign addresses may be bound.
    pub transparent: bool,
}

/// Which traffic an IPv6 socket takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindIpv6Only {
    /// Both versions of IP.
    Both,
    /// Only IPv6.
    Ipv6Only,
}

/// Values of `BindIPv6Only=`, which may also be a boolean.
const BIND_IPV6_ONLY: [(&str, Option<BindIpv6Only>); 3] = [
    ("default", None),
    ("both", Some(BindIpv6Only::Both)),
    ("ipv6-only", Some(BindIpv6Only::Ipv6Only)),
];

/// Values of `IPTOS=`, which may also be a number.
const TYPES_OF_SERVICE: [(&str, i32); 4] =
    [("low-delay", 0x10), ("throughput", 8), ("reliability", 4), ("low-cost", 2)];

/// systemd's default burst of sockets, per two seconds.
const DEFAULT_BURST: u32 = 20;

/// Maximum length of the name of descriptors.
const MAX_NAME: usize = 255;

/// Settings collected so far.
#[derive(Debug, Default)]
pub(in crate::graph::systemd) struct SocketDraft {
    unit: Option<UnitName>,
    listeners: Vec<SocketListener>,
    name: Option<String>,
    user: Option<String>,
    group: Option<String>,
    mode: Option<u32>,
    directory_mode: Option<u32>,
    symlinks: Vec<String>,
    remove_on_stop: bool,
    flush_pending: bool,
    options: SocketOptions,
    limit: LimitDraft,
}

impl SocketDraft {
    /// Applies an honoured option of `[Socket]`.
    pub(in crate::graph::systemd) fn take(
        &mut self,
        name: &str,
        value: &str,
        unit: &ValueContext<'_>,
    ) -> Result<(), String> {
        match name {
            "Accept" => refuse_accept(value)?,
            "DirectoryMode" => self.directory_mode = Some(mode(value)?),
            "FileDescriptorName" => {
                self.name = read_resettable(value, |text| descriptor_name(&unit.expand(text)?))?;
            }
            "FlushPending" => self.flush_pending = flag(value)?,
            "ListenDatagram" => self.listen(ListenerKind::Datagram, value, unit)?,
            "ListenFIFO" => self.listen(ListenerKind::Fifo, value, unit)?,
            "ListenSequentialPacket" => self.listen(ListenerKind::SequentialPacket, value, unit)?,
            "ListenStream" => self.listen(ListenerKind::Stream, value, unit)?,
            "RemoveOnStop" => self.remove_on_stop = flag(value)?,
            "Service" => take_unit(&mut self.unit, value, &[UnitType::Service], unit)?,
            "SocketGroup" => self.group = account(value, unit)?,
            "SocketMode" => self.mode = Some(mode(value)?),
            "SocketUser" => self.user = account(value, unit)?,
            "Symlinks" => self.take_symlinks(value, unit)?,
            "TriggerLimitBurst" | "TriggerLimitIntervalSec" => self.limit.take(name, value)?,
            _ => self.options.take(name, value)?,
        }
        Ok(())
    }

    /// Adds a listener. An empty value of any of its options resets all listeners.
    fn listen(
        &mut self,
        kind: ListenerKind,
        value: &str,
        unit: &ValueContext<'_>,
    ) -> Result<(), String> {
        if value.is_empty() {
            self.listeners.clear();
            return Ok(());
        }
        self.listeners.push(SocketListener::parse(kind, &unit.expand(value)?)?);
        Ok(())
    }

    fn take_symlinks(&mut self, value: &str, unit: &ValueContext<'_>) -> Result<(), String> {
        if value.is_empty() {
            self.symlinks.clear();
        }
        for word in value.split_whitespace() {
            self.symlinks.push(unit.path(word)?);
        }
        Ok(())
    }

    /// Returns the problems of the unit as a whole.
    pub(in crate::graph::systemd) fn problems(&self) -> UnitProblems {
        if self.listeners.is_empty() {
            return refused("it listens nowhere: write ListenStream=, ListenDatagram= or the like");
        }
        let paths = self.listeners.iter().filter_map(SocketListener::path).count();
        if !self.symlinks.is_empty() && paths != 1 {
            let problem = "needs exactly one path to link to: remove it, or listen at one path";
            let option = Some(("Socket", "Symlinks"));
            return UnitProblems {
                refused: vec![(option, problem.to_owned())],
                ..UnitProblems::default()
            };
        }
        UnitProblems::default()
    }

    /// Builds the socket, with systemd's defaults for missing settings.
    pub(in crate::graph::systemd) fn activator(
        &self,
        conditions: Vec<UnitCondition>,
        unit: &ValueContext<'_>,
    ) -> Result<Activator, String> {
        Ok(Activator {
            unit: started_unit(self.unit.as_ref(), unit)?,
            limit: self.limit.limit(DEFAULT_BURST),
            conditions,
            source: ActivatorSource::Socket(Box::new(Socket {
                listeners: self.listeners.clone(),
                name: self.name.clone().unwrap_or_else(|| unit.name.as_str().to_owned()),
                user: self.user.clone(),
                group: self.group.clone(),
                mode: self.mode.unwrap_or(0o666),
                directory_mode: self.directory_mode.unwrap_or(0o755),
                symlinks: self.symlinks.clone(),
                remove_on_stop: self.remove_on_stop,
                flush_pending: self.flush_pending,
                options: self.options.clone(),
            })),
        })
    }
}

impl SocketOptions {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "Backlog" => self.backlog = Some(number(value, 0, u32::MAX)?),
            "BindIPv6Only" => self.bind_ipv6_only = bind_ipv6_only(value)?,
            "BindToDevice" if value == "*" => self.bind_to_device = None,
            "BindToDevice" => self.bind_to_device = read_resettable(value, interface)?,
            "Broadcast" => self.broadcast = flag(value)?,
            "DeferAcceptSec" => self.defer_accept = span(value)?.0,
            "FreeBind" => self.free_bind = flag(value)?,
            "IPTOS" => self.ip_tos = Some(type_of_service(value)?),
            "IPTTL" => self.ip_ttl = Some(number(value, 1, 255)?),
            "KeepAlive" => self.keep_alive = flag(value)?,
            "KeepAliveIntervalSec" => self.keep_alive_interval = span(value)?.0,
            "KeepAliveProbes" => self.keep_alive_probes = Some(number(value, 0, 127)?),
            "KeepAliveTimeSec" => self.keep_alive_time = span(value)?.0,
            "Mark" => self.mark = Some(number(value, i32::MIN, i32::MAX)?),
            "NoDelay" => self.no_delay = flag(value)?,
            "PassCredentials" => self.pass_credentials = flag(value)?,
            "PassPacketInfo" => self.pass_packet_info = flag(value)?,
            "PassSecurity" => self.pass_security = flag(value)?,
            "PipeSize" => self.pipe_size = Some(size(value)?),
            "Priority" => self.priority = Some(number(value, i32::MIN, i32::MAX)?),
            "ReceiveBuffer" => self.receive_buffer = Some(size(value)?),
            "ReusePort" => self.reuse_port = flag(value)?,
            "SendBuffer" => self.send_buffer = Some(size(value)?),
            "TCPCongestion" => {
                self.tcp_congestion = read_resettable(value, |value| Ok(value.to_owned()))?;
            }
            _ => self.transparent = flag(value)?,
        }
        Ok(())
    }
}

fn refuse_accept(value: &str) -> Result<(), String> {
    let problem = "is yes, but no service is started per connection here: write no, and let the \
                   service accept its connections, or run the unit under systemd";
    if flag(value)? { Err(problem.to_owned()) } else { Ok(()) }
}

fn bind_ipv6_only(value: &str) -> Result<Option<BindIpv6Only>, String> {
    match flag(value) {
        Ok(true) => Ok(Some(BindIpv6Only::Ipv6Only)),
        Ok(false) => Ok(Some(BindIpv6Only::Both)),
        Err(_) => choice(value, &BIND_IPV6_ONLY),
    }
}

fn type_of_service(value: &str) -> Result<i32, String> {
    let named = TYPES_OF_SERVICE.iter().find(|(name, _)| *name == value);
    named.map_or_else(|| number(value, 0, 255), |(_, number)| Ok(*number))
}

/// Reads the name of descriptors.
fn descriptor_name(text: &str) -> Result<String, String> {
    let is_valid = |c: char| c.is_ascii() && !c.is_ascii_control() && c != ':';
    if text.is_empty() || text.len() > MAX_NAME || !text.chars().all(is_valid) {
        return Err(format!(
            "is {text:?}: write at most {MAX_NAME} characters of ASCII without \":\""
        ));
    }
    Ok(text.to_owned())
}

/// Reads the name of a network interface.
fn interface(value: &str) -> Result<String, String> {
    let is_valid = |c: char| c.is_ascii_graphic() && !"/:%".contains(c);
    if value.len() > 15 || !value.chars().all(is_valid) {
        return Err(format!("is {value:?}: write the name of a network interface, such as eth0"));
    }
    Ok(value.to_owned())
}

fn size(value: &str) -> Result<u64, String> {
    match parse_size(value).map_err(unreadable)? {
        Size::Bytes(bytes) if bytes > 0 => Ok(bytes),
        _ => Err(format!("is {value:?}: write a number of bytes, such as 64K")),
    }
}
