//! Arguments that several commands have.

mod fabrics;
mod network;
mod ofi;

use clap::ValueEnum;

pub use fabrics::{ChannelFabric, DemoFabric, LoopbackFabric, device_address};
pub use network::{BadNetwork, Network, Networks, SeededNetworks};
pub use ofi::OnOfi;

/// The name of a value, as the command line has it.
///
/// # Panics
/// Never, where no value is hidden from the command line.
pub fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is hidden").get_name().to_owned()
}
