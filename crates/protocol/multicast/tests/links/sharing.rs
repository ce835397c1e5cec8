//! A client that fills its window, next to one that waits for each of its messages.

use stentor_fabric_sim::{Delay, NetworkModel};
use stentor_multicast::{ClientId, Limits};

use crate::bed::{Bed, RECONNECTED_NS, limits};

const GREEDY: u16 = 0;
const MODEST: u16 = 1;
const WINDOW: u32 = 1024;
/// Time between two steps of the clients.
const LOOK_NS: u64 = 1000;

impl Bed {
    /// Makes the greedy client multicast while there is room. Returns the number of messages.
    fn fill_up(&mut self) -> usize {
        (0..).take_while(|_| self.submit(GREEDY, &[0], b"greedy").is_ok()).count()
    }
}

/// A message is ordered half a round trip after it is submitted, and delivered a round trip later. In that time a share
/// of 64 is decided at most four times.
#[test]
fn modest_client_waits_behind_a_part_of_the_greedy_clients_messages() {
    let limits = Limits { window: WINDOW, body_ring_bytes: 256 << 10, ..limits() };
    // The messages in flight during a round trip fill the greedy client's window.
    let network = NetworkModel { propagation: Delay::between(20_000, 30_000), ..NetworkModel::calm() };
    let mut bed = Bed::new(&[3], 2, limits, network, 1);
    bed.run(RECONNECTED_NS);
    let mut waits = Vec::new();
    for _ in 0..40 {
        bed.fill_up();
        let before = bed.delivered[0].len();
        let id = bed.submit(MODEST, &[0], b"modest").expect("there is room");
        let is_there = |bed: &Bed| bed.delivered[0].iter().rposition(|(delivered, _)| *delivered == id);
        while is_there(&bed).is_none() {
            bed.run(LOOK_NS);
            bed.fill_up();
        }
        let all = &bed.delivered[0];
        let ahead = all[before..].iter().take_while(|(delivered, _)| *delivered != id);
        waits.push(ahead.filter(|(id, _)| id.client == ClientId(GREEDY)).count());
    }
    // Until the modest client's first message, the greedy client has its whole window in flight.
    let most = waits[2..].iter().max();
    assert!(most.is_some_and(|most| *most <= 4 * 64), "messages ahead of each of the modest client: {waits:?}");
}

/// Messages that waited for their client's share proceed when the leader's application has room, whether it delivers
/// from a step or from a tick.
#[test]
fn greedy_client_proceeds_when_the_application_has_room_again() {
    for members in [1, 3] {
        let limits = Limits { window: WINDOW, body_ring_bytes: 256 << 10, ..limits() };
        let mut bed = Bed::new(&[members], 2, limits, NetworkModel::calm(), 1);
        bed.run(RECONNECTED_NS);
        bed.submit(MODEST, &[0], b"modest").expect("there is room");
        bed.run(RECONNECTED_NS);
        bed.room[0] = 0;
        let greedy = bed.fill_up();
        assert!(greedy > 2 * 64, "{greedy} messages are no more than a share or two");
        bed.submit(MODEST, &[0], b"modest").expect("there is room");
        bed.run(RECONNECTED_NS);
        assert_eq!(bed.delivered[0].len(), 1, "{members} members");
        bed.room[0] = u64::MAX;
        bed.run(RECONNECTED_NS);
        assert_eq!(bed.delivered[0].len(), 1 + greedy + 1, "{members} members");
    }
}
