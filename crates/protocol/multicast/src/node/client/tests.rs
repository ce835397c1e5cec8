//! Tests of how a client handles reports: from a group that began a new history since the client started there, and
//! from members in several ballots.

use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};

use super::Client;
use crate::node::credit_report::{CreditReport, Standing};
use crate::node::inbound::Held;
use crate::{Ballot, ClientId, GroupId, Incarnation, Limits, SubmitError, Topology};

const HOME: GroupId = GroupId(0);
const OTHER: GroupId = GroupId(1);
const GENERATION: u64 = 3;
const ANEW: Incarnation = Incarnation { number: 2, tag: 5 };

/// Returns a process that has a generation from its home group and has multicast to the other group. If `used`, its
/// home group is open, too.
fn numbered(used: bool) -> Client<SimFabric> {
    let topology = Arc::new(Topology::new(&[1, 1], 1).expect("a possible cluster"));
    assert_eq!(topology.home(ClientId(0)), HOME);
    let world = World::new(SimConfig::new(3, 1, NetworkModel::calm()));
    let limits = Limits { message_bytes: 256, window: 16, body_ring_bytes: 8192, ..Limits::default() };
    let fabric = world.fabric(topology.client_process(ClientId(0)));
    let mut client = Client::new(fabric, topology, ClientId(0), limits, 5, 1).expect("a possible client");
    assert!(client.accepts(0, Incarnation::FIRST) && client.accepts(1, Incarnation::FIRST));
    client.be_numbered(Standing { generation: GENERATION, opened: true, ..Standing::default() });
    client.open(OTHER, 0);
    if used {
        client.open(HOME, 0);
    }
    client.submitted = 1;
    client
}

/// Delivers the report of a member of the home group in this history to the client, which evaluates it.
fn deliver_report(client: &mut Client<SimFabric>, history: Incarnation, place: Standing, freed: u64) {
    let place = Standing { history: history.mark(), ..place };
    let known = client.incarnation(HOME).mark();
    let report = CreditReport { freed, place, ..CreditReport::default() };
    client.rings[usize::from(HOME.0)].targets[0].note(report, known);
    if client.takeover.is_opened(HOME) {
        client.count_members(HOME);
    } else {
        client.look_for_opening(HOME);
    }
}

/// Returns a status that reports: no process with this generation has begun, and the next process gets this generation
/// or a larger one.
fn followed_by(generation: u64) -> Standing {
    Standing { generation, ..Standing::default() }
}

/// A new history assigns generations above the old ones, and does not know this process. So a larger next generation
/// does not prove that a later process exists.
#[test]
fn next_generation_in_a_new_history_of_the_home_group_supersedes_nobody() {
    for (used, freed) in [(false, 0), (true, 0), (true, 9)] {
        let mut client = numbered(used);
        assert!(client.accepts(0, ANEW), "a larger incarnation");
        let generation = if freed == 0 { GENERATION + 1 } else { GENERATION };
        deliver_report(&mut client, ANEW, followed_by(generation), freed);
        assert!(!client.superseded, "used: {used}, freed: {freed}");
        let lost = Err(SubmitError::GroupReset { group: HOME.0 });
        assert_eq!(client.check(&[HOME, OTHER], 0), lost, "used: {used}, freed: {freed}");
    }
}

#[test]
fn next_generation_in_the_same_history_supersedes() {
    for (used, freed) in [(false, 0), (true, 0), (true, 9)] {
        let mut client = numbered(used);
        let generation = if freed == 0 { GENERATION + 1 } else { GENERATION };
        deliver_report(&mut client, Incarnation::FIRST, followed_by(generation), freed);
        assert!(client.superseded, "used: {used}, freed: {freed}");
    }
}

/// A member that was partitioned from its group may send a hello with an earlier incarnation, or with another tag.
#[test]
fn incarnation_of_an_old_history_is_not_accepted() {
    let mut client = numbered(true);
    assert!(client.accepts(0, ANEW));
    for said in [Incarnation::FIRST, Incarnation { tag: 6, ..ANEW }] {
        assert!(!client.accepts(0, said), "{said}");
        let why = client.contradiction().expect("the contradiction is reported");
        assert_eq!((why.group, why.known, why.said), (HOME, ANEW, said));
        assert_eq!(client.incarnation(HOME), ANEW);
    }
    assert!(client.accepts(0, Incarnation::NONE), "a member without memory names no incarnation");
}

/// A member that is stalled while its group is reset has reported the client's first slot in the history that has
/// ended, and may continue to report it.
#[test]
fn report_of_an_old_history_opens_no_group() {
    let mut client = numbered(false);
    assert!(client.accepts(0, ANEW));
    let opened = Standing { opened: true, ..followed_by(GENERATION) };
    deliver_report(&mut client, Incarnation::FIRST, opened, 11);
    assert!(!client.takeover.is_opened(HOME));
    assert_eq!(client.rings[usize::from(HOME.0)].reports().count(), 0);
    let later = Incarnation { number: 3, tag: 7 };
    deliver_report(&mut client, later, opened, 0);
    assert!(!client.takeover.is_opened(HOME), "its hello arrives later");
    assert!(client.accepts(0, later));
    client.look_for_opening(HOME);
    assert!(client.takeover.is_opened(HOME));
    assert_eq!(client.next_slot(HOME), 0);
}

/// A member that reported in an earlier ballot may have lost its memory by now, before its broken connection is
/// noticed. The messages that it held and one other member holds are then not held by a majority.
#[test]
fn a_record_is_kept_until_a_majority_has_freed_it_in_one_ballot() {
    let topology = Arc::new(Topology::new(&[3], 1).expect("a possible cluster"));
    let world = World::new(SimConfig::new(4, 1, NetworkModel::calm()));
    let limits = Limits { message_bytes: 256, window: 16, body_ring_bytes: 8192, ..Limits::default() };
    let fabric = world.fabric(topology.client_process(ClientId(0)));
    let mut client = Client::new(fabric, topology, ClientId(0), limits, 5, 1).expect("a possible client");
    let ballot = |number| Ballot::new_in(1, number, ProcessId(0));
    // A ring starts at the first record that is kept.
    let mut first_kept = |ballots: [Option<Ballot>; 2]| {
        let Client { rings, links, record, .. } = &mut client;
        let ring = &mut rings[0];
        for (member, ballot) in ballots.into_iter().enumerate() {
            ring.start(member, links);
            let held = Held::new(1, ballot);
            ring.targets[member].note(CreditReport { held, ..CreditReport::default() }, 0);
        }
        ring.writer.seal(8, record).expect("there is room");
        let end = ring.writer.position();
        ring.targets[..2].iter_mut().for_each(|target| target.freed = end);
        ring.start(2, links);
        ring.stop(2);
        (ring.start(2, links).position, end)
    };
    for ballots in [[None, None], [Some(ballot(1)), None], [Some(ballot(1)), Some(ballot(2))]] {
        let (first, end) = first_kept(ballots);
        assert!(first < end, "{ballots:?}");
    }
    let (first, end) = first_kept([Some(ballot(2)), Some(ballot(2))]);
    assert_eq!(first, end);
}
