//! Submits messages.

use stentor_fabric::Fabric;
use stentor_fabric::seal::HEADER_WORDS;
use zerocopy::IntoBytes;

use super::{Client, SubmitError, Submitted, Wants};
use crate::message::{MAX_DESTINATIONS, NOT_BEFORE_BYTES};
use crate::node::counts::{RemoteOp, Step};
use crate::node::outbound::{Way, copy_parts};
use crate::{Destination, END_OF_TIME, GroupId, Header, MessageId};

impl<F: Fabric> Client<F> {
    /// Multicasts a message to groups, given in ascending order. With `notify`, members report at once when they have
    /// delivered it; see [`Wants::notify`].
    ///
    /// # Errors
    /// See [`SubmitError`]. The message is then not multicast.
    #[inline]
    pub fn submit(&mut self, to: &[GroupId], payload: &[u8], notify: bool) -> Result<Submitted, SubmitError> {
        self.submit_parts(to, &[payload], Wants { notify, ..Wants::default() })
    }

    /// Multicasts a message as [`submit`](Client::submit) does. In addition, members report at once when they have read
    /// it; see [`synced_up_to`](Client::synced_up_to). The message is synced only when it and all messages that were
    /// submitted before it, to any group, are held by majorities. The reason is that each client's messages are
    /// delivered without gaps: a message after one that is lost with its client is lost as well.
    ///
    /// # Errors
    /// See [`SubmitError`]. The message is then not multicast.
    pub fn submit_synced(&mut self, to: &[GroupId], payload: &[u8], notify: bool) -> Result<Submitted, SubmitError> {
        self.submit_parts(to, &[payload], Wants { notify, sync: true, ..Wants::default() })
    }

    /// Multicasts a message whose payload is the concatenation of `parts`, as [`submit`](Client::submit) does.
    ///
    /// # Errors
    /// See [`SubmitError`]. The message is then not multicast.
    pub fn submit_parts(&mut self, to: &[GroupId], parts: &[&[u8]], wants: Wants) -> Result<Submitted, SubmitError> {
        let submitted = self.submit_as(to, parts, wants)?;
        if wants.sync {
            self.await_synced(submitted.id.sequence);
        }
        Ok(submitted)
    }

    /// Counts the message with this sequence as synced when all messages that were multicast up to it are synced.
    fn await_synced(&mut self, sequence: u64) {
        self.destinations.clear();
        for group in self.topology.group_ids() {
            let next = self.sender.next(group);
            if next > self.held(group).max(self.takeover.first_at(group)) {
                self.destinations.push(Destination { group, slot: next - 1 });
            }
        }
        self.unsynced.submitted(sequence, &self.destinations);
    }

    /// Returns the id that this message gets if it is submitted next, before another [`step`](Client::step). A program
    /// that logs its messages before it multicasts them needs the id in advance.
    ///
    /// # Errors
    /// Returns the [`SubmitError`] with which the message would be refused now.
    pub fn next_id(&mut self, to: &[GroupId], payload: &[u8]) -> Result<MessageId, SubmitError> {
        self.check(to, payload.len())?;
        Ok(MessageId { client: self.sender.client(), sequence: self.sender.next_sequence() })
    }

    fn submit_as(&mut self, to: &[GroupId], parts: &[&[u8]], wants: Wants) -> Result<Submitted, SubmitError> {
        let first = if wants.not_before == 0 { 0 } else { NOT_BEFORE_BYTES };
        let payload_bytes = first + parts.iter().map(|part| part.len()).sum::<usize>();
        self.check(to, payload_bytes)?;
        if wants.not_before >= END_OF_TIME {
            return Err(SubmitError::Time(wants.not_before));
        }
        let sequence = self.sender.number(to, &mut self.destinations);
        let id = MessageId { client: self.sender.client(), sequence };
        let header = Header::words(to.len());
        let bytes = header * 8 + payload_bytes;
        let fans_out = self.fanout.as_ref().is_some_and(|fanout| fanout.set.can_post());
        let mut writes = 0;
        for group in to {
            let lap = self.rings[usize::from(group.0)].writer.lap();
            if self.fanout.as_ref().is_some_and(|fanout| fanout.is_other(lap)) {
                writes += self.fan_out();
            }
            // Each group's ring has its own lap, so the record is sealed for each group.
            let body = &mut self.record[HEADER_WORDS..HEADER_WORDS + bytes.div_ceil(8)];
            Header::encode(sequence, payload_bytes, wants.notify, &self.destinations, body);
            if wants.sync {
                Header::ask_sync(body);
            }
            if wants.enveloped {
                Header::mark_enveloped(body);
            }
            if first > 0 {
                Header::mark_not_before(body);
                body[header] = wants.not_before;
            }
            if let Some(last) = body.last_mut().filter(|_| !payload_bytes.is_multiple_of(8)) {
                *last = 0;
            }
            copy_parts(parts, &mut body[header..].as_mut_bytes()[first..]);
            let ring = &mut self.rings[usize::from(group.0)];
            let sender = self.fanout.as_mut().filter(|_| fans_out);
            let fanout = sender.map(|sender| (sender, usize::from(group.0)));
            let way = Way { wakes: false, fanout };
            writes += ring.send(&mut self.fabric, &mut self.links, bytes, &mut self.record, way);
            self.counts.item(Step::Body, self.topology.size(*group) as u64);
            if let Some(operations) = &mut self.operations {
                let step = Step::Body;
                operations.extend(self.topology.members(*group).map(|to| RemoteOp { message: id, step, to }));
            }
        }
        writes += self.fan_out();
        self.counts.write(Step::Body, writes);
        self.submitted += 1;
        self.in_flight.submitted(sequence, &self.destinations);
        self.gate.disturb();
        Ok(Submitted { id })
    }

    /// Writes the record to the members that the fan-out set reaches. Returns the number of posts.
    fn fan_out(&mut self) -> u64 {
        let Some(fanout) = &mut self.fanout else { return 0 };
        let before = fanout.copies;
        let writes = fanout.write(&mut self.fabric, &mut self.links, &mut self.rings, &self.record);
        self.counts.copy(fanout.copies - before);
        writes
    }

    /// Returns one of these groups that was reset since this process started there. Messages to it that are not known
    /// to be delivered may be lost, and are no longer waited for.
    #[must_use]
    pub fn reset_of(&self, to: &[GroupId]) -> Option<GroupId> {
        to.iter().copied().find(|group| self.reset.get(usize::from(group.0)) == Some(&true))
    }

    pub(super) fn check(&mut self, to: &[GroupId], payload_bytes: usize) -> Result<(), SubmitError> {
        if payload_bytes > self.message_bytes {
            return Err(SubmitError::TooLong { bytes: payload_bytes, limit: self.message_bytes });
        }
        if self.superseded {
            return Err(self.why_superseded());
        }
        let known = to.iter().all(|group| self.topology.has_group(*group));
        if to.is_empty() || to.len() > MAX_DESTINATIONS || !known || !to.is_sorted_by(|a, b| a < b) {
            return Err(SubmitError::Destinations);
        }
        if self.sender.is_exhausted() {
            return Err(SubmitError::Exhausted { client: self.sender.client().0 });
        }
        if let Some(reset) = self.reset_of(to) {
            return Err(SubmitError::GroupReset { group: reset.0 });
        }
        if !to.iter().all(|group| self.takeover.is_opened(*group)) {
            self.open_now(to)?;
        }
        if let Some(lost) = to.iter().find(|group| !self.sender.has_majority(**group)) {
            return Err(SubmitError::NotConnected { group: lost.0 });
        }
        if let Err(full) = self.sender.check(to) {
            return Err(SubmitError::Busy { group: full.group });
        }
        let bytes = Header::words(to.len()) * 8 + payload_bytes;
        let full = |group: &&GroupId| {
            let ring = &mut self.rings[usize::from(group.0)];
            let clear =
                self.fanout.as_ref().is_none_or(|fanout| ring.is_clear(&fanout.completed_writes(&self.fabric), bytes));
            !(clear && ring.ready(&mut self.fabric, &self.links, bytes))
        };
        let Some(group) = to.iter().find(full) else { return Ok(()) };
        self.counts.ring_waits += 1;
        Err(SubmitError::Busy { group: group.0 })
    }

    #[cold]
    fn why_superseded(&self) -> SubmitError {
        match self.reset.iter().position(|reset| *reset) {
            // A group that was reset does not know this process, and messages to it may be lost. That is more useful to
            // the caller than the fact that another process took over.
            Some(group) => SubmitError::GroupReset { group: group as u16 },
            None => SubmitError::Superseded { client: self.sender.client().0 },
        }
    }
}
