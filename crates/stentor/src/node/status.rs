//! How a node stands.

use crate::Position;

/// How a node and its group stand, as far as the node knows.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The name of the node.
    pub name: String,
    /// Whether the node does not take part in its group yet. Its machine may have the group's state a moment earlier.
    pub joining: bool,
    /// The member that leads the group, or led it last. `None`: none is known.
    pub leader: Option<String>,
    /// Whether the node leads.
    pub leads: bool,
    /// The place in the order that was passed last here. `None`: none was passed by this process.
    pub applied: Option<Position>,
    /// Places in the order that the state here contains: those of commands, of reads, of messages of sessions, of time entries, which a
    /// group orders where a session ends or a timer is due, and of version entries.
    pub commands: u64,
    /// Places that were delivered and are not passed yet.
    pub queued: u64,
    /// Where the state machine has panicked, or where a majority of the group, which agrees, says that it differs. It applies nothing more,
    /// until the node has taken the state of the others.
    pub poisoned: Option<Position>,
    /// The command at which the group is halted, by its number in the group: the state machines of a majority have panicked there. The
    /// remedy is to stop its members, mend the state machine, and begin the group anew.
    pub halted: Option<u64>,
    /// The [version](crate::StateMachine::VERSION) of the state machine that is in force at the last place that was passed here.
    pub version: u32,
    /// The other members of the group.
    pub others: Vec<MemberStatus>,
}

/// How another member stands, as it has told last.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub connected: bool,
    /// Places in the order that its state contained. 0: it has told nothing.
    pub commands: u64,
    /// The command at which its state machine has panicked, by its number in the group.
    pub poisoned: Option<u64>,
    /// The [version](crate::StateMachine::VERSION) of the program that it runs. `None`: it has not told since it is connected.
    pub version: Option<u32>,
    /// The place in the group's order at which its state machine was seen to have replied otherwise than that of this node, or to have another
    /// [digest](crate::StateMachine::digest): an [index](crate::Position::index), of a command or of anything else that has a place. The
    /// cause may come before that place, and either may be the one that is wrong: what they do depends on more than the state, the context
    /// and the command. It is `None` again when the two have the same.
    pub differs_at: Option<u64>,
}
