//! Unordered reads under simulation.

use std::time::Duration;

use stentor::sim::{Fate, Next, Seen, SimCluster, SimProperty, Turn};
use stentor::{Consistency, Position};

use crate::shop::{Plant, Shop, reader, reading_shop};

#[test]
fn reads_of_every_kind_occur_and_pass() {
    let report = reading_shop(Plant::None).run(0..200).unwrap();
    println!("{report}");
    assert!(report.count("answered") > 5000 && report.count("undecided") == 0, "{report}");
    for kind in ["reads at leaders", "reads after positions", "local reads"] {
        assert!(report.count(kind) > 500, "{kind}: {report}");
    }
}

#[test]
fn reads_pass_in_clusters_of_every_shape() {
    for (groups, members, clients) in [(1, 1, 1), (1, 3, 1), (1, 2, 2), (3, 3, 4), (1, 5, 3), (8, 3, 2)] {
        let cluster = SimCluster::new(|| Shop::new(Plant::None), |_| reader);
        let cluster = cluster.groups(groups).members(members).clients(clients).at_once(4).calls(12);
        let report = cluster.run(0..12).unwrap_or_else(|error| panic!("{groups} of {members}, {clients}: {error}"));
        assert!(report.count("reads at leaders") > 0, "{report}");
    }
}

#[test]
fn a_seed_with_reads_reproduces_its_run_and_traces_them() {
    for seed in [1, 5, 0x77] {
        let (one, two) =
            (reading_shop(Plant::None).replay(seed).unwrap(), reading_shop(Plant::None).replay(seed).unwrap());
        assert_eq!(one, two);
        let trace = one.trace().join("\n");
        for words in ["read at the leader \"\" to group", "local read", "read after place ", "has the answer to call"] {
            assert!(trace.contains(words), "{words}:\n{trace}");
        }
    }
}

/// Returns the count in a reply of the shop.
fn count(seen: &Seen) -> Option<u64> {
    let text = std::str::from_utf8(seen.reply()?).ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Checks the guarantee in `docs/consistency.md` for one client: it reads its own writes, at the leader and after its
/// position.
#[test]
fn a_script_reads_what_it_wrote() {
    let script = |_| {
        |turn: &mut Turn<'_>| {
            let group = turn.groups()[0];
            let written = turn.seen().iter().rev().find(|seen| !seen.is_read() && seen.position().is_some());
            let Some((position, least)) = written.and_then(|seen| Some((seen.position()?, count(seen)?))) else {
                return Next::call(group, [b'+', 1]);
            };
            let last = turn.last().expect("something was written");
            if last.is_read() && last.consistency() != Some(Consistency::Local) {
                if count(last).is_some_and(|count| count < least) {
                    return Next::fail(format!("{last:?} misses {least}"));
                }
                return Next::call(group, [b'+', 1]);
            }
            let how = if turn.random().percent(50) { Consistency::Leader } else { Consistency::After(position) };
            Next::read_with(group, "", how)
        }
    };
    let report = SimCluster::new(|| Shop::new(Plant::None), script).clients(3).run(0..100).unwrap();
    assert!(report.count("reads at leaders") > 300 && report.count("reads after positions") > 300, "{report}");
}

#[test]
fn an_unanswerable_read_ends() {
    let script = |_| {
        |turn: &mut Turn<'_>| match turn.last().map(|last| (last.consistency(), last.fate().clone(), last.position())) {
            None => Next::call(turn.groups()[0], [b'+', 1]),
            Some((None, _, Some(position))) => {
                let mut later: Position = position;
                later.index += 1000;
                Next::read_with(turn.groups()[0], "", Consistency::After(later))
            }
            Some((Some(_), Fate::NotApplied, _)) => Next::Done,
            Some((Some(_), fate, _)) => Next::fail(format!("a position that does not exist was read: {fate:?}")),
            Some(_) => Next::Wait(Duration::from_micros(10)),
        }
    };
    let report = SimCluster::new(|| Shop::new(Plant::None), script).calls(2).run(0..20).unwrap();
    assert!(report.count("not applied") > 20, "{report}");
}

#[test]
fn a_read_of_a_stale_copy_is_found_by_its_position() {
    let found = reading_shop(Plant::StaleRead).model(|| Shop::new(Plant::None)).run(0..1000).expect_err("a fault");
    let failure = found.failure().expect("a seed");
    println!("{failure}");
    let is_read = failure.violations().any(|(property, _)| property == SimProperty::Reads);
    assert!(is_read, "{failure}");
}

/// If all reads are local, the order of the calls does not reveal the fault.
#[test]
fn a_stale_local_read_is_found_by_the_machine_itself() {
    let script = |_| {
        |turn: &mut Turn<'_>| {
            let group = turn.groups()[0];
            let reads = turn.random().percent(50);
            if reads { Next::read_with(group, "", Consistency::Local) } else { Next::call(group, [b'+', 1]) }
        }
    };
    let found = SimCluster::new(|| Shop::new(Plant::StaleRead), script).clients(3).run(0..1000).expect_err("a fault");
    let failure = found.failure().expect("a seed");
    println!("{failure}");
    assert!(failure.property() == SimProperty::Reads && failure.witness().contains("local read"), "{failure}");
}

#[test]
fn only_ordered_reads_are_of_several_groups() {
    let script = |_| |turn: &mut Turn<'_>| Next::read_with(turn.groups(), "", Consistency::Leader);
    let error = SimCluster::new(|| Shop::new(Plant::None), script).groups(2).run(0..3).expect_err("two groups");
    assert_eq!(error.failure().map(|failure| failure.property()), Some(SimProperty::Script));
    assert!(error.to_string().contains("only ordered reads may name several groups"), "{error}");
}
