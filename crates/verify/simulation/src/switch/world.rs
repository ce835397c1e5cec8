//! A switch, its hosts and the links between them, as a state machine of single steps. Searches try every possible
//! step; simulation runs draw steps at random.
//!
//! Links preserve the order of packets unless a step reorders them. After each step, endpoints send and programs post
//! all that they can. Time does not pass by itself: a timer step advances a host to its next deadline, and a lease step
//! lets leases expire.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use stentor_checker::switch::{Copied, MemberView, Registers, SetWatch, Told};
use stentor_fabric::Status;
use stentor_fabric_roce::endpoint::Outbox;
use stentor_switch::control::Control;
use stentor_switch::registers::State;
use stentor_switch::{Arrival, Bridge, Cause, Config, CreateError, Switch};
use stentor_wire::{Headers, IpPacket, IpRepr, Message, Repr, Response, Syndrome};

use super::host::{Flight, Host, Setup};
use super::program::Op;
use super::step::Step;
use super::tape::Tape;

/// Duration of a lease. [`Step::Lease`] advances the switch's clock by more than this.
const LEASE: Duration = Duration::from_millis(100);

/// Number of sets that the switch has room for from [`Setup::gid`] on: the first one, and those that replace it after
/// losses.
const SETS: usize = 4;

/// A packet that waits in the loop for its next pass.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Looping {
    flight: Flight,
    bridge: Bridge,
    /// Number of passes so far.
    passes: u32,
    /// Number of copies so far.
    copies: u32,
    /// Number of members when the packet arrived.
    members: u32,
}

/// A switch, its hosts, and the links between them.
#[derive(Clone)]
pub struct World {
    pub(crate) setup: Setup,
    pub(crate) switch: Switch,
    pub(crate) hosts: Vec<Arc<Host>>,
    pub(crate) up: Vec<VecDeque<Flight>>,
    pub(crate) down: Vec<VecDeque<Flight>>,
    looping: VecDeque<Looping>,
    pub(crate) watch: SetWatch,
    now_ns: u64,
    /// Number of timeouts of senders.
    pub(crate) timeouts: u64,
    /// `true` if any step was not an in-order arrival, a pass of the loop, or a timer.
    pub(crate) disturbed: bool,
    /// `true` if a session began after leases expired, so that a holder may have lost its session.
    pub(crate) stolen: bool,
    /// The transcripts, if they are recorded.
    pub(crate) tape: Option<Box<Tape>>,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let links: Vec<_> = (0..self.ranks()).map(|rank| self.lengths(rank)).collect();
        f.debug_struct("World").field("state", &self.state()).field("links", &links).finish_non_exhaustive()
    }
}

impl PartialEq for World {
    fn eq(&self, other: &World) -> bool {
        self.key() == other.key()
    }
}

impl Eq for World {}

impl std::hash::Hash for World {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl World {
    /// Returns the part of the world that determines its future. Counters are not part of it.
    fn key(&self) -> impl PartialEq + std::hash::Hash + '_ {
        let registers = self.switch.arrays();
        let flights = (&self.up, &self.down, &self.looping);
        (registers, &self.hosts, flights, &self.watch, self.now_ns, (self.timeouts > 0, self.disturbed, self.stolen))
    }

    /// Creates a world with one host per program. The index of a program is the rank of its host.
    ///
    /// # Errors
    /// Returns a [`CreateError`] if there are no programs or too many.
    pub fn new(setup: Setup, config: Config, programs: Vec<Vec<Op>>, out: &mut Outbox) -> Result<World, CreateError> {
        let ranks = 0..programs.len().min(256) as u8;
        let mut switch = Switch::new(config, usize::from(setup.gid) + SETS);
        let descriptions: Vec<_> = ranks.clone().map(|rank| setup.description(rank)).collect();
        switch.create(setup.gid, LEASE, &descriptions)?;
        let firsts: Vec<_> = ranks.clone().map(|rank| setup.firsts(rank)).collect();
        let hosts = ranks.zip(programs).map(|(rank, program)| Arc::new(Host::new(rank, &setup, program)));
        let hosts: Vec<_> = hosts.collect();
        let links = vec![VecDeque::new(); hosts.len()];
        let watch = SetWatch::new(&firsts);
        let (up, down) = (links.clone(), links);
        let looping = VecDeque::new();
        let mut world = World {
            setup,
            switch,
            hosts,
            up,
            down,
            looping,
            watch,
            now_ns: 0,
            timeouts: 0,
            disturbed: false,
            stolen: false,
            tape: None,
        };
        (0..world.hosts.len()).for_each(|rank| world.go_on(rank, out));
        Ok(world)
    }

    /// Records all later steps, and the packets that are already on the links to the switch.
    pub(crate) fn record(&mut self, tape: Option<Box<Tape>>) {
        self.tape = tape;
        if let Some(tape) = &mut self.tape {
            let sent = (0..).zip(&self.up).flat_map(|(rank, link)| link.iter().map(move |flight| (rank, flight)));
            sent.for_each(|(rank, flight)| tape.sent(rank, flight));
        }
    }

    /// Returns the judge of the properties, with its findings.
    #[must_use]
    pub fn watch(&self) -> &SetWatch {
        &self.watch
    }

    /// Returns the switch.
    #[must_use]
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Returns whether no packet is in flight.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.looping.is_empty() && self.up.iter().chain(&self.down).all(VecDeque::is_empty)
    }

    /// Returns whether a host waits for a deadline.
    #[must_use]
    pub fn waits(&self, rank: usize) -> bool {
        self.hosts.get(rank).is_some_and(|host| host.endpoint.next_deadline().is_some())
    }

    /// Returns the number of packets on the link to the switch, in the loop, and on the link to the host.
    #[must_use]
    pub fn lengths(&self, rank: usize) -> (usize, usize, usize) {
        let len = |links: &[VecDeque<Flight>]| links.get(rank).map_or(0, VecDeque::len);
        (len(&self.up), self.looping.len(), len(&self.down))
    }

    /// Returns the number of hosts.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the PSN that a host expects next as a receiver.
    #[must_use]
    pub fn expects(&self, rank: usize) -> Option<u32> {
        self.hosts.get(rank).map(|host| host.expects())
    }

    /// Appends requests to a host's program.
    pub fn ask(&mut self, rank: usize, ops: impl IntoIterator<Item = Op>, out: &mut Outbox) {
        if let Some(host) = self.hosts.get_mut(rank) {
            Arc::make_mut(host).program.extend(ops);
            self.go_on(rank, out);
        }
    }

    /// Returns the number of receives of a host that completed and were not posted again.
    #[must_use]
    pub fn used_receives(&self, rank: usize) -> u32 {
        self.hosts.get(rank).map_or(0, |host| host.used)
    }

    /// Returns the state of the set.
    #[must_use]
    pub fn state(&self) -> State {
        self.switch.arrays().view(self.setup.gid).map_or(State::Silent, |view| view.session.state)
    }

    /// Returns whether the set has a holder that will send nothing more.
    #[must_use]
    pub fn holder_is_gone(&self) -> bool {
        let Some(view) = self.switch.arrays().view(self.setup.gid) else { return false };
        let held = matches!(view.session.state, State::Linking | State::Active);
        held && self.hosts.get(usize::from(view.session.holder)).is_some_and(|host| host.is_done())
    }

    /// Returns whether every host has completed its program or cannot continue.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.hosts.iter().all(|host| host.is_done())
    }

    /// Describes work that is unfinished without an excuse, if there is any. A poisoned or silent set is an excuse, and
    /// so is a session that another host took over.
    #[must_use]
    pub fn unfinished(&self) -> Option<String> {
        if matches!(self.state(), State::Poisoned | State::Silent) {
            return None;
        }
        let stuck = self.hosts.iter().find(|host| !host.is_done());
        if let Some(host) = stuck {
            return Some(format!("rank {} waits for {} requests, set {:?}", host.rank, host.open, self.state()));
        }
        // After another host has taken over the session, the switch rejects further packets of the former holder.
        let excused = |status| self.stolen && status == Status::RemoteOperational;
        let broke = self.hosts.iter().find(|host| host.broke.is_some_and(|status| !excused(status)))?;
        Some(format!("rank {}'s queue pair ended: {:?}, set {:?}", broke.rank, broke.broke, self.state()))
    }

    /// Executes a step. A step that is not possible changes no packet and no register.
    pub fn step(&mut self, step: Step, out: &mut Outbox) {
        if let Some(tape) = &mut self.tape {
            tape.begin(step);
        }
        self.carry_out(step, out);
        if let (Some(tape), Some(view)) = (&mut self.tape, self.switch.arrays().view(self.setup.gid)) {
            tape.end(&view, self.hosts.len());
        }
    }

    fn carry_out(&mut self, step: Step, out: &mut Outbox) {
        self.disturbed |= !matches!(step, Step::Up(_, 0) | Step::Down(_, 0) | Step::Loop | Step::Timer(_));
        match step {
            Step::Up(rank, place) => {
                if let Some(flight) = self.up[usize::from(rank)].remove(place.into()) {
                    self.arrive(&flight);
                }
            }
            Step::Loop => self.loop_once(),
            Step::Down(rank, place) => self.deliver(rank, place.into(), out),
            Step::LoseUp(rank) => drop(self.up[usize::from(rank)].pop_front()),
            Step::LoseLoop => drop(self.looping.pop_front()),
            Step::LoseDown(rank) => drop(self.down[usize::from(rank)].pop_front()),
            Step::RepeatUp(rank) => {
                if let Some(flight) = self.up[usize::from(rank)].front().cloned() {
                    self.arrive(&flight);
                }
            }
            Step::RepeatDown(rank) => {
                if let Some(flight) = self.down[usize::from(rank)].front().cloned() {
                    self.down[usize::from(rank)].push_front(flight);
                    self.deliver(rank, 0, out);
                }
            }
            Step::DamageUp(rank, byte) => damage(&mut self.up[usize::from(rank)], byte),
            Step::DamageDown(rank, byte) => damage(&mut self.down[usize::from(rank)], byte),
            Step::Timer(rank) => {
                let rank = usize::from(rank);
                self.timeouts += u64::from(Arc::make_mut(&mut self.hosts[rank]).tick());
                self.go_on(rank, out);
            }
            Step::Lease => self.now_ns += 3 * LEASE.as_nanos() as u64,
            Step::Receives(rank) => {
                Arc::make_mut(&mut self.hosts[usize::from(rank)]).post_receives();
            }
            Step::Restart => {
                self.switch.restart();
                self.looping.clear();
                self.watch.forget_registers();
            }
        }
    }

    /// Delivers a packet to a host.
    fn deliver(&mut self, rank: u8, place: usize, out: &mut Outbox) {
        let rank = usize::from(rank);
        let Some(flight) = self.down[rank].remove(place) else { return };
        if let Some(tape) = &mut self.tape {
            tape.delivered(rank, &flight);
        }
        let host = Arc::make_mut(&mut self.hosts[rank]);
        host.receive(&flight);
        let expects = host.expects();
        self.watch.executed(rank as u8, expects);
        self.go_on(rank, out);
    }

    /// Lets a host post and send all that it can.
    fn go_on(&mut self, rank: usize, out: &mut Outbox) {
        let setup = self.setup;
        let host = Arc::make_mut(&mut self.hosts[rank]);
        loop {
            for posted in host.post(&setup) {
                self.watch.posted(rank as u8, &posted);
            }
            let open = host.open;
            let (link, tape) = (&mut self.up[rank], &mut self.tape);
            host.transmit(out, |flight| {
                if let Some(tape) = tape {
                    tape.sent(rank, &flight);
                }
                link.push_back(flight);
            });
            // Completions may permit the program to continue.
            if host.open == open {
                return;
            }
        }
    }

    fn arrive(&mut self, flight: &Flight) {
        let members = self.switch.arrays().view(self.setup.gid).map_or(0, |view| view.session.n.into());
        self.pass(flight, None, (0, 0, members));
    }

    fn loop_once(&mut self) {
        if let Some(Looping { flight, bridge, passes, copies, members }) = self.looping.pop_front() {
            self.pass(&flight, Some(bridge), (passes, copies, members));
        }
    }

    /// Passes a packet through the pipeline once, and reports the results to the judge.
    fn pass(&mut self, flight: &Flight, bridge: Option<Bridge>, (passes, copies, members): (u32, u32, u32)) {
        let arrival = Arrival { bytes: flight, bridge, now_ns: self.now_ns };
        let departure = self.switch.step(&arrival);
        if let Some(tape) = &mut self.tape {
            tape.passed(flight, &departure);
        }
        self.look(departure.cause == Cause::Foreign);
        self.stolen |= self.now_ns > 0 && departure.cause == Cause::Began;
        let mut copies = copies;
        if let Some(emission) = departure.emission {
            let bytes = emission.to_vec(flight);
            self.say(flight, &bytes, &mut copies);
            let last = emission.to().octets()[3];
            if let Some(link) = usize::from(last).checked_sub(1).and_then(|rank| self.down.get_mut(rank)) {
                link.push_back(bytes.into());
            }
        }
        match departure.mirror {
            Some(bridge) => {
                let looping = Looping { flight: flight.clone(), bridge, passes: passes + 1, copies, members };
                self.looping.push_back(looping);
            }
            None => self.ended(flight, passes + 1, copies, members),
        }
    }

    /// Reports the registers to the judge.
    fn look(&mut self, foreign: bool) {
        let Some(view) = self.switch.arrays().view(self.setup.gid) else { return };
        let member = |member: &stentor_switch::registers::Member| MemberView {
            out_psn: member.psn_out.get(),
            in_psn: member.psn_in.get(),
            msn_offset: member.msn_out.wrapping_sub(member.msn_in) & 0xff_ffff,
            version: member.version,
        };
        if view.session.state == State::Silent {
            return;
        }
        let registers = Registers {
            active: view.session.state == State::Active,
            holder: view.session.holder,
            epoch: view.session.epoch,
            control: view.session.pend.get(),
            mask: view.session.mask,
            last: view.progress.last.get(),
            members: view.members[..self.hosts.len()].iter().map(member).collect(),
        };
        self.watch.registers(&registers, foreign);
    }

    /// Reports to the judge that a packet has left the switch.
    fn say(&mut self, came: &[u8], left: &[u8], copies: &mut u32) {
        let (Ok(before), Ok(after)) = (IpPacket::new_checked(came), IpPacket::new_checked(left)) else { return };
        // The switch builds each response itself, so a response must be intact. A copy of a damaged packet is damaged,
        // too.
        let is_copy = !after.packet.opcode().is_response();
        self.watch.left(before.is_intact() || !is_copy, after.is_intact());
        let (Ok(old), Ok(new)) = (Repr::parse(&before.packet), Repr::parse(&after.packet)) else { return };
        let IpRepr::V4(to) = after.envelope.ip else { return };
        let rank = to.destination.octets()[3].wrapping_sub(1);
        match new.headers {
            Headers::Rc(message) => {
                *copies += 1;
                let reth = match message {
                    Message::WriteFirst(reth) | Message::WriteOnly(reth) | Message::WriteOnlyImm(reth, _) => Some(reth),
                    _ => None,
                };
                let (from, psn) = (old.bth.dest_qp as u8, old.bth.psn.get());
                let reth = reth.map(|reth| (reth.va, reth.rkey));
                self.watch.copied(&Copied { to: rank, out_psn: new.bth.psn.get(), from, psn, reth });
            }
            Headers::Response(Response::Acknowledge(aeth)) => {
                let implied = u32::from(!matches!(aeth.syndrome, Syndrome::Ack(_)));
                let up_to = new.bth.psn.minus(implied).get();
                self.watch.told(&Told { rank, up_to, msn: aeth.msn });
            }
            _ => {}
        }
    }

    /// Reports to the judge that a packet has completed its passes.
    fn ended(&mut self, flight: &Flight, passes: u32, copies: u32, n: u32) {
        let Ok(packet) = IpPacket::new_checked(flight) else { return };
        let control = Control::is_one(packet.packet.reth());
        let linked = Control::parse(&packet.packet).map_or(0, |control| u32::from(control.len()));
        self.watch.looped(passes, copies, if control { n.max(linked) } else { n }, control);
    }

    /// Recreates the set after its loss, as the control plane does: with new numbers of queue pairs and a new number of
    /// the set. Requests that were posted are lost. A host with requests yet to post first links its previous members
    /// again, unless its next request is a LINK.
    ///
    /// # Errors
    /// Returns a [`CreateError`], which does not occur with the hosts of a world.
    pub(crate) fn create_anew(&mut self, out: &mut Outbox) -> Result<(), CreateError> {
        self.switch.remove(self.setup.gid);
        self.setup.gid += 1;
        self.setup.numbers = self.setup.numbers.wrapping_mul(5) + 77;
        let setup = self.setup;
        let ranks: Vec<u8> = (0..self.hosts.len() as u8).collect();
        let descriptions: Vec<_> = ranks.iter().map(|rank| setup.description(*rank)).collect();
        self.switch.create(setup.gid, LEASE, &descriptions)?;
        let firsts: Vec<_> = ranks.iter().map(|rank| setup.firsts(*rank)).collect();
        self.watch = SetWatch::new(&firsts);
        self.stolen = false;
        for (rank, host) in ranks.iter().zip(&mut self.hosts) {
            let mut program: Vec<Op> = host.program.iter().cloned().collect();
            if !matches!(program.first(), None | Some(Op::Link(_))) {
                program.splice(0..0, host.linked.clone());
            }
            *host = Arc::new(Host::new(*rank, &setup, program));
        }
        (0..self.hosts.len()).for_each(|rank| self.go_on(rank, out));
        Ok(())
    }

    /// Reports the end of the run to the judge.
    pub(crate) fn end(&mut self) {
        let unfinished = if self.is_over() || self.is_quiet() { self.unfinished() } else { Some("steps".to_owned()) };
        self.watch.end(unfinished, self.timeouts, self.disturbed);
    }
}

fn damage(link: &mut VecDeque<Flight>, byte: u8) {
    if let Some(flight) = link.front_mut() {
        let mut bytes = flight.to_vec();
        let at = bytes.len().saturating_sub(usize::from(byte) % bytes.len().max(1) + 1);
        bytes[at] ^= 1 << (byte & 7);
        *flight = bytes.into();
    }
}
