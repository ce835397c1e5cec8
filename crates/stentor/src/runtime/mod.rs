//! A configuration's processes on their fabric: start, polling loops, histories.

mod clock;
mod cluster;
mod keeper;
mod looping;
mod recorder;

pub use clock::now_ns;
pub use cluster::{Plan, StartError};
pub use keeper::Keeper;
pub use looping::{Housekeeper, RunError, Stop, client_round, run_member};
pub use recorder::Recorder;

pub use stentor_fabric::WaitMode;
pub use stentor_fabric_shm::ShmFabric;
pub use stentor_multicast::{
    Application, Client, ClientId, Counts, Delivered, GroupId, Member, MessageId, SubmitError, Variant, stateless,
};
