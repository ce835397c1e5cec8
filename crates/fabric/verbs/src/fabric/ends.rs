//! The ends of connections on the device.
//!
//! Each life of an end has a queue pair of its own. Late packets of an earlier life are therefore addressed to a queue
//! pair that does not exist any more.
//!
//! When an end breaks, its queue pair is moved to ERR, its completions are polled, and the queue pair is destroyed.
//! Afterwards none of its operations makes progress. Requests that are still outstanding are then completed without
//! waiting for the device to report them: the first one in the send queue with the status of the break, all others as
//! flushed.

use std::sync::Arc;

use rustix::event::epoll;
use stentor_fabric::{Access, Completion, Opcode, PostError, ProcessId, QpConfig, QpId, QpKind, QpState, Status};
use stentor_fabric_net::{End, Pair, Transport, nonce};

use super::VerbsDevice;
use super::held::{self, Holder};
use super::outstanding::{Name, Outstanding};
use super::sets::{self, SetEnd};
use super::trouble::Trouble;
use crate::device;
use crate::qp::{Endpoint, QueuePair, Size, Tuning, WorkError};
use crate::{CompletionQueue, DeviceEvent, Domain, EventKind, MakeError, Mtu, Region, WorkCompletion, WorkStatus};

/// Maximum number of completions polled from a queue in one call.
const BATCH: usize = 16;
/// Maximum number of troubles that wait to be read.
const MAX_TROUBLES: usize = 64;

/// A completion queue with the number of entries that are reserved for queue pairs.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) queue: Arc<CompletionQueue>,
    entries: u32,
    used: u32,
}

/// This process's end of a connection.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) peer: ProcessId,
    pub(super) config: QpConfig,
    queue: usize,
    /// Queue pair of the current life; `None` before the first life, and between a break and the next life.
    pub(super) pair: Option<QueuePair>,
    pub(super) life: u16,
    pub(super) sends: Outstanding,
    pub(super) receives: Outstanding,
    /// WRITEs that wait to be merged with adjoining ones. `None` if the owner does not allow merging, or the
    /// connection is unreliable.
    pub(super) holder: Option<Holder>,
    /// Registered memory for the inline data of the WRITEs in `holder`.
    pub(super) inline: Option<Region>,
    /// `Some` for the end of a fan-out set, whose other end is a switch.
    pub(super) set: Option<SetEnd>,
}

impl Half {
    /// Returns the number of entries that an end with this configuration needs in a completion queue.
    fn places(config: QpConfig) -> u32 {
        config.send_depth.max(1) + config.recv_depth.max(1)
    }
}

/// Returns the peer's queue pair, or an error if the end is not a queue pair.
fn pair(end: &End) -> Result<&Pair, String> {
    match end {
        End::QueuePair(pair) => Ok(pair),
        End::Opaque(_) => Err("the peer's end is not a queue pair".to_owned()),
    }
}

impl VerbsDevice {
    /// Returns the protection domain of a peer. Creates the domain if it does not exist.
    pub(super) fn domain(&mut self, peer: ProcessId) -> Result<Arc<Domain>, MakeError> {
        let place = &mut self.domains[peer.index()];
        if let Some(domain) = place {
            return Ok(Arc::clone(domain));
        }
        Ok(Arc::clone(place.insert(Domain::new(&self.context)?)))
    }

    /// Creates an end whose life has not begun.
    pub(super) fn make_end(&mut self, qp: QpId, peer: ProcessId, config: QpConfig) -> Result<(), MakeError> {
        for half in self.halves.drain(qp.index()..) {
            // This end could not begin its life, and the new end replaces it.
            self.queues[half.queue].used -= Half::places(half.config);
        }
        let merges = config.merges && config.kind == QpKind::Reliable;
        let inline =
            if merges { held::register(&self.domain(peer)?, config.send_depth, self.inline_bytes)? } else { None };
        let holder = merges.then(|| Holder::new(self.inline_bytes, inline.as_ref().map(|it| Arc::clone(it.memory()))));
        let need = Half::places(config);
        let queue = match self.queues.iter().position(|queue| queue.used + need <= queue.entries) {
            Some(queue) => queue,
            None => {
                let entries = self.config.completions.min(self.limits.completions).max(need);
                let queue = CompletionQueue::with_channel(&self.channel, entries)?;
                self.queues.push(Queue { queue, entries, used: 0 });
                self.queues.len() - 1
            }
        };
        self.queues[queue].used += need;
        let (sends, receives) = (Outstanding::new(config.send_depth), Outstanding::new(config.recv_depth));
        self.halves.push(Half { peer, config, queue, pair: None, life: 0, sends, receives, holder, inline, set: None });
        Ok(())
    }

    /// Polls completions into `out` and returns their number.
    #[inline]
    pub(super) fn poll_queues(&mut self, out: &mut [Completion]) -> usize {
        self.post_all_held();
        let mut count = 0;
        while count < out.len()
            && let Some(completion) = self.taken.pop_front()
        {
            out[count] = completion;
            count += 1;
        }
        let mut queue = 0;
        while count < out.len() && queue < self.queues.len() {
            let room = BATCH.min(out.len() - count);
            let (taken, more) = self.poll_queue(queue, room, &mut out[count..]);
            count += taken;
            queue += usize::from(!more);
        }
        if !self.failing.is_empty() {
            self.settle();
        }
        count
    }

    /// Polls one batch of at most `room` completions from a queue. Returns the number of completions written, and
    /// whether there may be more. Completions that do not fit into `out` are kept in `taken`.
    fn poll_queue(&mut self, queue: usize, room: usize, out: &mut [Completion]) -> (usize, bool) {
        let mut raw = [WorkCompletion::NONE; BATCH];
        let taken = match self.queues[queue].queue.poll(&mut raw[..room]) {
            Ok(taken) => taken,
            Err(errno) => {
                self.lose(&format!("a completion queue cannot be read: {errno}"));
                return (0, false);
            }
        };
        let mut count = 0;
        for raw in &raw[..taken] {
            count += self.sort(raw, &mut out[count..]);
        }
        (count, taken == room)
    }

    /// Translates a completion of the device into completions of the contract. Returns the number of completions
    /// written to `out`. There may be several for merged requests, and there are none for a request that is no longer
    /// outstanding.
    fn sort(&mut self, raw: &WorkCompletion, out: &mut [Completion]) -> usize {
        let Name { receive, qp, life, sequence } = Name::decode(raw.id);
        let Some(half) = self.halves.get_mut(qp.index()).filter(|half| half.life == life) else { return 0 };
        let queue = if receive { &mut half.receives } else { &mut half.sends };
        let Some(parts) = queue.complete(sequence) else { return 0 };
        let entry = queue.at(sequence);
        if let Some(holder) = &mut half.holder {
            holder.free_up_to(entry.taken);
        }
        let status = self.status(qp, raw, receive);
        if parts > 1 {
            return self.sort_parts(qp, sequence, parts, status, out);
        }
        let opcode = if receive { raw.opcode.unwrap_or(Opcode::Recv) } else { entry.opcode };
        let done = Completion { qp, id: entry.id, opcode, status, bytes: raw.bytes, imm: raw.imm, tag: 0 };
        self.put(done, out)
    }

    /// Completes merged requests. If the device's request failed, it is unknown which part caused the failure, so the
    /// first merged request reports the error.
    fn sort_parts(&mut self, qp: QpId, sequence: u32, parts: u32, mut status: Status, out: &mut [Completion]) -> usize {
        let mut count = 0;
        for before in (0..parts).rev() {
            let entry = self.halves[qp.index()].sends.at(sequence.wrapping_sub(before));
            if status != Status::Success || entry.signalled {
                let done = Completion::new(qp, entry.id, entry.opcode, status);
                count += self.put(done, &mut out[count..]);
            }
            if status != Status::Success {
                status = Status::Flushed;
            }
        }
        count
    }

    /// Writes a completion to `out`, or appends it to `taken` if `out` is full or earlier completions are in `taken`.
    /// Returns the number written to `out`.
    #[inline]
    fn put(&mut self, done: Completion, out: &mut [Completion]) -> usize {
        match out.first_mut().filter(|_| self.taken.is_empty()) {
            Some(place) => {
                *place = done;
                1
            }
            None => {
                self.taken.push_back(done);
                0
            }
        }
    }

    /// Returns the status of a request. If the request failed, marks its queue pair for breaking.
    #[inline]
    fn status(&mut self, qp: QpId, raw: &WorkCompletion, receive: bool) -> Status {
        match raw.status {
            WorkStatus::SUCCESS => Status::Success,
            failed => {
                let status = status_of(failed, receive);
                self.failing.push(qp);
                let unnamed = status == Status::Flushed && failed != WorkStatus::FLUSHED;
                self.doubtful |= unnamed || status == Status::RetryExceeded;
                if unnamed {
                    self.tell(Trouble::Work { qp, status: failed, vendor_error: raw.vendor_error });
                }
                status
            }
        }
    }

    /// Polls all completions into `taken`.
    fn take_in(&mut self) {
        let mut queue = 0;
        while queue < self.queues.len() {
            let (_, more) = self.poll_queue(queue, BATCH, &mut []);
            queue += usize::from(!more);
        }
    }

    /// Queries the state of the port, because not every device reports changes of it. If the error of a failed query
    /// shows that the device is gone, handles the loss. Ignores other errors.
    fn look(&mut self) {
        match self.context.port(self.place.port) {
            Err(error) if error.errno.is_gone() => self.lose(&error.errno.to_string()),
            Ok(port) if port.active == self.down => self.port_is(!port.active),
            _ => {}
        }
    }

    fn port_is(&mut self, down: bool) {
        let (device, port) = (self.context.name().to_owned(), self.place.port);
        if down != self.down {
            self.tell(if down { Trouble::PortDown { device, port } } else { Trouble::PortUp { device, port } });
        }
        self.down = down;
    }

    /// Breaks the ends in `failing`.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.doubtful) {
            self.look();
        }
        while let Some(qp) = self.failing.pop() {
            if self.halves[qp.index()].pair.is_some() {
                self.shut(qp, Status::Flushed);
                self.broken.push_back(qp);
            }
        }
    }

    /// Handles a request that the device refused although the request is valid and its queue has room. The queue pair
    /// or the device has failed, or the process has lost the permission to use the device.
    #[cold]
    pub(super) fn not_posted(&mut self, qp: QpId, error: &WorkError) -> PostError {
        self.tell(Trouble::NotPosted { qp, why: error.to_string() });
        self.doubtful = true;
        self.failing.push(qp);
        self.settle();
        PostError::NotReady { qp, state: QpState::Error }
    }

    /// Ends the life of an end. The first outstanding request in the send queue completes with `status`, and all other
    /// requests complete as flushed.
    fn shut(&mut self, qp: QpId, status: Status) {
        let Some(pair) = self.halves[qp.index()].pair.take() else { return };
        // A device that was removed refuses this transition. The queue pair is destroyed nevertheless.
        let _ = pair.fail();
        self.take_in();
        drop(pair);
        self.take_in();
        let half = &mut self.halves[qp.index()];
        if let Some(holder) = &mut half.holder {
            holder.clear();
        }
        let over = |id, opcode, status| Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 };
        let mut status = status;
        for entry in half.sends.drain() {
            let told = std::mem::replace(&mut status, Status::Flushed);
            self.taken.push_back(over(entry.id, entry.opcode, told));
        }
        for entry in half.receives.drain() {
            self.taken.push_back(over(entry.id, Opcode::Recv, Status::Flushed));
        }
    }

    pub(super) fn tell(&mut self, trouble: Trouble) {
        if self.troubles.len() == MAX_TROUBLES {
            self.troubles.pop_front();
        }
        self.troubles.push_back(trouble);
    }

    /// Reports a failed registration only once per peer, because the owner retries the request. Reports all other
    /// troubles each time.
    pub(super) fn tell_once(&mut self, trouble: Trouble) {
        let Trouble::NotRegistered { peer, .. } = &trouble else { return self.tell(trouble) };
        if !self.unregistered.contains(peer) {
            self.unregistered.push(*peer);
            self.tell(trouble);
        }
    }

    /// Looks up the current index of this process's GID, unless the index is configured. The index changes if an
    /// interface loses its addresses and gets them again.
    fn find_gid(&mut self) {
        if self.config.gid_index.is_none() {
            let (device, port) = (self.context.name(), self.place.port.0);
            let index = device::index_of(&self.config.sysfs, device, port, &self.gid);
            self.place.gid_index = index.and_then(|index| u8::try_from(index).ok()).unwrap_or(self.place.gid_index);
        }
    }

    /// Handles the loss of the device: all ends break, and no end begins another life.
    pub(super) fn lose(&mut self, what: &str) {
        if self.lost.is_some() {
            return;
        }
        let device = self.context.name().to_owned();
        let trouble = Trouble::DeviceLost { device, what: what.to_owned() };
        self.lost = Some(trouble.to_string());
        self.tell(trouble);
        // The descriptors of a removed device stay readable, which would keep the process awake.
        let _ = epoll::delete(&self.epoll, &self.channel);
        let _ = epoll::delete(&self.epoll, self.context.event_descriptor());
        self.failing.extend((0..self.halves.len()).map(|n| QpId(n as u32)));
    }

    /// Handles the device's asynchronous events.
    pub(super) fn handle_device_events(&mut self) {
        while let Some(event) = self.context.next_event() {
            match event {
                DeviceEvent::QueuePair { number, what } => {
                    let is_it = |half: &Half| half.pair.as_ref().is_some_and(|pair| pair.number() == number);
                    if let Some(n) = self.halves.iter().position(is_it) {
                        let qp = QpId(n as u32);
                        self.tell(Trouble::QueuePair { qp, what });
                        self.failing.push(qp);
                    }
                }
                DeviceEvent::Port { port, what } if port == self.place.port => match what {
                    EventKind::PORT_DOWN => self.port_is(true),
                    EventKind::PORT_UP => self.port_is(false),
                    _ => {}
                },
                DeviceEvent::CompletionQueue(what) | DeviceEvent::Device(what) => self.lose(&what.to_string()),
                DeviceEvent::Port { .. } | DeviceEvent::Other(_) => {}
            }
        }
        self.settle();
    }

    fn tuning(&self, theirs: &Pair) -> Tuning {
        let tuning = self.config.tuning;
        Tuning {
            reads_asked: tuning.reads_asked.min(self.limits.reads_asked).min(theirs.reads),
            reads_answered: self.reads_answered(),
            ..tuning
        }
    }

    pub(super) fn begin_to_send(
        &mut self,
        qp: QpId,
        (ours, theirs): (&End, &End),
        rnr_retries: u8,
    ) -> Result<(), String> {
        let tuning = Tuning { rnr_retries, ..self.tuning(pair(theirs)?) };
        let own = self.halves[qp.index()].pair.as_ref().ok_or("the queue pair is broken")?;
        own.ready_to_send(self.place, pair(ours)?.psn, &tuning).map_err(|error| error.to_string())
    }

    fn reads_answered(&self) -> u8 {
        self.config.tuning.reads_answered.min(self.limits.reads_answered)
    }
}

/// Converts a status of the device into a status of the contract.
fn status_of(status: WorkStatus, receive: bool) -> Status {
    match status {
        WorkStatus::LOCAL_LENGTH => Status::LocalLength,
        // Soft-RoCE reports one of these for a receive that is too short.
        WorkStatus::REMOTE_INVALID | WorkStatus::LOCAL_OPERATION if receive => Status::LocalLength,
        WorkStatus::LOCAL_PROTECTION => Status::LocalProtection,
        WorkStatus::REMOTE_INVALID => Status::RemoteInvalidRequest,
        WorkStatus::REMOTE_ACCESS => Status::RemoteAccess,
        WorkStatus::REMOTE_OPERATION => Status::RemoteOperational,
        WorkStatus::RETRY_EXCEEDED => Status::RetryExceeded,
        WorkStatus::RNR_RETRY_EXCEEDED => Status::RnrRetryExceeded,
        _ => Status::Flushed,
    }
}

impl Transport for VerbsDevice {
    fn begin(&mut self, qp: QpId) -> Result<End, String> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        let Half { peer, config, queue, .. } = self.halves[qp.index()];
        let domain = self.domain(peer).map_err(|error| error.to_string())?;
        let queue = &self.queues[queue].queue;
        let size = Size {
            kind: config.kind,
            send_depth: config.send_depth.max(1),
            recv_depth: config.recv_depth.max(1),
            inline_bytes: self.inline_bytes,
        };
        let pair = QueuePair::new(&domain, queue, queue, size).map_err(|error| error.to_string())?;
        if pair.inline_bytes() < self.inline_bytes {
            let (asked, granted) = (self.inline_bytes, pair.inline_bytes());
            return Err(format!(
                "only {granted} bytes of inline data are granted, but other queue pairs have {asked}: configure shorter queues"
            ));
        }
        if self.ordered_bytes && !pair.is_data_in_order() {
            return Err(
                "the bytes of a write may land in any order, but other queue pairs guarantee an order".to_owned()
            );
        }
        self.find_gid();
        pair.init(self.place.port, Some(Access::Atomic)).map_err(|error| error.to_string())?;
        let number = pair.number();
        let reads = self.reads_answered();
        let half = &mut self.halves[qp.index()];
        half.pair = Some(pair);
        half.life = half.life.wrapping_add(1);
        let psn = u32::from_be_bytes(nonce()) & 0xff_ffff;
        let (mtu, gid, lid) = (self.mtu.bytes() as u16, self.gid.bytes, self.lid);
        Ok(End::QueuePair(Pair { number, psn, mtu, gid, lid, reads, runs: false, identified: true }))
    }

    fn meet(&mut self, qp: QpId, _: &End, theirs: &End) -> Result<(), String> {
        let theirs = pair(theirs)?;
        let mtu =
            Mtu::at_most(theirs.mtu.into()).ok_or_else(|| format!("the peer's MTU is invalid: {}", theirs.mtu))?;
        let Pair { number: qp_number, psn, gid, lid, .. } = *theirs;
        let peer = Endpoint { qp_number, psn, gid, lid, mtu: mtu.min(self.mtu) };
        let tuning = self.tuning(theirs);
        self.find_gid();
        let half = &self.halves[qp.index()];
        let pair = half.pair.as_ref().ok_or("the queue pair is broken")?;
        let met = pair.ready_to_receive(self.place, &peer, &tuning);
        met.map_err(|error| if half.set.is_some() { sets::unmet(&error) } else { error.to_string() })
    }

    fn ready(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String> {
        self.begin_to_send(qp, (ours, theirs), self.config.tuning.rnr_retries)
    }

    fn drive(&mut self) {
        self.take_in();
        self.settle();
    }

    fn fail(&mut self, qp: QpId, status: Status) {
        self.shut(qp, status);
        self.settle();
    }

    fn next_broken(&mut self) -> Option<QpId> {
        self.broken.pop_front()
    }
}
