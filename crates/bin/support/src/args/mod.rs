//! Arguments that several commands share.

mod fabrics;
mod network;
mod ofi;

use clap::ValueEnum;

pub use fabrics::{ChannelFabric, DemoFabric, LoopbackFabric, device_address};
pub use network::{BadNetwork, Network, Networks, SeededNetworks};
pub use ofi::OnOfi;

/// Returns the name of a value as the command line spells it.
///
/// # Panics
/// Panics if the value is hidden from the command line. No value of these enums is hidden.
pub fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("no value is hidden").get_name().to_owned()
}
