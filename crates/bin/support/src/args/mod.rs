//! Arguments that several commands have.

mod fabrics;
mod network;
mod ofi;

pub use fabrics::{ChannelFabric, DemoFabric, LoopbackFabric};
pub use network::{BadNetwork, Network, Networks, SeededNetworks};
pub use ofi::OnOfi;
