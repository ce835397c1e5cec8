//! Checks histories of calls to a replicated service against the consistency that the service promises.
//!
//! The promise is that one serial order of all calls that took effect exists:
//!
//! 1. The sequential [`Model`], which has a state for each group, produces every reply in this order. A call to several
//!    groups is applied in all of them at one position of the order.
//! 2. Each group is linearizable: of two calls with a common group, a call that was answered before the other was
//!    submitted comes first.
//! 3. Each session is respected: of two calls of one session, a call that was answered before the other was submitted
//!    comes first, whatever their groups are. A call comes after all calls whose positions its session had observed.
//! 4. Calls of different sessions without a common group need not respect real time. The service is therefore *not*
//!    strictly serializable. An example is a call a to g2, followed by a call b to g0, while c1 to g0 and g1, and c2 to
//!    g1 and g2, are in progress: the order b, c1, c2, a is permitted.
//!
//! Two kinds of reads are outside of this order, and may be stale. [`Kind::Local`] is answered from the state after
//! some prefix of its group's order. [`Kind::After`] is answered from a prefix that contains the requested position.
//! Neither observes a command that was submitted after its answer. The result of such a read constrains its session:
//! the session's later ordered calls come after that prefix.
//!
//! [Positions](Position) in answers are a claim about the order, which is judged together with it. Positions of
//! multicast calls are unique and rise in each group's order. They are also above all positions that were known when
//! the call was submitted: above the positions of earlier calls to the same group, and at a later time than the
//! positions that the session had observed. Equal times in different groups imply no order. A read that is not
//! multicast observes exactly the commands up to its position. The time of this position is at least the largest time
//! that the session and the group knew if the leader answers ([`Kind::Leader`]), and at least the requested time for
//! [`Kind::After`].
//!
//! A session's next generation inherits its order of commands, because the start of a generation is ordered in all
//! groups of the session. Reads of a superseded process constrain that process alone. Only answers that are *strictly*
//! earlier than a submission count as before it.
//!
//! ```
//! use stentor_checker::calls::{Call, History, Kind, Model, Outcome, Verdict, decide, verify};
//! use stentor_checker::{Group, GroupSet};
//!
//! /// One register per group: a command writes it, a read returns it.
//! struct Register;
//!
//! impl Model for Register {
//!     type State = Vec<u8>;
//!     fn initial(&self, _: Group) -> Vec<u8> {
//!         Vec::new()
//!     }
//!     fn apply(&self, state: &mut Vec<u8>, _: Group, operation: &[u8]) -> Vec<u8> {
//!         *state = operation.to_vec();
//!         Vec::new()
//!     }
//!     fn read(&self, state: &Vec<u8>, _: Group, _: &[u8]) -> Vec<u8> {
//!         state.clone()
//!     }
//! }
//!
//! let groups: GroupSet = [Group(0)].into_iter().collect();
//! let call = |kind, submitted, operation: &[u8], reply: &[u8]| {
//!     let replies = vec![(Group(0), reply.to_vec())];
//!     let outcome = Outcome::Answered { at: submitted + 1, replies, position: None };
//!     let (operation, observed) = (operation.to_vec(), Vec::new());
//!     Call { session: submitted, generation: 1, submitted, groups, operation, kind, outcome, observed }
//! };
//! let mut history = History::new();
//! history.push(call(Kind::Command, 10, b"a", b""))?;
//! history.push(call(Kind::Local, 20, b"", b""))?;
//! let Verdict::Kept(order) = decide(&history, &Register) else { panic!("a local read may be stale") };
//! verify(&history, &Register, &order)?;
//! history.push(call(Kind::Leader, 30, b"", b""))?;
//! let Verdict::Violated(example) = decide(&history, &Register) else { panic!("a read at the leader may not") };
//! assert_eq!(example.calls, [0, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call;
mod decide;
mod graph;
mod history;
mod kind;
mod memo;
mod model;
mod outcome;
mod parts;
mod placement;
mod position;
mod positions;
mod ranks;
mod rule;
mod search;
mod shrink;
mod solve;
mod terms;
mod verdict;
mod witness;

pub use call::Call;
pub use decide::decide;
pub use history::{CallError, History};
pub use kind::Kind;
pub use model::Model;
pub use outcome::Outcome;
pub use position::Position;
pub use rule::Rule;
pub use verdict::{Counterexample, Verdict};
pub use witness::verify;
