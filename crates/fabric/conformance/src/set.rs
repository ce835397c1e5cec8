//! Fan-out sets: the network copies one WRITE to several targets (rules 15 to 17).
//!
//! Process 0 is the sender, and the set's number is the sender's id, because some fabrics have sets with a single
//! sender.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, bytes_of, called, check, need, place, same};
use stentor_fabric::{
    Access, Capabilities, ConnectError, Event, Fabric, Opcode, PostError, ProcessId, Purpose, QpConfig, QpId, QpState,
    RegionId, RemoteSpan, Service, SetSpec, SetTarget, SetWrite, Status,
};

const C: ProcessId = ProcessId(2);
const MEMBERS: [ProcessId; 3] = [A, B, C];
const NUMBER: u16 = 0;
const DEPTH: u32 = 64;
const WORDS: usize = 256;

/// A connected set of three, with regions for A at B and at C, and queue pairs from A to both.
struct Trio {
    /// The ends of the set, by process.
    ends: [QpId; 3],
    /// The regions at B and C.
    regions: [RegionId; 2],
    /// The queue pairs from A to B and to C.
    links: [QpId; 2],
}

fn spec() -> SetSpec<'static> {
    SetSpec { number: NUMBER, members: &MEMBERS }
}

fn join<T: Testbed>(bed: &mut Bed<T>, process: ProcessId) -> Outcome<QpId> {
    called("join_set", bed.at(process).join_set(spec(), QpConfig::reliable(DEPTH, 0)))
}

fn capable<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    need(bed.at(A).capabilities().hardware_multicast, "multicast by the network")
}

fn setup<T: Testbed>(bed: &mut Bed<T>) -> Outcome<Trio> {
    capable(bed)?;
    let regions = [bed.region(B, A, 1, WORDS, Some(Access::Write))?, bed.region(C, A, 1, WORDS, Some(Access::Write))?];
    let links = [
        bed.connect((A, B), Service(7), QpConfig::reliable(DEPTH, 0))?.a,
        bed.connect((A, C), Service(7), QpConfig::reliable(DEPTH, 0))?.a,
    ];
    let ends = [join(bed, A)?, join(bed, B)?, join(bed, C)?];
    let trio = Trio { ends, regions, links };
    trio.whole(bed)?;
    bed.forget();
    Ok(trio)
}

impl Trio {
    fn end(&self, process: ProcessId) -> QpId {
        self.ends[process.index()]
    }

    /// Resets broken ends of the processes `up` until all of them are ready and A reaches exactly `reached`.
    fn reaches<T: Testbed>(&self, bed: &mut Bed<T>, up: &[ProcessId], reached: &[ProcessId]) -> Outcome {
        bed.until(&format!("a life of the set with {reached:?}"), |bed| {
            let mut ready = true;
            for process in up {
                bed.collect(*process);
                let end = self.end(*process);
                bed.reset_if_broken(*process, end)?;
                ready &= bed.at(*process).state(end) == QpState::Ready;
            }
            let exact = [B, C].iter().all(|peer| bed.at(A).set_reaches(self.end(A), *peer) == reached.contains(peer));
            Ok((ready && exact).then_some(()))
        })
    }

    fn whole<T: Testbed>(&self, bed: &mut Bed<T>) -> Outcome {
        self.reaches(bed, &MEMBERS, &[B, C])
    }

    fn region(&self, peer: ProcessId) -> RegionId {
        self.regions[peer.index() - 1]
    }

    /// Returns a target at a word of the region that A may write at a peer.
    fn target<T: Testbed>(&self, bed: &mut Bed<T>, peer: ProcessId, word: usize) -> Outcome<SetTarget> {
        let region = bed.resolve(A, peer, 1)?;
        Ok(SetTarget { peer, to: place(region, word) })
    }

    fn post<T: Testbed>(
        &self,
        bed: &mut Bed<T>,
        (id, signalled): (u64, bool),
        values: &[u64],
        targets: &[SetTarget],
    ) -> Result<(), PostError> {
        let fabric = bed.at(A);
        fabric.post_set(self.end(A), SetWrite { id, data: &bytes_of(values), targets, signalled })?;
        fabric.flush();
        Ok(())
    }

    /// Writes a value to a word at each peer, and waits until it is visible.
    fn works<T: Testbed>(&self, bed: &mut Bed<T>, peers: &[ProcessId], value: u64) -> Outcome {
        let mut targets = Vec::new();
        for peer in peers {
            targets.push(self.target(bed, *peer, 0)?);
        }
        called("post_set", self.post(bed, (value, true), &[value], &targets))?;
        bed.expect(A, self.end(A), value, (Opcode::Write, Status::Success))?;
        for peer in peers {
            let what = format!("{value} at {peer}");
            bed.eventually(&what, |bed| bed.word(*peer, self.region(*peer), 0) == value)?;
        }
        Ok(())
    }

    /// Resets the broken end of each process after the given number of rounds. Returns the memory of B and of C at the
    /// moment at which A learns that no write can land there any more.
    fn when_settled<T: Testbed>(&self, bed: &mut Bed<T>, resets: [u64; 3]) -> Outcome<[Vec<u64>; 2]> {
        let (mut rounds, mut settled) = (0, [None, None]);
        bed.until("that both are settled", |bed| {
            for (process, at) in MEMBERS.into_iter().zip(resets) {
                bed.collect(process);
                if rounds >= at && bed.at(process).state(self.end(process)) == QpState::Error {
                    called("reset", bed.at(process).reset(self.end(process)))?;
                }
            }
            rounds += 1;
            for (at, peer) in [B, C].into_iter().enumerate() {
                if settled[at].is_none() && bed.at(A).set_settled(self.end(A), peer) {
                    settled[at] = Some(bed.words(peer, self.regions[at]));
                }
            }
            Ok(if let [Some(b), Some(c)] = &settled { Some([b.clone(), c.clone()]) } else { None })
        })
    }

    /// Posts a write with one copy that its target refuses.
    fn break_by_refusal<T: Testbed>(&self, bed: &mut Bed<T>, id: u64) -> Outcome {
        let good = self.target(bed, B, 1)?;
        let mut bad = self.target(bed, C, 0)?;
        bad.to.region.bytes = u64::MAX;
        bad.to.offset = (WORDS * 8) as u64;
        called("post_set", self.post(bed, (id, true), &[id], &[good, bad]))
    }
}

/// A fabric without sets refuses `join_set` and `post_set`.
pub(super) fn refused_without_the_capability<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    if bed.at(A).capabilities().hardware_multicast {
        return Ok(());
    }
    let joined = bed.at(A).join_set(SetSpec { number: 0, members: &[A, B] }, QpConfig::reliable(4, 0));
    same("join_set", &joined, &Err(ConnectError::NoSets))?;
    let write = SetWrite { id: 1, data: &[0; 8], targets: &[], signalled: true };
    let posted = bed.at(A).post_set(QpId(0), write);
    check(matches!(posted, Err(PostError::Unsupported(_))), || format!("post_set: {posted:?}"))
}

pub(super) fn copies_reach_exactly_the_targets<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let trio = setup(bed)?;
    let mut expected = [vec![0; WORDS], vec![0; WORDS]];
    for n in 1..=60_u64 {
        // At first the list of targets changes with every write. Later it stays the same, and only the distance between
        // the offsets changes, with every fourth write.
        let (whom, word) = (if n < 30 { n % 3 + 1 } else { 3 }, (n as usize * 7) % (WORDS - 8));
        let places = [word, if n % 4 == 0 { word + 5 } else { word }];
        let values = [n << 8, n << 8 | 1, n << 8 | 2];
        let values = &values[..1 + n as usize % 3];
        let mut targets = Vec::new();
        for (at, peer) in [B, C].into_iter().enumerate().filter(|(at, _)| whom >> at & 1 == 1) {
            targets.push(trio.target(bed, peer, places[at])?);
            expected[at][places[at]..places[at] + values.len()].copy_from_slice(values);
        }
        called("post_set", trio.post(bed, (n, true), values, &targets))?;
        let done = bed.expect(A, trio.end(A), n, (Opcode::Write, Status::Success))?;
        same("the queue pair of the completion", &done.qp, &trio.end(A))?;
    }
    for (at, peer) in [B, C].into_iter().enumerate() {
        let want = &expected[at];
        bed.eventually(&format!("all copies at {peer}"), |bed| bed.words(peer, trio.regions[at]) == *want)?;
    }
    bed.settle();
    for (at, peer) in [B, C].into_iter().enumerate() {
        same(&format!("the region at {peer}, later"), &bed.words(peer, trio.regions[at]), &expected[at])?;
    }
    same("more completions", &bed.take_any(A), &None)
}

pub(super) fn errors<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    capable(bed)?;
    let config = QpConfig::reliable(DEPTH, 0);
    let twice = [A, B, B];
    for members in [&MEMBERS[..1], &MEMBERS[1..], &twice[..], &[A; 33][..]] {
        let refused = bed.at(A).join_set(SetSpec { number: NUMBER, members }, config);
        check(matches!(refused, Err(ConnectError::Set { .. })), || format!("a set of {members:?}: {refused:?}"))?;
    }
    let stranger = [A, ProcessId(u16::MAX)];
    let refused = bed.at(A).join_set(SetSpec { number: NUMBER, members: &stranger }, config);
    check(refused.is_err(), || "a set with a stranger".to_string())?;
    let deep = QpConfig { send_depth: u32::MAX, ..config };
    let refused = bed.at(A).join_set(spec(), deep);
    check(matches!(refused, Err(ConnectError::TooDeep { .. })), || format!("a deep send queue: {refused:?}"))?;
    let trio = setup(bed)?;
    let refused = bed.at(A).join_set(spec(), config);
    check(matches!(refused, Err(ConnectError::Set { .. })), || format!("joined twice: {refused:?}"))?;
    let qp = trio.end(A);
    let (b, c) = (trio.target(bed, B, 0)?, trio.target(bed, C, 0)?);
    let me = SetTarget { peer: A, to: b.to };
    for (targets, peer) in [(&[b, b][..], Some(B)), (&[b, me, c][..], Some(A)), (&[][..], None)] {
        let refused = trio.post(bed, (1, true), &[1], targets);
        let named = matches!(refused, Err(PostError::NotReached { qp: of, peer: who }) if of == qp && peer.is_none_or(|peer| peer == who));
        check(named, || format!("copies to {targets:?}: {refused:?}"))?;
    }
    let Capabilities { inline_bytes, .. } = *bed.at(A).capabilities();
    let long = vec![7; inline_bytes as usize / 8 + 1];
    let refused = trio.post(bed, (1, true), &long, &[b]);
    check(matches!(refused, Err(PostError::InlineTooLong { .. })), || format!("a long write: {refused:?}"))?;
    let odd = SetTarget { peer: B, to: RemoteSpan { offset: 4, ..b.to } };
    let refused = trio.post(bed, (1, true), &[1], &[odd]);
    check(matches!(refused, Err(PostError::Misaligned { .. })), || format!("between words: {refused:?}"))?;
    let short = SetWrite { id: 1, data: &[1; 5], targets: &[b], signalled: true };
    let refused = bed.at(A).post_set(qp, short);
    check(matches!(refused, Err(PostError::Misaligned { .. })), || format!("5 bytes: {refused:?}"))?;
    let unknown = QpId(u32::MAX);
    let refused = bed.at(A).post_set(unknown, SetWrite { data: &[1; 8], ..short });
    same("an unknown queue pair", &refused, &Err(PostError::UnknownQp(unknown)))?;
    bed.settle();
    same("a refused write", &bed.word(B, trio.region(B), 0), &0)?;
    trio.works(bed, &[B, C], 5)
}

pub(super) fn bounded_and_freed_by_signalled<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let trio = setup(bed)?;
    let targets = [trio.target(bed, B, 0)?, trio.target(bed, C, 0)?];
    for round in 0..3_u64 {
        let mut posted = 0;
        // Completions are not polled, so no slot is freed.
        let full = loop {
            let id = round * 1_000 + posted;
            match trio.post(bed, (id, posted + 1 == u64::from(DEPTH)), &[id], &targets) {
                Ok(()) => posted += 1,
                Err(error) => break error,
            }
            bed.pass();
            check(posted <= u64::from(DEPTH), || format!("{posted} writes in a send queue of {DEPTH}"))?;
        };
        same("when it is full", &full, &PostError::SendQueueFull { qp: trio.end(A), depth: DEPTH })?;
        same("places", &posted, &u64::from(DEPTH))?;
        bed.expect(A, trio.end(A), round * 1_000 + posted - 1, (Opcode::Write, Status::Success))?;
    }
    bed.settle();
    same("completions of unsignalled writes", &bed.take_any(A), &None)
}

/// Rule 15: writes land in order at each target.
pub(super) fn in_order_at_each_target<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    capable(bed)?;
    need(bed.at(A).capabilities().ordered_writes, "writes in order")?;
    let trio = setup(bed)?;
    let mut done = 0;
    for n in 1..WORDS as u64 {
        let mut targets = Vec::new();
        // Two of three writes have only one target.
        for peer in [B, C].into_iter().filter(|peer| n % 3 != u64::from(peer.0)) {
            targets.push(trio.target(bed, peer, n as usize)?);
        }
        loop {
            match trio.post(bed, (n, n % 8 == 0), &[n], &targets) {
                Ok(()) => break,
                Err(PostError::SendQueueFull { .. }) => bed.round(),
                Err(error) => return check(false, || format!("write {n}: {error:?}")),
            }
        }
        for peer in [B, C] {
            let words = bed.words(peer, trio.region(peer));
            let missing = |word: &usize| *word as u64 % 3 != u64::from(peer.0) && words[*word] == 0;
            let first = (1..WORDS).find(missing).unwrap_or(WORDS);
            let later = (first..WORDS).find(|word| words[*word] != 0);
            check(later.is_none(), || format!("{later:?} is at {peer} without {first}"))?;
            done = done.max(first);
        }
        if n % 5 == 0 {
            bed.pass();
        }
    }
    for peer in [B, C] {
        bed.until(&format!("everything at {peer}"), |bed| {
            let words = bed.words(peer, trio.region(peer));
            let all =
                (1..WORDS).filter(|word| *word as u64 % 3 != u64::from(peer.0)).all(|word| words[word] == word as u64);
            Ok(all.then_some(()))
        })?;
    }
    Ok(())
}

/// Rule 16: a refusal at one target breaks the set for all.
pub(super) fn one_refusal_breaks_it_for_all<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let trio = setup(bed)?;
    for round in 1..=bed.repeats() {
        trio.break_by_refusal(bed, 7_000 + round)?;
        bed.expect(A, trio.end(A), 7_000 + round, (Opcode::Write, Status::RemoteAccess))?;
        for process in MEMBERS {
            bed.broken(process, trio.end(process), process)?;
        }
        let refused = trio.target(bed, B, 0).map(|to| trio.post(bed, (1, true), &[1], &[to]))?;
        let broken = PostError::NotReady { qp: trio.end(A), state: QpState::Error };
        same("post_set on a broken set", &refused, &Err(broken))?;
        check(!bed.at(A).set_reaches(trio.end(A), B), || "a broken set reaches somebody".to_string())?;
        for process in MEMBERS {
            bed.reset(process, trio.end(process))?;
        }
        for process in MEMBERS {
            bed.event(process, Event::Connected { qp: trio.end(process), peer: process })?;
        }
        trio.whole(bed)?;
        for peer in [B, C] {
            check(bed.at(A).set_settled(trio.end(A), peer), || format!("{peer} is in the next life and not settled"))?;
        }
        trio.works(bed, &[B, C], round)?;
        bed.forget();
    }
    Ok(())
}

/// Rule 17: a crashed process is left out of the set.
pub(super) fn crashed_process_is_left_out<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let mut trio = setup(bed)?;
    for round in 1..=bed.repeats().min(8) {
        let (b, c) = (trio.target(bed, B, 3)?, trio.target(bed, C, 3)?);
        bed.crash(C);
        if round % 2 == 0 {
            // The other rounds post no write: the crash is detected nevertheless.
            let posted = trio.post(bed, (9_000 + round, true), &[round], &[b, c]);
            check(matches!(posted, Ok(()) | Err(PostError::NotReady { .. })), || {
                format!("to a dead process: {posted:?}")
            })?;
            if posted.is_ok() {
                let failed = bed.completion(A, trio.end(A), 9_000 + round)?;
                let lost = matches!(failed.status, Status::RetryExceeded | Status::Flushed);
                check(lost, || format!("a copy to a dead process: {failed:?}"))?;
            }
        }
        trio.reaches(bed, &[A, B], &[B])?;
        same(
            "a write to a target that the set does not reach",
            &trio.post(bed, (1, true), &[1], &[c]),
            &Err(PostError::NotReached { qp: trio.end(A), peer: C }),
        )?;
        trio.works(bed, &[B], 100 + round)?;
        bed.eventually("that nothing can land at a dead process", |bed| bed.at(A).set_settled(trio.end(A), C))?;
        bed.restart(C);
        trio.regions[1] = bed.region(C, A, 1, WORDS, Some(Access::Write))?;
        let back = called("connect", bed.at(C).connect(A, Service(7), QpConfig::reliable(DEPTH, 0)))?;
        trio.ends[2] = join(bed, C)?;
        bed.until("the queue pair to the next life", |bed| {
            let link = trio.links[1];
            bed.reset_if_broken(A, link)?;
            Ok((bed.at(C).state(back) == QpState::Ready && bed.at(A).state(link) == QpState::Ready).then_some(()))
        })?;
        trio.whole(bed)?;
        trio.works(bed, &[B, C], 200 + round)?;
        bed.forget();
    }
    Ok(())
}

/// Failures of a set do not affect the queue pairs between the same processes.
pub(super) fn queue_pairs_survive_failures_of_the_set<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let trio = setup(bed)?;
    let mut next = 1_000;
    for round in 1..=bed.repeats() {
        trio.break_by_refusal(bed, round)?;
        for _ in 0..20 {
            for (peer, link) in [B, C].into_iter().zip(trio.links) {
                let remote = bed.resolve(A, peer, 1)?;
                bed.write_and_see((A, link), (peer, trio.region(peer)), (remote, 9), next)?;
            }
            next += 1;
        }
        trio.whole(bed)?;
        trio.works(bed, &[B, C], next)?;
        for link in trio.links {
            same("a queue pair beside a set", &bed.at(A).state(link), &QpState::Ready)?;
        }
    }
    Ok(())
}

/// The set breaks with many outstanding writes. Once `set_settled` returns true for a target, nothing lands there any
/// more.
pub(super) fn settled_means_nothing_lands<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let trio = setup(bed)?;
    for round in 1..=bed.repeats() {
        let (b, c) = (trio.target(bed, B, 0)?, trio.target(bed, C, 0)?);
        let at = |target: SetTarget, n: usize| SetTarget {
            to: RemoteSpan { offset: (n * 8) as u64, ..target.to },
            ..target
        };
        trio.break_by_refusal(bed, 5_000)?;
        for n in 0..DEPTH as usize - 2 {
            // The set may have broken.
            let _ = trio.post(bed, (n as u64, n % 2 == 0), &[round << 32 | n as u64], &[at(b, n), at(c, n)]);
            if (n as u64).is_multiple_of(2 + round % 5) {
                bed.pass();
            }
        }
        bed.until("the break", |bed| {
            bed.collect(A);
            Ok((bed.at(A).state(trio.end(A)) == QpState::Error).then_some(()))
        })?;
        let settled = trio.when_settled(bed, [round % 2 * 60, round % 3 * 40, (round + 1) % 3 * 40])?;
        bed.settle();
        for (at, peer) in [B, C].into_iter().enumerate() {
            let later = bed.words(peer, trio.regions[at]);
            same(&format!("memory of {peer} long after it was settled"), &later, &settled[at])?;
        }
        trio.whole(bed)?;
        bed.forget();
        trio.works(bed, &[B, C], round)?;
        bed.forget();
    }
    Ok(())
}

/// The sender restarts: once it is connected, writes of its earlier life no longer land (rule 10).
pub(super) fn no_write_of_an_earlier_life_lands<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let mut trio = setup(bed)?;
    let theirs = [
        bed.at(B).connect(A, Service(8), QpConfig::reliable(4, 0)),
        bed.at(C).connect(A, Service(8), QpConfig::reliable(4, 0)),
    ];
    let theirs = [called("connect", theirs[0].clone())?, called("connect", theirs[1].clone())?];
    for round in 1..=bed.repeats().min(8) {
        let (b, c) = (trio.target(bed, B, 0)?, trio.target(bed, C, 0)?);
        for n in 0..DEPTH as usize - 2 {
            let to = |target: SetTarget| SetTarget { to: RemoteSpan { offset: (n * 8) as u64, ..target.to }, ..target };
            let _ = trio.post(bed, (n as u64, n % 8 == 0), &[round << 32 | n as u64], &[to(b), to(c)]);
            if n % 11 == 0 {
                bed.pass();
            }
        }
        bed.crash(A);
        if round % 2 == 0 {
            bed.settle();
        }
        bed.restart(A);
        for (at, peer) in [B, C].into_iter().enumerate() {
            trio.links[at] = called("connect", bed.at(A).connect(peer, Service(8), QpConfig::reliable(DEPTH, 0)))?;
        }
        trio.ends[0] = join(bed, A)?;
        for (at, peer) in [B, C].into_iter().enumerate() {
            let what = format!("{peer} connects to the next life of {A}");
            bed.until(&what, |bed| {
                bed.reset_if_broken(peer, theirs[at])?;
                bed.collect(peer);
                let up = bed.at(peer).state(theirs[at]) == QpState::Ready;
                let own = bed.at(A).state(trio.links[at]) == QpState::Ready;
                Ok((up && own && bed.take_event(peer, Event::Connected { qp: theirs[at], peer: A }).is_some())
                    .then_some(()))
            })?;
            let words = bed.words(peer, trio.regions[at]);
            bed.settle();
            same(&format!("memory of {peer} long after that"), &bed.words(peer, trio.regions[at]), &words)?;
        }
        check([B, C].iter().all(|peer| bed.at(A).resolve(*peer, Purpose(1)).is_some()), || "not resolved".to_string())?;
        trio.whole(bed)?;
        trio.works(bed, &[B, C], round)?;
        bed.forget();
    }
    Ok(())
}

/// The path to or from one target is cut: the other target gets its copy, the set breaks, and it recovers after the
/// cut.
pub(super) fn survives_a_cut<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let trio = setup(bed)?;
    for round in 1..=bed.repeats().min(6) {
        let (b, c): (SetTarget, SetTarget) = (trio.target(bed, B, 20)?, trio.target(bed, C, 20)?);
        let (from, to) = if round % 2 == 0 { (A, C) } else { (C, A) };
        bed.cut(from, to)?;
        called("post_set", trio.post(bed, (round, true), &[round], &[b, c]))?;
        let failed = bed.completion(A, trio.end(A), round)?;
        check(failed.status != Status::Success, || "a success through a cut".to_string())?;
        bed.broken(A, trio.end(A), A)?;
        bed.eventually("the copy to the reached target", |bed| bed.word(B, trio.region(B), 20) == round)?;
        if from == A {
            same("the copy through the cut", &(bed.word(C, trio.region(C), 20) == round), &false)?;
        }
        bed.heal(from, to);
        trio.whole(bed)?;
        trio.works(bed, &[B, C], 100 + round)?;
        bed.forget();
    }
    Ok(())
}
