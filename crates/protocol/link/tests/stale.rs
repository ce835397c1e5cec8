//! Completions, events and regions of a connection that has ended have no effect on the next one.

use stentor_fabric::{
    Access, Completion, Event, Fabric, Opcode, ProcessId, Purpose, QpConfig, QpId, QpState, RegionSpec, RemoteSpan,
    Service, Source, Status,
};
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};
use stentor_link::{Link, LinkEvent, Links, Resolved};

const A: ProcessId = ProcessId(0);
const B: ProcessId = ProcessId(1);
const PURPOSE: Purpose = Purpose(1);

/// One end of the link.
struct End {
    fabric: SimFabric,
    links: Links<Box<Link>>,
}

impl End {
    fn new(world: &World, me: ProcessId, peer: ProcessId) -> Self {
        let mut fabric = world.fabric(me);
        let region = fabric
            .register(RegionSpec { purpose: PURPOSE, writer: peer, bytes: 64 })
            .expect("memory for the region is available");
        fabric.grant(region, peer, Access::Write).expect("a grant");
        let mut links = Links::default();
        let link = Link::open(&mut fabric, peer, Service(1), QpConfig::reliable(8, 0)).expect("a queue pair");
        assert_eq!(links.push(Box::new(link)), 0);
        End { fabric, links }
    }

    fn events(&mut self) -> Vec<LinkEvent> {
        let mut events = Vec::new();
        while let Some(event) = self.fabric.next_event() {
            events.extend(self.links.happened(&mut self.fabric, &event));
        }
        events
    }

    /// Posts a WRITE without waiting for it.
    fn write(&mut self, region: &mut Resolved) -> Option<u64> {
        let region = region.get(&mut self.fabric, &self.links[0])?;
        let target = RemoteSpan { region, offset: 0 };
        let number = self.links[0].write(&mut self.fabric, Source::Inline(&[7; 8]), target, true);
        self.fabric.flush();
        number
    }

    /// Returns the status of each completion, and the request's number if it is not stale.
    fn poll(&mut self) -> Vec<(Status, Option<u64>)> {
        let (opcode, status) = (Opcode::Write, Status::Success);
        let blank = Completion { qp: QpId(0), id: 0, opcode, status, bytes: 0, imm: None, tag: 0 };
        let mut completions = [blank; 16];
        let count = self.fabric.poll(&mut completions);
        let find = |completion: &Completion| (completion.status, self.links.find(completion).expect("a known link").1);
        completions[..count].iter().map(find).collect()
    }
}

fn world() -> (World, End, End) {
    let world = World::new(SimConfig::new(2, 1, NetworkModel::calm()));
    let (mut a, mut b) = (End::new(&world, A, B), End::new(&world, B, A));
    world.advance(1_000_000);
    assert_eq!((a.events(), b.events()), (vec![LinkEvent::Up(0)], vec![LinkEvent::Up(0)]));
    (world, a, b)
}

/// Breaks the connection and establishes the next one. A posts one WRITE while the link is cut.
fn reconnect(world: &World, a: &mut End, b: &mut End, region: &mut Resolved) {
    world.cut(A, B);
    a.write(region).expect("the WRITE is posted");
    while a.fabric.state(a.links[0].qp()) != QpState::Error {
        world.advance(1_000_000);
    }
    assert_eq!(a.events(), [LinkEvent::Down(0)]);
    assert!(!a.links[0].is_ready() && region.known(&a.links[0]).is_none() && a.write(region).is_none());
    world.heal(A, B);
    while !a.links[0].is_ready() {
        world.advance(1_000_000);
        a.events();
        b.events();
    }
}

#[test]
fn completions_of_an_ended_connection_are_stale() {
    let (world, mut a, mut b) = world();
    let mut region = Resolved::new(PURPOSE);
    assert_eq!(a.write(&mut region), Some(1));
    world.advance(1_000_000);
    reconnect(&world, &mut a, &mut b, &mut region);
    assert_eq!((a.links[0].connection_id(), a.links[0].last(), a.links[0].done()), (1, 2, 2), "all requests are done");
    assert_eq!(a.write(&mut region), Some(3));
    world.advance(1_000_000);
    let polled = a.poll();
    let counted: Vec<_> = polled.iter().filter_map(|(_, number)| *number).collect();
    assert_eq!((polled.len(), counted), (3, vec![3]), "{polled:?}");
    assert_eq!(a.links[0].done(), 2);
    a.links[0].completed(3);
    assert!(a.links[0].is_idle());
}

#[test]
fn events_count_only_if_the_queue_pair_agrees() {
    let (world, mut a, mut b) = world();
    let qp = a.links[0].qp();
    let (up, down) = (Event::Connected { qp, peer: B }, Event::Disconnected { qp, peer: B });
    assert_eq!(a.links.happened(&mut a.fabric, &down), None, "the queue pair is ready");
    assert_eq!(a.links.happened(&mut a.fabric, &up), None, "the link is already up");
    assert_eq!(a.links.check(&mut a.fabric, 0), None);
    let mut region = Resolved::new(PURPOSE);
    reconnect(&world, &mut a, &mut b, &mut region);
    world.cut(A, B);
    a.write(&mut region).expect("the WRITE is posted");
    while a.fabric.state(qp) != QpState::Error {
        world.advance(1_000_000);
    }
    assert_eq!(a.write(&mut region), None, "a refused post takes the link down");
    assert_eq!((a.links[0].is_ready(), a.links[0].connection_id()), (false, 1), "and does not end the connection");
    assert_eq!(a.links.happened(&mut a.fabric, &up), None, "the queue pair has broken since");
    assert_eq!(a.links.check_down(&mut a.fabric, 0), Some(LinkEvent::Down(0)));
    assert_eq!(a.events(), [], "the end was already reported");
    assert_eq!(a.links[0].connection_id(), 2);
}

#[test]
fn closed_link_ends_and_is_not_reset() {
    let (world, mut a, _b) = world();
    let mut region = Resolved::new(PURPOSE);
    world.cut(A, B);
    a.write(&mut region).expect("the WRITE is posted");
    a.links[0].close();
    assert!(a.links[0].is_closed() && !a.links[0].can_post());
    while a.fabric.state(a.links[0].qp()) != QpState::Error {
        world.advance(1_000_000);
    }
    assert_eq!(a.events(), [LinkEvent::Down(0)]);
    assert_eq!((a.fabric.state(a.links[0].qp()), a.links[0].is_closed()), (QpState::Error, true));
    assert_eq!(a.links.check_down(&mut a.fabric, 0), None);
}
