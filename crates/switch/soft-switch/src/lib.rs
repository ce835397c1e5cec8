//! The switch as a process: [`stentor_switch::Switch::step`] between sockets.
//!
//! A [`SoftSwitch`] has two addresses, as every switch of that kind: what senders write to comes to the *forward* address,
//! answers of receivers come to the *backward* one. A round takes in what is there, lets each packet go through the pipeline
//! with all its mirror passes, and sends what leaves. Packets that leave are never put together: their headers, the payload
//! where it came in, and their ICRC go to the kernel as they are, and nothing is allocated for them.
//!
//! - [`Mode::Plain`]: two UDP sockets, without privileges, for hosts whose packets have the IPv4 identification 0, as those of
//!   `stentor-fabric-roce` have.
//! - [`Mode::Raw`]: raw sockets (CAP_NET_RAW), for every host: kernels and network cards count the identification up, the ICRC
//!   covers it, and only a raw socket shows it.
//!
//! # The loop
//! A real switch has a port through which mirror copies come back. Here a packet goes through all its passes before the next
//! one begins; there are at most [`MOST_PASSES`] of them. The loop loses copies where the [`Faults`] say so.
//!
//! # Limits
//! [`MOST_SETS`] sets of 32 hosts. Of what comes, as much waits as the sockets' buffers hold; of what leaves, what the kernel
//! does not take is lost and counted. On plain sockets the type of service of packets is lost, and with it the marks of
//! congestion; hosts that send runs (UDP_SEGMENT) number their packets, so they must not send runs here.
#![forbid(unsafe_code)]

mod attached;
mod enrolment;
mod faults;
mod member;
mod registry;
mod relay;
mod settings;
mod shown;

pub use attached::{AttachError, Attached, AttachedConfig, settle};
pub use enrolment::Admitted;
pub use faults::Faults;
pub use member::{Heard, Member};
pub use relay::{MOST_PASSES, SoftSwitch, StartError, Tally};
pub use settings::{ConfigError, KeyPlace, MOST_SETS, Problem, Settings, StaticSet, example};
pub use shown::{Cells, Registers, SetShown, Shown};
pub use stentor_fabric_net::control_session::SessionError;
pub use stentor_fabric_roce::driver::Mode;
