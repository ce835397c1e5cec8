//! Three hosts, which are network namespaces joined by a bridge and veth pairs.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use stentor_kv::demo::{Shape, configuration};

pub(crate) const HOSTS: u16 = 3;
/// Environment variable that is set in a process with its own namespaces.
const INSIDE: &str = "STENTOR_KV_HOSTS";

/// The hosts of this process, which has namespaces of its own. The kernel removes the namespaces when the process ends.
///
/// Host *m* runs member *m* of each group. The link `v`*m* connects the host to the bridge.
#[derive(Debug)]
pub(crate) struct Hosts(());

impl Hosts {
    /// Creates the hosts if this process has its own namespaces. Otherwise runs the test again in a process with its
    /// own namespaces, and returns `None`.
    pub(crate) fn new(test: &str) -> Option<Hosts> {
        if std::env::var_os(INSIDE).is_none() {
            let mut again = Command::new("unshare");
            again.arg("-rnm").arg(std::env::current_exe().expect("the path of this program is known"));
            again.args(["--exact", test, "--nocapture", "--include-ignored"]).env(INSIDE, "1");
            let status = again.status().expect("`unshare` starts: install util-linux");
            assert!(status.success(), "the test in its own namespaces ended with {status}");
            return None;
        }
        let run = |line: &str| {
            let status = Command::new("sh").args(["-ec", line]).status().expect("a shell");
            assert!(status.success(), "`{line}` ended with {status}; it needs iproute2 and user namespaces");
        };
        run("mount -t tmpfs tmpfs /run; mkdir /run/netns; ip link set lo up; ip link add bridge type bridge");
        run("ip addr add 10.77.0.1/16 dev bridge; ip link set bridge up");
        for host in 1..=HOSTS {
            run(&format!("ip netns add h{host}; ip link add v{host} type veth peer name eth0 netns h{host}"));
            run(&format!("ip link set v{host} master bridge up; ip -n h{host} link set lo up"));
            run(&format!("ip -n h{host} link set eth0 up"));
            for group in 1..=2 {
                run(&format!("ip -n h{host} addr add 10.77.{group}.{host}/16 dev eth0"));
            }
        }
        Some(Hosts(()))
    }

    /// Returns the configuration of a cluster on these hosts.
    pub(crate) fn configuration(&self, shape: &Shape) -> String {
        configuration(shape).expect("a possible shape").replace("127.77.", "10.77.")
    }

    /// Writes a script that runs `program` on the host that the node's name selects. Returns the path of the script.
    pub(crate) fn program(&self, program: &Path, directory: &Path) -> PathBuf {
        let path = directory.join("node.sh");
        let text = format!("#!/bin/sh\nexec ip netns exec \"h${{2##*.}}\" '{}' \"$@\"\n", program.display());
        fs::write(&path, text).expect("the directory is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the script's mode can be set");
        path
    }

    /// Returns whether packets reach a host. A host that is reached refuses the connection, because no process listens
    /// at this port.
    pub(crate) fn reaches(&self, host: u64) -> bool {
        let address = SocketAddr::from(([10, 77, 1, host as u8], 9));
        let connected = TcpStream::connect_timeout(&address, Duration::from_millis(100));
        connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }

    /// Reconnects a host if `up` is `true`. Otherwise disconnects it from all other hosts.
    pub(crate) fn set_up(&self, host: u64, up: bool) {
        let state = if up { "up" } else { "down" };
        let status = Command::new("ip").args(["link", "set", &format!("v{host}"), state]).status().expect("iproute2");
        assert!(status.success(), "{status}");
    }
}
