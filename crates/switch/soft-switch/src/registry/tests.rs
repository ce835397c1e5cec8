use std::net::Ipv4Addr;

use stentor_switch::{Attachment, Config};
use stentor_wire::Psn;

use super::*;

const MS: u64 = 1_000_000;

struct Bed {
    registry: Registry,
    switch: Switch,
    said: Said,
    now: u64,
}

fn join(rank: u8, life: u32) -> Join {
    let attachment =
        |qpn| Attachment { ip: Ipv4Addr::new(127, 0, 0, 1 + rank), qpn: qpn + life, first_psn: Psn::new(0) };
    let (lease, mtu) = (Duration::from_millis(500 + u64::from(rank)), if rank == 1 { 1024 } else { 4096 });
    let (sends, receives) = (attachment(0x100), attachment(0x1000));
    Join { number: 7, size: 3, rank, life, lease, mtu, identified: false, sends, receives }
}

impl Bed {
    fn new() -> Bed {
        Bed::with_room(4)
    }

    fn with_room(sets: usize) -> Bed {
        let config = Config::new([127, 0, 1, 1].into(), [127, 0, 1, 2].into());
        Bed { registry: Registry::new(false, 9), switch: Switch::new(config, sets), said: Vec::new(), now: MS }
    }

    fn join(&mut self, session: SessionId, join: Join) -> Said {
        self.registry.join(session, join, self.now, &mut self.switch, &mut self.said);
        std::mem::take(&mut self.said)
    }

    fn after(&mut self, ms: u64) -> Said {
        self.now += ms * MS;
        self.registry.tick(self.now, &mut self.switch, &mut self.said);
        std::mem::take(&mut self.said)
    }

    fn end(&mut self, session: SessionId) -> Said {
        self.registry.end(session, &mut self.switch, &mut self.said);
        std::mem::take(&mut self.said)
    }

    /// Returns the sets of the data plane.
    fn sets(&self) -> Vec<u16> {
        let state = |gid: &u16| self.switch.arrays().view(*gid).unwrap().session.state;
        (0..4).filter(|gid| state(gid) != State::Silent).collect()
    }
}

fn ready(said: &Said) -> Vec<(SessionId, Ready)> {
    said.iter()
        .map(|(session, word)| match word {
            ToHost::Ready(ready) => (*session, *ready),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn renewed(said: &Said) -> Vec<(SessionId, u32)> {
    said.iter()
        .map(|(session, word)| match word {
            ToHost::Renew { number: 7, life } => (*session, *life),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn refusal(said: &Said) -> Refusal {
    match said[..] {
        [(_, ToHost::Refused { why, .. })] => why,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn complete_set_gets_a_generation_at_once() {
    let mut bed = Bed::new();
    assert!(bed.join(10, join(0, 1)).is_empty() && bed.join(11, join(1, 5)).is_empty());
    let said = ready(&bed.join(12, join(2, 9)));
    assert_eq!(
        said.iter().map(|(session, ready)| (*session, ready.life)).collect::<Vec<_>>(),
        [(10, 1), (11, 5), (12, 9)]
    );
    let first = said[0].1;
    assert_eq!((first.who, first.mtu, first.gid, first.generation), (0b111, 1024, 0, 9 << 32 | 1));
    assert_eq!(bed.sets(), [0]);
    assert_eq!(
        bed.switch.arrays().view(0).unwrap().session.lease,
        ((502 * MS) >> 16) as u32,
        "the longest lease applies"
    );
}

#[test]
fn late_hosts_join_the_next_generation() {
    let mut bed = Bed::new();
    bed.join(10, join(0, 1));
    bed.after(150);
    bed.join(12, join(2, 1));
    assert!(bed.after(49).is_empty(), "not before the time has elapsed");
    let said = ready(&bed.after(1));
    assert_eq!((said.len(), said[0].1.who), (2, 0b101));
    // Another host joins while the generation is young.
    assert!(bed.join(11, join(1, 1)).is_empty());
    assert_eq!(bed.sets(), [0]);
    assert_eq!(renewed(&bed.after(100)), [(10, 1), (12, 1)]);
    assert_eq!(bed.sets(), []);
    assert!(bed.join(10, join(0, 2)).is_empty());
    let said = ready(&bed.join(12, join(2, 2)));
    assert_eq!((said.len(), said[0].1.who, said[0].1.gid), (3, 0b111, 1), "another gid");
    assert_eq!(bed.sets(), [1]);
}

#[test]
fn single_host_waits_forever() {
    let mut bed = Bed::new();
    bed.join(10, join(0, 1));
    assert!(bed.after(100_000).is_empty());
    assert_eq!(bed.sets(), []);
}

#[test]
fn leaving_or_joining_again_ends_the_generation() {
    for goes in [true, false] {
        let mut bed = Bed::new();
        (0..3).for_each(|rank| drop(bed.join(10 + u64::from(rank), join(rank, 1))));
        bed.after(1000);
        let said = if goes { bed.end(11) } else { bed.join(11, join(1, 2)) };
        assert_eq!(renewed(&said), [(10, 1), (12, 1)]);
        assert_eq!(bed.sets(), []);
        bed.join(10, join(0, 2));
        // The third host is connected and was asked to join again, so the switch waits for it.
        assert!(bed.after(300).is_empty());
        let said = bed.join(12, join(2, 2));
        let said = if goes {
            // A disconnected host is not awaited for longer than hosts that never joined.
            assert!(said.is_empty() || ready(&said).len() == 2);
            if said.is_empty() { bed.after(200) } else { said }
        } else {
            said
        };
        assert_eq!(ready(&said)[0].1.who, if goes { 0b101 } else { 0b111 });
    }
}

#[test]
fn host_that_must_renew_is_awaited_for_a_second() {
    let mut bed = Bed::new();
    (0..3).for_each(|rank| drop(bed.join(10 + u64::from(rank), join(rank, 1))));
    bed.after(1000);
    bed.end(11);
    bed.join(10, join(0, 2));
    bed.join(11, join(1, 1));
    assert!(bed.after(900).is_empty());
    assert_eq!(ready(&bed.after(100))[0].1.who, 0b11);
}

#[test]
fn older_lives_and_other_hosts_change_nothing() {
    let mut bed = Bed::new();
    (0..3).for_each(|rank| drop(bed.join(10 + u64::from(rank), join(rank, 4))));
    bed.after(1000);
    for life in [4, 3, 4 | 1 << 31] {
        assert!(bed.join(10, join(0, life)).is_empty(), "{life}");
    }
    bed.registry.leave(10, 7, 3, &mut bed.switch, &mut bed.said);
    bed.registry.leave(11, 7, 5, &mut bed.switch, &mut bed.said);
    bed.registry.leave(11, 9, 4, &mut bed.switch, &mut bed.said);
    assert!(bed.said.is_empty() && bed.after(1000).is_empty());
    assert_eq!(bed.sets(), [0]);
    assert_eq!(refusal(&bed.join(13, join(0, 5))), Refusal::Taken);
    assert_eq!(refusal(&bed.join(11, Join { size: 2, ..join(1, 5) })), Refusal::Size);
    assert_eq!(refusal(&bed.join(11, Join { identified: true, ..join(1, 5) })), Refusal::Identified);
    assert_eq!(bed.sets(), [0]);
    bed.registry.leave(11, 7, 4, &mut bed.switch, &mut bed.said);
    assert_eq!(renewed(&std::mem::take(&mut bed.said)), [(10, 4), (12, 4)]);
}

/// All hosts have joined again and disconnect before the generation of their former lives has ended. No host is left
/// whose message could end it.
#[test]
fn outgrown_generation_ends_with_its_last_host() {
    let mut bed = Bed::new();
    let of = |rank, life| Join { size: 2, ..join(rank, life) };
    for life in [1, 2] {
        bed.join(20, of(0, life));
        bed.join(21, of(1, life));
        assert_eq!(bed.sets(), [0]);
    }
    bed.end(20);
    bed.end(21);
    assert_eq!(bed.sets(), []);
}

/// A switch with few sets has no other `gid`. Packets of the former generation may still arrive.
#[test]
fn only_gid_rests_before_its_next_generation() {
    let mut bed = Bed::with_room(1);
    let of = |rank, life| Join { size: 2, ..join(rank, life) };
    bed.join(20, of(0, 1));
    assert_eq!(ready(&bed.join(21, of(1, 1))).len(), 2);
    bed.after(1000);
    assert_eq!(renewed(&bed.join(20, of(0, 2))), [(21, 1)]);
    assert!(bed.join(21, of(1, 2)).is_empty());
    assert!(bed.after(99).is_empty());
    let said = ready(&bed.after(1));
    assert_eq!((said.len(), said[0].1.gid), (2, 0));
}

#[test]
fn number_of_sets_is_bounded_and_sets_are_freed() {
    let mut bed = Bed::new();
    let of = |number, rank| Join { number, size: 2, ..join(rank, 1) };
    for number in 0..2 {
        bed.join(20, of(number, 0));
        assert_eq!(bed.join(21, of(number, 1)).len(), 2);
    }
    assert_eq!(refusal(&bed.join(22, of(2, 0))), Refusal::Full, "as many are kept free as are in use");
    assert_eq!(bed.sets(), [0, 1]);
    bed.end(20);
    bed.end(21);
    assert_eq!(bed.sets(), []);
    assert!(bed.join(22, of(2, 0)).is_empty());
}

#[test]
fn host_that_keeps_joining_does_not_end_a_young_generation() {
    let mut bed = Bed::new();
    (0..3).for_each(|rank| drop(bed.join(10 + u64::from(rank), join(rank, 1))));
    for life in 2..50 {
        assert!(bed.join(11, join(1, life)).is_empty());
    }
    assert_eq!(bed.sets(), [0]);
    assert_eq!(renewed(&bed.after(100)).len(), 2);
}
