//! A ring that a peer writes here, and the credits for it.
//!
//! # States of ring space
//! At the reader, a record's space is *written* → *consumed* (the reader advanced past it) → *freed* (its bytes are no
//! longer needed) → *credited* (the position after it was written to the peer's credit cell). At the writer, the space
//! is *in use* until the credits of all started targets have passed it. If the ring keeps its records, these targets
//! must also include a majority in one ballot.
//!
//! | ring | a record is freed | the credit is sent |
//! |---|---|---|
//! | control | when it is consumed, even if refused | when a quarter of the ring is freed |
//! | reply, query | when it is consumed, even if its bytes are not read | when a quarter of the ring is freed |
//! | stream | when its last item is processed, even if refused | when a quarter of the ring is freed |
//! | body, message accepted | when the mirror's messages up to it are finished | see below |
//! | body, message refused, held or delivered before | when no undelivered message precedes it | see below |
//! | body, message beyond the window | never before it is read again (`Refused`) | – |
//!
//! A stream record is not consumed before its last item is processed. A message in the mirror is finished when it is
//! delivered, or when it is permanently a no-op. Records after one that is beyond the window are not freed either. The
//! credit for a body ring is sent when a quarter of the window or the ring is freed, when the client waits for it, or
//! when there is nothing else to do.
//!
//! # Invariants
//! - Every record that the reader advanced past is freed as soon as its bytes are no longer needed, and the freed
//!   position reaches the writer without any further event. So each operation that frees space of a body ring marks the
//!   client as one whose credit may be due (`Outputs::touch`): a delivery, a no-op, an installed state, a refused
//!   record, a message that was held already, and a forwarded body that replaces another one. Records after an
//!   undelivered message are freed with its delivery.
//! - An uncredited quarter of a ring never blocks the writer. If the longest record has n cells, a lap has at least
//!   3n - 1. So the rest of the ring has room for such a record once all records are freed. The tail that a lap skips
//!   belongs to the record before it, and is freed with it.
//! - A credit that is lost with its connection is not owed: the next start names the position from which both ends
//!   count, and a new generation. Credits of an earlier generation count nothing.
//! - A credit that is due and finds no room in a send queue is sent in a later round. The mark of a client remains
//!   until then. A control or stream ring is checked when its peer writes, and every 64 rounds in any case. A node that
//!   owes a credit for replies or queries does not skip rounds.

use stentor_fabric::memory::WORD;
use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Fabric, Purpose, RegionId, RemoteSpan, RingReader, SealedSlot};
use stentor_link::Resolved;
use zerocopy::IntoBytes;

use super::hello::Start;
use super::peer_link::PeerLink;
use crate::{Ballot, Limits};

/// A ring that a peer writes.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) region: RegionId,
    pub(super) reader: RingReader,
    pub(super) credit: CreditOut,
    /// The writer's life, and its number of the ring's last start; `None` before the first.
    writer: Option<(u64, u64)>,
}

/// The sender of a ring's credits: they go to a cell in a region of the writer.
#[derive(Debug)]
pub(super) struct CreditOut {
    slot: SealedSlot,
    /// Index into the node's links.
    pub(super) link: usize,
    offset: u64,
    region: Resolved,
    /// The request that wrote the last credit, where writes are not ordered (rule 5 of the fabric's contract).
    last: u64,
}

/// Words of a credit: position freed; slots freed (between members: receives consumed); status of the client id; slots
/// held and in which ballot (see [`Held`]); generation of the ring's start.
///
/// The highest bit of the last word asks the writer not to wait for this member (`ASIDE`).
pub(super) const CREDIT_WORDS: usize = 5;
/// Bytes of a credit's record, which a fabric must support as an inline write.
pub(super) const CREDIT_BYTES: usize = (HEADER_WORDS + CREDIT_WORDS) * WORD;

/// The slots that a member holds of a client, and the ballot that is installed there. Slots that a majority holds in
/// one ballot survive the memory loss of any member, because a member that promises another ballot reports what it
/// holds. See [`Replica::counts_in`](crate::Replica::counts_in).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Held {
    /// Slots below this are held or freed.
    pub(super) slots: u64,
    /// The ballot, shortened to the lower bits of its incarnation and number, and its process. That distinguishes
    /// ballots that are less than 256 incarnations or 2^23 campaigns apart. 0 if the slots count in no ballot.
    pub(super) ballot: u64,
}

/// Bits of the number of slots held: enough for the largest window.
const HELD_BITS: u32 = 17;
const _: () = assert!((Limits::MAX_WINDOW as u64) < 1 << HELD_BITS);

impl Held {
    pub(super) fn new(slots: u64, ballot: Option<Ballot>) -> Self {
        let short = |ballot: Ballot| {
            let (incarnation, number) = (u64::from(ballot.incarnation()) & 0xff, ballot.number() & 0x7f_ffff);
            incarnation << 39 | number << 16 | u64::from(ballot.leader().0)
        };
        Held { slots, ballot: ballot.map_or(0, short) }
    }

    /// Encodes this as a word that a reader decodes with the same `freed`.
    pub(super) fn to_word(self, freed: u64) -> u64 {
        self.slots.saturating_sub(freed).min((1 << HELD_BITS) - 1) | self.ballot << HELD_BITS
    }

    pub(super) fn from_word(word: u64, freed: u64) -> Self {
        Held { slots: freed.saturating_add(word & ((1 << HELD_BITS) - 1)), ballot: word >> HELD_BITS }
    }
}

impl CreditOut {
    /// Returns a sender that writes at `offset` of the peer's region for `purpose`.
    pub(super) fn new(seal: Seal, link: usize, purpose: Purpose, offset: u64) -> Self {
        CreditOut { slot: SealedSlot::new(seal), link, offset, region: Resolved::new(purpose), last: 0 }
    }

    /// Returns whether a credit can be sent now.
    pub(super) fn ready<F: Fabric>(&mut self, fabric: &mut F, links: &[PeerLink]) -> bool {
        let link = &links[self.link];
        if !(link.is_met() && link.can_post()) {
            return false;
        }
        // On a fabric that does not order writes, the older of two credits in flight could land last and overwrite the
        // newer one.
        let alone = self.last <= link.done();
        self.region.get(fabric, link).is_some() && alone
    }

    /// Sends a credit. Call it when [`ready`](CreditOut::ready) returns true.
    #[inline]
    pub(super) fn send<F: Fabric>(
        &mut self,
        fabric: &mut F,
        links: &mut [PeerLink],
        values: [u64; CREDIT_WORDS],
    ) -> bool {
        let Some(region) = self.region.last() else { return false };
        let [position, freed, sequence, held, generation] = values;
        let mut record = [0, 0, 0, position, freed, sequence, held, generation];
        self.slot.close(&mut record);
        let target = RemoteSpan { region, offset: self.offset };
        let ordered = fabric.capabilities().ordered_writes;
        let request = links[self.link].write_inline(fabric, record.as_bytes(), target, !ordered);
        if !ordered {
            self.last = request.unwrap_or(0);
        }
        request.is_some()
    }
}

impl Inbound {
    pub(super) fn new(region: RegionId, reader: RingReader, credit: CreditOut) -> Self {
        Inbound { region, reader, credit, writer: None }
    }

    /// Returns the number of the ring's last start; 0 before the first.
    pub(super) fn generation(&self) -> u64 {
        self.writer.map_or(0, |(_, generation)| generation)
    }

    /// Returns the writer's life.
    pub(super) fn life(&self) -> Option<u64> {
        self.writer.map(|(life, _)| life)
    }

    /// Restarts the ring where the writer resumes; `seal` is that of the writer's life. Returns whether the reader
    /// keeps its position in records of the same life. If so, a record that the reader has seen, but has not advanced
    /// past, is still the next one.
    pub(super) fn restart(&mut self, life: u64, start: Start, seal: Seal) -> bool {
        // If the writer kept running, records after the start may have been read before the start became known.
        let same = self.life() == Some(life);
        let seen = self.reader.position();
        self.reader.restart(start.position, seal);
        if same && seen > start.position {
            // The writer counts from the start and has received no credit since, so the records read already must be
            // credited.
            self.reader.skip_to(seen);
        }
        self.writer = Some((life, start.generation));
        same && self.reader.position() == seen
    }

    /// Sends the credit for the consumed records, if they are a quarter of the ring or more. Returns the number of
    /// writes.
    #[inline]
    pub(super) fn send_credit<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink]) -> u64 {
        let freed = self.reader.position();
        if !self.owes_credit() {
            return 0;
        }
        self.send_due_credit(fabric, links, freed)
    }

    /// Returns whether a quarter of the ring or more was consumed since the last credit.
    #[inline]
    pub(super) fn owes_credit(&self) -> bool {
        self.reader.uncredited(self.reader.position()) * 4 >= self.reader.geometry().lap_cells()
    }

    #[cold]
    fn send_due_credit<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink], freed: u64) -> u64 {
        if !self.credit.ready(fabric, links) {
            return 0;
        }
        let value = self.reader.credit(freed);
        let consumed = links[self.credit.link].consumed;
        u64::from(self.credit.send(fabric, links, [value, consumed, 0, 0, self.generation()]))
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;
    use stentor_fabric::ring::Geometry;
    use stentor_link::purpose::MULTICAST_CONTROL;

    use super::*;

    fn ring() -> (Inbound, Seal) {
        let seal = Seal::new(ProcessId(0), 1);
        let reader = RingReader::new(Geometry::new(0, 64, 8), seal);
        (Inbound::new(RegionId(0), reader, CreditOut::new(seal, 0, MULTICAST_CONTROL, 0)), seal)
    }

    #[test]
    fn credits_distinguish_ballots_that_differ_in_any_part() {
        let ballot = |incarnation, number, leader| Ballot::new_in(incarnation, number, ProcessId(leader));
        let ballots =
            [ballot(1, 1, 1), ballot(2, 1, 1), ballot(1, 2, 1), ballot(1, 1, 2), ballot(255, 0x7f_ffff, 0xffff)];
        let mut seen = std::collections::BTreeSet::from([Held::new(9, None).ballot]);
        for ballot in ballots {
            let held = Held::new(1000, Some(ballot));
            assert!(seen.insert(held.ballot), "{ballot}");
            assert_eq!(Held::from_word(held.to_word(990), 990), held, "{ballot}");
        }
    }

    /// The writer counts a credit only if the credit has the generation of the ring's last start. If the reader sent no
    /// credit for records that it read before it knew that start, a full ring would stay full.
    #[test]
    fn records_read_before_their_start_was_known_are_still_credited() {
        let (mut ring, seal) = ring();
        ring.restart(7, Start { position: 0, generation: 1 }, seal);
        ring.reader.skip_to(60);
        ring.restart(7, Start { position: 10, generation: 2 }, seal);
        assert_eq!((ring.reader.position(), ring.reader.uncredited(60), ring.generation()), (60, 50, 2));
        // Records before a start that is ahead of the reader are skipped, and their space is free.
        ring.restart(7, Start { position: 80, generation: 3 }, seal);
        assert_eq!((ring.reader.position(), ring.reader.uncredited(80)), (80, 0));
        // No record of the new process was read yet.
        ring.restart(8, Start { position: 5, generation: 1 }, seal);
        assert_eq!((ring.reader.position(), ring.reader.uncredited(5)), (5, 0));
    }

    #[test]
    fn reader_keeps_its_position_only_within_one_life_of_the_writer() {
        let (mut ring, seal) = ring();
        assert!(!ring.restart(7, Start { position: 0, generation: 1 }, seal));
        ring.reader.skip_to(5);
        assert!(ring.restart(7, Start { position: 5, generation: 2 }, seal));
        assert!(ring.restart(7, Start { position: 2, generation: 3 }, seal));
        assert!(!ring.restart(8, Start { position: 5, generation: 1 }, seal), "the same position in another life");
        assert!(!ring.restart(8, Start { position: 9, generation: 2 }, seal), "another position");
    }
}
