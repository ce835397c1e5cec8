//! Reliable RDMA multicast in the data plane of a switch.
//!
//! A host sends each message once, over an ordinary reliable connection whose other end is the switch. The switch makes
//! one copy for each receiver, over one ordinary connection each, and combines their acknowledgements into one. The
//! sender changes the receivers of a message, and the addresses in their memory, with a single packet, a *control
//! packet*. No controller takes part, and no connection is set up again. Hosts need nothing but queue pairs.
//!
//! This crate is the data plane as a pure function: [`Switch::step`] is one pass of one packet through a pipeline. It
//! does no I/O and reads no clock.
//!
//! # Constraints of a pipeline
//! A pass parses the packet and matches on the destination address (forward, backward, neither). It then walks once
//! through the register arrays, in one order, and touches each at most once; the types of [`registers`] enforce that.
//! It ends with at most one packet to send and at most one *mirror copy*: the packet again, with a [`Bridge`], for
//! another pass. A data packet for n receivers takes n passes, one for each receiver; no multicast engine is used.
//!
//! # Numbers
//! A *set* of up to 32 hosts has a number `gid`; its hosts have *ranks*. The sending queue pair of a rank is connected
//! to `gid << 8 | rank` at the forward address. Packets of reliable connections do not name their source queue pair, so
//! the destination has to contain the rank. The receiving queue pair of a rank is connected to the same number at the
//! backward address. PSNs and message numbers of the sender and of the receivers are independent of each other; the
//! registers of a member translate between them.
//!
//! # States of a set
//! - *Silent*: the set was removed, or has not been created since the switch started. The switch answers no packet of
//!   the set, because any answer might be wrong.
//! - *Free*: no rank holds the set. Creation leads here.
//! - *Linking*: a control packet is being executed, member by member.
//! - *Active*: the holder's messages are replicated. The set returns to *Linking* with the next control packet, or to
//!   *Free* when the holder releases it.
//! - *Poisoned*: some members may have executed packets that other members have not. The hosts have to create new queue
//!   pairs.
//!
//! # Invariants
//! The *done PSN* of a rank is the PSN up to which all packets of the rank are done. For the rank that holds the set it
//! is the PSN that all members have acknowledged ([`registers::Progress::last`]); for other ranks it is in
//! [`registers::Rank::done`].
//!
//! 1. Every packet up to the done PSN of a rank was executed by every member that it was for. The done PSN never moves
//!    back.
//! 2. A positive answer to a rank names its done PSN. A negative answer names the next PSN, because it acknowledges all
//!    packets before the PSN that it names.
//! 3. A packet at or before the done PSN is acknowledged again, in every state but *silent*. It changes no register,
//!    except that the holder's data renews the lease.
//! 4. A control packet is executed only if it is the first packet after the done PSN, so all packets before it have
//!    been executed. A sender that retransmits (go-back-N) therefore never goes back across a control packet.
//! 5. A control packet is executed in two phases. The first pass reads registers and changes nothing. Later passes must
//!    find the same state as the first one. Otherwise they do not change the session. Between the first member and the
//!    last one the set is *linking*: no data passes, and no answer counts. Members carry the epoch for which they were
//!    linked. Only the last pass sets the session's epoch, and the number and the mask of its members.
//! 6. `psn_out − psn_in` of a member is constant between control packets. `psn_out` grows by one with each packet that
//!    is new to the member, and at no other time.
//! 7. `top` is the PSN at which the next replication begins, and no packet that was replicated is ahead of it. If `top`
//!    is directly after the done PSN and not inside a message, nothing is half executed. Only then may another rank
//!    take over after the lease has expired.
//!
//! # Limits
//! IPv6 packets are forwarded as usual. Trees of switches and locks of single members are not supported.
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
