//! Fencing: revoking access for good, or granting it again, any number of times.

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, QpPair, called, check, same, write};
use stentor_fabric::{Access, Event, Fabric, Purpose, QpConfig, QpState, RegionId, Service, Status};

const WORDS: usize = 64;

fn setup<T: Testbed>(bed: &mut Bed<T>) -> Outcome<(RegionId, QpPair)> {
    let region = bed.region(B, A, 1, WORDS, Some(Access::Write))?;
    Ok((region, bed.link(64, 4)?))
}

/// Revokes one region of several: the other regions and services keep working.
pub(super) fn only_the_revoked_region_is_fenced<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, main) = setup(bed)?;
    let other = bed.region(B, A, 2, WORDS, Some(Access::Write))?;
    let side = bed.connect((A, B), Service(8), QpConfig::reliable(64, 4))?;
    let (fenced, open) = (bed.resolve(A, B, 1)?, bed.resolve(A, B, 2)?);
    bed.forget();
    bed.revoke(B, region, A)?;
    bed.write_and_see((A, main.a), (B, other), (open, 0), 1)?;
    bed.complete_write(A, main.a, 2, (fenced, 0), &[2], Status::RemoteAccess)?;
    bed.broken(A, main.a, B)?;
    bed.write_and_see((A, side.a), (B, other), (open, 1), 3)?;
    bed.broken(B, main.b, A)?;
    bed.settle();
    let states = (bed.at(A).state(side.a), bed.at(B).state(side.b));
    same("the other service", &states, &(QpState::Ready, QpState::Ready))?;
    same("events of A", &bed.events(A), &vec![])?;
    same("events of B", &bed.events(B), &vec![])?;
    bed.reconnect(main)?;
    let open = bed.resolve(A, B, 2)?;
    bed.write_and_see((A, main.a), (B, other), (open, 2), 4)?;
    same("what was fenced", &bed.words(B, region), &vec![0; WORDS])
}

/// A writes continuously; B fences it, reads the memory, and grants access again.
pub(super) fn repeated_fences_hold<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link) = setup(bed)?;
    let mut next = 1_u64;
    for round in 0..2 * bed.repeats() {
        let remote = bed.resolve(A, B, 1)?;
        let (mut done, mut failed, mut fenced) = (Vec::new(), Vec::new(), None);
        for turn in 0.. {
            // Poll the owner first: a completion between the two polls is newer than the event.
            if fenced.is_none() && bed.take_event(B, Event::Revoked { region, peer: A }).is_some() {
                fenced = Some(bed.words(B, region));
            }
            bed.sort_completions(A, &mut done, &mut failed);
            if bed.at(A).state(link.a) == QpState::Error && fenced.is_some() {
                break;
            }
            check(turn < bed.patience() as u64, || format!("round {round}: the stream goes on after the fence"))?;
            if turn == 3 + round % 30 {
                called("revoke", bed.at(B).revoke(region, A))?;
            }
            let data = next.to_ne_bytes();
            let verb = write(&data, remote, next as usize % WORDS);
            next += u64::from(bed.try_post(A, link.a, next, verb, true).is_ok());
            bed.round();
        }
        bed.settle();
        bed.sort_completions(A, &mut done, &mut failed);
        let fenced = fenced.unwrap_or_default();
        same("memory long after the fence", &bed.words(B, region), &fenced)?;
        check(failed.contains(&Status::RemoteAccess), || format!("round {round}: refused with {failed:?}"))?;
        for id in done.into_iter().rev().take(WORDS / 2) {
            // A later write to the same word may have landed and failed; an earlier value must not be visible.
            let seen = fenced[id as usize % WORDS];
            check(seen >= id, || format!("round {round}: write {id} had completed, in its place is {seen}"))?;
        }
        called("grant", bed.at(B).grant(region, A, Access::Write))?;
        bed.reconnect(link)?;
        let fresh = bed.resolve(A, B, 1)?;
        check(fresh.key != remote.key, || format!("round {round}: the key is the old one"))?;
        bed.forget();
    }
    Ok(())
}

pub(super) fn contents_belong_to_the_owner<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link) = setup(bed)?;
    for round in 1..=bed.repeats() {
        let remote = bed.resolve(A, B, 1)?;
        bed.write_and_see((A, link.a), (B, region), (remote, 0), round)?;
        bed.store(B, region, 1, &[round]);
        bed.revoke(B, region, A)?;
        same("what the peer and the owner wrote", &bed.words(B, region)[..2].to_vec(), &vec![round, round])?;
        bed.store(B, region, 0, &[0, 0, round]);
        called("grant", bed.at(B).grant(region, A, Access::Write))?;
        same("after the grant", &bed.words(B, region)[..3].to_vec(), &vec![0, 0, round])?;
        let old = remote.key;
        let fresh =
            bed.until("a fresh key", |bed| Ok(bed.at(A).resolve(B, Purpose(1)).filter(|new| new.key != old)))?;
        bed.write_and_see((A, link.a), (B, region), (fresh, 3), round)?;
        same("all words", &bed.words(B, region)[..5].to_vec(), &vec![0, 0, round, round, 0])?;
        bed.store(B, region, 0, &[0; WORDS]);
    }
    Ok(())
}

/// A peer without outstanding requests is fenced and readmitted without a break of the connection: it resolves a new
/// key.
pub(super) fn idle_peer_is_fenced_without_a_break<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link) = setup(bed)?;
    let mut remote = bed.resolve(A, B, 1)?;
    let mut keys = vec![remote.key];
    for round in 1..=2 * bed.repeats() {
        bed.revoke(B, region, A)?;
        called("grant", bed.at(B).grant(region, A, Access::Write))?;
        let old = remote.key;
        remote = bed.until("a fresh key", |bed| Ok(bed.at(A).resolve(B, Purpose(1)).filter(|new| new.key != old)))?;
        check(!keys.contains(&remote.key), || format!("key {} was used before", remote.key))?;
        keys.push(remote.key);
        bed.write_and_see((A, link.a), (B, region), (remote, 0), round)?;
    }
    same("events of A", &bed.events(A), &vec![])?;
    same("events of B", &bed.events(B), &vec![])?;
    same("state", &bed.at(A).state(link.a), &QpState::Ready)
}

pub(super) fn crashed_peer_is_fenced<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link) = setup(bed)?;
    let remote = bed.resolve(A, B, 1)?;
    bed.write_and_see((A, link.a), (B, region), (remote, 0), 1)?;
    bed.crash(A);
    bed.revoke(B, region, A)?;
    bed.broken(B, link.b, A)?;
    // Revoke twice without a grant in between.
    bed.revoke(B, region, A)?;
    bed.reset(B, link.b)?;
    bed.revoke(B, region, A)?;
    same("what was there", &bed.word(B, region, 0), &1)?;
    bed.restart(A);
    let a = called("connect", bed.at(A).connect(B, super::bed::SERVICE, QpConfig::reliable(64, 4)))?;
    let link = QpPair { a, ..link };
    bed.connected(link)?;
    check(bed.at(A).resolve(B, Purpose(1)).is_none(), || "resolved without a grant".to_string())?;
    called("grant", bed.at(B).grant(region, A, Access::Write))?;
    let fresh = bed.resolve(A, B, 1)?;
    bed.write_and_see((A, link.a), (B, region), (fresh, 0), 2)
}
