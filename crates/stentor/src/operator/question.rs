//! The questions that an operator asks a member, and their answers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::control::Asks;

/// A question to a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// Returns the node's status.
    Show,
    /// Hands leadership of the group over to another member.
    Move {
        /// The name of the member.
        to: String,
    },
    /// Begins a new incarnation of the group.
    Reset {
        /// The incarnation to end, in the form of [`Standing::ends`].
        ends: String,
        /// `true` if the incarnation begins with nothing, instead of with the state of the asked member.
        empty: bool,
    },
    /// Stops the node in an orderly way, as SIGTERM does.
    Stop,
    /// Turns this connection into the connection of an observer, after the answer.
    Observe,
    /// Replaces the network's faults. Only a node with `--faults` accepts this.
    Faults {
        /// Lost packets per million.
        drop_ppm: u32,
        /// Addresses from which every packet is lost.
        from: Vec<IpAddr>,
        /// Addresses to which every packet is lost.
        to: Vec<IpAddr>,
    },
}

/// The status of a member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// The name of the member.
    pub id: String,
    /// The id of the member's operating system process.
    pub pid: u32,
    /// `true` if the member leads its group and is ready.
    pub leads: bool,
    /// `true` if the member campaigns for leadership.
    pub campaigns: bool,
    /// `true` if the member waits for its group's state.
    pub joining: bool,
    /// The incarnation of the member's group whose state the member has, or `0-00000000` if it has none.
    #[serde(default)]
    pub incarnation: String,
    /// The incarnation that a reset of the member's group must name, as far as the member knows.
    #[serde(default)]
    pub ends: String,
    /// The reason why the members without memory cannot begin the group, unless the reason is a missing member.
    #[serde(default)]
    pub hindrance: Option<String>,
    /// The number of the last ballot whose state the member has.
    pub epoch: u64,
    /// The leader of that ballot.
    pub leader: String,
    /// Time since that leader's heartbeat last rose, in milliseconds. `None` if it never rose, if this member is the
    /// leader, or if servers run the election.
    #[serde(default)]
    pub heard_ms: Option<u64>,
    /// The number of the largest ballot that the member has promised.
    pub promised: u64,
    /// `true` if the election names the member as the leader.
    pub named: bool,
    /// Number of messages that the member has delivered.
    pub delivered: u64,
    /// Messages that are unsettled since other groups were reset or began anew, one entry per group.
    #[serde(default)]
    pub unsettled: Vec<Unsettled>,
    /// Number of messages that the member knows and has not delivered.
    pub undelivered: u64,
    /// The ids of some undelivered messages.
    pub waiting: Vec<String>,
    /// Time for which the member has delivered nothing although messages were waiting, in milliseconds.
    #[serde(default)]
    pub stalled_ms: u64,
    /// The clients with the most undelivered messages.
    #[serde(default)]
    pub clients: Vec<Lag>,
    /// Members for which this member no longer waits, because they do not consume its writes.
    #[serde(default)]
    pub expelled: Vec<String>,
}

/// The unsettled messages of a member since the history of another group began anew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unsettled {
    /// The name of that group.
    pub group: String,
    /// The incarnation of that group, as this member's group knows it.
    pub incarnation: String,
    /// `true` if a majority of this member's group knows the incarnation.
    pub in_force: bool,
    /// Number of undecided messages that were in flight to the earlier history.
    pub messages: u64,
    /// Groups of which a majority must acknowledge the undecided messages.
    pub awaited: Vec<String>,
    /// An undecided message for which another group has other times, so that no group can decide the message.
    pub disagreed: Option<String>,
}

/// The undelivered messages of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lag {
    /// The name of the client.
    pub client: String,
    /// Number of undelivered messages of the client.
    pub undelivered: u64,
}

/// The question of another host that corresponds to [`Question::Show`]. No other question is answered across hosts.
pub const REMOTE_SHOW: &[u8] = b"show";

/// An answer of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The status of the member.
    Standing(Box<Standing>),
    /// The hand-over or the reset has begun.
    Moving,
    /// The request was carried out, or is about to be.
    Done,
    /// The reason why the request is refused at present. It may succeed soon.
    NotYet(String),
    /// The reason why the request is refused.
    Refused(String),
}

impl Asks for Question {
    type Answer = Answer;
    /// In a cluster of the largest size, a status may name thousands of members and 256 groups.
    const LONGEST: u64 = 1 << 20;

    fn refuse(why: String) -> Answer {
        Answer::Refused(why)
    }
}
