//! The host's side of a set: the requests by which a sender makes the switch copy each write to its target members.
//!
//! A [`Sender`] is pure. The caller passes it writes, and it returns the requests to post, in order, to the queue pair
//! that is connected to the switch. A write that fits the member list of the switch is posted at once, unless earlier
//! writes wait. A write to other members, with other keys, or with other differences between their addresses needs a
//! LINK control packet first and waits until that is acknowledged: the switch would refuse data that arrives while it
//! links, and the queue pair would have to send it again.
//!
//! # Invariants
//! 1. Requests are posted in the order of the writes, with a LINK between two writes of different member lists.
//! 2. At most one LINK is in flight, and nothing is posted after it until it is acknowledged. A LINK waits for the
//!    completion of the request before it if that request is signalled; otherwise it is posted at once. (The switch
//!    refuses a LINK that arrives before earlier requests are acknowledged, and the queue pair sends it again.)
//! 3. A LINK carries the PSN and the message number of its own packet. The sender therefore counts the packets and
//!    messages that it posts.
//! 4. The data of waiting writes is in a buffer that is allocated with the sender. A write that finds no room is
//!    refused.
mod held;
mod sender;

pub use sender::{Next, Sender, Session, Target, Written};
