//! The status of a node.

use crate::Position;

/// The status of a node and its group, as far as the node knows.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The name of the node.
    pub name: String,
    /// `true` if the node is not yet a member with the group's state. Its state machine may have that state a moment
    /// before or after this field becomes `false`.
    pub joining: bool,
    /// The leader of the latest epoch that the node knows. That member may not lead yet, or may have failed. `None`
    /// while the node is joining.
    pub leader: Option<String>,
    /// `true` if the node leads.
    pub leads: bool,
    /// The last position that this process has applied. `None` if it has applied none.
    pub applied: Option<Position>,
    /// Number of places in the order that this node's state contains. Commands, ordered reads, messages of sessions,
    /// time entries and version entries have a place each. A group orders a time entry when a session ends, a timer is
    /// due, or a read requires a later time.
    pub commands: u64,
    /// Number of places that are delivered and not applied yet.
    pub queued: u64,
    /// The position at which the state machine has panicked, or at which an agreeing majority of the group reports that
    /// it differs. The node applies nothing until it has restored the state of another member.
    pub poisoned: Option<Position>,
    /// The index of the command at which the group is halted: the first one at which a state machine of the group is
    /// poisoned, if those of a majority are. Stop the group's members, mend the state machine, and begin the group
    /// anew.
    pub halted: Option<u64>,
    /// The [version](crate::StateMachine::VERSION) of the state machine that is in force at the last position that this
    /// node has applied.
    pub version: u32,
    /// The other members of the group.
    pub others: Vec<MemberStatus>,
}

/// The status of another member, as far as the node knows.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberStatus {
    /// The name of the member.
    pub name: String,
    /// `true` if the member is connected.
    pub connected: bool,
    /// Number of places in the order that the member's state contained, as the member has last reported. 0 if it has
    /// reported none.
    pub commands: u64,
    /// The index of the command at which the member's state machine is poisoned, as the member has last reported.
    pub poisoned: Option<u64>,
    /// The [version](crate::StateMachine::VERSION) of the program that the member runs. `None` if the member has not
    /// reported it on the present connection.
    pub version: Option<u32>,
    /// The place in the group's order at which the member's state machine was found to differ from the state machine of
    /// this node: it replied otherwise, or has another [digest](crate::StateMachine::digest). The value is an
    /// [index](crate::Position::index) of a command or of any other entry. The cause may be earlier, and either node
    /// may be wrong: a state machine differs if it depends on anything but the state, the context and the command. The
    /// value returns to `None` when the two nodes agree again or their connection ends.
    pub differs_at: Option<u64>,
}
