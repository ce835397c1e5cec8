//! Searches with failures: members campaign at any time, crash, lose their memory and their connections.
//!
//! # States
//! A state consists of the real `Replica` of every member, the deliveries of each, and the contents of every queue
//! pair. Everything that a member writes passes through the real codecs. Bodies are in their rings from the beginning:
//! a member takes them at any time.
//!
//! # Steps
//! - A member takes the head of a queue pair; there is no order between two queue pairs. Peer messages and forwarded
//!   bodies share the queue pair of timestamps and acknowledgements, as in the node.
//! - Any member with memory campaigns, regardless of the present leader: no election is trusted. The fence needs no
//!   step of its own: the message that asks for a promise is taken when any prefix of the old leader's stream is
//!   processed, and the rest of the stream never counts.
//! - A member's shell requests a time entry, or reports a version goal. The requests are in a channel of their own from
//!   the beginning. A member that does not lead ignores the request for a time entry and remembers the goal.
//! - A member crashes. Its writes that no member has taken are lost. A write that is taken after the crash adds no
//!   run: a crash is an event of the crashed member alone, so it can just as well follow what others still took from
//!   it.
//! - A crashed member restarts without memory; two members lose their connection and everything in it; time passes at a
//!   member, and it repeats its requests.
//!
//! Each kind has a budget, so the search ends. `reduce`, `lazy` and `leaps` describe which runs are not distinguished,
//! and why that is sound. `same` compares the results of `leaps`, end by end, with a search without it.
//!
//! `machine` is searched by stateright and has all kinds of failures. `depth_first` has campaigns and one crash, and
//! searches much farther by leaps.
//!
//! # Judgement
//! Every state is judged by `verdict`. A state in which nothing can be taken any more is also judged by its end: `cure`
//! lets time pass and holds sound elections, and within bounded rounds every living member must have delivered
//! everything.

mod channels;
mod cure;
mod depth_first;
mod entries;
mod lazy;
mod leaps;
mod machine;
mod member;
#[cfg(feature = "plants")]
mod mutants;
mod possible;
mod reads;
mod reduce;
mod same;
mod search;
mod sites;
mod store;
