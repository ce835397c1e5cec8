//! Reliable RDMA multicast in the data plane of a switch.
//!
//! A host sends once, over an ordinary reliable connection whose other end is the switch; the switch makes a copy for each
//! receiver, over as many ordinary connections, and makes one acknowledgement of theirs. Which receivers a message goes to,
//! and where in their memory, is changed by one packet from the sender, a *control packet*, without a controller and without
//! connecting anything anew. Hosts need nothing but queue pairs.
//!
//! This crate is the data plane as a pure function: [`Switch::step`] is one pass of one packet through a pipeline. It does no
//! I/O and reads no clock.
//!
//! # How a pipeline forces it
//! A pass parses, matches on the destination address (forward, backward, neither), walks once through the register arrays in
//! one order, each touched at most once (the types of [`registers`] see to that), and ends with at most one packet that
//! leaves and at most one *mirror copy*: the packet again, with a [`Bridge`], for another pass. A packet for n receivers takes
//! n passes, one receiver each; no multicast engine is used.
//!
//! # Numbers
//! A *set* of up to 32 hosts has a number `gid`; its hosts have *ranks*. The sending queue pair of a rank is connected to
//! `gid << 8 | rank` at the forward address: packets of reliable connections do not say from which queue pair they are, so
//! the rank is in the destination. The receiving one is connected to the same number at the backward address. PSNs and
//! message numbers of sender and receivers have nothing to do with each other; a member's registers translate them.
//!
//! # States of a set
//! *Silent* (not created since the start: nobody gets an answer, as any might be a false one) → *Free* → *Linking* (a control
//! packet is being carried out, member by member) → *Active* (the holder's messages are replicated) → *Linking* again, or
//! *Free* (released), or *Poisoned* (some members may have executed what others have not; queue pairs must be made anew).
//!
//! # Invariants
//! What is *done* of a rank is a PSN: for the rank that holds the set it is what all members have acknowledged
//! ([`registers::Progress::last`]), for others what is kept in [`registers::Rank::done`].
//!
//! 1. Everything up to what is done of a rank was executed by every member that it was for. It never goes back.
//! 2. A positive answer to a rank names what is done of it; a negative one the PSN behind that, because it acknowledges
//!    everything before itself.
//! 3. A packet at or before what is done changes nothing and is acknowledged again, in every state but *silent*.
//! 4. A control packet is carried out only as the first packet behind what is done: everything before it has been executed.
//!    Going back then never crosses it.
//! 5. A control packet takes two phases. The first pass looks and changes nothing; those behind it find what it found, or
//!    are discarded. Between the first member and the last the set is *linking*, and no data goes through and no answer
//!    counts. Members carry the epoch that they were linked for; only the last pass sets the epoch and the list.
//! 6. `psn_out − psn_in` of a member is constant between control packets; `psn_out` grows by one, with a packet that it has
//!    not had, and never otherwise.
//! 7. `top`, the PSN that the next replication begins with, is ahead of no packet that was let through: if it is just behind
//!    what is done, and not inside a message, nothing is half executed. That is when a lease that is over may be taken.
//!
//! # What is left out
//! IPv6 (such packets go their usual way), trees of switches, and locks of single members.
#![forbid(unsafe_code)]

mod cell;
mod command;
pub mod control;
mod counters;
mod emission;
pub mod enrol;
mod feedback;
mod forward;
pub mod host;
mod mutant;
mod parsed;
mod plane;
pub mod registers;
pub mod resources;
mod step;

pub use counters::{Cause, Counters};
pub use emission::{Emission, MAX_HEAD_BYTES};
pub use mutant::Mutant;
pub use plane::{Attachment, CreateError, Host};
pub use step::{Admission, Aggregation, Arrival, Bridge, Config, Departure, Job, Switch};
