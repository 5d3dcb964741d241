//! Sockets, paths, and the descriptors of services: settings.

use std::time::Duration;

use fleet_core::graph::NotifyAccess;
use fleet_core::graph::systemd::{
    Activator, ActivatorSource, BindIpv6Only, ListenerKind, Path, PathTrigger, PathTriggerKind,
    RelationKind, Socket, SocketAddress, SocketListener, TriggerLimit,
};
use proptest::prelude::*;

use super::{compiled, wrapped};

fn activator(unit: &str, text: &str) -> Activator {
    let read = compiled(unit, text);
    let compiled = read.unwrap_or_else(|refusals| panic!("{refusals}"));
    compiled.activator.expect("it is an activator")
}

fn socket(settings: &str) -> Socket {
    match activator("web.socket", &format!("[Socket]\n{settings}\n")).source {
        ActivatorSource::Socket(socket) => *socket,
        ActivatorSource::Path(_) => panic!("it is a socket"),
    }
}

fn path(settings: &str) -> Path {
    match activator("web.path", &format!("[Path]\n{settings}\n")).source {
        ActivatorSource::Path(path) => path,
        ActivatorSource::Socket(_) => panic!("it is a path"),
    }
}

fn refused(unit: &str, text: &str) -> String {
    compiled(unit, text).expect_err("it is refused").to_string()
}

#[test]
fn socket_defaults_match_systemd() {
    let read = activator("web.socket", "[Socket]\nListenStream=80\n");
    assert_eq!(read.unit.as_str(), "web.service");
    assert_eq!(read.limit, TriggerLimit { interval: Duration::from_secs(2), burst: 20 });
    let socket = socket("ListenStream=80");
    assert_eq!((socket.mode, socket.directory_mode), (0o666, 0o755));
    assert_eq!(socket.name, "web.socket");
    assert!(!socket.remove_on_stop && !socket.flush_pending);
    let instance = activator("web@1.socket", "[Socket]\nListenStream=80\n");
    assert_eq!(instance.unit.as_str(), "web@1.service");
}

#[test]
fn socket_settings_are_read() {
    let socket = socket(
        "ListenStream=%t/gone\nListenStream=\nListenStream=/run/web.sock\nListenDatagram=@%p\n\
         ListenSequentialPacket=@web\nListenFIFO=/run/web.fifo\nListenStream=[::1]:80\n\
         SocketUser=root\nSocketGroup=\nSocketMode=0600\nDirectoryMode=700\nBacklog=7\n\
         BindIPv6Only=both\nReusePort=yes\nIPTOS=low-delay\nReceiveBuffer=64K\n\
         FileDescriptorName=a b\nKeepAliveTimeSec=1min\nBindToDevice=eth0\nBindToDevice=*",
    );
    let local =
        |kind, name: &str| SocketListener { kind, address: SocketAddress::Abstract(name.into()) };
    let at = |kind, path: &str| SocketListener { kind, address: SocketAddress::Path(path.into()) };
    let ip = SocketAddress::Ip("[::1]:80".parse().unwrap());
    let listeners = [
        at(ListenerKind::Stream, "/run/web.sock"),
        local(ListenerKind::Datagram, "web"),
        local(ListenerKind::SequentialPacket, "web"),
        at(ListenerKind::Fifo, "/run/web.fifo"),
        SocketListener { kind: ListenerKind::Stream, address: ip },
    ];
    assert_eq!(socket.listeners, listeners);
    assert_eq!((socket.user.as_deref(), socket.group), (Some("root"), None));
    assert_eq!((socket.mode, socket.directory_mode), (0o600, 0o700));
    assert_eq!(socket.name, "a b");
    let options = socket.options;
    assert_eq!((options.backlog, options.ip_tos), (Some(7), Some(0x10)));
    assert_eq!(options.bind_ipv6_only, Some(BindIpv6Only::Both));
    assert_eq!((options.receive_buffer, options.bind_to_device), (Some(65_536), None));
    assert_eq!(options.keep_alive_time, Some(Duration::from_secs(60)));
    assert!(options.reuse_port);
}

#[test]
fn invalid_sockets_are_refused() {
    let files = [
        "ListenStream=80\nListenStream=",
        "ListenStream=localhost:80",
        "ListenSequentialPacket=80",
        "ListenFIFO=@a",
        "ListenStream=80\nAccept=yes",
        "ListenNetlink=kobject-uevent 1",
        "ListenStream=80\nService=a.target",
        "ListenStream=80\nService=a@.service",
        "ListenStream=80\nSymlinks=/run/a",
        "ListenStream=80\nSocketMode=888",
        "ListenStream=80\nFileDescriptorName=a:b",
        "ListenStream=80\nExecStartPre=/bin/true",
        "ListenStream=80\nIPAddressDeny=any",
    ];
    let text = |file: &str| refused("web.socket", &format!("[Socket]\n{file}\n"));
    let output: Vec<String> = files.into_iter().map(text).collect();
    insta::assert_snapshot!(wrapped(&output.join("\n")), @r#"
    web.socket: it listens nowhere: write ListenStream=, ListenDatagram= or the like
    web.socket:2:1: Socket.ListenStream is "localhost:80": write a path, an abstract name
          such as @name, a port from 1 to 65535, or an address such as 127.0.0.1:80 or
          [::1]:80
    web.socket:2:1: Socket.ListenSequentialPacket is "80", but IP has no such sockets:
          write a path or an abstract name such as @name
    web.socket:2:1: Socket.ListenFIFO has the relative path "@a": write an absolute path
    web.socket:3:1: Socket.Accept is yes, but no service is started per connection here:
          write no, and let the service accept its connections, or run the unit under
          systemd
    web.socket:2:1: Socket.ListenNetlink is not supported: sockets listen only at
          ListenStream=, ListenDatagram=, ListenSequentialPacket= and ListenFIFO=: remove
          it, or run the unit under systemd
    web.socket:3:1: Socket.Service names a.target: write the name of a .service unit
    web.socket:3:1: Socket.Service names the template a@.service: name an instance of it
    web.socket:3:1: Socket.Symlinks needs exactly one path to link to: remove it, or
          listen at one path
    web.socket:3:1: Socket.SocketMode is "888": write an octal number from 0 to 7777
    web.socket:3:1: Socket.FileDescriptorName is "a:b": write at most 255 characters of
          ASCII without ":"
    web.socket:3:1: Socket.ExecStartPre is not supported: sockets run no commands: move
          the command to ExecStartPre= or ExecStopPost= of the service
    web.socket:3:1: Socket.IPAddressDeny is not supported: the traffic of sockets is not
          confined: remove it, or run the unit under systemd
    "#);
}

#[test]
fn path_settings_are_read() {
    let read = activator("web.path", "[Path]\nPathExists=/a\n");
    assert_eq!(read.unit.as_str(), "web.service");
    assert_eq!(read.limit, TriggerLimit { interval: Duration::from_secs(2), burst: 200 });
    let limited = "[Path]\nPathExists=/a\nTriggerLimitIntervalSec=1h\nTriggerLimitBurst=3\n\
                   Unit=other.target\n";
    let read = activator("web.path", limited);
    assert_eq!(read.limit, TriggerLimit { interval: Duration::from_secs(3600), burst: 3 });
    assert_eq!(read.unit.as_str(), "other.target");
    let path = path(
        "PathExists=/gone\nPathChanged=\nPathExists=/a\nPathExistsGlob=/a/*.b\nPathChanged=/%p\n\
         PathModified=/c\nDirectoryNotEmpty=/d\nMakeDirectory=yes\nDirectoryMode=0700",
    );
    let trigger = |kind, path: &str| PathTrigger { kind, path: path.to_owned() };
    let triggers = [
        trigger(PathTriggerKind::Exists, "/a"),
        trigger(PathTriggerKind::ExistsGlob, "/a/*.b"),
        trigger(PathTriggerKind::Changed, "/web"),
        trigger(PathTriggerKind::Modified, "/c"),
        trigger(PathTriggerKind::DirectoryNotEmpty, "/d"),
    ];
    assert_eq!(path.triggers, triggers);
    assert!(path.make_directory && path.directory_mode == 0o700);
}

#[test]
fn invalid_paths_are_refused() {
    let files = [
        "PathExists=/a\nPathChanged=",
        "PathExists=a",
        "PathExists=/a/../b",
        "PathExists=/a\nUnit=web.path",
        "PathExists=/a\nMakeDirectory=perhaps",
    ];
    let text = |file: &str| refused("web.path", &format!("[Path]\n{file}\n"));
    let output: Vec<String> = files.into_iter().map(text).collect();
    insta::assert_snapshot!(wrapped(&output.join("\n")), @r#"
    web.path: it watches no path: write PathExists=, PathChanged= or the like
    web.path:2:1: Path.PathExists has the relative path "a": write an absolute path
    web.path:2:1: Path.PathExists has a part ".." in the path "/a/../b": write the path
          without it
    web.path:3:1: Path.Unit names web.path: write the name of a .service unit
    web.path:3:1: Path.MakeDirectory is "perhaps": write yes or no
    "#);
}

/// Orders need no remark, since a socket or path is active as soon as it is started.
#[test]
fn relations_of_sockets_and_paths_are_remarked() {
    let text = "[Unit]\nAfter=a.service\nPartOf=a.service\n[Socket]\nListenStream=@a\n\
                [Install]\nWantedBy=sockets.target\n";
    let read = compiled("web.socket", text).expect("it is supported");
    let remarks: Vec<String> = read.remarks.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(wrapped(&remarks.join("\n")), @"
    3:1: Unit.PartOf has no effect: a socket or path neither starts nor stops with other
          units that it names
    ");
}

#[test]
fn sockets_option_wants_and_follows_each_socket() {
    let text = "[Service]\nExecStart=/bin/true\nSockets=a.socket b.socket\nNonBlocking=yes\n";
    let read = compiled("web.service", text).unwrap_or_else(|refusals| panic!("{refusals}"));
    let relations: Vec<(RelationKind, &str)> =
        read.relations.iter().map(|relation| (relation.kind, relation.unit.as_str())).collect();
    let expected = [
        (RelationKind::Wants, "a.socket"),
        (RelationKind::After, "a.socket"),
        (RelationKind::Wants, "b.socket"),
        (RelationKind::After, "b.socket"),
    ];
    assert_eq!(relations, expected);
    assert_eq!(read.descriptors.sockets.len(), 2);
    assert!(read.descriptors.non_blocking && read.descriptors.store_max == 0);
    let text = "[Service]\nExecStart=/bin/true\nSockets=a.service\n";
    let problem = refused("web.service", text);
    assert!(problem.ends_with("names a.service: write the name of a .socket unit"), "{problem}");
}

#[test]
fn stored_descriptors_imply_notifications() {
    let access = |settings: &str| {
        let text = format!("[Service]\nExecStart=/bin/true\n{settings}");
        compiled("web.service", &text).expect("it is supported").unit.run.notify_access
    };
    assert_eq!(access("FileDescriptorStoreMax=1\n"), NotifyAccess::Main);
    assert_eq!(access("FileDescriptorStoreMax=1\nNotifyAccess=all\n"), NotifyAccess::All);
    assert_eq!(access("FileDescriptorStoreMax=0\n"), NotifyAccess::None);
}

proptest! {
    /// An address that is accepted keeps its text, so that it is listened at as written.
    #[test]
    fn listen_address_round_trips(text in "[@/]?[a-z0-9:.\\[\\]%/]{0,12}|[0-9]{1,6}") {
        let text = text.replace('%', "%%");
        let file = format!("[Socket]\nListenStream={text}\n");
        if let Ok(read) = compiled("web.socket", &file) {
            let Some(ActivatorSource::Socket(socket)) = read.activator.map(|it| it.source) else {
                return Err(TestCaseError::fail("it is a socket"));
            };
            let again = socket.listeners[0].address.to_string().replace('%', "%%");
            let file = format!("[Socket]\nListenStream={again}\n");
            let read = compiled("web.socket", &file);
            let read = read.map_err(|refusals| TestCaseError::fail(refusals.to_string()))?;
            let Some(ActivatorSource::Socket(reread)) = read.activator.map(|it| it.source) else {
                return Err(TestCaseError::fail("it is a socket"));
            };
            prop_assert_eq!(reread.listeners, socket.listeners);
        }
    }
}
