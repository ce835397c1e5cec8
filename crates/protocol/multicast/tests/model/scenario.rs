//! The messages of a run: groups, clients, messages, destination sets.

use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_multicast::{
    ClientId, Destination, GroupId, Header, Mutant, ProcessRole, Replica, ReplicaConfig, Sender, Topology, Variant,
};

/// A request of a member's shell for an entry of the member's group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Request {
    /// A time entry whose time is later than this.
    Time(u64),
    /// The version entries that this goal needs.
    Version(u32),
}

/// One message of a run.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) client: u16,
    pub(crate) to: Vec<u16>,
    /// `true` if the message is multicast at any time, not at the beginning.
    pub(crate) late: bool,
    /// The message that must be delivered somewhere before this one is multicast, and that this one must follow.
    pub(crate) after: Option<usize>,
    /// The request for which a leader orders the message, if it is an entry of its group. No client multicasts it.
    pub(crate) entry: Option<Request>,
}

/// The fixed part of a run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) sizes: Vec<usize>,
    pub(crate) messages: Vec<Message>,
    /// Requests that members receive at any time: the member, and the request.
    pub(crate) requests: Vec<(u16, Request)>,
    pub(crate) window: u32,
    pub(crate) share: Option<u32>,
    pub(crate) variant: Variant,
    pub(crate) mutant: Mutant,
}

impl Scenario {
    /// Creates a scenario. `messages`: (client, destination groups), in the order in which each client multicasts them.
    pub(crate) fn new(sizes: &[usize], messages: &[(u16, &[u16])]) -> Self {
        let messages: Vec<Message> = messages
            .iter()
            .map(|(client, to)| Message { client: *client, to: to.to_vec(), late: false, after: None, entry: None })
            .collect();
        let mut scenario = Scenario {
            name: String::new(),
            sizes: sizes.to_vec(),
            messages,
            requests: Vec::new(),
            window: 2,
            share: None,
            variant: Variant::V2,
            mutant: Mutant::None,
        };
        scenario.rename();
        scenario
    }

    /// Permits message `index` and its client's later messages to be multicast at any time.
    pub(crate) fn late(mut self, index: usize) -> Self {
        let client = self.messages[index].client;
        self.messages[index..].iter_mut().filter(|message| message.client == client).for_each(|m| m.late = true);
        self.rename();
        self
    }

    /// Makes the late message `index` follow `earlier`: its client has learnt that `earlier` is delivered.
    pub(crate) fn after(mut self, index: usize, earlier: usize) -> Self {
        self.messages[index].after = Some(earlier);
        self.rename();
        self
    }

    /// Sends a request to these members of a group. The leaders that receive it order up to `entries` entries.
    pub(crate) fn request(mut self, group: u16, members: &[u16], request: Request, entries: usize) -> Self {
        let topology = self.topology();
        let client = match request {
            Request::Time(_) => topology.time_client(GroupId(group)),
            Request::Version(_) => topology.version_client(GroupId(group)),
        };
        let entry = Message { client: client.0, to: vec![group], late: false, after: None, entry: Some(request) };
        self.messages.extend(vec![entry; entries]);
        self.requests.extend(members.iter().map(|member| (*member, request)));
        self.rename();
        self
    }

    /// Returns the messages that clients multicast.
    pub(crate) fn of_clients(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().filter(|message| message.entry.is_none())
    }

    pub(crate) fn v1(mut self) -> Self {
        self.variant = Variant::V1;
        self.rename();
        self
    }

    pub(crate) fn window(mut self, window: u32) -> Self {
        self.window = window;
        self
    }

    /// Limits the messages of one client that a leader has in progress while other clients multicast.
    pub(crate) fn share(mut self, share: u32) -> Self {
        self.share = Some(share);
        self.rename();
        self
    }

    #[cfg(feature = "plants")]
    pub(crate) fn mutant(mut self, mutant: Mutant) -> Self {
        self.mutant = mutant;
        self.rename();
        self
    }

    fn rename(&mut self) {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let messages: Vec<String> = self
            .of_clients()
            .map(|m| {
                let when = match m.after {
                    Some(earlier) => format!(" after the delivery of #{earlier} to "),
                    None if m.late => " any time to ".to_owned(),
                    None => " to ".to_owned(),
                };
                format!("c{}{when}{:?}", m.client, m.to)
            })
            .collect();
        self.name = format!("{} {:?} ({})", sizes.join("+"), self.variant, messages.join(", "));
        if let Some(share) = self.share {
            self.name = format!("{} shares of {share}", self.name);
        }
        for (member, request) in &self.requests {
            self.name = format!("{}, {request:?} at {member}", self.name);
        }
        if self.mutant != Mutant::None {
            self.name = format!("{} {:?}", self.name, self.mutant);
        }
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        let clients = self.of_clients().map(|message| message.client + 1).max().unwrap_or(1);
        Arc::new(Topology::new(&self.sizes, clients).expect("the scenario's cluster is possible"))
    }

    /// Returns one replica per member, in order of process.
    pub(crate) fn replicas(&self, topology: &Arc<Topology>) -> Vec<Replica> {
        (0..topology.all_members() as u16)
            .map(|process| {
                Replica::new(ReplicaConfig {
                    variant: self.variant,
                    share: self.share,
                    mutant: self.mutant,
                    ..ReplicaConfig::new(topology.clone(), ProcessId(process), self.window)
                })
            })
            .collect()
    }

    /// Returns one sender per client.
    pub(crate) fn senders(&self, topology: &Arc<Topology>) -> Vec<Sender> {
        (0..topology.clients() as u16)
            .map(|client| Sender::new(topology, ClientId(client), self.window).with_mutant(self.mutant))
            .collect()
    }

    /// Returns the messages for each member's group, as bits of their indices.
    pub(crate) fn destined(&self, topology: &Topology) -> Vec<u32> {
        (0..topology.all_members() as u16)
            .map(|process| {
                let Some(ProcessRole::Member { group, .. }) = topology.role(ProcessId(process)) else { return 0 };
                let messages = self.messages.iter().enumerate();
                messages.filter(|(_, m)| m.to.contains(&group.0)).map(|(index, _)| 1 << index).sum()
            })
            .collect()
    }

    /// Returns whether the first two messages may be delivered in either order: they have a common destination group
    /// and two clients.
    pub(crate) fn is_open(&self) -> bool {
        let [first, second, ..] = self.messages.as_slice() else { return false };
        first.client != second.client && first.to.iter().any(|group| second.to.contains(group))
    }

    /// Returns the number of writes of the whole run, by the formulas of the protocol's counts. For a message to g
    /// groups with N members in all, the client writes N bodies. In a group of p members, the leader writes
    /// (g−1)+(p−1), and in addition with V2 p−1 if g > 1 and N−1 if p = 1, with V1 (p−1)(g−1)+N−1; each follower writes
    /// N−1.
    pub(crate) fn writes(&self) -> usize {
        self.messages.iter().map(|message| self.writes_of(&message.to)).sum()
    }

    fn writes_of(&self, to: &[u16]) -> usize {
        let g = to.len();
        let sizes = || to.iter().map(|group| self.sizes[usize::from(*group)]);
        let all: usize = sizes().sum();
        let leader = |p: usize| {
            (g - 1)
                + (p - 1)
                + match self.variant {
                    Variant::V1 => (p - 1) * (g - 1) + all - 1,
                    Variant::V2 => (if g > 1 { p - 1 } else { 0 }) + if p == 1 { all - 1 } else { 0 },
                }
        };
        all + sizes().map(|p| leader(p) + (p - 1) * (all - 1)).sum::<usize>()
    }

    /// Returns the index of a client's message by its sequence.
    pub(crate) fn index_of(&self, client: u16, sequence: u64) -> Option<usize> {
        let own = self.messages.iter().enumerate().filter(|(_, m)| m.client == client);
        own.map(|(index, _)| index).nth(usize::try_from(sequence.checked_sub(1)?).ok()?)
    }
}

/// Marks an encoded body as one that must follow a time.
pub(crate) fn not_before(mut words: Vec<u64>, time: u64) -> Vec<u64> {
    Header::mark_not_before(&mut words);
    words[1] += 8;
    words.push(time);
    words
}

/// Numbers a message and encodes it as it is written into the rings. The payload is empty, because only the rings
/// handle payloads.
pub(crate) fn encode_body(sender: &mut Sender, message: &Message) -> Vec<u64> {
    let to: Vec<GroupId> = message.to.iter().map(|group| GroupId(*group)).collect();
    let mut destinations: Vec<Destination> = Vec::new();
    let sequence = sender.number(&to, &mut destinations);
    let mut words = vec![0; Header::words(to.len())];
    Header::encode(sequence, 0, false, &destinations, &mut words);
    words
}
