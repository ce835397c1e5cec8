//! WRITEs (rules 1 and 2).

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, called, check, need, place, same, span};
use stentor_fabric::{Access, Fabric, Opcode, SendQueue, Source, Status, Verb};

pub(super) fn lands_whole<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let words = 1024;
    let local = bed.region(A, A, 2, words, None)?;
    let (region, link, remote) = bed.linked(words, Access::Write, 16)?;
    let mut expected = vec![0; words];
    for (id, (first, count)) in
        [(0, 1), (3, 5), (8, 8), (100, 900), (0, 1024), (1023, 1), (5, 0)].into_iter().enumerate()
    {
        let values: Vec<u64> = (0..count).map(|i| (id as u64 + 1) << 32 | i as u64).collect();
        expected[first..first + count].copy_from_slice(&values);
        bed.store(A, local, 0, &values);
        let source = Source::Region(span(local, 0, count));
        bed.complete(A, link.a, id as u64, Verb::Write { source, target: place(remote, first) }, Status::Success)?;
        let what = format!("{count} words at {first}, and nothing else");
        bed.eventually(&what, |bed| bed.words(B, region) == expected)?;
    }
    Ok(())
}

/// Posts `count` writes with as few completions as the send queue allows. `each` returns the location and the data of a
/// write. `look` checks the memory after each round of posts.
fn stream<T: Testbed>(
    bed: &mut Bed<T>,
    count: u64,
    each: impl Fn(u64) -> (usize, Vec<u64>),
    mut look: impl FnMut(&mut Bed<T>) -> Outcome,
) -> Outcome {
    let depth = 32;
    let link = bed.link(depth, 4)?;
    let remote = bed.resolve(A, B, 1)?;
    let mut queue = SendQueue::new(depth);
    let mut next = 0;
    bed.until("all writes are posted and done", |bed| {
        while let Some(done) = bed.take_any(A) {
            same("status of a write", &done.status, &Status::Success)?;
            queue.completed(done.id);
        }
        while next < count && queue.free() > 0 {
            let (word, values) = each(next);
            let signalled = queue.signal_next() || next + 1 == count;
            let data = super::bed::bytes_of(&values);
            let verb = super::bed::write(&data, remote, word);
            called("post", bed.try_post(A, link.a, queue.next_id(), verb, signalled))?;
            queue.posted(signalled);
            next += 1;
        }
        look(bed)?;
        Ok((next == count && queue.done() == count).then_some(()))
    })
}

pub(super) fn in_order_on_one_queue_pair<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().ordered_writes, "order between writes")?;
    let (count, each) = (400, 3);
    let region = bed.region(B, A, 1, 1200, Some(Access::Write))?;
    let look = |bed: &mut Bed<T>| {
        let words = bed.words(B, region);
        let newest = words.iter().rposition(|word| *word != 0).map_or(0, |word| word / each);
        let hole = words[..newest * each].iter().position(|word| *word == 0);
        check(hole.is_none(), || format!("write {newest} is visible before all of write {}", hole.unwrap_or(0) / each))
    };
    stream(bed, count, |n| (n as usize * each, vec![n + 1; each]), look)?;
    bed.until("all writes are visible", |bed| {
        look(bed)?;
        Ok((bed.words(B, region).iter().all(|word| *word != 0)).then_some(()))
    })
}

pub(super) fn last_write_wins<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().ordered_writes, "order between writes")?;
    let count = 400;
    let region = bed.region(B, A, 1, 8, Some(Access::Write))?;
    let mut newest = 0;
    let mut look = |bed: &mut Bed<T>| {
        let seen = bed.word(B, region, 3);
        check(seen >= newest, || format!("{seen} became visible after {newest}"))?;
        newest = seen;
        Ok(())
    };
    stream(bed, count, |n| (3, vec![n + 1]), &mut look)?;
    bed.until("the last value", |bed| {
        look(bed)?;
        Ok((bed.word(B, region, 3) == count).then_some(()))
    })?;
    bed.settle();
    look(bed)
}

pub(super) fn both_ways_at_once<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let at_b = bed.region(B, A, 1, 64, Some(Access::Write))?;
    let at_a = bed.region(A, B, 1, 64, Some(Access::Write))?;
    let link = bed.link(64, 4)?;
    let (to_b, to_a) = (bed.resolve(A, B, 1)?, bed.resolve(B, A, 1)?);
    for n in 0..32 {
        bed.write(A, link.a, n, (to_b, 2 * n as usize), &[n + 1, n + 1])?;
        bed.write(B, link.b, n, (to_a, 2 * n as usize), &[n + 101, n + 101])?;
        if n % 5 == 0 {
            bed.round();
        }
    }
    for n in 0..32 {
        bed.expect(A, link.a, n, (Opcode::Write, Status::Success))?;
        bed.expect(B, link.b, n, (Opcode::Write, Status::Success))?;
    }
    let expected = |base: u64| (0..64).map(|word| base + word / 2).collect::<Vec<u64>>();
    bed.eventually("what A wrote", |bed| bed.words(B, at_b) == expected(1))?;
    bed.eventually("what B wrote", |bed| bed.words(A, at_a) == expected(101))
}
