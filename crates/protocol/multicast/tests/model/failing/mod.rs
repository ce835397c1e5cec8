//! The same search with failures: members campaign at any time, crash, lose their memory and their connections.
//!
//! # What a state is
//! The real `Replica` of every member, what each has delivered, and what is in every queue pair. Everything that a
//! member writes goes through the real codecs. Bodies are in their rings from the beginning: a member takes them at any
//! time.
//!
//! # What may happen
//! - A member takes the head of a queue pair; between two queue pairs there is no order. Peer messages and forwarded bodies
//!   share the queue pair of timestamps and acknowledgements, as they do in the node.
//! - Any member campaigns, whoever leads: no election is trusted. The fence needs no step of its own: the message that
//!   asks for a promise is taken when any prefix of the old leader's stream is processed, and the rest of it never
//!   counts.
//! - A member crashes. What it wrote and nobody has taken is lost. A write that is taken after the crash is no other
//!   run: a crash is an event of the crashed member alone, so it can as well come after what others still took from it.
//! - A crashed member comes back without memory; two members lose their connection and everything in it; time passes at
//!   a member, and it repeats itself.
//!
//! Each kind has its budget, so the search ends. `reduce`, `lazy` and `leaps` say which runs are not told apart, and why
//! that is sound; `same` compares what comes of the last, end by end, with a search that lacks it.
//!
//! `machine` is searched by stateright and knows all kinds of failures; `depth_first` knows campaigns and one crash, and
//! comes much farther by leaps.
//!
//! # What is judged
//! What `verdict` says, in every state. A state in which nothing can be taken any more is judged by its end, too:
//! `cure` lets time pass and elects soundly, and within bounded rounds every living member must have delivered
//! everything.

mod channels;
mod cure;
mod depth_first;
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
