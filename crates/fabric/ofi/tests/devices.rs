//! Several devices of one provider, tested in a new network namespace with interfaces that the kernel provides.

use std::net::SocketAddr;
use std::process::Command;

use stentor_fabric::ProcessId;
use stentor_fabric_ofi::{Libfabric, NetConfig, OfiConfig, devices};

/// Environment variable that marks the inner process.
const INSIDE: &str = "STENTOR_OFI_RAILS";
/// Script that creates two interfaces on one network and one on another. They are bridges, because a bridge without
/// ports is operational as soon as it is set up.
const RAILS: &str = "set -e; ip link set lo up
for rail in other=10.8.0.1 rail0=10.9.0.1 rail1=10.9.0.2; do
    ip link add ${rail%=*} type bridge; ip addr add ${rail#*=}/24 dev ${rail%=*}; ip link set ${rail%=*} up
done
exec \"$0\" --exact --include-ignored --nocapture inside";

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn processes_of_one_host_use_devices_in_turn() {
    let mut command = Command::new("unshare");
    command.args(["-rn", "sh", "-c", RAILS]).arg(std::env::current_exe().unwrap()).env(INSIDE, "yes");
    let status = command.status().expect("`unshare` starts; otherwise: apt-get install util-linux iproute2");
    assert!(status.success(), "{status}");
}

#[test]
#[ignore = "runs only as the inner process of the other test"]
fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let library = Libfabric::load().expect("libfabric loads; otherwise: apt-get install libfabric1");
    let peer = Some(SocketAddr::from(([10, 9, 0, 77], 1)));
    for provider in ["tcp;ofi_rxm", "udp;ofi_rxd"] {
        let all: Vec<_> = devices(library).into_iter().filter(|device| device.provider == provider).collect();
        let on = |name: &str| all.iter().find(|device| device.name == name).unwrap_or_else(|| panic!("{all:?}"));
        assert_eq!(on("rail0").network, on("rail1").network, "one network");
        assert_ne!(on("rail0").network, on("other").network, "two networks");
        // These processes have no address, so the choice depends only on their index.
        let taken = |me, device: Option<&str>| {
            let net = NetConfig::new("rails", ProcessId(me), vec![None, None, None, None, peer]);
            let device = device.map(str::to_owned);
            OfiConfig { providers: vec![provider.to_owned()], device, ..OfiConfig::default() }
                .choose(&net)
                .unwrap_or_else(|error| panic!("{error}"))
        };
        // Only the first network that libfabric lists is used, which is that of the two interfaces that were created
        // last.
        let network = all[0].network.clone();
        let turns: Vec<_> = (0..4).map(|me| taken(me, None)).collect();
        turns.iter().for_each(|info| eprintln!("{info}"));
        let names: Vec<_> = turns.iter().map(|info| info.domain()).collect();
        let rails: Vec<_> = all.iter().filter(|rail| rail.network == network).map(|rail| rail.name.as_str()).collect();
        let wanted: Vec<_> = (0..4).map(|me| rails[me % rails.len()]).collect();
        assert_eq!(names, wanted, "{all:?}");
        assert_eq!(rails.len(), 2, "{all:?}");
        assert!(turns[1].to_string().contains("this process uses number 2 of them"), "{}", turns[1]);
        // If the configuration names a device, all processes use it.
        assert!((0..4).all(|me| taken(me, Some("other")).domain() == "other"));
        // If a process has an address, the address determines its device, whatever its index.
        let net = NetConfig::new("rails", ProcessId(1), vec![None, Some(([10, 9, 0, 1], 1).into())]);
        let config = OfiConfig { providers: vec![provider.to_owned()], ..OfiConfig::default() };
        assert_eq!(config.choose(&net).unwrap().domain(), "rail0");
    }
}
