//! SEND and RECV.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, called, check, same};
use stentor_fabric::{Event, Fabric, Opcode, RegionId, Source, Span, Status, Verb};

const ROOM: u32 = 1024;

/// Returns the first bytes of a receive slot.
pub(super) fn received<T: Testbed>(bed: &mut Bed<T>, region: RegionId, slot: u64, bytes: usize) -> Vec<u8> {
    let first = (slot * u64::from(ROOM) / 8) as usize;
    let words = &bed.words(B, region)[first..first + ROOM as usize / 8];
    super::bed::bytes_of(words)[..bytes].to_vec()
}

/// Returns the span of receive `slot`.
pub(super) fn room(region: RegionId, slot: u64) -> Span {
    Span { region, offset: slot * u64::from(ROOM), bytes: ROOM }
}

pub(super) fn all_lengths_in_order<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let lengths = [0_usize, 1, 7, 8, 9, 64, 100, 1000, 1023, 1024];
    let inbox = bed.region(B, B, 1, lengths.len() * ROOM as usize / 8, None)?;
    let outbox = bed.region(A, A, 2, ROOM as usize / 8, None)?;
    let link = bed.link(32, 32)?;
    for slot in 0..lengths.len() as u64 {
        called("post_recv", bed.at(B).post_recv(link.b, room(inbox, slot), 700 + slot))?;
    }
    let inline = bed.at(A).capabilities().inline_bytes as usize;
    let mut sent = Vec::new();
    for (n, length) in lengths.into_iter().enumerate() {
        let data: Vec<u8> = (0..length).map(|i| (i * 7 + n * 31 + 1) as u8).collect();
        let id = n as u64;
        let imm = (n % 2 == 0).then_some(n as u32 + 40);
        if length <= inline.min(200) {
            bed.post(A, link.a, id, Verb::Send { source: Source::Inline(&data), imm })?;
        } else {
            let mut padded = data.clone();
            padded.resize(ROOM as usize, 0xee);
            let words: Vec<u64> = padded
                .chunks_exact(8)
                .map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
                .map(u64::from_le)
                .collect();
            bed.store(A, outbox, 0, &words);
            let source = Source::Region(Span { region: outbox, offset: 0, bytes: length as u32 });
            bed.complete(A, link.a, id, Verb::Send { source, imm }, Status::Success)?;
        }
        sent.push((data, imm));
    }
    for (n, (data, imm)) in sent.into_iter().enumerate() {
        let got = bed.expect(B, link.b, 700 + n as u64, (Opcode::Recv, Status::Success))?;
        same("bytes received", &(got.bytes as usize, got.imm), &(data.len(), imm))?;
        let bytes = received(bed, inbox, n as u64, data.len());
        same(&format!("message {n}"), &bytes, &data)?;
    }
    Ok(())
}

pub(super) fn too_long_for_the_receive<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let inbox = bed.region(B, B, 1, 16, None)?;
    let link = bed.link(32, 32)?;
    let short = Span { region: inbox, offset: 0, bytes: 16 };
    called("post_recv", bed.at(B).post_recv(link.b, short, 700))?;
    bed.post(A, link.a, 1, Verb::Send { source: Source::Inline(&[0x55; 24]), imm: None })?;
    bed.expect(B, link.b, 700, (Opcode::Recv, Status::LocalLength))?;
    let outcome = bed.completion(A, link.a, 1)?;
    check(outcome.status != Status::Success, || "a message that was too long was reported a success".into())?;
    bed.event(A, Event::Disconnected { qp: link.a, peer: B })?;
    same("memory behind the receive", &bed.words(B, inbox)[2..].to_vec(), &vec![0; 14])
}
