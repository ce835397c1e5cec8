//! Code shared by the commands that run real processes.

mod capture;
mod child_process;
mod files;
mod history;
mod latency;
mod lines;
mod origin;
mod patient;
mod place;
mod recorded_client;
mod refusals;
mod repeats;
mod run_directory;
mod running;
mod signals;
mod threads;
mod troubles;
mod unstarted;
mod waiting;

pub use capture::{Captures, begin_anew};
pub use child_process::{ChildProcess, ProcessOutput, this_program};
pub use files::Need;
pub use history::{HistoryFile, read_history, unwritten};
pub use latency::{Latency, Micros};
pub use lines::{Input, Line, Lines, TooLong};
pub use origin::{key_fingerprint, key_in_words, origin};
pub use patient::{Busy, patiently};
pub use place::{Joined, Joining, absent};
pub use recorded_client::RecordedClient;
pub use refusals::Refusals;
pub use repeats::Repeats;
pub use run_directory::{RunDirectory, trim_history};
pub use running::{Missed, already, is_stopped, missed};
pub use signals::{
    Interrupt, follow, ignore_signals, is_asked_to_end, outlive_file_sizes, stop_at_end_of_input, watch_signals,
};
pub use stentor::runtime::and;
pub use threads::{at_once, lock, no_thread, thread};
pub use troubles::Troubles;
pub use unstarted::unstarted;
pub use waiting::Waiting;

pub use stentor::runtime::looked_in;

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use stentor::ClusterConfig;
use stentor::config::{FabricKind, MemberConfig};
use stentor::runtime::{BindConfig, Client, ClientId, ClusterFabric, ClusterRuntime, GroupId, StartError};

use stentor_fabric::ProcessId;
use stentor_host::absolute;

use crate::args::Network;
use crate::streams::{Existing, SECRET, write_whole};
use crate::{Failure, hex};

/// Reads a configuration whose fabric has real processes.
pub fn plan(config: &Path) -> Result<ClusterRuntime, Failure> {
    let parsed = ClusterConfig::load(config)?;
    if parsed.fabric() == FabricKind::Sim {
        let remedy = "set fabric = \"shm\", \"roce\", \"verbs\" or \"ofi\"; `stentor sim` simulates";
        return Err(Failure::usage("fabric \"sim\" has no real processes", config.display(), remedy));
    }
    ClusterRuntime::new(parsed).map(|plan| plan.with_file(config)).map_err(|error| unstarted(error, config))
}

/// Returns the parameters that a process on any fabric needs in addition to its configuration.
pub fn bind_config(config: &Path, sockets: PathBuf, bind: Option<IpAddr>, network: &Network) -> BindConfig {
    let (pcap, chances, seed) = (network.pcap.clone(), network.bad.chances(), network.seed);
    BindConfig { sockets, bind, pcap, chances, seed, ..BindConfig::beside(config) }
}

/// Starts the client with a given id. `told` returns the network arguments of a process by its name.
pub fn start_client<F: ClusterFabric>(
    plan: &ClusterRuntime,
    client: ClientId,
    (config, sockets): (&Path, &Path),
    told: impl Fn(&str) -> Network,
) -> Result<Client<F>, StartError> {
    let network = told(plan.name(plan.topology().client_process(client)));
    plan.start_client(client, &bind_config(config, sockets.to_owned(), None, &network))
}

/// Refuses an address, a capture or a faulty network that the fabric of the configuration does not support.
pub fn refuse_foreign(
    plan: &ClusterRuntime,
    bind: Option<IpAddr>,
    network: &Network,
    config: &Path,
) -> Result<(), Failure> {
    match plan.config().fabric() {
        FabricKind::Roce => Ok(()),
        FabricKind::Verbs | FabricKind::Ofi => refuse_traffic(network, config.display()),
        FabricKind::Shm | FabricKind::Sim => refuse_network(bind, network, config.display()),
    }
}

/// Refuses a capture or a faulty network on fabrics where the device or libfabric makes the packets, because this
/// process can neither record nor change these packets.
pub fn refuse_traffic(network: &Network, place: impl Display) -> Result<(), Failure> {
    if network.pcap.is_none() && !network.bad.chances().is_any() {
        return Ok(());
    }
    let what = "a capture or network faults on verbs or ofi, where the device or libfabric makes the packets";
    let remedy = "leave out --pcap and the chances; `tcpdump -i INTERFACE` sees what goes over a network interface";
    Err(Failure::usage(what, place, remedy))
}

/// Refuses an address, a capture or a faulty network on shared memory.
pub fn refuse_network(bind: Option<IpAddr>, network: &Network, place: impl Display) -> Result<(), Failure> {
    if bind.is_none() && network.pcap.is_none() && !network.bad.chances().is_any() {
        return Ok(());
    }
    let what = "an address, a capture or network faults on shared memory, which has none of them";
    Err(Failure::usage(
        what,
        place,
        "leave out --bind, --pcap and the chances, or use fabric = \"roce\" (`--fabric roce` of a command that makes its own configuration)",
    ))
}

/// Returns the ids of the named groups, in rising order. Refuses a group that is named twice, because the user may have
/// meant another one.
pub fn groups(plan: &ClusterRuntime, names: &[String], config: &Path) -> Result<Vec<GroupId>, Failure> {
    let known = || plan.config().groups().iter().map(stentor::config::GroupConfig::id).collect::<Vec<_>>().join(", ");
    let group = |name: &String| {
        plan.group(name).ok_or_else(|| {
            let what = format_args!("there is no group `{name}`");
            Failure::usage(what, config.display(), format_args!("name some of: {}", known()))
        })
    };
    let mut groups = names.iter().map(group).collect::<Result<Vec<_>, _>>()?;
    groups.sort_unstable();
    if let Some(twice) = groups.windows(2).find(|pair| pair[0] == pair[1]) {
        let what = format_args!("group `{}` is named twice", plan.group_name(twice[0]));
        return Err(Failure::usage(what, names.join(","), "name each group once"));
    }
    Ok(groups)
}

/// Returns 32 unpredictable bytes.
pub fn random_bytes() -> std::io::Result<[u8; 32]> {
    let mut random = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random)
}

/// Returns a key for one run: 64 unpredictable hexadecimal digits.
pub fn random_key() -> std::io::Result<String> {
    Ok(hex(&random_bytes()?))
}

/// Writes a [random key](random_key) to a new file that only this user may read.
pub fn write_key(path: &Path) -> std::io::Result<()> {
    write_whole(path, random_key()?.as_bytes(), Existing::Stays, SECRET)
}

/// Returns the name of a process with its address, if it has one, and the reason why its host name cannot be resolved,
/// if there is one.
pub fn whereabouts(plan: &ClusterRuntime, process: ProcessId, unresolved: Option<&str>) -> String {
    let (config, name) = (plan.config(), plan.name(process));
    let mut members = config.groups().iter().flat_map(|group| group.members());
    let is_it = |member: &&MemberConfig| member.id() == name;
    let known = members.find(is_it).map_or_else(|| name.to_owned(), |member| addressed(config, member));
    with_fault(known, unresolved)
}

/// Appends the reason why the host name of a process cannot be resolved.
pub fn with_fault(mut process: String, unresolved: Option<&str>) -> String {
    if let Some(fault) = unresolved {
        process += &format!(", a name that cannot be resolved here: {fault}");
    }
    process
}

/// Remedy for a host name that resolves to no address, or to a wrong one, on some host.
pub const MEND_NAME: &str =
    "mend the name on every host (/etc/hosts, DNS), or write the address into the configuration of all";

/// Returns the id of a member, with its address on fabrics between hosts.
pub fn addressed(config: &ClusterConfig, member: &MemberConfig) -> String {
    let address = if config.fabric().is_between_hosts() { format!(" ({})", member.address()) } else { String::new() };
    format!("{}{address}", member.id())
}

/// Returns the name of the directory in which the processes of a broadcast find each other.
pub fn neb_meeting_name(plan: &ClusterRuntime) -> String {
    format!("{}.neb", plan.meeting_name())
}

/// Returns the directory of the control sockets. A relative path is made absolute at once, because processes may change
/// their working directory.
pub fn directory(asked: Option<&PathBuf>) -> PathBuf {
    asked.map_or_else(stentor_host::default_directory, |asked| absolute(asked))
}
