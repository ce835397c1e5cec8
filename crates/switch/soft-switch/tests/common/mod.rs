//! A switch and the hosts of one set on loopback addresses, all in one thread.
#![allow(dead_code)]

use std::net::Ipv4Addr;
use std::time::Duration;

use stentor_fabric::Status;
use stentor_fabric_roce::endpoint::{Request, Work};
use stentor_soft_switch::{Attached, AttachedConfig, Settings, SoftSwitch, settle};
use stentor_switch::control::{Link, Operation};

pub(crate) const GID: u16 = 3;
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// Limit of rounds, far above what any test needs.
pub(crate) const ROUNDS: u64 = 3_000_000;

pub(crate) struct Bed {
    pub(crate) switch: SoftSwitch,
    pub(crate) settings: Settings,
    pub(crate) hosts: Vec<Attached>,
    /// Completed receives, by rank: length in bytes and immediate.
    pub(crate) received: Vec<Vec<(u32, Option<u32>)>>,
    next: u64,
}

/// Returns an address of the loopback network 127.210.`network`.0. Each test has its own network.
pub(crate) fn address(network: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 210, network, last)
}

impl Bed {
    pub(crate) fn new(network: u8, hosts: u8, change: impl FnOnce(&mut Settings)) -> Bed {
        let both = [address(network, 250), address(network, 251)];
        let mut settings = Settings::new("test", both[0], both[1]);
        change(&mut settings);
        let mut switch = SoftSwitch::open(&settings).unwrap();
        let open = |rank| {
            let config = AttachedConfig::new(address(network, 1 + rank), rank, GID, both);
            let mut host = Attached::connected(config).unwrap();
            host.post_receives(64, 8192).unwrap();
            host
        };
        let hosts: Vec<_> = (0..hosts).map(open).collect();
        let descriptions: Vec<_> = hosts.iter().map(Attached::description).collect();
        switch.switch_mut().create(GID, LEASE, &descriptions).unwrap();
        let received = vec![Vec::new(); hosts.len()];
        Bed { switch, settings, hosts, received, next: 0 }
    }

    /// Makes a rank the first host, which is the sender.
    pub(crate) fn lead(&mut self, rank: usize) {
        self.hosts.swap(0, rank);
    }

    /// Returns the rank of each host, in the order of their turns.
    fn ranks(&self) -> Vec<usize> {
        self.hosts.iter().map(|host| host.config().rank.into()).collect()
    }

    fn run(&mut self, id: u64) -> Status {
        let ranks = self.ranks();
        let Bed { switch, hosts, received, .. } = self;
        let between = || switch.round().map(|_| ());
        let hear = |n: usize, completion: stentor_fabric::Completion| {
            received[ranks[n]].push((completion.bytes, completion.imm));
        };
        settle(hosts, id, ROUNDS, between, hear).unwrap().expect("the request completes")
    }

    pub(crate) fn link(&mut self, ranks: &[usize]) -> Status {
        let places: Vec<(usize, u64)> = ranks.iter().map(|rank| (*rank, 0)).collect();
        self.link_at(&places)
    }

    /// Links hosts. Each pair is a host and the offset in its memory to which a WRITE to address 0 goes.
    pub(crate) fn link_at(&mut self, places: &[(usize, u64)]) -> Status {
        let links: Vec<Link> = places.iter().map(|(n, offset)| self.hosts[*n].link(*offset)).collect();
        self.control(Operation::Link, &links)
    }

    pub(crate) fn control(&mut self, operation: Operation, links: &[Link]) -> Status {
        self.next += 1;
        self.hosts[0].control(operation, links, self.next).unwrap();
        self.run(self.next)
    }

    pub(crate) fn request(&mut self, request: Request<'_>) -> Status {
        self.next += 1;
        self.hosts[0].post(&Work::signalled(self.next, request)).unwrap();
        self.run(self.next)
    }

    /// Runs for so many rounds that nothing is in flight afterwards.
    pub(crate) fn rest(&mut self) {
        let ranks = self.ranks();
        for _ in 0..2000 {
            let Bed { switch, hosts, received, .. } = self;
            for (n, host) in hosts.iter_mut().enumerate() {
                host.drive().unwrap();
                switch.round().unwrap();
                while let Some((completion, receives)) = host.poll() {
                    if receives {
                        received[ranks[n]].push((completion.bytes, completion.imm));
                    }
                }
            }
        }
    }
}
