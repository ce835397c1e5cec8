//! Correct services pass.

use std::io::{self, Read};
use std::time::Duration;

use stentor::sim::{Next, SimCluster, SimError, Turn};

use stentor::{Context, Groups, Reply, StateMachine, Stateless};

use crate::shop::{Plant, Shop, reading_shop, shop, shopper};

#[test]
fn a_correct_service_passes_and_all_events_occur() {
    let report = shop(Plant::None).run(0..200).unwrap();
    println!("{report}");
    assert_eq!(report.seeds(), 200);
    assert!(report.count("answered") > 5000 && report.count("undecided") == 0, "{report}");
}

/// The variable `SIM_SEEDS` sets the number of seeds: `SIM_SEEDS=100000 cargo test --release …`.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn a_correct_service_passes_many_seeds() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000);
    println!("{}", shop(Plant::None).at_once(3).run(0..seeds).unwrap());
}

/// Directly after a change of leaders, the new leader may still have to order a command again. The answer to a read at
/// this leader may then name a later time than that of the command, but not contain the command. The index in the
/// answer shows which commands the answer contains.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn concurrent_reads_pass() {
    let seeds = std::env::var("SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    println!("{}", reading_shop(Plant::None).at_once(3).run(0..seeds).unwrap());
}

#[test]
fn clusters_of_every_shape_pass() {
    for (groups, members, clients) in [(1, 1, 1), (1, 3, 1), (1, 2, 2), (3, 3, 4), (1, 5, 3), (8, 3, 2)] {
        let cluster = SimCluster::new(|| Shop::new(Plant::None), |_| shopper);
        let cluster = cluster.groups(groups).members(members).clients(clients).at_once(4).calls(12);
        let report = cluster.run(0..12).unwrap_or_else(|error| panic!("{groups} of {members}, {clients}: {error}"));
        assert!(report.count("answered") > 0);
    }
}

#[test]
fn long_commands_pass_and_too_long_replies_are_lost() {
    let script = |_| |turn: &mut Turn<'_>| Next::call(turn.groups()[0], vec![b'x'; 4000]);
    let cluster = SimCluster::new(|| Shop::new(Plant::None), script).command_bytes(4000).reply_bytes(3);
    let report = cluster.run(0..20).unwrap();
    assert!(report.count("answered") > 500, "{report}");
}

#[test]
fn a_client_that_waits_and_ends_passes() {
    let script = |_| {
        |turn: &mut Turn<'_>| match turn.seen().len() {
            0 => Next::call(turn.groups()[0], "+\x01"),
            1 if turn.time() < Duration::from_millis(1) => Next::Wait(Duration::from_micros(100)),
            1 => Next::read(turn.groups()[0], ""),
            _ => Next::Done,
        }
    };
    let report = SimCluster::new(|| Shop::new(Plant::None), script).run(0..30).unwrap();
    assert!(report.count("calls") >= 120 && report.count("answered") > 100, "{report}");
}

/// A machine that replies with the number of its group.
struct Partition(usize);

impl StateMachine for Partition {
    type Frozen = Stateless;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], reply: &mut Reply) {
        reply.extend(&[self.0 as u8]);
    }

    fn freeze(&self) -> Stateless {
        Stateless
    }

    fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn machines_can_differ_by_group() {
    let script = |_| {
        |turn: &mut Turn<'_>| {
            let last = turn.last().and_then(|seen| Some((seen.groups().clone(), seen.reply()?.to_vec())));
            if let Some((groups, reply)) = last
                && !turn.groups().iter().any(|group| groups == Groups::from(*group) && reply == [group.index() as u8])
            {
                return Next::fail(format!("{groups:?} replied {reply:?}"));
            }
            let groups = turn.groups().to_vec();
            let group = *turn.random().pick(&groups).expect("the cluster has groups");
            Next::call(group, "")
        }
    };
    let cluster = || SimCluster::per_group(|group| Partition(group.index()), script).groups(3);
    let report = cluster().run(0..30).unwrap();
    assert!(report.count("answered") > 300, "{report}");
    cluster().model_per_group(|group| Partition(group.index())).run(0..5).unwrap();
    let shifted = cluster().model_per_group(|group| Partition(group.index() + 1)).run(0..5);
    assert!(matches!(shifted, Err(SimError::Failed(_))), "the model decides");
}
