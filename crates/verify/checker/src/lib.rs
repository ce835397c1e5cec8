//! Checks histories of Stentor's protocols against the properties that they must have.
//!
//! A history records the events of one run: each multicast with its destinations, each delivery with its time, each
//! crash and each recovery. The same code checks histories of the simulator, of a cluster of real processes and of
//! other systems. `docs/history.md` describes the file format.
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
//! | property | meaning | file in `src/properties` | source |
//! |---|---|---|---|
//! | M1 integrity | delivered at most once, only by destinations, as it was multicast | `m1_integrity.rs` | [Défago et al. 2004], "uniform integrity" |
//! | M2 uniform agreement | delivered by one process: delivered by every correct destination | `m2_agreement.rs` | [Défago et al. 2004], "uniform agreement" |
//! | M3 validity | multicast by a correct client, or synced: delivered by every correct destination | `m3_validity.rs` | [Défago et al. 2004], "validity" |
//! | M4 uniform acyclic order | the union of all delivery orders has no cycle | `m4_acyclic_order.rs` | [Défago et al. 2004], "uniform acyclic order" |
//! | M5 uniform prefix order | common destinations deliver in one order, without holes | `m5_prefix_order.rs` | RamCast (Middleware 2021), "uniform prefix order" |
//! | M6 FIFO per client | messages of a client are delivered in the order of multicast | `m6_fifo.rs` | [Défago et al. 2004], "FIFO order" |
//! | M7 genuineness | only the sender and the destinations take part | `m7_genuineness.rs` | [Guerraoui and Schiper 2001], "genuine" |
//! | M8 bounded memory | memory in use never exceeds the sizes printed at start | `m8_memory.rs` | Stentor's own |
//! | M9 liveness | if majorities are up, every multicast message is delivered | `m9_liveness.rs` | Stentor's own; judged at the history's end |
//! | M10 fencing | writes of an old leader are decided before a newer one is ready, or never | `m10_fencing.rs` | Paxos (Lamport 1998): later ballots contain the choices of earlier ones |
//! | M11 rejoin | a process that rejoins continues its group's order without gap or repeat | `m11_rejoin.rs` | Stentor's own |
//! | M12 session order | a client's multicast is ordered after everything that the client had observed | `m12_session_order.rs` | "session guarantees" (Terry et al. 1994), for message orders |
//! | R1 real-time order | a delivered message is ordered before any later multicast | `r1_real_time.rs` | linearizability (Herlihy and Wing 1990), for message orders |
//! | B1 agreement | correct processes deliver the same payload for one (sender, index) | `b1_agreement.rs` | Byzantine consistent broadcast (Cachin, Guerraoui and Rodrigues 2011, 3.10), "consistency" |
//! | B2 validity | every correct process delivers a correct sender's broadcast, or reports a late skip | `b2_validity.rs` | as B1, "validity" |
//! | B3 integrity | once per (sender, index); from correct senders only what they broadcast | `b3_integrity.rs` | as B1, "no duplication", "integrity" |
//! | B4 FIFO | per sender in index order, without gaps; nothing after its equivocation | `b4_fifo.rs` | as B1, "FIFO delivery" |
//! | B5 partition safety | B1 for crashed, partitioned and suspected processes as well | `b5_partition_safety.rs` | Stentor's own; "uniform" agreement |
//! | B6 bounded memory | rings are reused, and memory stays below the printed size | `b6_memory.rs` | Stentor's own |
//! | B7 evidence | equivocation is reported with both values, and proven only against equivocating senders | `b7_evidence.rs` | Stentor's own |
//! | C1 delivery | every message once, in order, complete, on its connection | `c1_delivery.rs` | reliable FIFO links (Cachin, Guerraoui and Rodrigues 2011, 2.4 and 3.9) |
//! | C2 callback order | completed writes and received messages are reported in the order of operations | `c2_callback_order.rs` | Stentor's own |
//! | C3 credits | no more messages in flight than posted receives | `c3_credits.rs` | Stentor's own |
//! | C4 closing | closed once the fabric has returned all operations; nothing happens afterwards | `c4_closing.rs` | Stentor's own |
//! | C5 errors | an error is reported, with operation, peer and cause | `c5_errors.rs` | Stentor's own |
//!
//! The properties of multicast by a switch, S1 to S11, SL1 and SL2, are judged during the run: see [`switch`].
//!
//! The B properties are checked if a history has events of the broadcast, the C properties if it has events of
//! channels, and the others if it has events of the multicast, or neither of the broadcast nor of channels.
//!
//! [Défago et al. 2004]: https://doi.org/10.1145/1041680.1041682
//! [Guerraoui and Schiper 2001]: https://doi.org/10.1016/S0304-3975(99)00161-9
//!
//! A property that a history cannot decide is [`Verdict::NotChecked`] or [`Verdict::Incomplete`], never "ok". M2, M3,
//! M9 and B2 need a complete history, M7 `remote_op` events, and M8 and B6 `memory` events. M10 needs `epoch` events of
//! leaders and deliveries with their ballots. M11 needs a process that rejoined, and R1 one clock. M12 is in a report
//! only if a client recorded what it had observed (`heard` events) before a multicast.
//!
//! # Cost
//! Every property is linear in the deliveries, except M5, which is linear in deliveries times destination groups of a
//! message. Only the search for the smallest counter-example of a violation may take longer, up to a bound.
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
