//! Channels over a provider of libfabric.

use stentor::ChannelBuilder;
use stentor::config::FabricKind;

use crate::channel::{address, at, miss, talk};

fn ends(test: u8) -> [ChannelBuilder; 2] {
    at(&address(test), FabricKind::Ofi).map(|end| end.providers(["tcp;ofi_rxm"]))
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn provider_of_libfabric_carries_a_channel() {
    talk(ends(78));
}

#[test]
#[ignore = "needs libfabric: cargo xtask test --only ofi"]
fn death_behind_libfabric_is_noticed() {
    miss(ends(81));
}
