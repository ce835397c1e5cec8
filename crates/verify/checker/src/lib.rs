//! Histories of Stentor's atomic multicast, and the properties that they must have.
//!
//! A history tells what happened in a run: who multicast what to whom, who delivered what and when, who crashed and came
//! back. Whoever produced it — the simulator, a cluster of real processes, another system — is checked by the same code.
//! The file format is described in `docs/history.md`.
//!
//! ```
//! use stentor_checker::{Checker, Cluster, Deliver, Event, EventKind, Group, GroupSet, MessageId, Multicast, Timestamp};
//!
//! let cluster = Cluster::builder().group("g1", ["g1.1"]).clients(["c0"]).build()?;
//! let (member, client) = (cluster.process("g1.1").unwrap(), cluster.process("c0").unwrap());
//! let mut checker = Checker::new(cluster);
//! let (m, group) = (MessageId { client, sequence: 1 }, Group(0));
//! let to: GroupSet = [group].into_iter().collect();
//! let multicast = EventKind::Multicast(Multicast { m, to, len: 5, hash: 7 });
//! checker.event(&Event { t: 1, process: client, incarnation: 1, kind: multicast });
//! let ts = Timestamp { time: 1, group };
//! let deliver = EventKind::Deliver(Deliver { m, group, number: 1, ts, hash: 8, len: None, ballot: None });
//! checker.event(&Event { t: 2, process: member, incarnation: 1, kind: deliver });
//! let report = checker.finish(true);
//! assert_eq!(report.violated().collect::<Vec<_>>(), ["M1"]);
//! # Ok::<(), stentor_checker::ClusterError>(())
//! ```
//!
//! # The properties
//!
//! | property | in words | file in `src/properties` | source |
//! |---|---|---|---|
//! | M1 integrity | delivered at most once, by a destination, as it was multicast | `m1_integrity.rs` | [Défago et al. 2004], "uniform integrity" |
//! | M2 uniform agreement | delivered by one, delivered by every correct destination | `m2_agreement.rs` | the same, "uniform agreement" |
//! | M3 validity | multicast by a correct client, or synced: delivered by every correct destination | `m3_validity.rs` | the same, "validity" |
//! | M4 uniform acyclic order | the union of all delivery orders has no cycle | `m4_acyclic_order.rs` | the same, "uniform acyclic order" |
//! | M5 uniform prefix order | common destinations deliver in one order, without holes | `m5_prefix_order.rs` | RamCast (Middleware 2021), "uniform prefix order" |
//! | M6 FIFO per client | as the client multicast them, so they are delivered | `m6_fifo.rs` | the same survey, "FIFO order" |
//! | M7 genuineness | only sender and destinations take part | `m7_genuineness.rs` | [Guerraoui and Schiper 2001], "genuine" |
//! | M8 bounded memory | never above the sizes printed at start | `m8_memory.rs` | Stentor's own |
//! | M9 liveness | with majorities up, everything multicast is delivered | `m9_liveness.rs` | Stentor's own; a history shows its end |
//! | M10 fencing | what an older leader wrote is decided before a newer one is ready, or never | `m10_fencing.rs` | Paxos (Lamport 1998): a later ballot holds what an earlier one chose |
//! | M11 rejoin | who comes back goes on in its group's order, without a gap or a repeat | `m11_rejoin.rs` | Stentor's own |
//! | M12 session order | what a client multicasts comes after what it had heard of | `m12_session_order.rs` | "session guarantees" (Terry et al. 1994), for message orders |
//! | R1 real-time order | what was delivered is before what is multicast later | `r1_real_time.rs` | linearizability (Herlihy and Wing 1990), for message orders |
//!
//! | B1 agreement | no two correct processes deliver different payloads for one (sender, index) | `b1_agreement.rs` | Byzantine consistent broadcast (Cachin, Guerraoui and Rodrigues 2011, 3.10), "consistency" |
//! | B2 validity | a correct sender's broadcast is delivered by every correct process, or reported as skipped for being too late | `b2_validity.rs` | the same, "validity" |
//! | B3 integrity | at most once per (sender, index); of a correct sender only what it broadcast | `b3_integrity.rs` | the same, "no duplication", "integrity" |
//! | B4 FIFO | per sender in index order, without gaps; nothing after its equivocation | `b4_fifo.rs` | the same, "FIFO delivery" |
//! | B5 partition safety | B1 also for processes that crashed, were cut off or suspected | `b5_partition_safety.rs` | Stentor's own; "uniform" agreement |
//! | B6 bounded memory | rings are used again, and memory stays below what was printed | `b6_memory.rs` | Stentor's own |
//! | B7 evidence | an equivocation is reported with both values, and proven only against a sender that lied | `b7_evidence.rs` | Stentor's own |
//!
//! | C1 delivery | every message once, in the order sent, whole, on the connection it was sent on | `c1_delivery.rs` | the notes on EFA; reliable FIFO links (Cachin, Guerraoui and Rodrigues 2011, 2.4 and 3.9) |
//! | C2 callback order | writes are reported, and messages handed over, in the order of operations | `c2_callback_order.rs` | the notes on EFA |
//! | C3 credits | no more in flight than there are receives for | `c3_credits.rs` | Stentor's own |
//! | C4 closing | closed when the fabric has given everything back, and then nothing more | `c4_closing.rs` | Stentor's own |
//! | C5 errors | an error is told, and names operation, peer and cause | `c5_errors.rs` | Stentor's own |
//!
//! Multicast by a switch, S1 to S11, SL1 and SL2, is judged while it happens: see [`switch`].
//!
//! The B properties are checked where there are events of the broadcast, the C properties where there are events of
//! channels, the others where there are events of the multicast.
//!
//! [Défago et al. 2004]: https://doi.org/10.1145/1041680.1041682
//! [Guerraoui and Schiper 2001]: https://doi.org/10.1016/S0304-3975(99)00161-9
//!
//! A property about which a history cannot tell is [`Verdict::NotChecked`], never "ok": M2, M3 and M9 need a complete
//! history, M7 `remote_op` events, M8 `memory` events, M10 `epoch` events of leaders and deliveries with their ballots, M11 a
//! process that came back, R1 one clock. M12 is in a report only where a client says what it has heard of (`heard` events).
//!
//! # Cost
//! Every property is linear in the deliveries; M5 is linear in deliveries times destination groups of a message. Only the
//! search for the smallest counter-example, when there is one, may take longer, up to a bound.
#![forbid(unsafe_code)]

mod broadcasts;
pub mod calls;
mod chain;
mod channels;
mod checker;
mod cluster;
mod event;
mod histories;
pub mod history;
mod ids;
mod log;
mod order;
mod properties;
mod records;
mod report;
mod runs;
mod sort;
pub mod switch;
mod view;

pub use checker::Checker;
pub use cluster::{Clock, Cluster, ClusterBuilder, ClusterError};
pub use event::{Begun, Broadcast, Deliver, Event, EventKind, Multicast};
pub use history::{Author, Encoder, HistoryError, HistoryWriter, Reader, check_files, check_inputs};
pub use ids::{Ballot, Group, GroupSet, Incarnation, Label, MAX_GROUPS, MessageId, Process, Timestamp};
pub use report::{CounterExample, Counts, Report, Verdict};
