//! The hosts, their programs and the faults of one seed of the switch.

use stentor_switch::{Aggregation, Mutant};

use super::host::{Host, Setup};
use super::program::{Kind, Op};
use crate::chance::Chance;

/// The frequencies of faults. Each field is a number n: the fault occurs in one of n steps, or never if n is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trouble {
    /// Packets lost on links.
    pub losses: u64,
    /// Mirror copies lost in the loop.
    pub loop_losses: u64,
    /// Packets that arrive twice.
    pub repeats: u64,
    /// Packets that overtake others.
    pub delays: u64,
    /// Packets damaged on links.
    pub damages: u64,
    /// Timeouts while packets are in flight.
    pub early_timers: u64,
    /// Leases that expire.
    pub leases: u64,
    /// Restarts of the switch.
    pub restarts: u64,
}

/// The set, the programs of its hosts, and the faults.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Number of hosts.
    pub hosts: u8,
    /// Number of members of the largest session.
    pub receivers: u8,
    /// Number of hosts that send.
    pub senders: u8,
    /// The program of each host.
    pub programs: Vec<Vec<Op>>,
    /// The frequencies of faults.
    pub trouble: Trouble,
    /// The setup of the hosts.
    pub setup: Setup,
    /// The aggregation of acknowledgements.
    pub aggregation: Aggregation,
    /// `true` if the switch verifies the ICRC of data.
    pub check_data: bool,
    /// Number of steps with faults.
    pub safety_steps: u64,
    /// The mutant, if any.
    pub mutant: Mutant,
}

/// Maximum number of steps until all writes complete after the faults have stopped.
pub(crate) const MOST_STEPS: u64 = 400_000;

impl Scenario {
    /// Draws the scenario of a seed.
    #[must_use]
    pub fn draw(seed: u64, mutant: Mutant) -> Scenario {
        let mut chance = Chance::new(seed, 1);
        let hosts = chance.pick(&[8, 8, 8, 32, 3, 5]);
        let senders = chance.between(1, u64::from(hosts.min(4))) as u8;
        let eager = chance.between(0, 3) == 0;
        let calm = chance.between(0, 9) == 0;
        let senders = if calm { 1 } else { senders };
        let largest = if hosts == 32 { 32 } else { hosts };
        let mut programs = vec![Vec::new(); usize::from(hosts)];
        let mut receivers = 0;
        for (rank, program) in programs.iter_mut().enumerate().take(usize::from(senders)) {
            // In half of the runs, the first list of the first sender contains all hosts.
            let all = rank == 0 && chance.between(0, 1) == 0;
            let (ops, most) = draw_program(&mut chance, hosts, all, senders > 1);
            (*program, receivers) = (ops, most.max(receivers));
        }
        let setup = Setup {
            forward: [10, 9, 0, 1].into(),
            backward: [10, 9, 0, 2].into(),
            gid: 0,
            mtu: if largest > 14 { 1024 } else { chance.pick(&[256, 1024]) },
            words: 1024,
            window: chance.between(1, 16) as u32,
            receives: if calm { 64 } else { chance.between(1, 64) as u32 },
            eager,
            numbers: chance.pick(&[0, 0xff_fff0, 0x7f_fff8, 12345]),
        };
        let trouble = if calm { Trouble::default() } else { draw_trouble(&mut chance, hosts) };
        // Without the check, the switch may mistake a packet with a damaged header for another packet.
        let check_data = trouble.damages > 0 || chance.between(0, 1) == 0;
        let aggregation =
            if !calm && chance.between(0, 4) == 0 { Aggregation::RoundBitmap } else { Aggregation::ExactMin };
        let safety_steps = chance.between(500, 6000);
        Scenario { hosts, receivers, senders, programs, trouble, setup, aggregation, check_data, safety_steps, mutant }
    }

    /// Returns the names of the counts that must not be 0 after a simulation run of enough seeds.
    #[must_use]
    pub fn claims() -> &'static [&'static str] {
        &[
            "packets lost",
            "mirror copies lost",
            "packets repeated",
            "packets overtaken",
            "packets damaged",
            "early timeouts",
            "leases that ended",
            "restarts",
            "sets poisoned",
            "sets created anew",
            "runs with 8 receivers",
            "runs with 32 receivers",
            "runs without any trouble",
        ]
    }
}

fn draw_trouble(chance: &mut Chance, hosts: u8) -> Trouble {
    // The number of passes of a packet grows with the number of members, and every loss restarts these passes.
    let chains = if hosts == 32 { 10 } else { 2 };
    let mut often = |rare: u64| {
        let frequent = [0, 20, 50, 200];
        if rare > 0 { chance.pick(&[0, 0, 0, rare]) } else { chance.pick(&frequent) }
    };
    Trouble {
        losses: often(0),
        loop_losses: chains * often(0),
        repeats: often(0),
        delays: often(0),
        damages: often(100),
        early_timers: often(0),
        leases: often(1000),
        restarts: often(3000),
    }
}

/// Draws some sessions of a sender. Returns its program and the number of members of the largest session.
fn draw_program(chance: &mut Chance, hosts: u8, all: bool, releases: bool) -> (Vec<Op>, u8) {
    let (mut ops, mut largest) = (Vec::new(), 0);
    for session in 0..chance.between(1, 4) {
        let mut members: Vec<u8> = (0..hosts).collect();
        if !(all && session == 0) {
            let chosen = chance.between(1, u64::from(hosts));
            while members.len() as u64 > chosen {
                let gone = chance.between(0, members.len() as u64 - 1);
                members.remove(gone as usize);
            }
        }
        largest = largest.max(members.len() as u8);
        let offset = 64 * chance.between(0, 3);
        ops.push(Op::Link(members.iter().map(|rank| Host::link(*rank, offset)).collect()));
        for _ in 0..chance.between(1, 6) {
            let kind = chance.pick(&[Kind::Send, Kind::Write, Kind::WriteImm]);
            let bytes = chance.pick(&[0, 1, 64, 255, 256, 257, 1024, 1025, 2100]);
            ops.push(Op::Message { kind, bytes, va: 8 * chance.between(0, 100) });
        }
        if chance.between(0, 4) == 0 {
            ops.push(Op::Query);
        }
        if releases && (chance.between(0, 2) > 0) {
            ops.push(Op::Release);
        }
    }
    if releases && !matches!(ops.last(), Some(Op::Release)) {
        ops.push(Op::Release);
    }
    (ops, largest)
}
