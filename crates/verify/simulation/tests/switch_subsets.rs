//! A set of 16 hosts. The hosts send in turn to random subsets of the other hosts. Each subset costs one control
//! packet; no connection is set up, and no register is added. Every fifth round loses packets.

use stentor_checker::Verdict;
use stentor_fabric_roce::endpoint::Outbox;
use stentor_fabric_sim::SimRng;
use stentor_simulation::switch::{Host, Kind, Op, Setup, Step, World};
use stentor_switch::registers::State;
use stentor_switch::{Cause, Config, resources};

const HOSTS: u8 = 16;
const SUBSETS: u64 = 10_000;
/// Maximum number of subsets that a sender links before it releases the set.
const TURN: u64 = 8;
/// One in `LOSSY` rounds loses packets.
const LOSSY: u64 = 5;
/// One in `LOSS` packets is lost in a lossy round.
const LOSS: u64 = 100;

struct Walk {
    world: World,
    out: Outbox,
    rng: SimRng,
    setup: Setup,
    /// Number of data packets addressed to each host.
    meant: [u64; HOSTS as usize],
    /// The distinct pairs of a sender and a subset.
    distinct: std::collections::BTreeSet<(u8, u32)>,
    linked: u64,
    lost: u64,
}

impl Walk {
    fn new() -> Walk {
        let setup = Setup {
            forward: [10, 9, 0, 1].into(),
            backward: [10, 9, 0, 2].into(),
            gid: 0,
            mtu: 1024,
            words: 1024,
            window: 4,
            receives: 64,
            eager: false,
            numbers: 0xff_ff00,
        };
        let mut out = Outbox::new(64);
        let config = Config { check_data: true, ..Config::new(setup.forward, setup.backward) };
        let world = World::new(setup, config, vec![Vec::new(); HOSTS.into()], &mut out).expect("a set");
        let (rng, distinct) = (SimRng::new(5, 0), std::collections::BTreeSet::new());
        Walk { world, out, rng, setup, meant: [0; HOSTS as usize], distinct, linked: 0, lost: 0 }
    }

    /// Returns the requests of one turn. Each of some random subsets is linked by one control packet and sent one or
    /// two messages. Then the sender releases the set.
    fn turn(&mut self, sender: u8) -> Vec<Op> {
        let mut ops = Vec::new();
        for _ in 0..(1 + self.rng.below(TURN)).min(SUBSETS - self.linked) {
            let others = ((1 << HOSTS) - 1) & !(1_u32 << sender);
            let mask = std::iter::repeat_with(|| self.rng.word() as u32 & others).take(64).find(|mask| *mask != 0);
            let members: Vec<u8> = (0..HOSTS).filter(|rank| mask.unwrap_or(others) >> rank & 1 == 1).collect();
            self.distinct.insert((sender, mask.unwrap_or(others)));
            self.linked += 1;
            ops.push(Op::Link(members.iter().map(|rank| Host::link(*rank, 8 * self.rng.below(8))).collect()));
            for _ in 0..=self.rng.below(2) {
                let kind = [Kind::Send, Kind::Write, Kind::WriteImm][self.rng.below(3) as usize];
                let bytes = [0, 64, 1025][self.rng.below(3) as usize];
                ops.push(Op::Message { kind, bytes, va: 8 * self.rng.below(100) });
                let packets = u64::from(bytes.div_ceil(self.setup.mtu.into()).max(1));
                members.iter().for_each(|rank| self.meant[usize::from(*rank)] += packets);
            }
        }
        ops.push(Op::Release);
        ops
    }

    /// Draws a possible step. Returns `None` if no packet is in flight and no host waits for a timer.
    fn draw(&mut self) -> Option<Step> {
        let ranks = 0..HOSTS;
        let mut steps = vec![Step::Loop; usize::from(self.world.lengths(0).1 > 0) * 4];
        for rank in ranks.clone() {
            let (up, _, down) = self.world.lengths(rank.into());
            steps.extend((up > 0).then_some(Step::Up(rank, 0)));
            steps.extend((down > 0).then_some(Step::Down(rank, 0)));
            steps.extend((self.world.used_receives(rank.into()) > 8).then_some(Step::Receives(rank)));
        }
        if steps.is_empty() {
            steps.extend(ranks.filter(|rank| self.world.waits((*rank).into())).map(Step::Timer));
        }
        (!steps.is_empty()).then(|| steps[self.rng.below(steps.len() as u64) as usize])
    }

    fn step(&mut self, lossy: bool) -> bool {
        let Some(drawn) = self.draw() else { return false };
        let loses = lossy && self.rng.below(LOSS) == 0;
        let step = match drawn {
            Step::Up(rank, _) if loses => Step::LoseUp(rank),
            Step::Down(rank, _) if loses => Step::LoseDown(rank),
            Step::Loop if loses => Step::LoseLoop,
            other => other,
        };
        self.lost += u64::from(step != drawn);
        self.world.step(step, &mut self.out);
        assert_eq!(self.world.watch().findings(), [], "after {} subsets", self.linked);
        true
    }
}

#[test]
fn ten_thousand_random_subsets_take_one_control_packet_each_and_no_more_state() {
    let begin = std::time::Instant::now();
    let mut walk = Walk::new();
    let bits = walk.world.switch().arrays().bits();
    let (mut rounds, mut turns, mut steps) = (0, 0, 0_u64);
    while walk.linked < SUBSETS {
        // In every other round, the next sender posts its requests while this one holds the set.
        for _ in 0..=rounds % 2 {
            let sender = (turns % u64::from(HOSTS)) as u8;
            let ops = walk.turn(sender);
            walk.world.ask(sender.into(), ops, &mut walk.out);
            turns += 1;
        }
        while walk.step(rounds % LOSSY == 0) {
            steps += 1;
        }
        rounds += 1;
        assert_eq!(walk.world.unfinished(), None, "after {} subsets", walk.linked);
        assert_eq!(walk.world.switch().arrays().bits(), bits);
    }
    let (world, setup) = (&walk.world, &walk.setup);
    for rank in 0..HOSTS {
        let executed = (world.expects(rank.into()).unwrap_or(0).wrapping_sub(setup.firsts(rank).1)) & 0xff_ffff;
        assert_eq!(u64::from(executed), walk.meant[usize::from(rank)], "packets of rank {rank}: each once");
    }
    assert_eq!(world.watch().executions(), walk.meant.iter().sum::<u64>());
    let report = world.watch().report(false, true);
    let checked = report.properties.iter().filter(|(name, _)| !name.starts_with("SL"));
    assert!(checked.clone().count() == 11 && checked.clone().all(|(_, verdict)| matches!(verdict, Verdict::Ok)));
    let counters = world.switch().counters();
    assert_eq!(world.state(), State::Free);
    assert!(walk.lost > 100 && counters.of(Cause::Busy) > 100, "{} lost", walk.lost);
    assert!(counters.of(Cause::Began) == SUBSETS, "each subset was linked once");
    let (set, groups) = (resources::set_bits(HOSTS.into()).total(), resources::static_groups(HOSTS.into()));
    println!(
        "{SUBSETS} subsets of {HOSTS} hosts, {} of them different, {turns} turns, {} executions, {} packets lost, {steps} \
         steps in {:.1} s: {bits} bits of registers before and after, {set} for a set of {HOSTS}; set up one by one \
         n*(2^(n-1)-1) = {groups} groups",
        walk.distinct.len(),
        world.watch().executions(),
        walk.lost,
        begin.elapsed().as_secs_f64(),
    );
}
