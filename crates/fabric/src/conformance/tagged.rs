//! Tagged messages with ignore masks.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, called, need, same};
use super::send::{received, room};
use crate::{Fabric, Opcode, Source, Status, Verb};

fn message(tag: u64) -> Verb<'static> {
    Verb::TaggedSend { source: Source::Inline(&[9, 8, 7, 6, 5]), tag }
}

pub(super) fn exact_and_masked<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().tagged, "tagged messages")?;
    let inbox = bed.region(B, B, 1, 1024, None)?;
    let link = bed.link(16, 16)?;
    // (id, tag, ignored bits): anything of channel 2; exactly 0x105; exactly 0x106.
    for (slot, (id, tag, ignore)) in [(20, 0x200, 0xff), (21, 0x105, 0), (22, 0x106, 0)].into_iter().enumerate() {
        let room = room(inbox, slot as u64);
        called("post_tagged_recv", bed.at(B).post_tagged_recv(link.b, room, tag, ignore, id))?;
    }
    for (id, tag, slot, recv) in [(1, 0x106, 2, 22), (2, 0x2ab, 0, 20), (3, 0x105, 1, 21)] {
        bed.post(A, link.a, id, message(tag))?;
        let got = bed.expect(B, link.b, recv, (Opcode::TaggedRecv, Status::Success))?;
        same("tag and length", &(got.tag, got.bytes), &(tag, 5))?;
        same("data", &received(bed, inbox, slot, 5), &vec![9, 8, 7, 6, 5])?;
        bed.expect(A, link.a, id, (Opcode::TaggedSend, Status::Success))?;
    }
    Ok(())
}

pub(super) fn unexpected_messages_wait<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().tagged, "tagged messages")?;
    let inbox = bed.region(B, B, 1, 1024, None)?;
    let link = bed.link(16, 16)?;
    for (id, tag) in [(1, 5), (2, 6), (3, 5)] {
        bed.post(A, link.a, id, message(tag))?;
    }
    bed.settle();
    for (slot, (id, tag)) in [(30, 6), (31, 5), (32, 5)].into_iter().enumerate() {
        called("post_tagged_recv", bed.at(B).post_tagged_recv(link.b, room(inbox, slot as u64), tag, 0, id))?;
        let got = bed.expect(B, link.b, id, (Opcode::TaggedRecv, Status::Success))?;
        same("tag", &got.tag, &tag)?;
    }
    Ok(())
}
