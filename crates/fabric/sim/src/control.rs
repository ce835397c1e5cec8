//! The control plane: connections, grants, revocations, and breaks of queue pairs.

use stentor_fabric::{
    Access, AccessError, Completion, ConnectError, Event as FabricEvent, Opcode, ProcessId, QpConfig, QpId, QpKind,
    QpState, RegionId, RemoteRegion, Service, Status,
};

use crate::event::{End, Event};
use crate::memory::Key;
use crate::qp::{PostedRecv, Qp, Queued, RequestKind};
use crate::state::State;

impl State {
    pub(crate) fn connect(
        &mut self,
        me: ProcessId,
        peer: ProcessId,
        service: Service,
        config: QpConfig,
    ) -> Result<QpId, ConnectError> {
        if peer.index() >= self.processes.len() {
            return Err(ConnectError::UnknownProcess(peer));
        }
        let depths = [
            ("send queue", config.send_depth, self.model.max_send_depth),
            ("receive queue", config.recv_depth, self.model.max_recv_depth),
        ];
        for (what, asked, limit) in depths {
            if asked > limit {
                return Err(ConnectError::TooDeep { what, asked, limit });
            }
        }
        if config.kind == QpKind::Unreliable && !self.model.unreliable {
            return Err(ConnectError::NoUnreliable);
        }
        let qps = &mut self.processes[me.index()].qps;
        if qps.iter().any(|qp| qp.peer == peer && qp.service == service && qp.set.is_none()) {
            return Err(ConnectError::Duplicate { peer, service });
        }
        qps.push(Qp::new(peer, service, config));
        let qp = QpId(qps.len() as u32 - 1);
        self.trace_connect(me, &[peer], config);
        self.plan_match(me, peer, service);
        Ok(qp)
    }

    fn plan_match(&mut self, me: ProcessId, peer: ProcessId, service: Service) {
        let at = self.control_arrival(me, peer);
        self.calendar.push(at, Event::Match { a: me.0, b: peer.0, service });
    }

    /// Handles the message by which `a` notifies `b` that `a` has created its end. Connects the ends if `b` has created
    /// its end as well.
    pub(crate) fn on_match(&mut self, a: ProcessId, b: ProcessId, service: Service) {
        for (from, to) in [(a, b), (b, a)] {
            if self.is_cut(from, to) {
                self.link(from, to).held.push(Event::Match { a: a.0, b: b.0, service });
                return;
            }
        }
        let find = |state: &State, me: ProcessId, peer: ProcessId| {
            let mut qps = state.processes[me.index()].qps.iter();
            let place = qps.position(|qp| {
                let free = qp.state == QpState::Connecting && qp.connection == 0 && qp.set.is_none();
                qp.peer == peer && qp.service == service && free
            });
            place.map(|place| QpId(place as u32))
        };
        let (Some(at_a), Some(at_b)) = (find(self, a, b), find(self, b, a)) else { return };
        self.close_sets_of_earlier_lives(a, b);
        self.connections += 1;
        let connection = self.connections;
        let newest = [self.qp(a, at_a).posted, self.qp(b, at_b).posted];
        for (me, mine, theirs, executed) in [(a, at_a, at_b, newest[1]), (b, at_b, at_a, newest[0])] {
            let qp = self.qp_mut(me, mine);
            qp.connection = connection;
            qp.peer_qp = theirs;
            qp.executed = executed;
            qp.gave_up = false;
            qp.rnr_attempts = 0;
        }
        let ends = [(a, at_a, b), (b, at_b, a)];
        // A process that connects to itself has one end.
        let ends = if a == b { &ends[..1] } else { &ends[..] };
        for &(me, mine, peer) in ends {
            let at = self.control_arrival(peer, me);
            self.calendar.push(at, Event::Ready { end: End { process: me.0, qp: mine, connection } });
        }
    }

    pub(crate) fn qp(&self, process: ProcessId, qp: QpId) -> &Qp {
        &self.processes[process.index()].qps[qp.index()]
    }

    pub(crate) fn qp_mut(&mut self, process: ProcessId, qp: QpId) -> &mut Qp {
        &mut self.processes[process.index()].qps[qp.index()]
    }

    /// Returns whether this end still belongs to the connection.
    pub(crate) fn is_current(&self, end: End) -> bool {
        let owner = &self.processes[usize::from(end.process)];
        owner.qps.get(end.qp.index()).is_some_and(|qp| qp.connection == end.connection)
    }

    pub(crate) fn on_ready(&mut self, end: End) {
        if !self.is_current(end) {
            return;
        }
        let me = ProcessId(end.process);
        let qp = self.qp_mut(me, end.qp);
        let peer = qp.peer;
        qp.state = QpState::Ready;
        if let Some(number) = qp.own_set() {
            return self.set_is_ready(me, number, end.connection);
        }
        // Before the NIC announces a new connection, it makes everything visible that it received on earlier ones.
        self.land_everything_of(me, peer);
        self.hear_all_grants(me, peer);
        let owner = &mut self.processes[me.index()];
        owner.linked[peer.index()] = true;
        owner.events.push_back(FabricEvent::Connected { qp: end.qp, peer });
        self.notify(me);
    }

    /// Replaces the known grants of a peer, which may be from its earlier life, by the peer's present grants.
    fn hear_all_grants(&mut self, me: ProcessId, peer: ProcessId) {
        let granted: Vec<_> = self.processes[peer.index()]
            .regions
            .iter()
            .filter_map(|region| region.key_of(me).map(|key| (region.spec.purpose.0, key, region.spec.bytes)))
            .collect();
        let resolved = &mut self.processes[me.index()].resolved;
        resolved.retain(|(owner, _), _| *owner != peer.0);
        for (purpose, key, bytes) in granted {
            resolved.insert((peer.0, purpose), RemoteRegion { peer, key: u64::from(key), bytes });
        }
    }

    pub(crate) fn grant(
        &mut self,
        me: ProcessId,
        region: RegionId,
        peer: ProcessId,
        access: Access,
    ) -> Result<(), AccessError> {
        self.check_region(me, region, peer, access)?;
        self.trace_grant(me, region, peer, access);
        let life = self.processes[me.index()].life;
        let entry = &mut self.processes[me.index()].regions[region.index()];
        if let Some(key) = entry.key_of(peer) {
            self.keys[key as usize].access = access;
            return Ok(());
        }
        let key = self.keys.len() as u32;
        if entry.spec.writer == peer {
            entry.key = Some(key);
        } else {
            entry.readers.push((peer, key));
        }
        self.keys.push(Key { owner: me, life, region: region.0, peer, access, valid: true });
        if self.processes[peer.index()].linked[me.index()] {
            let at = self.control_arrival(me, peer);
            self.calendar.push(at, Event::Granted { key });
        }
        Ok(())
    }

    fn check_region(
        &self,
        me: ProcessId,
        region: RegionId,
        peer: ProcessId,
        access: Access,
    ) -> Result<(), AccessError> {
        let regions = &self.processes[me.index()].regions;
        let entry = regions.get(region.index()).ok_or(AccessError::UnknownRegion(region))?;
        match entry.spec.writer {
            writer if writer == peer => Ok(()),
            _ if access == Access::Read && peer.index() < self.processes.len() => Ok(()),
            writer => Err(AccessError::NotForPeer { region, writer, peer }),
        }
    }

    pub(crate) fn on_granted(&mut self, key: u32) {
        let Key { owner, life, region, peer, .. } = self.keys[key as usize];
        if self.processes[owner.index()].life != life {
            return;
        }
        let spec = self.processes[owner.index()].regions[region as usize].spec;
        if self.is_cut(owner, peer) {
            self.link(owner, peer).held.push(Event::Granted { key });
            return;
        }
        let known = RemoteRegion { peer: owner, key: u64::from(key), bytes: spec.bytes };
        let reader = &mut self.processes[peer.index()];
        if !reader.linked[owner.index()] {
            // The peer was restarted since, and gets all grants when it connects.
            return;
        }
        let entry = reader.resolved.entry((owner.0, spec.purpose.0)).or_insert(known);
        if entry.key < known.key {
            *entry = known;
        }
        if reader.up {
            self.notify(peer);
        }
    }

    pub(crate) fn revoke(&mut self, me: ProcessId, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        self.check_region(me, region, peer, Access::Write).or_else(|error| {
            let held = self.processes[me.index()].regions.get(region.index()).and_then(|entry| entry.key_of(peer));
            held.map(|_| ()).ok_or(error)
        })?;
        self.trace_revoke(me, region, peer);
        let at = self.now + self.model.revocation.sample(&mut self.rng);
        let owner = &mut self.processes[me.index()];
        let event = match owner.regions[region.index()].take_key(peer) {
            Some(key) => Event::Revoked { key },
            None => Event::RevokedNothing { process: me.0, life: owner.life, region: region.0, peer: peer.0 },
        };
        self.calendar.push(at, event);
        Ok(())
    }

    /// Revokes the key, which the NIC then refuses. Everything that the NIC executed before the revocation becomes
    /// visible before the owner gets the event.
    pub(crate) fn on_revoked(&mut self, key: u32) {
        let Key { owner, life, region, peer, .. } = self.keys[key as usize];
        if self.processes[owner.index()].life != life {
            return;
        }
        self.counts.revocations += 1;
        let writer = self.processes[owner.index()].regions[region as usize].spec.writer;
        let underway = self.land_partially(key) + self.land_everything_of(owner, writer);
        self.counts.writes_in_flight_at_revocation += underway;
        self.keys[key as usize].valid = false;
        self.trace_instant(owner, "revoked");
        self.revoked_nothing(owner, life, region, peer);
    }

    pub(crate) fn revoked_nothing(&mut self, owner: ProcessId, life: u32, region: u32, peer: ProcessId) {
        let process = &mut self.processes[owner.index()];
        if process.life == life {
            process.events.push_back(FabricEvent::Revoked { region: RegionId(region), peer });
            self.notify(owner);
        }
    }

    /// Handles the writes in flight whose key is revoked: at random, lands a part of a write that would execute next.
    /// All of these writes are refused in any case. Returns their number.
    fn land_partially(&mut self, key: u32) -> u64 {
        let mut underway = 0;
        for id in self.messages.in_use() {
            let message = self.messages.get(id);
            let (RequestKind::Write { target } | RequestKind::WriteImm { target, .. }) = message.kind else { continue };
            let ours = target.region.key == u64::from(key) && !message.executed && !message.dropped;
            if !ours || message.departs > self.now {
                continue;
            }
            underway += 1;
            let end = End { process: message.to.0, qp: message.to_qp, connection: message.connection };
            let next = self.is_current(end) && self.qp(message.to, message.to_qp).executed + 1 == message.order;
            if next && self.rng.chance(self.model.partial_at_revocation) && self.land_half(id) {
                self.counts.partial_writes_at_revocation += 1;
            }
        }
        underway
    }

    /// Breaks an end. Its oldest request gets the status `first`, and all other requests are flushed.
    pub(crate) fn break_end(&mut self, end: End, first: Status, tell_peer: bool) {
        if self.is_current(end) {
            let oldest = self.qp(ProcessId(end.process), end.qp).released + 1;
            self.break_at(end, (oldest, first), tell_peer);
        }
    }

    /// Breaks an end because of the request `culprit`, which gets the status `why`. All other requests are flushed.
    pub(crate) fn break_at(&mut self, end: End, (culprit, why): (u64, Status), tell_peer: bool) {
        if !self.is_current(end) {
            return;
        }
        let me = ProcessId(end.process);
        self.trace_instant(me, "queue pair broken");
        self.drop_held_posts(me, end.qp);
        self.freeze(me, Some(end.qp));
        self.deliver_everything(end);
        self.forget_results(end);
        let qp = self.qp_mut(me, end.qp);
        let (peer, peer_qp) = (qp.peer, qp.peer_qp);
        qp.state = QpState::Error;
        qp.broken = std::mem::take(&mut qp.connection);
        let set = qp.own_set();
        if set.is_some() {
            let unfinished = qp.posted - qp.released;
            let partly = qp.sent.iter().rev().take(unfinished as usize).filter(|sent| sent.partly).count() as u64;
            self.set_counts.unfinished += unfinished;
            self.set_counts.partial_writes += partly;
        }
        let qp = self.qp_mut(me, end.qp);
        qp.unexpected.clear();
        let waiting = std::mem::take(&mut qp.waiting);
        let flushed = flush(end.qp, qp, culprit, why);
        self.counts.flushed += flushed.iter().filter(|c| c.status == Status::Flushed).count() as u64;
        for message in waiting {
            self.unanswered(message);
        }
        let owner = &mut self.processes[me.index()];
        owner.completions.extend(flushed.into_iter().map(|completion| Queued { completion, seq: None }));
        owner.events.push_back(FabricEvent::Disconnected { qp: end.qp, peer });
        self.notify(me);
        if let Some(number) = set {
            return self.set_broke(me, number, end.connection);
        }
        if tell_peer {
            let at = self.control_arrival(me, peer);
            let other = End { process: peer.0, qp: peer_qp, connection: end.connection };
            self.calendar.push(at, Event::PeerGone { end: other, silent: false });
        }
    }

    pub(crate) fn on_peer_gone(&mut self, end: End, silent: bool) {
        if !self.is_current(end) {
            return;
        }
        let me = ProcessId(end.process);
        let peer = self.qp(me, end.qp).peer;
        if !silent && self.is_cut(peer, me) {
            self.link(peer, me).held.push(Event::PeerGone { end, silent });
            return;
        }
        self.counts.retry_exceeded += u64::from(silent);
        let first = if silent { Status::RetryExceeded } else { Status::Flushed };
        self.break_end(end, first, false);
    }

    pub(crate) fn on_timeout(&mut self, end: End, seq: u64) {
        if self.is_current(end) && self.qp(ProcessId(end.process), end.qp).released < seq {
            self.counts.retry_exceeded += 1;
            self.break_end(end, Status::RetryExceeded, true);
        }
    }

    pub(crate) fn disconnect(&mut self, me: ProcessId, qp: QpId) -> Result<(), ConnectError> {
        let entry = self.processes[me.index()].qps.get(qp.index()).ok_or(ConnectError::UnknownQp(qp))?;
        let (state, connection) = (entry.state, entry.connection);
        if state == QpState::Ready {
            self.break_end(End { process: me.0, qp, connection }, Status::Flushed, true);
        }
        Ok(())
    }

    pub(crate) fn reset(&mut self, me: ProcessId, qp: QpId) -> Result<(), ConnectError> {
        let entry = self.processes[me.index()].qps.get_mut(qp.index()).ok_or(ConnectError::UnknownQp(qp))?;
        if entry.state != QpState::Error {
            return Err(ConnectError::NotBroken { qp, state: entry.state });
        }
        entry.state = QpState::Connecting;
        entry.sent.clear();
        let (peer, service, set) = (entry.peer, entry.service, entry.own_set());
        self.trace_reset(me, peer);
        match set {
            Some(number) => self.leave_set(me, number),
            None => self.plan_match(me, peer, service),
        }
        Ok(())
    }
}

/// Empties the queues of a queue pair that breaks. Returns the completions of everything in them.
fn flush(id_of_qp: QpId, qp: &mut Qp, culprit: u64, why: Status) -> Vec<Completion> {
    let none =
        Completion { qp: id_of_qp, id: 0, opcode: Opcode::Recv, status: Status::Flushed, bytes: 0, imm: None, tag: 0 };
    let mut flushed = Vec::new();
    for seq in qp.released + 1..=qp.posted {
        if let Some(request) = qp.request(seq) {
            let (id, opcode) = (request.id, request.opcode);
            let status = if seq == culprit { why } else { Status::Flushed };
            flushed.push(Completion { id, opcode, status, ..none });
        }
    }
    qp.released = qp.posted;
    flushed.extend(qp.recvs.drain(..).map(|PostedRecv { id, .. }| Completion { id, ..none }));
    let opcode = Opcode::TaggedRecv;
    flushed.extend(qp.tagged_recvs.drain(..).map(|PostedRecv { id, .. }| Completion { id, opcode, ..none }));
    flushed
}
