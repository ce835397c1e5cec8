//! Sets: the network copies one write to several processes.
//!
//! The network knows the members of a set, and forms one *life* of a set after the other. A life is a connection of all
//! members that have joined when the life begins. A member that joins, leaves or fails ends the life for all members,
//! and the other members join again. Each process has one end for its own writes, and for each other member one queue
//! pair on which that member's copies arrive in order. The owner sees only its own end.

use stentor_fabric::memory::WORD;
use stentor_fabric::{
    Access, ConnectError, Event as FabricEvent, Opcode, PostError, ProcessId, QpConfig, QpId, QpState, Service,
    SetSpec, SetWrite, Status,
};

use crate::event::{End, Event};
use crate::fabric::aligned;
use crate::membership::{Membership, Seat, Set};
use crate::memory::pack;
use crate::qp::{Message, Part, Qp, RequestKind, Sent};
use crate::responder::Opened;
use crate::rng::MILLION;
use crate::state::State;

impl State {
    pub(crate) fn join_set(
        &mut self,
        me: ProcessId,
        spec: SetSpec<'_>,
        config: QpConfig,
    ) -> Result<QpId, ConnectError> {
        if !self.model.hardware_multicast {
            return Err(ConnectError::NoSets);
        }
        let SetSpec { number, members } = spec;
        let wrong = ConnectError::Set { number, members: members.len() };
        if let Some(stranger) = members.iter().find(|member| member.index() >= self.processes.len()) {
            return Err(ConnectError::UnknownProcess(*stranger));
        }
        let Some(rank) = members.iter().position(|member| *member == me) else { return Err(wrong) };
        let each_once = (1..members.len()).all(|at| !members[..at].contains(&members[at]));
        let known = self.processes[me.index()].sets.contains_key(&number);
        let alike = self.sets.get(&number).is_none_or(|set| set.members == members);
        if !(2..=SetSpec::MOST).contains(&members.len()) || !each_once || known || !alike {
            return Err(wrong);
        }
        let (what, asked, limit) = ("send queue", config.send_depth, self.model.max_send_depth);
        if asked > limit {
            return Err(ConnectError::TooDeep { what, asked, limit });
        }
        let count = members.len();
        let qps = &mut self.processes[me.index()].qps;
        let end = QpId(qps.len() as u32);
        qps.push(Qp { set: Some(Part::Own(number)), ..Qp::new(me, Service(number), config) });
        let from = members.iter().map(|member| {
            let quiet = QpConfig::reliable(0, 0);
            qps.push(Qp { set: Some(Part::From(number)), ..Qp::new(*member, Service(number), quiet) });
            QpId(qps.len() as u32 - 1)
        });
        let membership = Membership {
            members: members.to_vec(),
            rank,
            end,
            from: from.collect(),
            lives: vec![0; count],
            reaches: 0,
            owed: vec![0; count],
            left: vec![0; count],
            posted: vec![0; count],
            last_arrival: vec![0; count],
            kept_until: vec![0; count],
            departs: 0,
        };
        self.processes[me.index()].sets.insert(number, membership);
        self.trace_connect(me, members, config);
        self.sets.entry(number).or_insert_with(|| Set {
            members: members.to_vec(),
            waiting: vec![None; count],
            seats: vec![None; count],
            life: 0,
            dying: false,
            since: None,
        });
        self.ask_to_join(me, number);
        Ok(end)
    }

    fn ask_to_join(&mut self, me: ProcessId, number: u16) {
        let at = self.now + self.model.control.sample(&mut self.rng);
        let life = self.processes[me.index()].life;
        self.calendar.push(at, Event::SetJoined { number, process: me.0, life });
    }

    fn membership(&self, me: ProcessId, set: QpId) -> Option<&Membership> {
        let number = self.processes[me.index()].qps.get(set.index())?.own_set()?;
        self.processes[me.index()].sets.get(&number)
    }

    pub(crate) fn set_reaches(&self, me: ProcessId, set: QpId, peer: ProcessId) -> bool {
        let ready = |membership: &&Membership| self.qp(me, membership.end).state == QpState::Ready;
        let membership = self.membership(me, set).filter(ready);
        membership.is_some_and(|membership| membership.rank_of(peer).is_some_and(|rank| membership.is_reached(rank)))
    }

    pub(crate) fn set_settled(&self, me: ProcessId, set: QpId, peer: ProcessId) -> bool {
        let Some(membership) = self.membership(me, set) else { return true };
        membership.rank_of(peer).is_none_or(|rank| membership.owed[rank] <= membership.left[rank])
    }

    /// Returns the seat of the running process that waits for the next life at this rank, if any.
    fn waits(&self, number: u16, rank: usize) -> Option<Seat> {
        let set = &self.sets[&number];
        let seat = set.waiting[rank]?;
        let owner = &self.processes[set.members[rank].index()];
        let there = owner.up && owner.life == seat.life;
        let free = |qp: &Qp| qp.state == QpState::Connecting && qp.connection == 0;
        (there && owner.qps.get(seat.end.index()).is_some_and(free)).then_some(seat)
    }

    pub(crate) fn on_set_joined(&mut self, number: u16, process: ProcessId, life: u32) {
        let owner = &self.processes[process.index()];
        let Some(membership) = owner.sets.get(&number).filter(|_| owner.life == life) else { return };
        let (rank, end) = (membership.rank, membership.end);
        // A process that was left out because of a cut joins again, and may have been included since.
        let asks = self.qp(process, end);
        if asks.state != QpState::Connecting || asks.connection != 0 {
            return;
        }
        let (now, settle) = (self.now, self.model.set_settle.sample(&mut self.rng));
        let Some(set) = self.sets.get_mut(&number) else { return };
        set.waiting[rank] = Some(Seat { life, end });
        set.seats[rank] = None;
        if set.since.is_none() {
            set.since = Some(now);
            self.calendar.push(now + settle, Event::SetForms { number });
        }
        self.end_life(number, false);
    }

    /// Notifies all members of the newest life that it has ended.
    fn end_life(&mut self, number: u16, silent: bool) {
        let Some(set) = self.sets.get_mut(&number) else { return };
        if std::mem::replace(&mut set.dying, true) || set.life == 0 {
            return;
        }
        let life = set.life;
        let seats: Vec<_> =
            set.members.iter().zip(&set.seats).filter_map(|(who, seat)| Some((*who, (*seat)?))).collect();
        for (who, seat) in seats {
            let mut at = self.now + self.model.set_news.sample(&mut self.rng);
            if silent {
                at += self.model.retry_ns + self.rng.below(self.model.retry_ns / 4 + 1);
            }
            let end = End { process: who.0, qp: seat.end, connection: life };
            self.calendar.push(at, Event::PeerGone { end, silent: false });
            self.keep_copies_of(who, number);
        }
    }

    /// Makes the network hold back a process's copies for a while after their set has ended.
    fn keep_copies_of(&mut self, who: ProcessId, number: u16) {
        let (longest, now) = (self.model.late_copy_ns, self.now);
        let Some(membership) = self.processes[who.index()].sets.get_mut(&number).filter(|_| longest > 0) else {
            return;
        };
        for kept in &mut membership.kept_until {
            if self.rng.chance(MILLION / 2) {
                *kept = (*kept).max(now + self.rng.below(longest + 1));
            }
        }
    }

    /// Holds back a copy that arrives now, if the network holds back copies on this path. Returns whether it does.
    pub(crate) fn keep_copy(&mut self, id: u32) -> bool {
        let message = self.messages.get(id);
        let (from, to) = (message.from, message.to);
        let Some(until) = self.kept_until(id).filter(|until| *until > self.now) else { return false };
        self.kept.push(id);
        self.calendar.push(until, Event::CopiesGo { from: from.0, to: to.0 });
        true
    }

    fn kept_until(&self, id: u32) -> Option<u64> {
        let message = self.messages.get(id);
        message.copy?;
        let owner = &self.processes[message.from.index()];
        let number = owner.qps.get(message.from_qp.index())?.own_set()?;
        let membership = owner.sets.get(&number)?;
        Some(membership.kept_until[membership.rank_of(message.to)?])
    }

    /// Releases the copies that the network has held back between two processes.
    pub(crate) fn on_copies_go(&mut self, from: ProcessId, to: ProcessId) {
        let kept = std::mem::take(&mut self.kept);
        let between = |id: &u32| self.messages.get(*id).from == from && self.messages.get(*id).to == to;
        let (gone, kept): (Vec<u32>, Vec<u32>) = kept.into_iter().partition(between);
        self.kept = kept;
        for id in gone {
            self.arrive(id);
        }
    }

    /// Releases held-back copies at random when a write to the same location executes, so that they arrive right after
    /// it.
    pub(crate) fn let_go_of_what_was_there(&mut self, id: u32, place: &Opened) {
        if self.kept.is_empty() {
            return;
        }
        let message = self.messages.get(id);
        let (to, words) = (message.to, message.bytes as usize / WORD);
        let overlaps = |kept: &&u32| {
            let RequestKind::Write { target } = self.messages.get(**kept).kind else { return false };
            let bytes = self.messages.get(**kept).bytes;
            let there = self.open(**kept, target, bytes, Access::Write).filter(|_| self.messages.get(**kept).to == to);
            there.is_some_and(|there| {
                let end = there.first + bytes as usize / WORD;
                there.region == place.region && there.first < place.first + words && place.first < end
            })
        };
        let from = self.kept.iter().find(overlaps).map(|kept| self.messages.get(*kept).from);
        if let Some(from) = from.filter(|_| self.rng.chance(MILLION / 2)) {
            self.calendar.push(self.now, Event::CopiesGo { from: from.0, to: to.0 });
        }
    }

    /// Begins the next life, if at least two members wait for it. Before the grace period has elapsed, all running
    /// members must also have left the last life.
    pub(crate) fn on_set_forms(&mut self, number: u16) {
        let count = self.sets[&number].members.len();
        let mut seats: Vec<_> = (0..count).map(|rank| self.waits(number, rank)).collect();
        self.leave_out_who_is_cut_off(number, &mut seats);
        let set = &self.sets[&number];
        let Some(since) = set.since else { return };
        let there = |rank: &usize| {
            let owner = &self.processes[set.members[*rank].index()];
            set.seats[*rank].is_some_and(|seat| owner.up && owner.life == seat.life)
        };
        let is_left = !(0..count).any(|rank| there(&rank));
        if seats.iter().flatten().count() < 2 {
            self.sets.get_mut(&number).into_iter().for_each(|set| set.since = None);
            return;
        }
        if !is_left && self.now < since + self.model.set_grace_ns {
            let at = self.now + self.model.set_settle.sample(&mut self.rng).max(1);
            self.calendar.push(at, Event::SetForms { number });
            return;
        }
        self.begin_life(number, &seats);
    }

    /// Leaves out members that a cut separates, at random: the network may know of the cut.
    fn leave_out_who_is_cut_off(&mut self, number: u16, seats: &mut [Option<Seat>]) {
        for rank in 1..seats.len() {
            let members = &self.sets[&number].members;
            let cut = (0..rank).filter(|other| seats[*other].is_some()).any(|other| {
                let (a, b) = (members[other], members[rank]);
                self.is_cut(a, b) || self.is_cut(b, a)
            });
            let enough = seats.iter().flatten().count() > 2;
            if cut && enough && seats[rank].is_some() && self.rng.chance(MILLION / 2) {
                seats[rank] = None;
            }
        }
    }

    fn begin_life(&mut self, number: u16, seats: &[Option<Seat>]) {
        self.connections += 1;
        let life = self.connections;
        let Some(set) = self.sets.get_mut(&number) else { return };
        let members = set.members.clone();
        for (waiting, seat) in set.waiting.iter_mut().zip(seats) {
            *waiting = waiting.filter(|_| seat.is_none());
        }
        (set.seats, set.life, set.dying, set.since) = (seats.to_vec(), life, false, None);
        self.set_counts.lives += 1;
        self.set_counts.partial_lives += u64::from(seats.contains(&None));
        let posted = |state: &State, from: usize, to: usize| {
            state.processes[members[from].index()].sets.get(&number).map_or(0, |membership| membership.posted[to])
        };
        let lives: Vec<u32> = seats.iter().map(|seat| seat.map_or(0, |seat| seat.life)).collect();
        for (rank, seat) in seats.iter().enumerate() {
            let (Some(seat), me) = (seat, members[rank]) else { continue };
            self.qp_mut(me, seat.end).connection = life;
            for from in (0..members.len()).filter(|from| *from != rank && seats[*from].is_some()) {
                let executed = posted(self, from, rank);
                let Some(membership) = self.processes[me.index()].sets.get_mut(&number) else { continue };
                membership.lives.clone_from(&lives);
                let qp = membership.from[from];
                let qp = self.qp_mut(me, qp);
                (qp.connection, qp.broken, qp.executed, qp.gave_up) = (life, 0, executed, false);
            }
            let at = self.now + self.model.control.sample(&mut self.rng);
            self.calendar.push(at, Event::Ready { end: End { process: me.0, qp: seat.end, connection: life } });
        }
    }

    pub(crate) fn set_is_ready(&mut self, me: ProcessId, number: u16, life: u64) {
        let owner = &mut self.processes[me.index()];
        let Some(membership) = owner.sets.get_mut(&number) else { return };
        membership.reaches = 0;
        for rank in (0..membership.members.len()).filter(|rank| *rank != membership.rank) {
            if membership.lives[rank] > 0 {
                membership.reaches |= 1 << rank;
                // The member is in this life, so it has left all earlier ones.
                membership.left[rank] = membership.left[rank].max(life - 1);
            }
        }
        owner.events.push_back(FabricEvent::Connected { qp: membership.end, peer: me });
        self.notify(me);
    }

    /// Handles the break of a process's own end. Copies in flight to the process may land until it joins again.
    pub(crate) fn set_broke(&mut self, me: ProcessId, number: u16, life: u64) {
        self.set_counts.breaks += 1;
        let owner = &mut self.processes[me.index()];
        let Some(membership) = owner.sets.get_mut(&number) else { return };
        membership.reaches = 0;
        for rank in 0..membership.members.len() {
            if membership.lives[rank] > 0 && rank != membership.rank {
                membership.owed[rank] = life;
            }
            let qp = &mut owner.qps[membership.from[rank].index()];
            if qp.connection == life {
                (qp.connection, qp.broken) = (0, life);
            }
        }
        if self.sets.get(&number).is_some_and(|set| set.life == life) {
            self.end_life(number, false);
        }
    }

    /// Makes the network forget all sets.
    pub(crate) fn break_sets(&mut self) {
        if self.rng.chance(MILLION / 2) {
            for id in self.messages.in_use() {
                let message = self.messages.get_mut(id);
                message.dropped |= message.copy.is_some() && !message.executed;
            }
        }
        let numbers: Vec<_> = self.sets.keys().copied().collect();
        for number in numbers {
            self.end_life(number, false);
        }
    }

    /// Handles the reset of a process's end. No write of the life that this end was in lands here any more.
    pub(crate) fn leave_set(&mut self, me: ProcessId, number: u16) {
        let Some(membership) = self.processes[me.index()].sets.get(&number) else { return };
        let (members, from, life) =
            (membership.members.clone(), membership.from.clone(), self.qp(me, membership.end).broken);
        for (rank, qp) in from.into_iter().enumerate() {
            self.qp_mut(me, qp).broken = 0;
            if members[rank] != me {
                self.land_everything_of(me, members[rank]);
                let at = self.control_arrival(me, members[rank]);
                self.calendar.push(at, Event::SetLeft { number, who: me.0, to: members[rank].0, life });
            }
        }
        self.ask_to_join(me, number);
    }

    pub(crate) fn on_set_left(&mut self, number: u16, who: ProcessId, to: ProcessId, life: u64) {
        if self.is_cut(who, to) && self.processes[who.index()].up {
            self.link(who, to).held.push(Event::SetLeft { number, who: who.0, to: to.0, life });
            return;
        }
        let Some(membership) = self.processes[to.index()].sets.get_mut(&number) else { return };
        if let Some(rank) = membership.rank_of(who) {
            membership.left[rank] = membership.left[rank].max(life);
            self.notify(to);
        }
    }

    /// Handles the crash of a member: the network detects the crash and notifies the other members.
    pub(crate) fn set_member_is_gone(&mut self, process: ProcessId) {
        let numbers: Vec<_> = self.processes[process.index()].sets.keys().copied().collect();
        for number in numbers {
            let Some(set) = self.sets.get_mut(&number) else { continue };
            let (life, members) = (set.life, set.members.clone());
            let Some(rank) = members.iter().position(|member| *member == process) else { continue };
            set.waiting[rank] = None;
            let was_in = set.seats[rank].take().is_some();
            if was_in {
                self.end_life(number, true);
            }
            for to in members.into_iter().filter(|member| *member != process) {
                let late = self.model.retry_ns + self.rng.below(self.model.retry_ns / 2 + 1);
                let at = self.now + late;
                self.calendar.push(at, Event::SetLeft { number, who: process.0, to: to.0, life });
            }
        }
    }

    /// Closes the receiving ends of two processes that connect: copies from an earlier life of either one no longer
    /// land.
    pub(crate) fn close_sets_of_earlier_lives(&mut self, a: ProcessId, b: ProcessId) {
        for (me, peer) in [(a, b), (b, a)] {
            let lives = self.processes[peer.index()].life;
            let owner = &mut self.processes[me.index()];
            let mut any = false;
            for membership in owner.sets.values() {
                let Some(rank) = membership.rank_of(peer).filter(|_| peer != me) else { continue };
                if membership.lives[rank] != lives {
                    let qp = &mut owner.qps[membership.from[rank].index()];
                    any |= qp.connection != 0 || qp.broken != 0;
                    (qp.connection, qp.broken) = (0, 0);
                }
            }
            if any {
                self.land_everything_of(me, peer);
            }
        }
    }

    /// Lets members that were left out because of a cut join again after it ended.
    pub(crate) fn look_at_sets_again(&mut self) {
        let numbers: Vec<_> =
            self.sets.iter().filter(|(_, set)| set.since.is_none()).map(|(number, _)| *number).collect();
        for number in numbers {
            for rank in 0..self.sets[&number].members.len() {
                if self.waits(number, rank).is_some() {
                    let who = self.sets[&number].members[rank];
                    self.ask_to_join(who, number);
                }
            }
        }
    }
}

impl State {
    fn check_set_post(&self, me: ProcessId, set: QpId, write: &SetWrite<'_>) -> Result<(), PostError> {
        let entry = self.processes[me.index()].qps.get(set.index()).ok_or(PostError::UnknownQp(set))?;
        let Some(membership) = self.membership(me, set) else { return Err(PostError::UnknownQp(set)) };
        if entry.state != QpState::Ready {
            return Err(PostError::NotReady { qp: set, state: entry.state });
        }
        let (bytes, limit) = (write.data.len() as u64, self.model.inline_bytes);
        if bytes > u64::from(limit) {
            return Err(PostError::InlineTooLong { bytes, limit });
        }
        if write.targets.is_empty() {
            return Err(PostError::NotReached { qp: set, peer: me });
        }
        for (at, target) in write.targets.iter().enumerate() {
            let twice = write.targets[..at].iter().any(|other| other.peer == target.peer);
            let reached = membership.rank_of(target.peer).is_some_and(|rank| membership.is_reached(rank));
            if twice || !reached {
                return Err(PostError::NotReached { qp: set, peer: target.peer });
            }
            aligned(target.to.offset, bytes)?;
        }
        let depth = entry.config.send_depth;
        if entry.sent.len() >= depth as usize {
            return Err(PostError::SendQueueFull { qp: set, depth });
        }
        Ok(())
    }

    pub(crate) fn post_set(&mut self, me: ProcessId, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        self.check_set_post(me, set, &write)?;
        let copies = write.targets.len() as u32;
        let entry = self.qp_mut(me, set);
        entry.posted += 1;
        let (seq, connection, number) = (entry.posted, entry.connection, entry.own_set().unwrap_or(0));
        let (id, opcode, signalled) = (write.id, Opcode::Write, write.signalled);
        entry.sent.push_back(Sent { id, opcode, signalled, outcome: None, visible_at: 0, copies, partly: false });
        self.set_counts.writes += 1;
        self.set_counts.copies += u64::from(copies);
        self.process_counts[me.index()].set_writes += 1;
        for (copy, target) in write.targets.iter().enumerate() {
            let to = target.peer;
            self.process_counts[me.index()].set_copies[to.index()] += 1;
            let sender = self.processes[me.index()].sets.get_mut(&number);
            let Some((order, rank)) = sender.and_then(|membership| {
                let rank = membership.rank_of(to)?;
                membership.posted[rank] += 1;
                Some((membership.posted[rank], membership.rank))
            }) else {
                continue;
            };
            // A member that crashed, and possibly restarted, has no queue pair on which a copy could arrive.
            let there = self.processes[to.index()].sets.get(&number);
            let to_qp = there.map_or(QpId(u32::MAX), |membership| membership.from[rank]);
            self.flows += 1;
            let mut data = self.buffer();
            pack(write.data, &mut data);
            let message = Message {
                from: me,
                from_qp: set,
                to,
                to_qp,
                connection,
                reliable: true,
                seq,
                order,
                copy: Some(copy as u32),
                pair_seq: 0,
                kind: RequestKind::Write { target: target.to },
                bytes: write.data.len() as u32,
                data,
                unread: None,
                departs: u64::MAX,
                dropped: false,
                partial: false,
                executed: false,
                visible_at: 0,
                status: Status::Success,
                flow: self.flows,
            };
            self.hand_to_network(me, message);
        }
        self.crash_at_post(me);
        Ok(())
    }

    /// Transmits a copy. A write leaves its NIC once, and each copy takes its own path from there. Where writes are
    /// ordered, a copy arrives after earlier copies to the same target.
    pub(crate) fn transmit_copy(&mut self, id: u32) {
        let message = self.messages.get(id);
        let (from, to, copy, bytes, qp) = (message.from, message.to, message.copy, message.bytes, message.from_qp);
        let Some(number) = self.qp(from, qp).own_set() else { return };
        let mut delay = self.model.propagation.sample(&mut self.rng);
        if self.rng.chance(self.model.late_copies) {
            delay += self.rng.below(self.model.late_copy_ns / 4 + 1);
        }
        let (now, model) = (self.now, &self.model);
        let owner = &mut self.processes[from.index()];
        let Some(membership) = owner.sets.get_mut(&number) else { return };
        if copy == Some(0) {
            owner.nic_free_at = now.max(owner.nic_free_at) + model.nic_ns;
            membership.departs = owner.nic_free_at + u64::from(bytes) * model.ps_per_byte / 1000;
        }
        let departs = membership.departs.max(now);
        let mut arrives = departs + delay;
        if let Some(rank) = membership.rank_of(to).filter(|_| model.ordered_writes) {
            arrives = arrives.max(membership.last_arrival[rank]);
            membership.last_arrival[rank] = arrives;
        }
        self.messages.get_mut(id).departs = departs;
        self.calendar.push(arrives, Event::Arrive { message: id });
    }
}

/// A copy consists of whole words of 8 bytes.
const _: () = assert!(WORD == 8);
