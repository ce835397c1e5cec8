//! A process's side of the switch: its ends of sets, which the switch is at the other end of, and their enrolment.
//!
//! [`SwitchSets`] is the [`Sets`] of fabrics that send RoCEv2.
//!
//! A set has one sender, the process that has its number; the others receive. So each process has one queue pair in it, that
//! one of a pair which it needs. What a receiver has granted to the sender is registered for that queue pair, too, because both
//! belong to the same peer.
//!
//! # The life of a set's queue pair
//! It begins ([`Transport::begin`]) and is enrolled with the switch over a [`ControlSession`]. When the switch says that a generation of the
//! set is there the queue pair is connected to the switch ([`Transport::meet`], [`SetTransport::ready_at_switch`]). It breaks when the switch
//! says that the generation is over, when the session ends, when the sender says so over the connection manager, or by itself; then the
//! switch is told. A queue pair has one life in one generation: nothing of an older one fits the next.
//!
//! # What may land late
//! When the sender has left a generation it asks each process that it reached, over the connection manager, whether it has left, too
//! ([`ConnectionManager::ask_to_leave`]). Who is asked leaves at once, and takes no notice of the generation should the switch speak of it later. A
//! process with which there is no control connection needs not be asked: to be written to by any other way it must first have
//! noticed that the connection was lost, and then it has left the set.

#![forbid(unsafe_code)]

mod generations;
mod post;

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use stentor_fabric::{
    Completion, ConnectError, PostError, ProcessId, QpConfig, QpId, QpKind, QpState, SetSpec, SetWrite, Status,
};
use stentor_fabric_net::control_session::{ControlSession, SessionConfig};
use stentor_fabric_net::{ConnectionManager, End, NetConfig, Sets, StartError, Transport};
use stentor_switch::control::{HEAD_BYTES, LINK_BYTES};
use stentor_switch::enrol;
use stentor_switch::host::Sender;

/// What sessions to a switch are for, see [`SessionConfig::purpose`].
pub const SWITCH_PURPOSE: &str = "switch";
/// Numbers that sets of a connection manager may have.
const SETS: u16 = 1 << 15;
/// Notes that are kept.
const MAX_NOTES: usize = 64;

/// A switch that makes copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// Where its control plane listens.
    pub control: SocketAddr,
    /// The cluster's name, as the switch knows it; `None`: as the connection manager does.
    pub cluster: Option<String>,
    /// What the switch calls the set 0, and so on up to set 32767: so two connection managers of one cluster can have one switch.
    pub first_set: u16,
    /// How long a sender may be silent before another one may take the set.
    pub lease: Duration,
    /// How long a change of the member list may take before the set counts as broken. Longer than a queue pair takes to give up.
    pub patience: Duration,
}

impl SwitchConfig {
    /// With a lease of 10 s, and a patience of 1.5 s.
    #[must_use]
    pub const fn new(control: SocketAddr) -> SwitchConfig {
        let (lease, patience) = (Duration::from_secs(10), Duration::from_millis(1500));
        SwitchConfig { control, cluster: None, first_set: 0, lease, patience }
    }
}

/// The longest list of receivers that the sender of a set of so many members posts, bytes: a write that may be longer than those
/// of the caller.
#[must_use]
pub const fn longest_list(members: usize) -> usize {
    HEAD_BYTES + members * LINK_BYTES
}

/// What ends of sets do beside what all ends do.
pub trait SetTransport: Transport {
    /// As [`ready`](Transport::ready) where the switch is at the other end: it may have to be waited for, and says so (RNR),
    /// without end.
    ///
    /// # Errors
    /// Why not, with the remedy.
    fn ready_at_switch(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String>;

    /// Posts a WRITE whose data are copied while it is posted, or until the next one that is as long. There is room for it.
    ///
    /// # Errors
    /// Why it cannot; the queue pair breaks then, or is broken.
    fn write(&mut self, qp: QpId, write: &RawWrite<'_>) -> Result<(), String>;
}

/// A WRITE, as it is posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawWrite<'a> {
    /// Comes back in the completion.
    pub id: u64,
    /// The data.
    pub data: &'a [u8],
    /// The address at the other end.
    pub va: u64,
    /// The key.
    pub rkey: u32,
    /// Whether its success is reported.
    pub signalled: bool,
}

/// One set.
#[derive(Debug)]
struct Set {
    number: u16,
    /// The same, as the switch calls it.
    name: u16,
    /// By rank.
    members: Vec<ProcessId>,
    /// By process; 255 is in the set no rank.
    ranks: Box<[u8]>,
    /// This process's.
    rank: u8,
    qp: QpId,
    depth: u32,
    life: u32,
    ours: Option<End>,
    /// Whether the switch was told of this life, on the session that there is.
    joined: bool,
    /// What this life is connected in.
    generation: Option<u64>,
    /// Ranks that it has.
    who: u32,
    /// The last that the sender was in, and the ranks that may be in it still.
    left: u64,
    unsettled: u32,
    /// What the sender has left, and asked about.
    banned: Option<u64>,
    /// Of the sender alone.
    sender: Option<Sender>,
    /// Since when a change of the member list is under way.
    linking: Option<(Instant, u64)>,
    /// When to try again what was refused, and how long to wait before that the next time.
    again: Option<Instant>,
    pause: Duration,
    /// Why it was refused last, as it was said.
    refused: Option<String>,
    /// How the last life ended.
    ended: Status,
}

impl Set {
    fn bit(&self, peer: ProcessId) -> u32 {
        self.rank_of(peer).map_or(0, |rank| 1 << rank)
    }

    fn rank_of(&self, peer: ProcessId) -> Option<u8> {
        self.ranks.get(peer.index()).copied().filter(|rank| usize::from(*rank) < SetSpec::MOST)
    }
}

/// A process's connection manager.
type Cm<T> = ConnectionManager<SwitchSets<T>>;

/// All sets of a process, and its session with the switch.
pub struct SwitchSets<T> {
    transport: PhantomData<fn(T)>,
    config: Option<SwitchConfig>,
    line_config: SessionConfig,
    from: IpAddr,
    session: Option<ControlSession>,
    next_dial: Option<Instant>,
    pause: Duration,
    /// What was said last of the switch: that it can be used, or why not.
    said: Option<Result<(), String>>,
    notes: VecDeque<String>,
    all: Vec<Set>,
    /// Whether copies may have identifications.
    identified: bool,
    /// Completions of what was never posted, or failed with others.
    flushed: VecDeque<Completion>,
    /// Whether a set broke of which something is not told yet.
    dying: bool,
}

impl<T> fmt::Debug for SwitchSets<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchSets").field("config", &self.config).field("all", &self.all).finish_non_exhaustive()
    }
}

impl<T> SwitchSets<T> {
    /// Joins nothing yet. Without a switch there are no sets.
    ///
    /// # Errors
    /// [`StartError::NoAddress`].
    pub fn new(config: Option<SwitchConfig>, net: &NetConfig) -> Result<Self, StartError> {
        let cluster = config.as_ref().and_then(|config| config.cluster.clone());
        let line_config = SessionConfig {
            purpose: SWITCH_PURPOSE.to_owned(),
            version: enrol::VERSION,
            cluster: cluster.unwrap_or_else(|| net.cluster.clone()),
            key: net.key.clone(),
            me: Some(net.me),
        };
        Ok(SwitchSets {
            transport: PhantomData,
            config,
            line_config,
            from: net.own_address()?.ip(),
            session: None,
            next_dial: None,
            pause: Duration::ZERO,
            said: None,
            notes: VecDeque::new(),
            all: Vec::new(),
            identified: false,
            flushed: VecDeque::new(),
            dying: false,
        })
    }

    fn of(&self, set: Option<usize>) -> Option<&Set> {
        self.all.get(set?)
    }

    fn note(&mut self, note: String) {
        if self.notes.len() == MAX_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(note);
    }

    /// Says that a set would have too many members.
    fn say_too_many(&mut self, members: usize) {
        let most = SetSpec::MOST;
        let note = format!(
            "each peer is written to by itself: a switch makes copies among {most} processes at most, here it would be \
             {members}; leave out [switch], or make groups smaller or fewer"
        );
        // Many sets may be as large.
        if !self.notes.contains(&note) {
            self.note(note);
        }
    }

    /// Says of the switch what was not said last.
    fn say(&mut self, what: Result<(), String>) {
        if self.said.as_ref() == Some(&what) {
            return;
        }
        let control = self.config.as_ref().map(|config| config.control.to_string()).unwrap_or_default();
        self.note(match &what {
            Ok(()) => format!("the switch at {control} is there: sets are written to by one write"),
            Err(why) => format!(
                "the switch at {control} cannot be used, so each peer is written to by itself until it can: {why}"
            ),
        });
        self.said = Some(what);
    }
}

impl<T: SetTransport> SwitchSets<T> {
    fn join_set(
        cm: &mut Cm<T>,
        transport: &mut T,
        (spec, config): (SetSpec<'_>, QpConfig),
        held_bytes: usize,
        make: impl FnOnce(&mut T, QpId, ProcessId, QpConfig) -> Result<(), ConnectError>,
    ) -> Result<QpId, ConnectError> {
        let first_set = cm.sets.config.as_ref().map(|config| config.first_set).ok_or(ConnectError::NoSets)?;
        let (me, sender) = (cm.me(), ProcessId(spec.number));
        if spec.members.len() > SetSpec::MOST {
            cm.sets.say_too_many(spec.members.len());
        }
        let ranks = ranks(cm.processes(), spec)?;
        let is_new = cm.sets.all.iter().all(|set| set.number != spec.number);
        let rank = ranks.get(me.index()).copied().filter(|rank| *rank != u8::MAX && is_new);
        let odd = ConnectError::Set { number: spec.number, members: spec.members.len() };
        let rank = rank.filter(|_| spec.members.contains(&sender) && spec.number < SETS).ok_or(odd)?;
        let (qp, n) = (cm.next_qp(), cm.sets.all.len());
        let sends = sender == me;
        // A change of the list takes a place besides; the receivers post nothing.
        let (send_depth, recv_depth) = if sends { (config.send_depth + 2, 1) } else { (1, 1) };
        let raw = QpConfig { kind: QpKind::Reliable, send_depth, recv_depth, merges: false };
        make(transport, qp, sender, raw)?;
        cm.add_set(raw, n);
        cm.sets.all.push(Set {
            number: spec.number,
            name: first_set.wrapping_add(spec.number),
            members: spec.members.to_vec(),
            ranks,
            rank,
            qp,
            depth: config.send_depth,
            life: 0,
            ours: None,
            joined: false,
            generation: None,
            who: 0,
            left: 0,
            unsettled: 0,
            banned: None,
            sender: sends.then(|| Sender::new(config.send_depth, held_bytes)),
            linking: None,
            again: None,
            pause: Duration::ZERO,
            refused: None,
            ended: Status::Flushed,
        });
        let begun = Self::begin_set(cm, transport, n);
        if begun.is_err() {
            cm.forget_last();
            cm.sets.all.pop();
        }
        begun.map(|()| qp)
    }
}

/// The rank of each process; 255 is none.
fn ranks(processes: usize, spec: SetSpec<'_>) -> Result<Box<[u8]>, ConnectError> {
    let odd = ConnectError::Set { number: spec.number, members: spec.members.len() };
    if !(2..=SetSpec::MOST).contains(&spec.members.len()) {
        return Err(odd);
    }
    let mut ranks = vec![u8::MAX; processes].into_boxed_slice();
    for (rank, member) in spec.members.iter().enumerate() {
        let place = ranks.get_mut(member.index()).ok_or(ConnectError::UnknownProcess(*member))?;
        if std::mem::replace(place, rank as u8) != u8::MAX {
            return Err(odd);
        }
    }
    Ok(ranks)
}

impl<T: SetTransport> Sets for SwitchSets<T> {
    type Transport = T;

    #[inline]
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn is_connecting(&self) -> bool {
        !self.all.is_empty() && !self.session.as_ref().is_some_and(ControlSession::is_ready)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.session.as_ref()?.socket()
    }

    fn next_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }

    fn join(
        cm: &mut Cm<T>,
        transport: &mut T,
        spec: (SetSpec<'_>, QpConfig),
        held_bytes: usize,
        make: impl FnOnce(&mut T, QpId, ProcessId, QpConfig) -> Result<(), ConnectError>,
    ) -> Result<QpId, ConnectError> {
        Self::join_set(cm, transport, spec, held_bytes, make)
    }

    fn begin(cm: &mut Cm<T>, transport: &mut T, set: usize) -> Result<(), ConnectError> {
        Self::begin_set(cm, transport, set)
    }

    fn broke(cm: &mut Cm<T>, set: usize) {
        Self::set_broke(cm, set);
    }

    fn pump(cm: &mut Cm<T>, transport: &mut T) {
        Self::pump_sets(cm, transport);
    }

    fn asked_to_leave(cm: &mut Cm<T>, transport: &mut T, sender: ProcessId, generation: (u16, u64)) {
        Self::hear_ask(cm, transport, sender, generation);
    }

    fn left(cm: &mut Cm<T>, receiver: ProcessId, generation: (u16, u64)) {
        Self::hear_left(cm, receiver, generation);
    }

    fn lost(cm: &mut Cm<T>, transport: &mut T, peer: ProcessId) {
        Self::lose_sender(cm, transport, peer);
    }

    fn reaches(cm: &Cm<T>, qp: QpId, peer: ProcessId) -> bool {
        let ready = cm.state(qp) == Some(QpState::Ready);
        ready && peer != cm.me() && cm.sets.of(cm.set_of(qp)).is_some_and(|set| set.who & set.bit(peer) != 0)
    }

    fn is_settled(cm: &Cm<T>, qp: QpId, peer: ProcessId) -> bool {
        cm.sets.of(cm.set_of(qp)).is_none_or(|set| set.unsettled & set.bit(peer) == 0)
    }

    #[inline]
    fn post(
        cm: &mut Cm<T>,
        transport: &mut T,
        qp: QpId,
        write: &SetWrite<'_>,
        limits: (bool, u32),
    ) -> Result<(), PostError> {
        Self::post_set(cm, transport, qp, write, limits)
    }

    fn completed(cm: &mut Cm<T>, transport: &mut T, done: &Completion) -> Option<Completion> {
        Self::set_completed(cm, transport, done)
    }

    fn next_flushed(cm: &mut Cm<T>) -> Option<Completion> {
        Self::take_flushed(cm)
    }
}
