//! The switch as a process: [`stentor_switch::Switch::step`] between sockets.
//!
//! A [`SoftSwitch`] has two addresses, as every switch of this kind: senders write to the *forward* address, and
//! receivers answer to the *backward* address. A round receives the waiting packets, runs all passes of each packet
//! through the pipeline, and sends the resulting packets. Without fault injection and capture, the switch does not
//! assemble these packets in memory and allocates nothing for them. It passes their headers, the payload in the receive
//! buffer, and their ICRC to the kernel as separate parts.
//!
//! - [`Mode::Plain`]: two UDP sockets, without privileges, for hosts whose packets have the IPv4 identification 0, as
//!   those of `stentor-fabric-roce` have.
//! - [`Mode::Raw`]: raw sockets (CAP_NET_RAW), for every host. Kernels and NICs increment the identification, the ICRC
//!   covers it, and only a raw socket reveals it.
//!
//! # The loop
//! A real switch has a port through which mirror copies return. Here a packet goes through all its passes before the
//! next packet begins; there are at most [`MOST_PASSES`] of them. The loop loses copies with the probability in
//! [`Faults`].
//!
//! # Limits
//! A switch has at most [`MOST_SETS`] sets of up to 32 hosts. Incoming packets wait only in the sockets' buffers;
//! outgoing packets that the kernel does not accept are lost and counted. Plain sockets lose the type of service of
//! packets, and with it the congestion marks. The kernel numbers the packets of a run (UDP_SEGMENT), so hosts must not
//! send runs to this switch.
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
