//! libfabric on this machine: the library, its providers, and the provider that would be chosen.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use stentor::ClusterConfig;
use stentor_fabric::ProcessId;
use stentor_fabric_ofi::{
    DIRECTORY, Info, Libfabric, NetConfig, ORDER, OfiConfig, ProviderDevice, SEGMENT_BYTES, Space, StartError, devices,
    has_segments, providers,
};
use stentor_support::bytes;

use super::Finding;

/// Beginning of the remedies of this file, because only the fabric `ofi` needs libfabric.
const OTHERS: &str = "nothing to do on shm, roce, verbs and sim; for ofi";

/// Returns findings about the library, and about each provider with its devices and their locations.
pub(super) fn findings() -> Vec<Finding> {
    let what = "libfabric";
    let library = match Libfabric::load() {
        Ok(library) => library,
        Err(error) => return vec![Finding::info(what, error.to_string(), format!("{OTHERS} install libfabric1"))],
    };
    let path = library.path().map_or(String::new(), |path| format!(" ({})", path.display()));
    let detail = format!("version {}{path}; interface {} is asked for", library.version(), library.interface());
    let all = devices(library);
    let of = |info: &Info| Finding::ok("libfabric provider", provider(info, &all));
    std::iter::once(Finding::ok(what, detail)).chain(providers(library).iter().map(of)).collect()
}

/// Upper bound of the number of connections of a demonstration of the default size.
const MANY: u64 = 64;

/// Returns the space for files of providers on shared memory, if there is such a provider and a limit.
pub(super) fn segments() -> Option<Finding> {
    let there = providers(Libfabric::load().ok()?).iter().any(|info| has_segments(info.provider()));
    Space::of(Path::new(DIRECTORY)).filter(|_| there).map(room_for)
}

fn room_for(space: Space) -> Finding {
    let what = "room for libfabric's shm";
    let connections = space.left / SEGMENT_BYTES;
    let detail = format!("{space} in {DIRECTORY}: enough for {connections} connections");
    if connections >= MANY {
        return Finding::ok(what, detail);
    }
    Finding::limited(
        what,
        detail,
        format!("{OTHERS} enlarge {DIRECTORY} (docker run --shm-size=1g), or name another provider"),
    )
}

fn provider(info: &Info, all: &[ProviderDevice]) -> String {
    let (version, can, orders) = (info.provider_version(), info.can(), info.orders());
    let devices: Vec<_> =
        all.iter().filter(|device| device.provider == info.provider()).map(ProviderDevice::to_string).collect();
    let mut text = format!("{} {version} on {}: messages", info.provider(), devices.join(", "));
    for (is, name) in [(can.tagged, "tags"), (can.rma, "RDMA"), (can.atomics, "atomics")] {
        if is {
            let _ = write!(text, ", {name}");
        }
    }
    text.push_str(if orders.send_after_send { "; sends in order" } else { "; sends in any order" });
    let _ = write!(
        text,
        "; queues of {} and {}, inject {}; memory modes: {}",
        info.send_depth(),
        info.recv_depth(),
        bytes(info.inject_bytes() as u64),
        info.memory_modes(),
    );
    text
}

/// Returns the parameters of a process whose address is not known, in a cluster with a process at `other`.
fn process(other: Ipv4Addr) -> NetConfig {
    NetConfig::new("", ProcessId(0), vec![None, Some(SocketAddr::new(other.into(), 1))])
}

fn taken(net: &NetConfig, config: &OfiConfig) -> Result<String, StartError> {
    let on = |info: Info| {
        let why = info.why().map_or(String::new(), |why| format!(" ({why})"));
        format!("{} on {}{why}", info.provider(), info.device())
    };
    config.choose(net).map(on)
}

/// Returns whether the fabric `ofi` works here. The text has the providers that it would choose for a cluster on one
/// host and for one on several hosts, with the reason, or says what is missing.
pub(crate) fn would_take() -> (bool, String) {
    let [within, between] =
        [Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 1)].map(|other| taken(&process(other), &OfiConfig::default()));
    let why = format!("the first that exists of {}; `provider` in [ofi] names others", ORDER.join(", "));
    match (within, between) {
        (Ok(within), Ok(between)) => {
            (true, format!("it would use {within} within this host, {between} between hosts ({why})"))
        }
        (Ok(within), Err(error)) => (true, format!("it would use {within} within this host ({why}); else: {error}")),
        (Err(error), Ok(between)) => (true, format!("it would use {between} between hosts ({why}); else: {error}")),
        (Err(error), Err(_)) => (false, error.to_string()),
    }
}

/// Returns the provider that a process of a cluster with this configuration would choose on this host.
pub(crate) fn of_cluster(config: &ClusterConfig) -> Result<String, StartError> {
    let members = config.groups().iter().flat_map(|group| group.members());
    let addresses = members.map(|member| Some(member.address().parse().unwrap_or(NAMED)));
    let addresses = std::iter::once(None).chain(addresses).collect();
    let net = NetConfig::new(config.cluster(), ProcessId(0), addresses);
    taken(&net, &config.ofi().apply(&OfiConfig::default()))
}

/// Placeholder for an address given as a name, which is not resolved here.
const NAMED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1);

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn small_dev_shm_is_limited() {
        let finding = |left| room_for(Space { left, total: 1 << 30 });
        assert_eq!(finding(MANY * SEGMENT_BYTES).state, State::Ok);
        let small = finding(SEGMENT_BYTES - 1);
        assert!(small.state == State::Limited && small.detail.contains("for 0 connections"), "{small:?}");
        assert!(small.remedy.unwrap().contains("--shm-size"));
    }

    /// The result depends on the machine, but is always reported.
    #[test]
    fn library_is_found_or_named() {
        let findings = findings();
        assert_eq!(findings[0].what, "libfabric");
        match Libfabric::load() {
            Ok(_) => {
                assert!(findings[1..].iter().all(|finding| finding.detail.contains("messages")), "{findings:?}");
                let (is_there, why) = would_take();
                assert!(is_there && why.starts_with("it would use "), "{why}");
            }
            Err(error) => assert_eq!((findings.len(), would_take()), (1, (false, error.to_string()))),
        }
    }
}
