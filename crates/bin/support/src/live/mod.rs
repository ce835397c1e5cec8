//! What the commands that run real processes share.

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
pub use refusals::{Refusals, and};
pub use repeats::Repeats;
pub use run_directory::{RunDirectory, trim_history};
pub use running::{Missed, already, is_stopped, missed};
pub use signals::{
    Interrupt, follow, ignore_signals, is_asked_to_end, outlive_file_sizes, stop_at_end_of_input, watch_signals,
};
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

/// Reads a configuration whose processes run on a system.
pub fn plan(config: &Path) -> Result<ClusterRuntime, Failure> {
    let parsed = ClusterConfig::load(config)?;
    if parsed.fabric() == FabricKind::Sim {
        let remedy = "set fabric = \"shm\", \"roce\", \"verbs\" or \"ofi\"; `stentor sim` simulates";
        return Err(Failure::usage("fabric \"sim\" has no processes of its own", config.display(), remedy));
    }
    ClusterRuntime::new(parsed).map(|plan| plan.with_file(config)).map_err(|error| unstarted(error, config))
}

/// What a process is told besides its configuration, on whatever fabric.
pub fn bind_config(config: &Path, sockets: PathBuf, bind: Option<IpAddr>, network: &Network) -> BindConfig {
    let (pcap, chances, seed) = (network.pcap.clone(), network.bad.chances(), network.seed);
    BindConfig { sockets, bind, pcap, chances, seed, ..BindConfig::beside(config) }
}

/// Starts the client of a place, which is told what its name says.
pub fn start_client<F: ClusterFabric>(
    plan: &ClusterRuntime,
    client: ClientId,
    (config, sockets): (&Path, &Path),
    told: impl Fn(&str) -> Network,
) -> Result<Client<F>, StartError> {
    let network = told(plan.name(plan.topology().client_process(client)));
    plan.start_client(client, &bind_config(config, sockets.to_owned(), None, &network))
}

/// Refuses an address, a capture or a bad network that means nothing on the fabric of a configuration.
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

/// Refuses what means nothing where others make the packets, which nobody sees on their way.
pub fn refuse_traffic(network: &Network, place: impl Display) -> Result<(), Failure> {
    if network.pcap.is_none() && !network.bad.chances().is_any() {
        return Ok(());
    }
    let what = "a capture or a bad network on verbs or ofi, where the device or libfabric makes the packets";
    let remedy = "leave out --pcap and the chances; `tcpdump -i INTERFACE` sees what goes over a network interface";
    Err(Failure::usage(what, place, remedy))
}

/// Refuses what means nothing on another fabric.
pub fn refuse_network(bind: Option<IpAddr>, network: &Network, place: impl Display) -> Result<(), Failure> {
    if bind.is_none() && network.pcap.is_none() && !network.bad.chances().is_any() {
        return Ok(());
    }
    let what = "an address, a capture or a bad network on shared memory, which has none of them";
    Err(Failure::usage(
        what,
        place,
        "leave out --bind, --pcap and the chances, or use fabric = \"roce\" (`--fabric roce` of a command that makes its own configuration)",
    ))
}

/// Groups by name, in rising order. Who names one twice may have meant another.
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

/// Bytes that nobody can guess.
pub fn random_bytes() -> std::io::Result<[u8; 32]> {
    let mut random = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random)
}

/// A key for one run: 64 hexadecimal digits that nobody can guess.
pub fn random_key() -> std::io::Result<String> {
    Ok(hex(&random_bytes()?))
}

/// Writes such a key to a new file, which nobody else may read.
pub fn write_key(path: &Path) -> std::io::Result<()> {
    write_whole(path, random_key()?.as_bytes(), Existing::Stays, SECRET)
}

/// A process with its address, where it has one, and why its name leads to none, if it does not.
pub fn whereabouts(plan: &ClusterRuntime, process: ProcessId, unresolved: Option<&str>) -> String {
    let (config, name) = (plan.config(), plan.name(process));
    let mut members = config.groups().iter().flat_map(|group| group.members());
    let is_it = |member: &&MemberConfig| member.id() == name;
    let known = members.find(is_it).map_or_else(|| name.to_owned(), |member| addressed(config, member));
    with_fault(known, unresolved)
}

/// Adds why a process's host name leads to no address.
pub fn with_fault(mut process: String, unresolved: Option<&str>) -> String {
    if let Some(fault) = unresolved {
        process += &format!(", a name that cannot be resolved here: {fault}");
    }
    process
}

/// What to do about a host name that leads to no address, or to a wrong one, wherever it is looked up.
pub const MEND_NAME: &str =
    "mend the name on every host (/etc/hosts, DNS), or write the address into the configuration of all";

/// The same of a member.
pub fn addressed(config: &ClusterConfig, member: &MemberConfig) -> String {
    let address = if config.fabric().is_between_hosts() { format!(" ({})", member.address()) } else { String::new() };
    format!("{}{address}", member.id())
}

/// The same of a broadcast.
pub fn neb_meeting_name(plan: &ClusterRuntime) -> String {
    format!("{}.neb", plan.meeting_name())
}

/// Where the control sockets are. A relative path is made absolute at once: processes may change their directory.
pub fn directory(asked: Option<&PathBuf>) -> PathBuf {
    asked.map_or_else(stentor_host::default_directory, |asked| absolute(asked))
}
