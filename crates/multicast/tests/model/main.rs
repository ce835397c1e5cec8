//! Model check of the real state machines.
#![forbid(unsafe_code)]
mod machine;
mod network;
mod scenario;
mod store;
mod verdict;

use machine::Machine;
use scenario::Scenario;
use stateright::{Checker, HasDiscoveries, Model};
use stentor_multicast::Plant;

#[test]
fn probe() {
    let c: &[(&[usize], &[(u16, &[u16])], Option<usize>)] = &[
        (&[1,1], &[(0,&[0,1]),(1,&[1])], Some(1)),
        (&[1,1], &[(0,&[0,1]),(1,&[0])], Some(1)),
        (&[1,1], &[(0,&[1]),(1,&[0,1]),(2,&[0])], Some(2)),
        (&[1,1], &[(0,&[1]),(1,&[0,1]),(1,&[0])], None),
        (&[1,2], &[(0,&[0,1]),(1,&[1])], None),
        (&[1,2], &[(0,&[1]),(1,&[0,1]),(2,&[0])], Some(2)),
        (&[1,2], &[(0,&[0]),(1,&[0,1]),(2,&[1])], None),
        (&[1,3], &[(0,&[0,1]),(1,&[1])], None),
        (&[1,3], &[(0,&[0]),(1,&[0,1])], None),
        (&[1,3], &[(0,&[0,1]),(1,&[0,1])], None),
        (&[1,3], &[(0,&[0]),(1,&[0,1]),(2,&[1])], None),
        (&[3,1], &[(0,&[0,1]),(1,&[0])], None),
        (&[3,1], &[(0,&[1]),(1,&[0,1]),(2,&[0])], None),
    ];
    for plant in [Plant::NoClockRaise, Plant::ClockAfterEntry, Plant::NoDensity, Plant::SoloLeaderSilent, Plant::NoFifo] {
    for (sizes, messages, late) in c {
    let mut s = Scenario::new(sizes, messages).plant(plant);
    if let Some(l) = late { s = s.late(*l); }
    let begin = std::time::Instant::now();
    let m = Machine::new(s);
    let checker = m.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).target_state_count(10_000_000).spawn_bfs().join();
    eprintln!("{}: {} states, {} unique, depth {}, locals {}, {:?}", checker.model().scenario.name, checker.state_count(), checker.unique_state_count(), checker.max_depth(), checker.model().local_states(), begin.elapsed());
    for (name, path) in checker.discoveries() {
        let logs = checker.model().logs(path.last_state());
        eprintln!("FOUND {name}: {:?} {logs:?}", path.into_actions());
    }
    }}
}
