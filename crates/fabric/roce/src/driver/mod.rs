//! The driver: sockets, and the code that passes packets between them and the endpoint.

mod annex;
mod gate;
mod inject;
mod pcap;
mod port;
mod pump;
mod runs;
mod sender;
mod settings;
mod sys;

pub use annex::{Junction, Sharing};
pub use gate::{Inlet, Leaving, Outlet, gate};
pub use inject::{Chances, Faults, Injector};
pub use pcap::Pcap;
pub use port::{Port, PortCounters};
pub use pump::Pump;
pub use settings::{Mode, PortError};
pub use stentor_fabric_net::source_address;
/// The headers around the packets of a [`Port`].
pub use stentor_wire::Envelope;
