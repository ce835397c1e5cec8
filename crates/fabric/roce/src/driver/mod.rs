//! Packets to and from the kernel: sockets, and what may be put between them and the endpoint.

mod gate;
mod inject;
mod pcap;
mod port;
mod pump;
mod runs;
mod sender;
mod sys;

pub use gate::{Inlet, Leaving, Outlet, gate};
pub use inject::{Chances, Faults, Injector};
pub use pcap::Pcap;
pub use port::{Mode, Port, PortCounters, PortError};
pub use pump::Pump;
pub use stentor_fabric_net::source_address;
/// The headers around what a [`Port`] sends.
pub use stentor_wire::Envelope;
