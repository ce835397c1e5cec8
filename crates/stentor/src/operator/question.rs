//! What an operator asks a member, and what it answers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::control::Asks;

/// What a node is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// How it stands.
    Show,
    /// To let another member lead its group.
    Move {
        /// Its name.
        to: String,
    },
    /// To begin a new incarnation of its group.
    Reset {
        /// The incarnation that ends, as [`Standing::ends`] names it.
        ends: String,
        /// The incarnation begins with nothing, instead of with the state of the member that is asked.
        empty: bool,
    },
    /// To end in order, as by SIGTERM.
    Stop,
    /// To take the connection for that of an observer, once this is answered.
    Observe,
    /// Replaces the network's faults; only a node with `--faults` accepts this.
    Faults {
        /// Lost packets per million.
        drop_ppm: u32,
        /// Addresses from which, and to which, every packet is lost.
        from: Vec<IpAddr>,
        /// The other ends.
        to: Vec<IpAddr>,
    },
}

/// How a member stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// The name of the member.
    pub id: String,
    /// Its process.
    pub pid: u32,
    /// It leads its group and is ready.
    pub leads: bool,
    /// It asks to be promised the leadership.
    pub campaigns: bool,
    /// It waits for its group's state.
    pub joining: bool,
    /// The incarnation of its group in which it has a state; `0-00000000` if it has none.
    #[serde(default)]
    pub incarnation: String,
    /// The incarnation that a reset of its group has to name, as far as it knows.
    #[serde(default)]
    pub ends: String,
    /// Why it does not begin its group with others that have no memory of it either.
    #[serde(default)]
    pub hindrance: Option<String>,
    /// The number of the last ballot whose state it has, and who leads in it.
    pub epoch: u64,
    /// The leader in that ballot.
    pub leader: String,
    /// How long ago that leader's heartbeat was seen to rise, ms. Nobody hears itself, and an election by servers does not
    /// listen.
    #[serde(default)]
    pub heard_ms: Option<u64>,
    /// The number of the largest ballot that it promised.
    pub promised: u64,
    /// The election names it.
    pub named: bool,
    /// Messages that it has delivered.
    pub delivered: u64,
    /// What it waits for since the history of another group began anew.
    #[serde(default)]
    pub unsettled: Vec<Unsettled>,
    /// Messages that it knows of and has not delivered, and some of them.
    pub undelivered: u64,
    /// Some of those, as ids.
    pub waiting: Vec<String>,
    /// How long it has delivered nothing although there was something to deliver, ms.
    #[serde(default)]
    pub stalled_ms: u64,
    /// Whose messages those are that it has not delivered: the clients with most of them.
    #[serde(default)]
    pub clients: Vec<Lag>,
    /// Members that take nothing of what it writes to them, and for which it does not wait any more.
    #[serde(default)]
    pub expelled: Vec<String>,
}

/// What a member waits for since the history of another group began anew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unsettled {
    /// The name of that group.
    pub group: String,
    /// Its incarnation, as this member's group knows it.
    pub incarnation: String,
    /// A majority of this member's group knows it.
    pub in_force: bool,
    /// Messages that were under way to the history before, and are not decided.
    pub messages: u64,
    /// Groups of which a majority has to acknowledge them.
    pub awaited: Vec<String>,
    /// One of them of which another group has other times, so that it is decided nowhere.
    pub disagreed: Option<String>,
}

/// Undelivered messages of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lag {
    /// The name of the client.
    pub client: String,
    /// The number of its undelivered messages.
    pub undelivered: u64,
}

/// What is asked from other hosts instead of [`Question::Show`]; nothing else is answered there.
pub const REMOTE_SHOW: &[u8] = b"show";

/// What a node says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How the member stands.
    Standing(Box<Standing>),
    /// It is on its way.
    Moving,
    /// The request was carried out, or is about to be.
    Done,
    /// The reason why the request is refused at present; it may succeed in a moment.
    NotYet(String),
    /// Why not.
    Refused(String),
}

impl Asks for Question {
    type Answer = Answer;
    const LONGEST: u64 = 4096;

    fn refuse(why: String) -> Answer {
        Answer::Refused(why)
    }
}
