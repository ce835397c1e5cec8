//! A cluster of real state machines, and the steps and faults that can happen to it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_multicast::{
    ClientId, GroupId, Header, Item, MessageId, Mutant, Opening, PeerMessage, ProcessRole, Rejected, Replica,
    ReplicaConfig, Sender, Topology, Variant,
};

use super::judge::Sent;
use super::net::{Log, Net, Parcel, Recorder, Wire};

/// The generation of a process that follows a dead client.
pub(crate) const SUCCESSOR: u64 = 1;

/// One member.
pub(crate) struct Member {
    pub(crate) group: GroupId,
    pub(crate) replica: Option<Replica>,
    pub(crate) log: Log,
    pub(crate) incarnation: u64,
}

/// All processes, and all messages in flight.
pub(crate) struct Cluster {
    pub(crate) topology: Arc<Topology>,
    pub(crate) net: Net,
    pub(crate) members: Vec<Member>,
    /// The deliveries of crashed processes.
    pub(crate) dead: Vec<(GroupId, Log)>,
    pub(crate) senders: Vec<Option<Sender>>,
    pub(crate) sent: HashMap<MessageId, Sent>,
    /// The words of each message.
    bodies: HashMap<MessageId, Vec<u64>>,
    /// Life of the client's present process, by client, for client ids that another process took over (`follow`). A
    /// member counts for such a process only when the member knows its first slot.
    pub(crate) lives: HashMap<u16, u64>,
    /// Client and member pairs that are not connected yet: the client's process writes nothing there.
    strangers: HashSet<(u16, u16)>,
    /// Generation of the process whose hello arrived at a member and that wants to begin, by client and member.
    heirs: HashMap<(u16, u16), u64>,
    /// Client and member pairs in which the client does not count the member for flow control.
    uncounted: HashSet<(u16, u16)>,
    config: (Variant, u32, Mutant),
    pub(crate) deliveries: usize,
    pub(crate) trace: Vec<String>,
    pub(crate) tracing: bool,
}

impl Cluster {
    pub(crate) fn new(sizes: &[usize], clients: u16, config: (Variant, u32, Mutant)) -> Self {
        let topology = Arc::new(Topology::new(sizes, clients).expect("a possible cluster"));
        let (_, window, mutant) = config;
        let members = (0..topology.all_members() as u16).map(|process| {
            let replica = Replica::new(Cluster::config(&topology, process, config));
            Member { group: replica.group(), replica: Some(replica), log: Log::new(), incarnation: 1 }
        });
        let members: Vec<Member> = members.collect();
        let mut net = Net::default();
        for from in 0..members.len() as u16 {
            for to in 0..members.len() as u16 {
                net.streams.insert((from, to), from != to);
            }
        }
        let senders =
            (0..clients).map(|c| Some(Sender::new(&topology, ClientId(c), window).with_mutant(mutant))).collect();
        Cluster {
            net,
            members,
            dead: Vec::new(),
            senders,
            sent: HashMap::new(),
            bodies: HashMap::new(),
            lives: HashMap::new(),
            strangers: HashSet::new(),
            heirs: HashMap::new(),
            uncounted: HashSet::new(),
            config,
            deliveries: 0,
            trace: Vec::new(),
            tracing: false,
            topology,
        }
    }

    fn config(
        topology: &Arc<Topology>,
        process: u16,
        (variant, window, mutant): (Variant, u32, Mutant),
    ) -> ReplicaConfig {
        ReplicaConfig {
            variant,
            retry_ticks: 2,
            founding_ticks: 2,
            // Clients wait for their share as soon as two of them multicast. With several groups, a share is several
            // messages, and clients with one message in flight are modest.
            share: Some(topology.groups() as u32),
            // Time entries are ordered only where a test requests it.
            time_entries: true,
            mutant,
            ..ReplicaConfig::new(topology.clone(), ProcessId(process), window)
        }
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.tracing {
            self.trace.push(what());
        }
    }

    pub(crate) fn is_up(&self, process: u16) -> bool {
        self.members[usize::from(process)].replica.is_some()
    }

    /// Returns the number of members of a group that are down or still without memory.
    pub(crate) fn failed(&self, group: GroupId) -> usize {
        let here = |member: &&Member| member.group == group;
        let failed = |member: &&Member| member.replica.as_ref().is_none_or(Replica::is_joining);
        self.members.iter().filter(here).filter(failed).count()
    }

    /// Runs one step of one member. If `until` is given, only that many of the member's writes are posted, because the
    /// caller then crashes the member.
    pub(crate) fn step<F>(
        &mut self,
        process: u16,
        came: Option<Log>,
        until: Option<usize>,
        input: F,
    ) -> Result<(), String>
    where
        F: FnOnce(&mut Replica, &mut Recorder<'_>) -> Result<(), String>,
    {
        let member = &mut self.members[usize::from(process)];
        let Some(replica) = &mut member.replica else { return Ok(()) };
        let mut recorder = Recorder {
            topology: self.topology.clone(),
            me: process,
            group: member.group,
            log: &mut member.log,
            came,
            sends: Vec::new(),
            deliveries: 0,
            flaw: None,
        };
        let before = replica.ordered_version();
        let done = input(replica, &mut recorder);
        // A leader orders version entries when it learns of a goal, and when its ballot begins.
        for version in before..replica.ordered_version() {
            let incarnation = u64::from(replica.ballot().incarnation()).saturating_sub(1);
            let (client, sequence) =
                (self.topology.version_client(member.group), incarnation << 56 | u64::from(version));
            let (id, to) = (MessageId { client, sequence }, vec![member.group.0]);
            self.sent.entry(id).or_insert(Sent { id, to, whole: false, after: 0 });
        }
        let Recorder { mut sends, deliveries, flaw, .. } = recorder;
        for (_, parcel) in &mut sends {
            if let Parcel::Held(client, slot) = *parcel {
                let sequence = replica.sequence_of(client, slot).unwrap_or(0);
                let words = self.bodies.get(&MessageId { client, sequence });
                let words = words.ok_or_else(|| format!("a body that nobody sent: {client:?}, slot {slot}"))?;
                *parcel = Parcel::Body(client, words.clone());
            }
        }
        self.deliveries += deliveries;
        for (wire, parcel) in sends.into_iter().take(until.unwrap_or(usize::MAX)) {
            self.send(wire, parcel);
        }
        match flaw {
            Some(flaw) => Err(flaw),
            None => done,
        }
    }

    fn send(&mut self, wire: Wire, parcel: Parcel) {
        match (wire, &parcel) {
            (Wire::Stream { from, to }, _) if !self.net.streams[&(from, to)] => return,
            // A state that is installed names the start of the stream; entries of the stream may arrive before it.
            (Wire::Control { from, to }, message) if is_install(message) && !self.net.streams[&(from, to)] => {
                self.net.queues.remove(&Wire::Stream { from, to });
                self.net.streams.insert((from, to), true);
            }
            _ => {}
        }
        self.net.push(wire, parcel);
    }

    /// Takes the parcel at the head of a queue pair, and passes it to the receiver. Returns `Ok(false)` if there is
    /// none, or if it must wait.
    pub(crate) fn take(&mut self, wire: Wire, until: Option<usize>) -> Result<bool, String> {
        let Some(parcel) = self.net.queues.get(&wire).and_then(|queue| queue.front()).cloned() else {
            return Ok(false);
        };
        let to = wire.receiver();
        if let (Wire::Stream { from, .. }, Parcel::Item(words)) = (wire, &parcel)
            && let Ok((Item::Stream(item), _)) = Item::decode(words, 0)
            && let Some(replica) = &self.members[usize::from(to)].replica
            && replica.stream_waits(ProcessId(from), &item)
        {
            return Ok(false);
        }
        self.net.queues.get_mut(&wire).and_then(std::collections::VecDeque::pop_front);
        self.note(|| format!("{wire:?} {}", describe(&parcel)));
        let topology = self.topology.clone();
        match (wire, parcel) {
            (wire, Parcel::Body(client, words)) => self.step(to, None, until, |replica, recorder| {
                let header = Header::decode(&words, words.len() * 8, &topology).map_err(|e| e.to_string())?;
                let generation = MessageId { client, sequence: header.sequence }.generation();
                if matches!(wire, Wire::Body { .. }) && generation < replica.over_below(client) {
                    return Ok(());
                }
                // A member that a client does not count may have missed so much that its window is behind.
                let _ = replica.on_message(client, &header, recorder);
                Ok(())
            }),
            (Wire::Stream { from, .. } | Wire::Control { from, .. }, Parcel::Item(words)) => {
                self.step(to, None, until, |replica, recorder| {
                    let from = ProcessId(from);
                    let (item, _) = Item::decode(&words, 0).map_err(|e| e.to_string())?;
                    let done = match item {
                        Item::Stream(item) => replica.on_stream(from, &item, recorder),
                        Item::Begin(ballot) => replica.on_begin(from, ballot),
                        Item::Timestamp(item) => replica.on_timestamp(from, &item, recorder),
                        Item::Ack(ack) => replica.on_ack(from, &ack, recorder),
                    };
                    match done {
                        // A member that lags has a window below that of the clients. It asks for the messages that it
                        // missed.
                        Err(Rejected::BeyondWindow { .. }) => Ok(()),
                        Err(rejected) => Err(format!("{to} refuses {item:?} from {from}: {rejected}")),
                        Ok(()) => Ok(()),
                    }
                })
            }
            (Wire::Control { from, .. }, Parcel::PeerMessage(words, state)) => {
                self.step(to, state, until, |replica, recorder| {
                    let message = PeerMessage::decode(&words).map_err(|e| e.to_string())?;
                    let done = replica.on_peer_message(ProcessId(from), &message, recorder);
                    done.map_err(|rejected| format!("{to} refuses {message:?} from {from}: {rejected}"))
                })
            }
            (wire, parcel) => Err(format!("{parcel:?} in {wire:?}")),
        }?;
        Ok(true)
    }

    /// Makes a client multicast. If `until` is given, the client dies after it has written to that many members.
    /// Returns `false` if the client cannot multicast.
    pub(crate) fn submit(&mut self, client: u16, to: &[u16], until: Option<usize>) -> bool {
        let groups: Vec<GroupId> = to.iter().map(|group| GroupId(*group)).collect();
        let Some(sender) = &mut self.senders[usize::from(client)] else { return false };
        for group in &groups {
            // The counting members come first: a member that does not count may have missed what they have freed.
            let members = self.topology.members(*group).enumerate();
            let (uncounted, counted): (Vec<_>, Vec<_>) =
                members.partition(|(_, process)| self.uncounted.contains(&(client, process.0)));
            for (index, process) in counted.into_iter().chain(uncounted) {
                let member = &self.members[process.index()];
                let freed = member.replica.as_ref().map_or(0, |replica| replica.first_held(ClientId(client)));
                if !self.uncounted.contains(&(client, process.0)) {
                    sender.on_freed(*group, index, freed);
                } else if freed >= sender.freed(*group)
                    && member.replica.as_ref().is_some_and(|r| !r.is_joining())
                    && self.lives.get(&client).is_none_or(|life| is_opened(member, client, *life))
                    && !self.strangers.contains(&(client, process.0))
                {
                    self.uncounted.remove(&(client, process.0));
                    sender.admit(*group, index, freed);
                }
            }
        }
        let is_reached = groups.iter().all(|group| sender.has_majority(*group));
        if sender.check(&groups).is_err() || self.lives.contains_key(&client) && !is_reached {
            return false;
        }
        let (id, words) = self.number(client, &groups, until.is_none());
        let members: Vec<ProcessId> = groups.iter().flat_map(|group| self.topology.members(*group)).collect();
        for member in members.into_iter().take(until.unwrap_or(usize::MAX)) {
            if self.is_up(member.0) && self.has_greeted(client, member.0) {
                let wire = Wire::Body { client, to: member.0 };
                self.net.push(wire, Parcel::Body(ClientId(client), words.clone()));
            }
        }
        if until.is_some() {
            self.senders[usize::from(client)] = None;
        }
        self.note(|| format!("submit {id} to {to:?} {until:?}"));
        true
    }

    /// Returns the latest final time of the client's messages, at any member.
    fn latest_of(&self, client: u16) -> u64 {
        let logs = self.logs();
        let own = logs.iter().flat_map(|(_, log)| log.iter()).filter(|(id, _)| id.client.0 == client);
        own.map(|(_, stamp)| stamp.time).max().unwrap_or(0)
    }

    /// Returns the next message of a living client: its id, and its words as written into the rings.
    fn number(&mut self, client: u16, groups: &[GroupId], whole: bool) -> (MessageId, Vec<u64>) {
        let learned = self.latest_of(client);
        let sender = self.senders[usize::from(client)].as_mut().expect("a client that lives");
        let mut destinations = Vec::new();
        let sequence = sender.number(groups, &mut destinations);
        // At most every other message names a time, because messages without one take another path through the codecs.
        let after = if sequence.is_multiple_of(2) { learned } else { 0 };
        let mut words = vec![0; Header::words(groups.len())];
        let bytes = if after > 0 { 8 } else { 0 };
        Header::encode(sequence, bytes, false, &destinations, &mut words);
        if after > 0 {
            Header::mark_not_before(&mut words);
            words.push(after);
        }
        let id = MessageId { client: ClientId(client), sequence };
        let to = groups.iter().map(|group| group.0).collect();
        self.sent.insert(id, Sent { id, to, whole, after });
        assert!(self.bodies.insert(id, words.clone()).is_none(), "{id} is used twice");
        (id, words)
    }

    /// Makes a client that is about to die multicast, and write only to some members.
    pub(crate) fn write_some(&mut self, client: u16, to: &[u16], reached: impl Fn(u16) -> bool) {
        let groups: Vec<GroupId> = to.iter().map(|group| GroupId(*group)).collect();
        let (id, words) = self.number(client, &groups, false);
        let members = groups.iter().flat_map(|group| self.topology.members(*group));
        let reached: Vec<u16> = members.map(|member| member.0).filter(|member| reached(*member)).collect();
        for to in &reached {
            self.net.push(Wire::Body { client, to: *to }, Parcel::Body(ClientId(client), words.clone()));
        }
        self.note(|| format!("{id} to {to:?} is written to {reached:?} only"));
    }

    /// Delivers the hello of a dead client's successor to a member. The member then forwards the successor's request to
    /// begin. At most `left` more of the dead client's messages arrive at the member.
    pub(crate) fn succeed(&mut self, client: u16, process: u16, left: usize) -> Result<(), String> {
        self.lose_client(client, process, left)?;
        self.note(|| format!("client {client} has a successor at {process}"));
        self.heirs.insert((client, process), SUCCESSOR);
        self.ask_to_open(process)
    }

    /// Begins another process with a client id: these members forward its request. The process continues after the
    /// slots of earlier processes, all of which are done.
    pub(crate) fn begin(&mut self, client: u16, generation: u64, members: &[u16]) -> Result<(), String> {
        if let Some(sender) = &mut self.senders[usize::from(client)] {
            sender.resume_sequence(generation << MessageId::GENERATION_BITS);
        }
        for member in members {
            self.heirs.insert((client, *member), generation);
            self.ask_to_open(*member)?;
        }
        Ok(())
    }

    /// Makes a member forward the requests of processes whose hello it has and that want to begin.
    fn ask_to_open(&mut self, process: u16) -> Result<(), String> {
        let mut asked: Vec<_> = self.heirs.iter().filter(|((_, member), _)| *member == process).collect();
        asked.sort_unstable();
        for ((client, _), generation) in
            asked.into_iter().map(|(at, generation)| (*at, *generation)).collect::<Vec<_>>()
        {
            let client = ClientId(client);
            let asked = Opening { client, life: generation, told: generation + 1, above: 0 };
            self.step(process, None, None, |replica, recorder| {
                if replica.succession(client).is_none_or(|last| last.generation < generation) {
                    replica.open(asked, recorder);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Makes a member give up a dead client, which was away for too long. At most `left` more of the client's messages
    /// arrive.
    pub(crate) fn give_up(&mut self, client: u16, process: u16, left: usize) -> Result<(), String> {
        self.lose_client(client, process, left)?;
        self.note(|| format!("{process} gives up client {client}"));
        let generation = self.heirs.get(&(client, process)).copied().unwrap_or(0);
        self.step(process, None, None, |replica, _| {
            replica.end_client(ClientId(client), generation);
            Ok(())
        })
    }

    /// Makes another process take over a client id. No member counts for that process before the member knows its first
    /// slot. Messages of the previous process may become no-ops, except messages that are already held by majorities,
    /// together with all earlier ones.
    pub(crate) fn follow(&mut self, client: u16, life: u64) {
        let topology = self.topology.clone();
        let mut ids: Vec<MessageId> = self.sent.keys().filter(|id| id.client.0 == client).copied().collect();
        ids.sort_unstable();
        let mut synced = true;
        for id in ids {
            let words = &self.bodies[&id];
            let header = Header::decode(words, words.len() * 8, &topology)
                .expect("the message was multicast with a valid header");
            synced &= header.destinations().all(|to| self.is_held(id, &header, to.group));
            self.sent.entry(id).and_modify(|sent| sent.whole &= synced);
        }
        self.senders[usize::from(client)] = Some(Sender::new(&topology, ClientId(client), self.config.1));
        for process in 0..topology.all_members() as u16 {
            self.uncounted.insert((client, process));
            self.strangers.insert((client, process));
        }
        self.lives.insert(client, life);
        self.note(|| format!("life {life} takes the place of client {client}"));
    }

    /// Returns whether a majority of a group holds a message in one ballot.
    fn is_held(&self, id: MessageId, header: &Header<'_>, group: GroupId) -> bool {
        let holders = self.topology.members(group).filter_map(|process| {
            let replica = self.members[process.index()].replica.as_ref()?;
            let holds =
                replica.over_below(id.client) <= id.generation() && replica.admit(id.client, header) == Ok(None);
            replica.counts_in().filter(|_| holds)
        });
        let ballots: Vec<_> = holders.collect();
        let most = ballots.iter().map(|ballot| ballots.iter().filter(|other| *other == ballot).count()).max();
        most.unwrap_or(0) >= self.topology.majority(group) as usize
    }

    /// Connects the process with a client id to a member. At most `left` more of the previous process's messages
    /// arrive.
    pub(crate) fn greet(&mut self, client: u16, process: u16, left: usize) -> Result<(), String> {
        if self.strangers.remove(&(client, process)) {
            self.lose_client(client, process, left)?;
        }
        Ok(())
    }

    pub(crate) fn has_greeted(&self, client: u16, process: u16) -> bool {
        !self.strangers.contains(&(client, process))
    }

    fn lose_client(&mut self, client: u16, process: u16, left: usize) -> Result<(), String> {
        let wire = Wire::Body { client, to: process };
        for _ in 0..left {
            self.take(wire, None)?;
        }
        self.net.queues.remove(&wire);
        Ok(())
    }

    /// Breaks and re-establishes a client's connection with a member. Messages in flight are lost, and the client does
    /// not count the member until it has caught up.
    pub(crate) fn cut_client(&mut self, client: u16, process: u16) {
        self.net.queues.remove(&Wire::Body { client, to: process });
        self.uncount(client, process);
        self.note(|| format!("cut client {client} from {process}"));
    }

    fn uncount(&mut self, client: u16, process: u16) {
        let Some(ProcessRole::Member { group, index }) = self.topology.role(ProcessId(process)) else { return };
        if let Some(sender) = &mut self.senders[usize::from(client)] {
            sender.expel(group, usize::from(index));
        }
        self.uncounted.insert((client, process));
    }

    pub(crate) fn uncounted_in(&self, client: u16, group: GroupId) -> usize {
        let members: Vec<u16> = self.topology.members(group).map(|process| process.0).collect();
        self.uncounted.iter().filter(|(c, member)| *c == client && members.contains(member)).count()
    }

    pub(crate) fn crash(&mut self, process: u16) {
        let member = &mut self.members[usize::from(process)];
        if member.replica.take().is_some() {
            let log = std::mem::take(&mut member.log);
            self.dead.push((member.group, log));
            (0..self.topology.clients() as u16).for_each(|client| self.uncount(client, process));
            self.note(|| format!("crash {process}"));
        }
    }

    /// Starts a new process without memory.
    pub(crate) fn restart(&mut self, process: u16) -> Result<(), String> {
        self.note(|| format!("restart {process}"));
        self.net.queues.retain(|wire, _| !wire.touches(process));
        let member = &mut self.members[usize::from(process)];
        member.incarnation += 1;
        let config = Cluster::config(&self.topology, process, self.config);
        member.replica = Some(Replica::joining(config, member.incarnation));
        for other in 0..self.members.len() as u16 {
            if other != process && self.is_up(other) {
                self.reconnect(process, other)?;
            }
        }
        Ok(())
    }

    /// Drops all messages in flight between two members, and reconnects them.
    pub(crate) fn reconnect(&mut self, a: u16, b: u16) -> Result<(), String> {
        self.note(|| format!("reconnect {a} {b}"));
        self.net.queues.retain(|wire, _| !wire.joins(a, b));
        self.net.streams.insert((a, b), false);
        self.net.streams.insert((b, a), false);
        for (one, other) in [(a, b), (b, a)] {
            self.step(one, None, None, |replica, recorder| {
                replica.on_connected(ProcessId(other), recorder).map_err(|e| e.to_string())
            })?;
        }
        Ok(())
    }

    pub(crate) fn campaign(&mut self, process: u16, until: Option<usize>) -> Result<(), String> {
        let ready = self.members[usize::from(process)].replica.as_ref().is_some_and(|r| !r.is_joining());
        if !ready {
            return Ok(());
        }
        self.note(|| format!("campaign {process}"));
        self.step(process, None, until, |replica, recorder| {
            replica.campaign(recorder).map(|_| ()).map_err(|e| e.to_string())
        })
    }

    pub(crate) fn tick(&mut self, process: u16) -> Result<(), String> {
        self.ask_to_open(process)?;
        let stalled: Vec<(u16, Vec<u64>)> = self.stalled(process);
        self.step(process, None, None, |replica, recorder| {
            for (from, words) in &stalled {
                if let Ok((Item::Stream(item), _)) = Item::decode(words, 0)
                    && replica.stream_waits(ProcessId(*from), &item)
                {
                    replica.on_stalled(&item, recorder);
                }
            }
            replica.on_tick(recorder);
            Ok(())
        })
    }

    /// Asks a member to order a time entry. `whole` is `true` if the member will continue to lead. Returns whether it
    /// ordered an entry; a member that does not lead orders none.
    pub(crate) fn order_time(&mut self, process: u16, not_before: u64, whole: bool) -> Result<bool, String> {
        let Some(member) = self.members.get(usize::from(process)) else { return Ok(false) };
        let (group, mut ordered) = (member.group, None);
        self.step(process, None, None, |replica, recorder| {
            ordered = replica.order_time(not_before, recorder);
            Ok(())
        })?;
        let Some(id) = ordered else { return Ok(false) };
        self.note(|| format!("{process} orders {id} after {not_before}"));
        // An entry that a leader assigned without effect is assigned again under the same name, for the time of the
        // next request.
        let sent = self.sent.entry(id).or_insert(Sent { id, to: vec![group.0], whole, after: not_before });
        (sent.whole, sent.after) = (whole, sent.after.min(not_before));
        Ok(true)
    }

    /// Returns the number of version entries delivered by members that are up.
    pub(crate) fn version_entries(&self) -> usize {
        let clients = self.topology.group_ids().map(|group| self.topology.version_client(group)).collect::<Vec<_>>();
        let ids = self.members.iter().flat_map(|member| &member.log).map(|(id, _)| id.client);
        ids.filter(|client| clients.contains(client)).count()
    }

    /// Reports to a member a version goal of its group.
    pub(crate) fn set_version_goal(&mut self, process: u16, goal: u32) -> Result<(), String> {
        self.step(process, None, None, |replica, recorder| {
            replica.set_version_goal(goal, recorder);
            Ok(())
        })
    }

    fn stalled(&self, process: u16) -> Vec<(u16, Vec<u64>)> {
        let mut heads: Vec<(u16, Vec<u64>)> = Vec::new();
        for (wire, queue) in &self.net.queues {
            if let (Wire::Stream { from, to }, Some(Parcel::Item(words))) = (*wire, queue.front())
                && to == process
            {
                heads.push((from, words.clone()));
            }
        }
        heads.sort_unstable();
        heads
    }

    /// Returns the logs of all lives.
    pub(crate) fn logs(&self) -> Vec<(GroupId, &Log)> {
        let alive = self.members.iter().map(|member| (member.group, &member.log));
        alive.chain(self.dead.iter().map(|(group, log)| (*group, log))).collect()
    }
}

/// Returns whether a member knows a process's first slot.
fn is_opened(member: &Member, client: u16, life: u64) -> bool {
    let succession = member.replica.as_ref().and_then(|replica| replica.succession(ClientId(client)));
    // Another group may have caused this group to close the generation first, without a life.
    succession.is_some_and(|last| last.settled && (last.life == life || last.life == 0))
}

fn is_install(parcel: &Parcel) -> bool {
    matches!(parcel, Parcel::PeerMessage(words, _) if matches!(PeerMessage::decode(words), Ok(PeerMessage::Install { .. })))
}

fn describe(parcel: &Parcel) -> String {
    match parcel {
        Parcel::Body(client, words) => format!("body c{}:{}", client.0, words[0]),
        Parcel::Held(client, slot) => format!("body of {client:?} in slot {slot}"),
        Parcel::Item(words) => format!("{:?}", Item::decode(words, 0).map(|(item, _)| item)),
        Parcel::PeerMessage(words, _) => format!("{:?}", PeerMessage::decode(words)),
    }
}
