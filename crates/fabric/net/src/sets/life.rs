//! Generations: joined, connected, left.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use stentor_fabric::{ConnectError, Event, ProcessId, QpState, Status};
use stentor_switch::enrol::{Join, Ready, ToHost, ToSwitch};
use stentor_switch::host::Session;
use stentor_switch::{Attachment, Switch};
use stentor_wire::Psn;

use super::longest_list;
use crate::cm::ConnectionManager;
use crate::connections::Transport;
use crate::control_session::ControlSession;
use crate::message::{End, Message, Pair};

/// Pauses between two attempts to reach the switch, growing from the first to the second.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// What was refused is tried again so much later, growing from the first to the second: each try ends a generation for the others.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Messages taken from the switch in a round.
const BURST: usize = 256;

impl ConnectionManager {
    /// Begins the next life of a set's queue pair.
    pub(crate) fn begin_set(&mut self, transport: &mut impl Transport, n: usize) -> Result<(), ConnectError> {
        let (set, peer) = (&mut self.sets.all[n], self.me);
        let qp = set.qp;
        set.life = set.life.wrapping_add(1);
        (set.joined, set.generation, set.who, set.again) = (false, None, 0, None);
        let own = &mut self.connections[qp.index()];
        match transport.begin(qp) {
            Ok(end) => {
                own.state = QpState::Connecting;
                set.ours = Some(end);
            }
            Err(reason) => {
                own.state = QpState::Error;
                return Err(ConnectError::System { peer, reason });
            }
        }
        let ended = set.ended;
        self.flush_set(n, ended);
        let set = &mut self.sets.all[n];
        if let Some(sender) = &mut set.sender {
            // So that nothing of an earlier life counts; what else there is to know comes with the generation.
            sender.begin(Session { life: set.life, sqpn: 0, first_psn: Psn::new(0), mtu: 1024, lock_id: 0 });
        }
        self.join(n);
        Ok(())
    }

    /// Tells the switch of a life, if it is there and knows nothing of it.
    fn join(&mut self, n: usize) {
        let Some(config) = &self.sets.config else { return };
        let set = &mut self.sets.all[n];
        let connecting = self.connections[set.qp.index()].state == QpState::Connecting;
        let (Some(line), Some(End::QueuePair(ours))) = (&mut self.sets.line, &set.ours) else { return };
        if !line.is_ready() || !connecting || set.joined || set.again.is_some() {
            return;
        }
        // Of a device it may be another one than that of the line.
        let Some(ip) = ours.gid.to_ipv4_mapped() else { return };
        let here = Attachment { ip, qpn: ours.number, first_psn: Psn::new(ours.psn & 0xff_ffff) };
        // Of a pair each process has the one that it needs.
        let nowhere = Attachment { ip, qpn: 0, first_psn: Psn::new(0) };
        let (sends, receives) = if set.sender.is_some() { (here, nowhere) } else { (nowhere, here) };
        let join = ToSwitch::Join(Join {
            number: set.name,
            size: set.members.len() as u8,
            rank: set.rank,
            life: set.life,
            lease: config.lease,
            mtu: ours.mtu,
            identified: ours.identified,
            sends,
            receives,
        });
        let (bytes, length) = join.encode();
        set.joined = line.send(&bytes[..length]).is_ok();
    }

    /// A set's queue pair is broken.
    pub(crate) fn set_broke(&mut self, n: usize) {
        let me = self.me;
        let set = &mut self.sets.all[n];
        let qp = set.qp;
        self.connections[qp.index()].state = QpState::Error;
        self.tell_left(n);
        let set = &mut self.sets.all[n];
        set.linking = None;
        self.sets.dying = true;
        if let Some(generation) = set.generation.take()
            && set.sender.is_some()
        {
            set.left = generation;
            // Who has not answered for an earlier one answers for both.
            let (number, members, who) = (set.number, set.members.clone(), set.who | set.unsettled);
            for peer in members.into_iter().filter(|peer| *peer != me) {
                let set = &mut self.sets.all[n];
                if who & set.bit(peer) != 0 && self.control.is_linked(peer) {
                    set.unsettled |= set.bit(peer);
                    self.control.tell(peer, &Message::Ask { set: number, generation });
                }
            }
        }
        self.sets.all[n].who = 0;
        self.control.events.push_back(Event::Disconnected { qp, peer: me });
    }

    /// Tells the switch that a life is over, if it knows of it.
    fn tell_left(&mut self, n: usize) {
        let set = &mut self.sets.all[n];
        if std::mem::take(&mut set.joined)
            && let Some(line) = &mut self.sets.line
        {
            let (bytes, length) = ToSwitch::Leave { number: set.name, life: set.life }.encode();
            // If it does not go the line is over, and the switch sees that, too.
            let _ = line.send(&bytes[..length]);
        }
    }

    /// Breaks a set's queue pair, if it is ready; one that waits for its generation waits for the next one.
    fn leave(&mut self, transport: &mut impl Transport, n: usize, status: Status) {
        let index = self.sets.all[n].qp.index();
        match self.connections[index].state {
            QpState::Ready => {
                transport.drive();
                // Which may have broken it.
                self.report_broken(transport);
                self.sets.all[n].ended = status;
                self.break_connection(transport, index, status);
            }
            QpState::Connecting => self.renew(transport, n),
            QpState::Error => {}
        }
    }

    /// Another life for a queue pair that waits for its generation: the switch may have told somebody of this one.
    fn renew(&mut self, transport: &mut impl Transport, n: usize) {
        let set = &self.sets.all[n];
        let (qp, number) = (set.qp, set.number);
        transport.fail(qp, Status::Flushed);
        if let Err(error) = self.begin_set(transport, n) {
            self.sets.note(format!("set {number} cannot be joined: {error}"));
            self.set_broke(n);
        }
    }

    /// One round: the line, what the switch says, and time.
    pub(crate) fn pump_sets(&mut self, transport: &mut impl Transport) {
        if self.sets.all.is_empty() {
            return;
        }
        self.dial_switch();
        for _ in 0..BURST {
            let Some(line) = &mut self.sets.line else { break };
            let message = line.receive();
            if let Some(error) = line.error() {
                let why = error.to_string();
                self.lose_switch(transport, why);
                break;
            }
            if self.sets.line.as_ref().is_some_and(ControlSession::is_ready) {
                self.switch_is_there();
            }
            match message.as_deref().map(ToHost::decode) {
                Some(Ok(message)) => self.hear_switch(transport, message),
                Some(Err(error)) => {
                    let why = format!("it says something else than a switch of this version: {error}");
                    self.lose_switch(transport, why);
                }
                None => break,
            }
        }
        self.pass_time(transport);
    }

    fn dial_switch(&mut self) {
        let (Some(config), None) = (&self.sets.config, &self.sets.line) else { return };
        let control = config.control;
        if self.sets.from.is_ipv6() {
            return self.sets.say(Err("a switch knows IPv4 alone; give this process an IPv4 address".to_owned()));
        }
        let now = Instant::now();
        if self.sets.next_dial.is_some_and(|next| next > now) {
            return;
        }
        let pause = self.sets.pause.clamp(DIAL_PAUSE.0, DIAL_PAUSE.1);
        (self.sets.next_dial, self.sets.pause) = (Some(now + pause), 2 * pause);
        match ControlSession::dial(&self.sets.line_config, self.sets.from, control) {
            Ok(line) => self.sets.line = Some(line),
            Err(error) => self.sets.say(Err(error.to_string())),
        }
    }

    fn switch_is_there(&mut self) {
        self.sets.pause = DIAL_PAUSE.0;
        self.sets.say(Ok(()));
        (0..self.sets.all.len()).for_each(|n| self.join(n));
    }

    /// The line is over: so is every generation. The switch does not know this process any more.
    fn lose_switch(&mut self, transport: &mut impl Transport, why: String) {
        self.sets.line = None;
        self.sets.say(Err(why));
        for n in 0..self.sets.all.len() {
            if std::mem::take(&mut self.sets.all[n].joined) {
                self.leave(transport, n, Status::RetryExceeded);
            }
        }
    }

    fn pass_time(&mut self, transport: &mut impl Transport) {
        let now = Instant::now();
        let patience = self.sets.config.as_ref().map_or(Duration::MAX, |config| config.patience);
        for n in 0..self.sets.all.len() {
            let set = &mut self.sets.all[n];
            if set.again.is_some_and(|again| again <= now) {
                set.again = None;
                self.leave(transport, n, Status::Flushed);
                continue;
            }
            if let (Some((since, links)), Some(sender)) = (set.linking, &set.sender) {
                if !sender.is_linking() || sender.links() != links {
                    set.linking = None;
                } else if now.duration_since(since) > patience {
                    self.leave(transport, n, Status::RetryExceeded);
                }
            }
        }
    }

    fn hear_switch(&mut self, transport: &mut impl Transport, message: ToHost) {
        let (name, life) = match message {
            ToHost::Ready(Ready { number, life, .. })
            | ToHost::Renew { number, life }
            | ToHost::Refused { number, life, .. } => (number, life),
        };
        let of_life = |set: &super::Set| (set.name, set.life) == (name, life) && set.joined;
        let Some(n) = self.sets.all.iter().position(of_life) else { return };
        match message {
            ToHost::Ready(ready) => self.hear_ready(transport, n, &ready),
            ToHost::Renew { .. } => self.leave(transport, n, Status::RetryExceeded),
            ToHost::Refused { why, .. } => self.refused(n, &why.to_string()),
        }
    }

    /// Not this time. It is said once, and tried again with another life.
    fn refused(&mut self, n: usize, why: &str) {
        self.tell_left(n);
        let set = &mut self.sets.all[n];
        set.pause = (2 * set.pause).clamp(AGAIN.0, AGAIN.1);
        set.again = Some(Instant::now() + set.pause);
        if set.refused.as_deref() != Some(why) {
            set.refused = Some(why.to_owned());
            let note = format!("set {}: {why}", set.number);
            self.sets.note(note);
        }
    }

    fn hear_ready(&mut self, transport: &mut impl Transport, n: usize, ready: &Ready) {
        let me = self.me;
        let set = &self.sets.all[n];
        let (qp, sends, rank) = (set.qp, set.sender.is_some(), set.rank);
        if self.connections[qp.index()].state != QpState::Connecting || set.generation.is_some() {
            return;
        }
        if set.banned == Some(ready.generation) {
            return self.renew(transport, n);
        }
        let Some(ours @ End::QueuePair(pair)) = set.ours.clone() else { return };
        let (longest, all) = (longest_list(set.members.len()), u32::MAX >> (32 - set.members.len()));
        if ready.who & !all != 0 || ready.who >> rank & 1 == 0 {
            return self.refused(n, "the switch names others than its members");
        }
        if longest > ready.mtu.into() {
            let why = format!("packets of {} bytes are too short to name its members: raise the MTU", ready.mtu);
            return self.refused(n, &why);
        }
        self.sets.identified |= ready.identified;
        let address: Ipv4Addr = if sends { ready.forward } else { ready.backward };
        let theirs = End::QueuePair(Pair {
            number: Switch::vrqpn(ready.gid, rank),
            // Both ends begin a receiver's numbers where its own are said to begin.
            psn: pair.psn,
            mtu: ready.mtu,
            gid: address.to_ipv6_mapped(),
            lid: 0,
            reads: 1,
            runs: false,
            identified: self.sets.identified,
        });
        let met = transport.meet(qp, &ours, &theirs);
        let met = if sends { met.and_then(|()| transport.ready_at_switch(qp, &ours, &theirs)) } else { met };
        if let Err(why) = met {
            return self.refused(n, &format!("it cannot be connected to the switch: {why}"));
        }
        let set = &mut self.sets.all[n];
        (set.generation, set.who, set.ended) = (Some(ready.generation), ready.who, Status::Flushed);
        (set.refused, set.pause) = (None, Duration::ZERO);
        if let Some(sender) = &mut set.sender {
            sender.begin(Session {
                life: set.life,
                sqpn: pair.number,
                first_psn: Psn::new(pair.psn & 0xff_ffff),
                mtu: ready.mtu.min(pair.mtu),
                lock_id: ready.generation as u32 | 1,
            });
        }
        self.connections[qp.index()].state = QpState::Ready;
        self.control.events.push_back(Event::Connected { qp, peer: me });
    }

    /// The sender of a set has left a generation: nobody else stays in it.
    pub(crate) fn hear_ask(
        &mut self,
        transport: &mut impl Transport,
        peer: ProcessId,
        (number, generation): (u16, u64),
    ) {
        if peer.0 == number
            && let Some(n) = self.sets.all.iter().position(|set| set.number == number)
        {
            self.sets.all[n].banned = Some(generation);
            if self.sets.all[n].generation == Some(generation) {
                self.leave(transport, n, Status::RetryExceeded);
            }
        }
        self.control.tell(peer, &Message::Left { set: number, generation });
    }

    /// A receiver is out of a generation.
    pub(crate) fn hear_left(&mut self, peer: ProcessId, (number, generation): (u16, u64)) {
        let asked = |set: &&mut super::Set| (set.number, set.left) == (number, generation);
        if let Some(set) = self.sets.all.iter_mut().find(asked) {
            set.unsettled &= !set.bit(peer);
        }
    }

    /// A peer is gone, or out of reach. Before it is written to in another way it leaves all sets that this process sends to.
    pub(crate) fn lose_sender(&mut self, transport: &mut impl Transport, peer: ProcessId) {
        for n in 0..self.sets.all.len() {
            let set = &mut self.sets.all[n];
            set.unsettled &= !set.bit(peer);
            if set.number == peer.0 && set.joined {
                self.leave(transport, n, Status::RetryExceeded);
            }
        }
    }
}
