//! Arguments out of range are errors.

use stentor::sim::{Next, SimCluster, SimError, Turn};

use crate::shop::{Plant, Shop, shop};

#[test]
fn impossible_numbers_are_named() {
    let shop = || shop(Plant::None);
    for (cluster, name, least, most) in [
        (shop().groups(0), "groups", 1, 8),
        (shop().groups(9), "groups", 1, 8),
        (shop().members(0), "members", 1, 5),
        (shop().clients(9), "clients", 1, 8),
        (shop().groups(8).members(4), "groups * members + clients", 1, 32),
        (shop().calls(0), "calls", 1, 1000),
        (shop().at_once(9), "at_once", 1, 8),
        (shop().command_bytes(1 << 20), "command_bytes", 0, 4096),
        (shop().reply_bytes(1 << 20), "reply_bytes", 0, 4096),
    ] {
        match cluster.run(0..1).unwrap_err() {
            SimError::Argument { name: named, least: from, most: to, .. } => {
                assert_eq!((named, from, to), (name, least, most));
            }
            other => panic!("{name}: {other}"),
        }
        assert!(matches!(cluster.replay(1), Err(SimError::Argument { .. })));
    }
}

#[test]
fn no_seeds_are_an_error() {
    assert!(matches!(shop(Plant::None).run([]), Err(SimError::NoSeeds)));
}

#[test]
fn clients_that_do_nothing_are_an_error() {
    let idle = SimCluster::new(|| Shop::new(Plant::None), |_| |_: &mut Turn<'_>| Next::Done);
    match idle.run(0..3) {
        Err(SimError::NotReached { missing, report }) => {
            assert_eq!(missing, ["answered"]);
            assert_eq!(report.seeds(), 3);
        }
        other => panic!("{other:?}"),
    }
}
