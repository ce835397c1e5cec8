//! One member, and one step of it.

use std::collections::HashMap;

use stentor_fabric::ProcessId;
use stentor_multicast::{
    Ack, Ballot, ClientId, Delivery, Effects, GroupId, Header, Item, PeerMessage, ProcessRole, Rejected,
    RemoteTimestamp, Replica, ReplicaConfig, StreamEntry, StreamItem,
};

use super::channels::{Channels, Parcel};
use crate::network::Wire;
use crate::scenario::{Request, Scenario, encode_body};
use crate::verdict::{ACCEPTED, Entry, Flaws, GENUINE, INTEGRITY, REQUESTED, VERSION, judge};

/// The constant part of a run.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) scenario: Scenario,
    pub(crate) channels: Channels,
    /// Words of each client's message, indexed by message. The messages of clients come first.
    pub(crate) bodies: Vec<Vec<u64>>,
    /// Indexed by member: the messages for its group, as bits.
    pub(crate) destined: Vec<u32>,
    /// Message in each slot, by client, group and slot.
    slots: HashMap<(u16, u16, u64), usize>,
}

impl Context {
    pub(crate) fn new(scenario: Scenario) -> Self {
        let topology = scenario.topology();
        let mut senders = scenario.senders(&topology);
        let (mut bodies, mut slots) = (Vec::new(), HashMap::new());
        for (index, message) in scenario.of_clients().enumerate() {
            let words = encode_body(&mut senders[usize::from(message.client)], message);
            let header = Header::decode(&words, words.len() * 8, &topology).expect("an encoded header");
            for to in header.destinations() {
                slots.insert((message.client, to.group.0, to.slot), index);
            }
            bodies.push(words);
        }
        let destined = scenario.destined(&topology);
        Context { channels: Channels::new(&topology, &scenario), scenario, bodies, destined, slots }
    }

    /// Returns what is in the channels before the run: what the clients write, and the requests of members' shells.
    pub(crate) fn first_parcels(&self) -> impl Iterator<Item = (usize, Parcel)> + '_ {
        let requests =
            self.scenario.requests.iter().map(|(member, request)| {
                (self.channels.number(Wire::Requests { to: *member }), Parcel::Request(*request))
            });
        let bodies = self.scenario.of_clients().zip(&self.bodies).flat_map(move |(message, words)| {
            let groups = message.to.iter().map(|group| GroupId(*group));
            groups.flat_map(|group| self.channels.topology.members(group)).map(move |to| {
                let wire = self.channels.number(Wire::Body { client: message.client, to: to.0 });
                (wire, Parcel::Body(message.client, words.clone()))
            })
        });
        bodies.chain(requests)
    }

    /// Judges the deliveries and mistakes of all members so far.
    pub(crate) fn judge(&self, members: &[&Member]) -> Flaws {
        let now = members.iter().map(|member| &member.log[..]);
        let logs: Vec<&[Entry]> = now.chain(members.iter().map(|member| &member.before[..])).collect();
        let messages = self.scenario.messages.len();
        let flaws = members.iter().fold(0, |flaws, member| flaws | member.flaws);
        let others = super::reads::judge(self, members) | super::entries::judge(self, members);
        let destined = self.destined.repeat(2);
        flaws | others | judge(&self.scenario, &destined, &logs, (1 << messages) - 1, &[0; 8][..messages])
    }

    /// Returns whether a member has delivered all messages of clients to its group.
    pub(crate) fn has_all(&self, member: &Member) -> bool {
        let of_clients = self.destined[usize::from(member.process)] & ((1 << self.bodies.len()) - 1);
        let delivered = member.log.iter().filter(|(message, _)| usize::from(*message) < self.bodies.len());
        delivered.count() == of_clients.count_ones() as usize
    }

    pub(crate) fn config(&self, process: u16) -> ReplicaConfig {
        ReplicaConfig {
            variant: self.scenario.variant,
            retry_ticks: 1,
            mutant: self.scenario.mutant,
            time_entries: !self.scenario.requests.is_empty(),
            ..ReplicaConfig::new(self.channels.topology.clone(), ProcessId(process), self.scenario.window)
        }
    }

    /// Returns the client id of the version entries of a member's group.
    pub(super) fn version_client(&self, process: u16) -> ClientId {
        self.channels.topology.version_client(GroupId(self.group(process)))
    }

    /// Returns the group of a member.
    pub(crate) fn group(&self, process: u16) -> u16 {
        match self.channels.topology.role(ProcessId(process)) {
            Some(ProcessRole::Member { group, .. }) => group.0,
            _ => u16::MAX,
        }
    }
}

/// One member: its state machine, and its deliveries.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Member {
    pub(crate) process: u16,
    /// State machine, or `None` if the member has crashed.
    pub(crate) replica: Option<Replica>,
    /// The ballot of the last stream that began here.
    pub(crate) stream: Ballot,
    pub(crate) log: Vec<Entry>,
    /// The deliveries of an earlier life.
    pub(crate) before: Vec<Entry>,
    pub(crate) restarted: bool,
    pub(crate) flaws: Flaws,
}

/// An event that happens to a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Event<'a> {
    Take(Wire, &'a Parcel),
    Campaign,
    /// The head of a stream may have waited for a while, so the member checks it.
    Stalled(u16, &'a Parcel),
    Tick,
    Connected(u16),
}

/// The result of a step.
pub(crate) struct Step {
    pub(crate) sends: Vec<(usize, Parcel)>,
    /// `true` if the member delivered a message, began or ceased to lead, or made a mistake.
    pub(crate) judge: bool,
}

struct Recorder<'a> {
    context: &'a Context,
    me: u16,
    log: &'a mut Vec<Entry>,
    came: Option<&'a Vec<Entry>>,
    sends: Vec<(usize, Parcel)>,
    delivered: bool,
    /// `true` if the member assigned a client's message in this step.
    assigned: bool,
    flaws: Flaws,
}

impl Recorder<'_> {
    fn send(&mut self, wire: Wire, parcel: Parcel) {
        self.sends.push((self.context.channels.number(wire), parcel));
    }

    fn control(&mut self, to: ProcessId, item: &Item<'_>) {
        let mut words = Vec::new();
        item.encode(&mut words);
        let head = item.head().expect("timestamps and acknowledgements are about messages");
        let message = self.context.scenario.index_of(head.client.0, head.sequence);
        let group = self.context.group(to.0);
        if !message.is_some_and(|message| self.context.scenario.messages[message].to.contains(&group)) {
            self.flaws |= GENUINE.0;
        }
        self.send(Wire::Control { from: self.me, to: to.0 }, Parcel::Item(words));
    }

    fn stream(&mut self, item: &Item<'_>) {
        let mut words = Vec::new();
        item.encode(&mut words);
        let me = self.me;
        for to in self.context.channels.group_of(me).into_iter().filter(|to| *to != me) {
            self.send(Wire::Stream { from: me, to }, Parcel::Item(words.clone()));
        }
    }
}

impl Effects for Recorder<'_> {
    fn to_followers(&mut self, item: &StreamItem<'_>) {
        if matches!(item.entry, StreamEntry::Assign { .. }) {
            let client = item.head.client;
            // A leader learns its goal, or begins to lead, in one step with the assignments that follow.
            let is_late = self.assigned && client == self.context.version_client(self.me);
            self.flaws |= if is_late { VERSION.0 } else { 0 };
            self.assigned |= usize::from(client.0) < self.context.channels.topology.clients();
        }
        self.stream(&Item::Stream(*item));
    }

    fn timestamp(&mut self, to: ProcessId, item: &RemoteTimestamp) {
        self.control(to, &Item::Timestamp(*item));
    }

    fn acknowledge(&mut self, to: ProcessId, ack: &Ack<'_>) {
        self.control(to, &Item::Ack(*ack));
    }

    fn deliver(&mut self, delivery: &Delivery) {
        self.delivered = true;
        match self.context.scenario.index_of(delivery.id.client.0, delivery.id.sequence) {
            Some(message) => self.log.push((message as u8, delivery.timestamp)),
            None => self.flaws |= INTEGRITY.0,
        }
        if delivery.number != self.log.len() as u64 {
            self.flaws |= INTEGRITY.0;
        }
    }

    fn begin_stream(&mut self, ballot: Ballot) {
        self.stream(&Item::Begin(ballot));
    }

    fn send(&mut self, to: ProcessId, message: &PeerMessage) {
        let mut words = Vec::new();
        message.encode(&mut words);
        let state = message.carries_snapshot().then(|| self.log.clone());
        self.send(Wire::Control { from: self.me, to: to.0 }, Parcel::PeerMessage(words, state));
    }

    fn body(&mut self, to: ProcessId, client: ClientId, slot: u64) {
        match self.context.slots.get(&(client.0, self.context.group(self.me), slot)) {
            Some(message) => {
                let parcel = Parcel::Body(client.0, self.context.bodies[*message].clone());
                self.send(Wire::Control { from: self.me, to: to.0 }, parcel);
            }
            None => self.flaws |= INTEGRITY.0,
        }
    }

    fn restore(&mut self, number: u64) {
        match self.came.take() {
            Some(log) if log.len() as u64 == number => self.log.clone_from(log),
            _ => self.flaws |= INTEGRITY.0,
        }
        self.delivered = true;
    }
}

impl Member {
    pub(crate) fn new(context: &Context, process: u16) -> Self {
        let replica = Replica::new(context.config(process));
        let stream = replica.ballot();
        Member {
            process,
            replica: Some(replica),
            stream,
            log: Vec::new(),
            before: Vec::new(),
            restarted: false,
            flaws: 0,
        }
    }

    /// Crashes the member: only its deliveries still count.
    pub(crate) fn crash(&mut self) {
        self.replica = None;
        self.stream = Ballot::NONE;
    }

    /// Starts a new process without memory in its place.
    pub(crate) fn restart(&mut self, context: &Context) {
        self.restarted = true;
        self.before = std::mem::take(&mut self.log);
        self.replica = Some(Replica::joining(context.config(self.process), 2));
    }

    /// Returns whether the member is down or still without memory.
    pub(crate) fn is_failed(&self) -> bool {
        self.replica.as_ref().is_none_or(Replica::is_joining)
    }

    pub(crate) fn leads(&self) -> bool {
        self.replica.as_ref().is_some_and(Replica::is_leader)
    }

    /// Runs one step. Returns `None` if the step must wait, or the member is down.
    pub(crate) fn step(&mut self, context: &Context, event: Event<'_>) -> Option<Step> {
        let led = self.leads();
        let replica = self.replica.as_mut()?;
        let came = if let Event::Take(_, Parcel::PeerMessage(_, state)) = event { state.as_ref() } else { None };
        let me = self.process;
        let log = &mut self.log;
        let mut out =
            Recorder { context, me, log, came, sends: Vec::new(), delivered: false, assigned: false, flaws: 0 };
        let done = match event {
            Event::Take(wire, parcel) => take(replica, &mut self.stream, wire, parcel, &mut out)?,
            Event::Campaign => replica.campaign(&mut out).map(|_| ()),
            Event::Stalled(from, parcel) => {
                stalled(replica, from, parcel, &mut out);
                Ok(())
            }
            Event::Tick => {
                replica.on_tick(&mut out);
                Ok(())
            }
            Event::Connected(peer) => replica.on_connected(ProcessId(peer), &mut out),
        };
        // A member that a client does not wait for may be behind the client's window.
        if !matches!(done, Ok(()) | Err(Rejected::BeyondWindow { .. })) {
            out.flaws |= ACCEPTED.0;
        }
        let Recorder { sends, delivered, flaws, .. } = out;
        self.flaws |= flaws;
        let judge = delivered || flaws != 0 || self.leads() != led;
        Some(Step { sends, judge })
    }
}

/// Passes a request of the shell to the member. A leader without a time entry in progress must order one.
fn order(replica: &mut Replica, request: Request, out: &mut Recorder<'_>) {
    match request {
        Request::Time(after) => {
            let must_order = replica.is_leader() && replica.time_entry_under_way().is_none();
            if replica.order_time(after, out).is_none() && must_order {
                out.flaws |= REQUESTED.0;
            }
        }
        Request::Version(goal) => {
            replica.set_version_goal(goal, out);
        }
    }
}

fn stalled(replica: &mut Replica, from: u16, parcel: &Parcel, out: &mut Recorder<'_>) {
    if let Parcel::Item(words) = parcel
        && let Ok((Item::Stream(item), _)) = Item::decode(words, 0)
        && replica.stream_waits(ProcessId(from), &item)
    {
        replica.on_stalled(&item, out);
    }
}

fn take(
    replica: &mut Replica,
    stream: &mut Ballot,
    wire: Wire,
    parcel: &Parcel,
    out: &mut Recorder<'_>,
) -> Option<Result<(), Rejected>> {
    Some(match (wire, parcel) {
        (_, Parcel::Body(client, words)) => {
            let header = Header::decode(words, words.len() * 8, &out.context.channels.topology).expect("a sound body");
            replica.on_message(ClientId(*client), &header, out)
        }
        (Wire::Stream { from, .. } | Wire::Control { from, .. }, Parcel::Item(words)) => {
            let from = ProcessId(from);
            match Item::decode(words, 0).expect("a sound item").0 {
                Item::Stream(item) if replica.stream_waits(from, &item) => return None,
                Item::Stream(item) => replica.on_stream(from, &item, out),
                Item::Begin(ballot) => {
                    *stream = (*stream).max(ballot);
                    replica.on_begin(from, ballot)
                }
                Item::Timestamp(item) => replica.on_timestamp(from, &item, out),
                Item::Ack(ack) => replica.on_ack(from, &ack, out),
            }
        }
        (Wire::Control { from, .. }, Parcel::PeerMessage(words, _)) => {
            let message = PeerMessage::decode(words).expect("a sound message");
            replica.on_peer_message(ProcessId(from), &message, out)
        }
        (Wire::Requests { .. }, Parcel::Request(request)) => {
            order(replica, *request, out);
            Ok(())
        }
        (wire, parcel) => panic!("{parcel:?} in {wire:?}"),
    })
}
