//! The processes of a configuration on their fabric: their start, their polling loops and their histories. Nodes,
//! clients and the `stentor` command build on it.

mod address;
mod addresses;
mod beginning;
mod clock;
mod clocks;
mod cluster;
mod election_driver;
mod fabric_diagnostics;
mod fabrics;
mod foreign;
mod found;
mod goodbye;
mod histories;
mod hosts;
mod in_use;
mod names;
mod placing;
#[cfg(feature = "checker")]
mod recorder;
mod room;
mod run_loop;
mod start;
mod twin;

pub use address::AddressError;
pub use beginning::{HistoryNotice, first_state, hindrance_beside_missing, hindrance_remedy, told_hindrance};
pub(crate) use clock::wall_ns;
pub use clock::{clock_name, life_now, now_ns};
pub use clocks::{ClockNotice, Clocks};
pub use cluster::{ClusterRuntime, StartError};
pub use election_driver::{Applied, ElectionDriver, Presence};
pub use fabric_diagnostics::{DeviceDiagnostics, FabricDiagnostics};
pub(crate) use fabrics::with_fabric;
#[cfg(feature = "unstable-core")]
#[doc(hidden)]
pub use fabrics::{on_ofi, on_roce, on_shm, on_verbs};
#[cfg(not(feature = "unstable-core"))]
pub(crate) use fabrics::{on_ofi, on_roce, on_shm, on_verbs};
pub use foreign::ForeignPeers;
pub use found::{Found, find, looked_in, refuse_twin};
pub use goodbye::Goodbye;
pub use histories::Histories;
pub use in_use::{InUse, patiently, tcp_port};
pub use names::and;
pub use placing::{JoinError, JoinWatch, Placing};
#[cfg(feature = "checker")]
pub use recorder::Recorder;
pub use room::{Quota, Room, Shortage};
pub(crate) use run_loop::LONGEST_SLEEP;
pub use run_loop::{Housekeeper, MemberLoop, RunError, Stop, client_round, client_round_within, run_member};
pub use start::{BindConfig, ClusterFabric, Role};

pub use stentor_fabric::WaitMode;
#[cfg(feature = "ofi")]
pub use stentor_fabric_ofi::OfiFabric;
#[cfg(feature = "roce")]
pub use stentor_fabric_roce::{RoceFabric, driver::Faults};
#[cfg(feature = "shm")]
pub use stentor_fabric_shm::ShmFabric;
#[cfg(feature = "verbs")]
pub use stentor_fabric_verbs::VerbsFabric;
pub use stentor_multicast::{
    Application, Client, ClientId, Counts, Delivered, DestinationGroups, Frozen, GivenUp, GroupId, Member, MessageId,
    RecordSent, Reply, RestoreError, StateReader, SubmitError, TransferOutcome, TransferReport, TransferRole, Variant,
    Wants, stateless,
};
pub use twin::{as_pid, told_running};
