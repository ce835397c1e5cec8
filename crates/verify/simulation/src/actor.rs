//! The processes of a calm run, without faults.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{SimFabric, World};
use stentor_multicast::{Client, ClientId, Delivered, GroupId, Member, Topology, stateless};

use crate::chance::Chance;
use crate::history::History;
use crate::scenario::Scenario;

/// The state that all processes of a run share.
pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) history: RefCell<History>,
}

/// A member or a client.
#[expect(clippy::large_enum_variant, reason = "a few per run, and nobody moves them")]
pub(crate) enum Actor {
    Member(MemberActor),
    Client(ClientActor),
}

pub(crate) struct MemberActor {
    pub(crate) member: Member<SimFabric>,
    pub(crate) me: ProcessId,
    /// Number of client ids.
    pub(crate) clients: u16,
    pub(crate) shared: Rc<Shared>,
}

pub(crate) struct ClientActor {
    pub(crate) client: Client<SimFabric>,
    pub(crate) me: ProcessId,
    pub(crate) load: Load,
    pub(crate) shared: Rc<Shared>,
}

/// The messages that a client has yet to send.
pub(crate) struct Load {
    pub(crate) chance: Chance,
    pub(crate) left: u64,
    pub(crate) groups: u16,
    pub(crate) longest: usize,
    pub(crate) pause_ns: u64,
    pub(crate) burst: u64,
    large: bool,
    /// The next message, which is drawn but not sent.
    pub(crate) next: Option<Message>,
    pub(crate) not_before_ns: u64,
    pub(crate) expected: u64,
}

pub(crate) struct Message {
    pub(crate) to: Vec<GroupId>,
    pub(crate) payload: Vec<u8>,
    pub(crate) notify: bool,
}

impl Load {
    /// Creates the load of a client, whose messages are drawn later.
    pub(crate) fn new(seed: u64, client: ClientId, scenario: &Scenario, topology: &Topology) -> Load {
        Load {
            chance: Chance::new(seed, 1 + u64::from(client.0)),
            left: scenario.messages,
            groups: topology.groups() as u16,
            longest: scenario.limits.message_bytes,
            pause_ns: scenario.pause_ns,
            burst: scenario.burst,
            large: scenario.large,
            next: None,
            not_before_ns: 0,
            expected: 0,
        }
    }

    fn draw(&mut self) -> Message {
        let chance = &mut self.chance;
        let wanted = match chance.between(0, 9) {
            0..=3 => 1,
            4..=7 => 2,
            8 => 3,
            _ => self.groups,
        };
        let mut to: Vec<GroupId> = (0..self.groups).map(GroupId).collect();
        while to.len() > usize::from(wanted) {
            let drop = chance.between(0, to.len() as u64 - 1) as usize;
            to.remove(drop);
        }
        let bytes = match chance.between(0, 9) {
            _ if self.large && chance.between(0, 3) > 0 => chance.between(self.longest as u64 / 2, self.longest as u64),
            0 => 0,
            1 => chance.between(0, self.longest as u64),
            _ => chance.between(1, 64),
        };
        let mut payload = vec![0; bytes as usize];
        chance.fill(&mut payload);
        Message { to, payload, notify: chance.between(0, 3) == 0 }
    }
}

impl Load {
    /// Returns the next message if one is left and due. If it is not due yet, schedules a wake-up of the process.
    pub(crate) fn take(&mut self, world: &World, me: ProcessId, now_ns: u64) -> Option<Message> {
        if self.left == 0 {
            return None;
        }
        if now_ns < self.not_before_ns {
            world.wake_at(me, self.not_before_ns);
            return None;
        }
        Some(self.next.take().unwrap_or_else(|| self.draw()))
    }

    /// Returns the pause after a message, in nanoseconds: 0 within a burst, a random time after it.
    pub(crate) fn between_messages(&mut self) -> u64 {
        if !self.left.is_multiple_of(self.burst) {
            return 0;
        }
        self.chance.between(0, self.pause_ns)
    }
}

impl stentor_fabric_sim::Actor for Actor {
    fn step(&mut self, now_ns: u64) -> bool {
        match self {
            Actor::Member(member) => member.step(now_ns),
            Actor::Client(client) => client.step(now_ns),
        }
    }
}

impl MemberActor {
    fn step(&mut self, now_ns: u64) -> bool {
        let MemberActor { member, me, clients, shared } = self;
        let clients = *clients;
        let housekept = member.housekeep();
        let group = member.replica().group();
        let mut app = stateless(|delivered: &Delivered<'_>| {
            shared.history.borrow_mut().deliver(now_ns, *me, group, delivered);
            shared.world.mark(*me, format_args!("deliver {}", delivered.id));
        });
        let worked = member.step(Duration::from_nanos(now_ns), &mut app);
        let operations = member.take_operations();
        shared.history.borrow_mut().operations(now_ns, *me, &operations);
        // A client is admitted by peer messages, which members repeat on ticks. No other activity needs ticks in a calm
        // run.
        let open = |client| member.replica().succession(client).is_some_and(|last| last.settled);
        if !(0..clients).map(ClientId).all(open) {
            shared.world.wake_at(*me, member.next_tick().as_nanos() as u64);
        }
        housekept || worked
    }
}

impl ClientActor {
    fn step(&mut self, now_ns: u64) -> bool {
        let mut worked = self.client.housekeep();
        worked |= self.client.step();
        while self.submit(now_ns) {
            worked = true;
        }
        let operations = self.client.take_operations();
        self.shared.history.borrow_mut().operations(now_ns, self.me, &operations);
        worked
    }

    /// Sends the next message if it is due and there is room. Before its first message, the client waits until it
    /// reaches all groups.
    fn submit(&mut self, now_ns: u64) -> bool {
        if self.client.submitted() == 0 {
            let all: Vec<GroupId> = self.client.topology().group_ids().collect();
            if !self.client.reaches_all(&all) {
                return false;
            }
        }
        let load = &mut self.load;
        let Some(message) = load.take(&self.shared.world, self.me, now_ns) else { return false };
        let Ok(submitted) = self.client.submit(&message.to, &message.payload, message.notify) else {
            load.next = Some(message);
            return false;
        };
        self.shared.history.borrow_mut().multicast(now_ns, self.me, submitted.id, &message.to, &message.payload);
        self.shared.world.mark(self.me, format_args!("multicast {}", submitted.id));
        load.left -= 1;
        load.expected += message.to.iter().map(|group| self.client.topology().size(*group) as u64).sum::<u64>();
        load.not_before_ns = now_ns + load.chance.between(0, load.pause_ns);
        true
    }
}
