//! Generations of sets: joining, connecting and leaving them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use stentor_fabric::{ConnectError, Event, ProcessId, QpState, Status};
use stentor_fabric_net::control_session::ControlSession;
use stentor_fabric_net::{End, Pair};
use stentor_switch::enrol::{Join, Ready, ToHost, ToSwitch};
use stentor_switch::host::Session;
use stentor_switch::{Attachment, Switch};
use stentor_wire::Psn;

use super::{Cm, SetTransport, SwitchSets, longest_list};

/// Shortest and longest pause between two attempts to reach the switch. The pause grows with each attempt.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// Shortest and longest delay before a refused join is tried again. The delay grows with each refusal. The delays are
/// long because each attempt ends a generation for the other hosts.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Maximum number of the switch's messages that a round handles.
const BURST: usize = 256;

impl<T: SetTransport> SwitchSets<T> {
    /// Begins the next life of a set's queue pair.
    pub(crate) fn begin_set(cm: &mut Cm<T>, transport: &mut T, n: usize) -> Result<(), ConnectError> {
        let peer = cm.me();
        let set = &mut cm.sets.all[n];
        let qp = set.qp;
        set.life = set.life.wrapping_add(1);
        (set.joined, set.generation, set.who, set.again) = (false, None, 0, None);
        match transport.begin(qp) {
            Ok(end) => {
                set.ours = Some(end);
                cm.set_state(qp, QpState::Connecting);
            }
            Err(reason) => {
                cm.set_state(qp, QpState::Error);
                return Err(ConnectError::System { peer, reason });
            }
        }
        let ended = cm.sets.all[n].ended;
        Self::flush_set(cm, n, ended);
        let set = &mut cm.sets.all[n];
        if let Some(sender) = &mut set.sender {
            // Completions of an earlier life must not count. The other parameters are set when the generation is
            // announced.
            sender.begin(Session { life: set.life, sqpn: 0, first_psn: Psn::new(0), mtu: 1024, lock_id: 0 });
        }
        Self::enrol(cm, n);
        Ok(())
    }

    /// Sends a join message for the current life, if the session is ready and the switch does not know this life.
    fn enrol(cm: &mut Cm<T>, n: usize) {
        let connecting = cm.state(cm.sets.all[n].qp) == Some(QpState::Connecting);
        let Some(config) = &cm.sets.config else { return };
        let set = &mut cm.sets.all[n];
        let (Some(session), Some(End::QueuePair(ours))) = (&mut cm.sets.session, &set.ours) else { return };
        if !session.is_ready() || !connecting || set.joined || set.again.is_some() {
            return;
        }
        // A device may have another address than the session.
        let Some(ip) = ours.gid.to_ipv4_mapped() else { return };
        let here = Attachment { ip, qpn: ours.number, first_psn: Psn::new(ours.psn & 0xff_ffff) };
        // A process has either a sending or a receiving queue pair, so it announces the other one as 0.
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
        set.joined = session.send(&bytes[..length]).is_ok();
    }

    /// Handles the break of a set's queue pair.
    pub(crate) fn set_broke(cm: &mut Cm<T>, n: usize) {
        let me = cm.me();
        let set = &mut cm.sets.all[n];
        let qp = set.qp;
        cm.set_state(qp, QpState::Error);
        Self::tell_left(cm, n);
        let set = &mut cm.sets.all[n];
        set.linking = None;
        cm.sets.dying = true;
        if let Some(generation) = set.generation.take()
            && set.sender.is_some()
        {
            set.left = generation;
            // A peer that has not replied about an earlier generation yet is asked to leave this generation, too. The
            // reply then covers both generations.
            let (number, members, who) = (set.number, set.members.clone(), set.who | set.unsettled);
            for peer in members.into_iter().filter(|peer| *peer != me) {
                let bit = cm.sets.all[n].bit(peer);
                if who & bit != 0 && cm.is_linked(peer) {
                    cm.sets.all[n].unsettled |= bit;
                    cm.ask_to_leave(peer, (number, generation));
                }
            }
        }
        cm.sets.all[n].who = 0;
        cm.tell(Event::Disconnected { qp, peer: me });
    }

    /// Sends the switch a leave message for the current life, if the switch knows this life.
    fn tell_left(cm: &mut Cm<T>, n: usize) {
        let set = &mut cm.sets.all[n];
        if std::mem::take(&mut set.joined)
            && let Some(session) = &mut cm.sets.session
        {
            let (bytes, length) = ToSwitch::Leave { number: set.name, life: set.life }.encode();
            // A send can fail only if the session has ended, and the switch notices that, too.
            let _ = session.send(&bytes[..length]);
        }
    }

    /// Breaks a set's queue pair if it is ready. If the queue pair still waits for its generation, begins another life
    /// of it instead.
    fn leave(cm: &mut Cm<T>, transport: &mut T, n: usize, status: Status) {
        let qp = cm.sets.all[n].qp;
        match cm.state(qp) {
            Some(QpState::Ready) => {
                transport.drive();
                // Driving the transport may have broken the queue pair.
                cm.report_broken(transport);
                cm.sets.all[n].ended = status;
                cm.break_one(transport, qp, status);
            }
            Some(QpState::Connecting) => Self::renew(cm, transport, n),
            Some(QpState::Error) | None => {}
        }
    }

    /// Begins another life of a queue pair that waits for its generation. The switch may have announced the old life to
    /// other hosts.
    fn renew(cm: &mut Cm<T>, transport: &mut T, n: usize) {
        let set = &cm.sets.all[n];
        let (qp, number) = (set.qp, set.number);
        transport.fail(qp, Status::Flushed);
        if let Err(error) = Self::begin_set(cm, transport, n) {
            cm.sets.note(format!("set {number} cannot be joined: {error}"));
            Self::set_broke(cm, n);
        }
    }

    /// Runs one round: the session, the switch's messages, and timers.
    pub(crate) fn pump_sets(cm: &mut Cm<T>, transport: &mut T) {
        if cm.sets.all.is_empty() {
            return;
        }
        Self::dial_switch(cm);
        for _ in 0..BURST {
            let Some(session) = &mut cm.sets.session else { break };
            let message = session.receive();
            if let Some(error) = session.error() {
                let why = error.to_string();
                Self::lose_switch(cm, transport, why);
                break;
            }
            if cm.sets.session.as_ref().is_some_and(ControlSession::is_ready) {
                Self::switch_is_there(cm);
            }
            match message.as_deref().map(ToHost::decode) {
                Some(Ok(message)) => Self::hear_switch(cm, transport, message),
                Some(Err(error)) => {
                    let why = format!("it does not answer like a switch of this version: {error}");
                    Self::lose_switch(cm, transport, why);
                }
                None => break,
            }
        }
        Self::pass_time(cm, transport);
    }

    fn dial_switch(cm: &mut Cm<T>) {
        let (Some(config), None) = (&cm.sets.config, &cm.sets.session) else { return };
        let control = config.control;
        if cm.sets.from.is_ipv6() {
            return cm.sets.say(Err("a switch supports only IPv4; give this process an IPv4 address".to_owned()));
        }
        let now = Instant::now();
        if cm.sets.next_dial.is_some_and(|next| next > now) {
            return;
        }
        let pause = cm.sets.pause.clamp(DIAL_PAUSE.0, DIAL_PAUSE.1);
        (cm.sets.next_dial, cm.sets.pause) = (Some(now + pause), 2 * pause);
        match ControlSession::dial(&cm.sets.line_config, cm.sets.from, control) {
            Ok(session) => cm.sets.session = Some(session),
            Err(error) => cm.sets.say(Err(error.to_string())),
        }
    }

    fn switch_is_there(cm: &mut Cm<T>) {
        cm.sets.pause = DIAL_PAUSE.0;
        cm.sets.say(Ok(()));
        (0..cm.sets.all.len()).for_each(|n| Self::enrol(cm, n));
    }

    /// Handles the end of the session. All generations end with it, because the switch no longer knows this process.
    fn lose_switch(cm: &mut Cm<T>, transport: &mut T, why: String) {
        cm.sets.session = None;
        cm.sets.say(Err(why));
        for n in 0..cm.sets.all.len() {
            if std::mem::take(&mut cm.sets.all[n].joined) {
                Self::leave(cm, transport, n, Status::RetryExceeded);
            }
        }
    }

    fn pass_time(cm: &mut Cm<T>, transport: &mut T) {
        let now = Instant::now();
        let patience = cm.sets.config.as_ref().map_or(Duration::MAX, |config| config.patience);
        for n in 0..cm.sets.all.len() {
            let set = &mut cm.sets.all[n];
            if set.again.is_some_and(|again| again <= now) {
                set.again = None;
                Self::leave(cm, transport, n, Status::Flushed);
                continue;
            }
            if let (Some((since, links)), Some(sender)) = (set.linking, &set.sender) {
                if !sender.is_linking() || sender.links() != links {
                    set.linking = None;
                } else if now.duration_since(since) > patience {
                    Self::leave(cm, transport, n, Status::RetryExceeded);
                }
            }
        }
    }

    fn hear_switch(cm: &mut Cm<T>, transport: &mut T, message: ToHost) {
        let (name, life) = match message {
            ToHost::Ready(Ready { number, life, .. })
            | ToHost::Renew { number, life }
            | ToHost::Refused { number, life, .. } => (number, life),
        };
        let of_life = |set: &super::Set| (set.name, set.life) == (name, life) && set.joined;
        let Some(n) = cm.sets.all.iter().position(of_life) else { return };
        match message {
            ToHost::Ready(ready) => Self::hear_ready(cm, transport, n, &ready),
            ToHost::Renew { .. } => Self::leave(cm, transport, n, Status::RetryExceeded),
            ToHost::Refused { why, .. } => Self::refused(cm, n, &why.to_string()),
        }
    }

    /// Handles a refusal. The refusal is reported once, and the join is retried with another life.
    fn refused(cm: &mut Cm<T>, n: usize, why: &str) {
        Self::tell_left(cm, n);
        let set = &mut cm.sets.all[n];
        set.pause = (2 * set.pause).clamp(AGAIN.0, AGAIN.1);
        set.again = Some(Instant::now() + set.pause);
        if set.refused.as_deref() != Some(why) {
            set.refused = Some(why.to_owned());
            let note = format!("set {}: {why}", set.number);
            cm.sets.note(note);
        }
    }

    fn hear_ready(cm: &mut Cm<T>, transport: &mut T, n: usize, ready: &Ready) {
        let me = cm.me();
        let set = &cm.sets.all[n];
        let (qp, sends, rank) = (set.qp, set.sender.is_some(), set.rank);
        if cm.state(qp) != Some(QpState::Connecting) || set.generation.is_some() {
            return;
        }
        if set.banned == Some(ready.generation) {
            return Self::renew(cm, transport, n);
        }
        let Some(ours @ End::QueuePair(pair)) = set.ours.clone() else { return };
        let (longest, all) = (longest_list(set.members.len()), u32::MAX >> (32 - set.members.len()));
        if ready.who & !all != 0 || ready.who >> rank & 1 == 0 {
            return Self::refused(
                cm,
                n,
                "the switch announces a generation that does not match the members of the set",
            );
        }
        if longest > ready.mtu.into() {
            let why =
                format!("packets of {} bytes are too short for the list of its members: raise the MTU", ready.mtu);
            return Self::refused(cm, n, &why);
        }
        cm.sets.identified |= ready.identified;
        let address: Ipv4Addr = if sends { ready.forward } else { ready.backward };
        let theirs = End::QueuePair(Pair {
            number: Switch::vrqpn(ready.gid, rank),
            // The join announced this PSN, so both ends begin the receiver's numbers with it.
            psn: pair.psn,
            mtu: ready.mtu,
            gid: address.to_ipv6_mapped(),
            lid: 0,
            reads: 1,
            runs: false,
            identified: cm.sets.identified,
        });
        let met = transport.meet(qp, &ours, &theirs);
        let met = if sends { met.and_then(|()| transport.ready_at_switch(qp, &ours, &theirs)) } else { met };
        if let Err(why) = met {
            return Self::refused(cm, n, &format!("it cannot be connected to the switch: {why}"));
        }
        let set = &mut cm.sets.all[n];
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
        cm.set_state(qp, QpState::Ready);
        cm.tell(Event::Connected { qp, peer: me });
    }

    /// Handles a message in which the sender of a set reports that it has left a generation. This receiver leaves the
    /// generation, too, and replies.
    pub(crate) fn hear_ask(cm: &mut Cm<T>, transport: &mut T, peer: ProcessId, (number, generation): (u16, u64)) {
        if peer.0 == number
            && let Some(n) = cm.sets.all.iter().position(|set| set.number == number)
        {
            cm.sets.all[n].banned = Some(generation);
            if cm.sets.all[n].generation == Some(generation) {
                Self::leave(cm, transport, n, Status::RetryExceeded);
            }
        }
        cm.say_left(peer, (number, generation));
    }

    /// Handles a message in which a receiver reports that it has left a generation.
    pub(crate) fn hear_left(cm: &mut Cm<T>, peer: ProcessId, (number, generation): (u16, u64)) {
        let asked = |set: &&mut super::Set| (set.number, set.left) == (number, generation);
        if let Some(set) = cm.sets.all.iter_mut().find(asked) {
            set.unsettled &= !set.bit(peer);
        }
    }

    /// Handles the loss of a peer, or of the path to it. This process leaves all sets in which the peer is the sender,
    /// before the peer can write to it by another path. In sets that this process sends to, it no longer waits for the
    /// peer to leave.
    pub(crate) fn lose_sender(cm: &mut Cm<T>, transport: &mut T, peer: ProcessId) {
        for n in 0..cm.sets.all.len() {
            let set = &mut cm.sets.all[n];
            set.unsettled &= !set.bit(peer);
            if set.number == peer.0 && set.joined {
                Self::leave(cm, transport, n, Status::RetryExceeded);
            }
        }
    }
}
