//! The host's side of a switch: the queue pairs of sets, which are connected to the switch, and their enrolment.
//!
//! [`SwitchSets`] is the [`Sets`] of fabrics that send RoCEv2.
//!
//! A set has one sender, the process with the same number as the set; all other members receive. A process therefore
//! has only one queue pair for each set, which either sends or receives. At a receiver, the queue pair of the set
//! belongs to the sender as its peer, so a region that the receiver grants to the sender is also registered for this
//! queue pair.
//!
//! # The life of a set's queue pair
//! A life begins with [`Transport::begin`], and the process enrols it with the switch over a [`ControlSession`]. When
//! the switch announces a generation of the set, the queue pair is connected to the switch ([`Transport::meet`],
//! [`SetTransport::ready_at_switch`]). The queue pair breaks when the switch ends the generation, when the session
//! ends, when the sender demands it over the connection manager, when a change of the member list takes too long, or
//! when the connection fails. The process then notifies the switch, unless the session has ended. Each life belongs to
//! at most one generation and has new numbers, so packets of an older life do not match a later one.
//!
//! # Late packets
//! When the sender has left a generation, it asks each receiver of the generation over the connection manager to leave
//! as well ([`ConnectionManager::ask_to_leave`]). The receiver leaves at once, and ignores a later announcement of that
//! generation. The sender does not ask a receiver to which it has no control connection. Such a receiver leaves the set
//! when it notices that the control connection is lost. It notices this before the sender can write to it by any other
//! path.

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

/// Purpose of sessions with a switch, see [`SessionConfig::purpose`].
pub const SWITCH_PURPOSE: &str = "switch";
/// Limit of set numbers of one connection manager: all are below it.
const SETS: u16 = 1 << 15;
/// Maximum number of notes that are kept.
const MAX_NOTES: usize = 64;

/// Configuration of a switch that makes copies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// Address of the control plane.
    pub control: SocketAddr,
    /// Name of the cluster at the switch. `None` uses the connection manager's name of the cluster.
    pub cluster: Option<String>,
    /// Number that set 0 has at the switch. The other sets, up to set 32767, have the numbers after it. Different
    /// values allow two connection managers of one cluster to share a switch.
    pub first_set: u16,
    /// Time after which another sender may take over the set of a sender that is silent.
    pub lease: Duration,
    /// Time that a change of the member list may take before the set counts as broken. It must be longer than the time
    /// for which a queue pair retries.
    pub patience: Duration,
}

impl SwitchConfig {
    /// Returns a configuration with a lease of 10 s and a patience of 1.5 s.
    #[must_use]
    pub const fn new(control: SocketAddr) -> SwitchConfig {
        let (lease, patience) = (Duration::from_secs(10), Duration::from_millis(1500));
        SwitchConfig { control, cluster: None, first_set: 0, lease, patience }
    }
}

/// Returns an upper limit for the length of control packets that the sender of a set with `members` members posts, in
/// bytes. A control packet may be longer than any write of the caller.
#[must_use]
pub const fn longest_list(members: usize) -> usize {
    HEAD_BYTES + members * LINK_BYTES
}

/// Operations of transports that only queue pairs of sets need.
pub trait SetTransport: Transport {
    /// Completes a connection as [`ready`](Transport::ready) does, for a queue pair whose other end is the switch. The
    /// switch may defer requests with RNR NAKs, and the queue pair must retry these without limit.
    ///
    /// # Errors
    /// Returns the reason why the queue pair cannot be connected, with its remedy.
    fn ready_at_switch(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String>;

    /// Posts a WRITE. The data are borrowed only for this call, so a transport whose device reads them later copies
    /// them. One buffer is enough for the copies of a queue pair, because only control packets exceed the length of
    /// inline data, and at most one of them is in flight. The send queue has room for the WRITE.
    ///
    /// # Errors
    /// Returns the reason why the WRITE was not posted. The queue pair breaks, or is broken already.
    fn write(&mut self, qp: QpId, write: &RawWrite<'_>) -> Result<(), String>;
}

/// A WRITE to post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawWrite<'a> {
    /// Id of the write, which its completion carries.
    pub id: u64,
    /// Data to write.
    pub data: &'a [u8],
    /// Address at the other end.
    pub va: u64,
    /// Key at the other end.
    pub rkey: u32,
    /// `true` if success must be reported.
    pub signalled: bool,
}

/// A set, as one of its members sees it.
#[derive(Debug)]
struct Set {
    number: u16,
    /// Number of the set at the switch.
    name: u16,
    /// Members, by rank.
    members: Vec<ProcessId>,
    /// Rank of each process; 255 for processes outside the set.
    ranks: Box<[u8]>,
    /// Rank of this process.
    rank: u8,
    qp: QpId,
    depth: u32,
    life: u32,
    ours: Option<End>,
    /// `true` if the join of this life was sent to the switch over the current session.
    joined: bool,
    /// Generation in which this life is connected.
    generation: Option<u64>,
    /// Ranks of the generation, as a bit mask.
    who: u32,
    /// At the sender: the last generation that it has left.
    left: u64,
    /// Ranks that may still be in generation `left`, as a bit mask.
    unsettled: u32,
    /// At a receiver: the last generation that the sender has asked it to leave.
    banned: Option<u64>,
    /// The sending side; `None` at receivers.
    sender: Option<Sender>,
    /// Time at which the member list change in flight began, and its number.
    linking: Option<(Instant, u64)>,
    /// Time of the next attempt to join after a refusal.
    again: Option<Instant>,
    /// Pause before the next attempt to join.
    pause: Duration,
    /// Reason of the last refusal that was reported.
    refused: Option<String>,
    /// Status with which the oldest outstanding write completes when this process ends the life.
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

/// The connection manager of a process with sets at a switch.
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
    /// Last reported state of the switch: usable, or the reason why it is not.
    said: Option<Result<(), String>>,
    notes: VecDeque<String>,
    all: Vec<Set>,
    /// `true` if copies may have IPv4 identifications other than 0.
    identified: bool,
    /// Completions of failed writes that the caller has not polled yet.
    flushed: VecDeque<Completion>,
    /// `true` if a set has broken since the writes of broken sets were last flushed.
    dying: bool,
}

impl<T> fmt::Debug for SwitchSets<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchSets").field("config", &self.config).field("all", &self.all).finish_non_exhaustive()
    }
}

impl<T> SwitchSets<T> {
    /// Creates the collection of a process's sets, which is empty at first. Without a switch it stays empty.
    ///
    /// # Errors
    /// Returns [`StartError::NoAddress`] if the process has no address.
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

    /// Notes that a set would have too many members.
    fn say_too_many(&mut self, members: usize) {
        let most = SetSpec::MOST;
        let note = format!(
            "each peer receives its own write, not a copy by the switch: a set has {most} processes at most, and this one \
             would have {members}; leave out [switch], or make groups smaller or fewer"
        );
        // Sets of equal size yield equal notes, and each note is kept only once.
        if !self.notes.contains(&note) {
            self.note(note);
        }
    }

    /// Notes a change of the switch's state.
    fn say(&mut self, what: Result<(), String>) {
        if self.said.as_ref() == Some(&what) {
            return;
        }
        let control = self.config.as_ref().map(|config| config.control.to_string()).unwrap_or_default();
        self.note(match &what {
            Ok(()) => format!("the switch at {control} is there: one write reaches all members of a set"),
            Err(why) => {
                format!("the switch at {control} cannot be used. Until it can, each peer receives its own write: {why}")
            }
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
        // A LINK needs an additional entry in the send queue. Receivers post no requests.
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

/// Returns the rank of each process, 255 for processes outside the set.
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
