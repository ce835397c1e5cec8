//! Start errors, each with its remedy.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use stentor::runtime::{AddressError, StartError};
use stentor_fabric::{ConnectError, OsError, ProcessId};
use stentor_fabric_ofi::{ChooseError, StartError as OfiError};
use stentor_fabric_roce::{NetError, StartError as RoceError};
use stentor_fabric_verbs::StartError as VerbsError;
use stentor_host::{Source, StartError as ShmError};
use stentor_multicast::NodeError;

use super::{MEND_NAME, already};
use crate::Failure;

/// Remedy: the place where the address of a process is configured.
const WHERE: &str = "of a client with --bind; of a member in the configuration of all, because others, clients and `leader show` dial what \
                     stands there, and --bind only chooses among the addresses of its name";

const DOCTOR: &str = "`stentor doctor` says what this machine can do";

/// Returns the failure for a start error. `config` is the file that names the processes.
pub fn unstarted(error: StartError, config: &Path) -> Failure {
    let place = config.display();
    match error {
        StartError::UnknownProcess(name) => Failure::usage(
            format_args!("there is no process `{name}`"),
            place,
            "`stentor config check FILE` lists the processes",
        ),
        StartError::Role(name, role) => Failure::usage(
            format_args!("`{name}` is not a {role}"),
            place,
            "name one; `stentor config check FILE` lists them",
        ),
        StartError::Topology(error) => Failure::usage(error, place, "change the groups"),
        StartError::Room(shortage) => Failure::run(
            &shortage,
            place,
            format_args!("{}; `stentor config check FILE` prints the memory", shortage.remedy()),
        ),
        StartError::Fabric(error) => unmet(error, config),
        StartError::Roce(error) if OsError::remedy_in(&error).is_some() => Failure::refused(&error, place, DOCTOR),
        StartError::Roce(RoceError::Port(error)) => {
            Failure::usage(error, place, format_args!("name an address of this host: {WHERE}"))
        }
        StartError::Roce(RoceError::Net(NetError::Listen { address, source }))
        | StartError::Verbs(VerbsError::Net(NetError::Listen { address, source }))
        | StartError::Ofi(OfiError::Net(NetError::Listen { address, source }))
            if source.kind() == ErrorKind::AddrInUse =>
        {
            Failure::usage(
                format_args!("TCP {address}, where its peers are to reach this process, is used by another program"),
                place,
                format_args!(
                    "stop that program (`{}` names it), or give the process another port",
                    listeners_at(address)
                ),
            )
        }
        StartError::Roce(RoceError::Pcap { path, source }) if source.kind() == ErrorKind::AlreadyExists => {
            Failure::cannot_create("capture", &path, &source)
        }
        StartError::Roce(error) => Failure::refused(&error, place, DOCTOR),
        StartError::Verbs(error) => Failure::refused(&error, place, DOCTOR),
        StartError::Ofi(error) => without_provider(&error, config),
        StartError::Key(error) => Failure::usage(
            error,
            place,
            "write `key = \"file:PATH\"` or \"env:NAME\"; `head -c 32 /dev/urandom | base64` makes one",
        ),
        StartError::Address(error) => unresolved(error, config),
        StartError::Servers { source } => {
            Failure::usage(source, "--zookeeper", "name servers as HOST:PORT, and check [election] and the names")
        }
        error @ (StartError::Election(_)
        | StartError::State { .. }
        | StartError::Thread { .. }
        | StartError::Simulated
        | StartError::NotBuiltIn(_)) => Failure::usage(&error, place, error.remedy()),
        StartError::Node(NodeError::Connect(error)) => {
            let plan = super::plan(config).ok();
            let failure = Failure::refused(&error, place, DOCTOR);
            Failure { what: by_name(&error, |process| Some(plan.as_ref()?.name(process).to_owned())), ..failure }
        }
        StartError::Node(error) => {
            Failure::refused(&error, place, "lower the limits; `stentor config check FILE` prints the memory")
        }
    }
}

/// Returns the command that lists the listeners of an address, and those of its port on the wildcard addresses.
/// Listeners of the port on other addresses are left out, because other members of this host listen there.
fn listeners_at(address: SocketAddr) -> String {
    let port = address.port();
    format!("ss -ltnp 'src {address} or src 0.0.0.0:{port} or src [::]:{port}'")
}

/// Returns the error as text, with the name of the peer in place of its number. Fabrics know processes by number only.
fn by_name(error: &ConnectError, name: impl Fn(ProcessId) -> Option<String>) -> String {
    let (ConnectError::UnknownProcess(peer)
    | ConnectError::System { peer, .. }
    | ConnectError::Refused { peer, .. }
    | ConnectError::Duplicate { peer, .. }) = error
    else {
        return error.to_string();
    };
    // In each of these messages, the peer's number is the first text of that form.
    name(*peer).map_or_else(|| error.to_string(), |name| error.to_string().replacen(&peer.to_string(), &name, 1))
}

/// Returns the failure of a process that cannot use the directory or the locks by which processes of a host find each
/// other.
fn unmet(error: ShmError, config: &Path) -> Failure {
    let place = config.display();
    match error {
        ShmError::AlreadyRunning { name, cluster, pid, about, .. } => {
            let source = super::plan(config).ok().and_then(|plan| plan.source());
            let unknown = || Source { cluster: cluster.clone(), file: config.to_owned(), addresses: Vec::new() };
            let source = source.unwrap_or_else(unknown);
            already(&name, &cluster, pid, about.as_deref(), &source)
        }
        error @ ShmError::ForeignLock { .. } => Failure::usage(error, place, "or give the cluster another name"),
        ShmError::Directory { path, reason } => {
            Failure::usage(reason, path.display(), "or name another directory with --directory")
        }
        ShmError::PathTooLong { path, bytes } => {
            let what = format_args!("the path of a socket would be {bytes} bytes long; at most 107 are possible");
            Failure::usage(what, path.display(), "name a shorter directory with --directory")
        }
        error => Failure::refused(&error, place, DOCTOR),
    }
}

/// Returns the failure of a process whose address cannot be determined or used.
fn unresolved(error: AddressError, config: &Path) -> Failure {
    let place = config.display();
    match error {
        AddressError::Family { .. } => Failure::usage(
            error,
            place,
            "give all members IPv4 addresses in the configuration, or all IPv6 addresses; the address of --bind must be of the same kind",
        ),
        AddressError::Unknown { ref process, .. } if process == "a client" => {
            Failure::usage(error, place, "mend the route to that address, or name an address of this host with --bind")
        }
        AddressError::Unknown { .. } | AddressError::None { .. } => Failure::usage(
            error,
            place,
            format_args!(
                "{MEND_NAME}; --bind does not help: others, clients and `leader show` look the name up themselves"
            ),
        ),
        _ => Failure::usage(error, place, "correct that address"),
    }
}

fn without_provider(error: &OfiError, config: &Path) -> Failure {
    let place = config.display();
    match error {
        OfiError::Choose(ChooseError::Address { .. }) => {
            Failure::usage(error, place, format_args!("name an address of this host: {WHERE}"))
        }
        OfiError::Choose(ChooseError::NoRoom { .. }) => {
            Failure::run(error, place, "make room there, or name another provider: `provider` in [ofi] (or --provider)")
        }
        OfiError::Choose(_) | OfiError::Unfit { .. } => {
            Failure::usage(error, place, "`provider` in [ofi] (or --provider) names one; `stentor doctor` lists them")
        }
        _ => Failure::refused(error, place, DOCTOR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_refused_queue_pairs_are_called_by_their_names() {
        let name = |process: ProcessId| Some(format!("g1.{}", process.0 + 1));
        let (peer, reason) = (ProcessId(1), "no p1".to_owned());
        let refused = ConnectError::Refused { peer, reason: reason.clone() };
        assert_eq!(by_name(&refused, name), "g1.2 refused the connection: no p1");
        let system = ConnectError::System { peer, reason };
        assert_eq!(by_name(&system, name), "cannot make a queue pair to g1.2: no p1");
        assert_eq!(by_name(&ConnectError::NoSets, name), ConnectError::NoSets.to_string());
    }
}
