//! The rules that a service promises to its clients.

use std::fmt;

/// One rule of the promise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// Some order of the calls produces every reply.
    Reply,
    /// Of two calls with a common group, a call that was answered before the other was submitted comes first.
    RealTime,
    /// Of two calls of one session, a call that was answered before the other was submitted comes first.
    Session,
    /// A call comes after all calls whose positions its session had observed.
    Observed,
    /// A call to several groups has one position in the order of all of them, and the orders of the groups are
    /// consistent.
    OneOrder,
    /// A stale read is answered from a prefix of its group's order. The prefix contains the requested position, and no
    /// command that was submitted after the answer.
    Prefix,
    /// Positions of multicast calls are unique, rise with the order of effects, and are later than those that the
    /// session had observed. A read is not answered at an earlier position than its kind permits.
    Position,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Reply => "no order of the calls gives these replies",
            Rule::RealTime => "no order that respects real time in each group gives these replies",
            Rule::Session => "no order that respects the sessions gives these replies",
            Rule::Observed => "no order that puts calls after what their sessions had observed gives these replies",
            Rule::OneOrder => "each group has an order that gives these replies, and no one order of all groups does",
            Rule::Prefix => "a stale read is not answered from a prefix that it may see",
            Rule::Position => "the positions in the answers contradict the order of effects",
        })
    }
}
