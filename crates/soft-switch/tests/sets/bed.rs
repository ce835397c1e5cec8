//! Processes on `roce` and a switch, all in this thread, on loopback addresses that no other test has.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric::conformance::Testbed;
use stentor_fabric::{Event, Fabric, ProcessId};
use stentor_fabric_roce::{RoceConfig, RoceFabric, SwitchConfig};
use stentor_soft_switch::{Faults, Settings, SoftSwitch};

/// Bootstrap connections.
const TCP_PORT: u16 = 4791;
const KEY: &[u8] = b"a key of this test";

/// How a bed differs from the ordinary one.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setup {
    /// What the switch does wrong.
    pub(crate) faults: Faults,
    /// Whether there is no switch at first.
    pub(crate) no_switch: bool,
}

pub(crate) struct Bed {
    pub(crate) fabrics: Vec<Option<RoceFabric>>,
    pub(crate) switch: Option<SoftSwitch>,
    /// Processes that do not run.
    pub(crate) stopped: Vec<ProcessId>,
    addresses: Vec<Option<SocketAddr>>,
    settings: Settings,
    control: SocketAddr,
}

impl Bed {
    pub(crate) fn new(count: usize, setup: Setup) -> Bed {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let bed = NEXT.fetch_add(1, Ordering::Relaxed);
        let second = 64 + (std::process::id() % 128) as u8;
        let [high, low] = bed.to_be_bytes();
        let address = |n: usize| Ipv4Addr::new(127, second, low, high << 6 | n as u8);
        let mut settings = Settings::new("test", address(62), address(61));
        settings.faults = setup.faults;
        let mut bed = Bed {
            fabrics: (0..count).map(|_| None).collect(),
            switch: None,
            stopped: Vec::new(),
            addresses: (1..=count).map(|n| Some(SocketAddr::new(address(n).into(), TCP_PORT))).collect(),
            settings,
            control: SocketAddr::new(address(62).into(), 7480),
        };
        if !setup.no_switch {
            bed.start_switch();
        }
        (0..count as u16).for_each(|process| bed.restart(ProcessId(process)));
        bed
    }

    /// With nothing of what an earlier one knew.
    pub(crate) fn start_switch(&mut self) {
        self.switch = None;
        let mut switch = SoftSwitch::open(&self.settings).unwrap_or_else(|error| panic!("{error}"));
        switch.listen(&self.settings, self.control, KEY).unwrap_or_else(|error| panic!("{error}"));
        self.switch = Some(switch);
    }

    pub(crate) fn at(&mut self, process: u16) -> &mut RoceFabric {
        self.fabrics[usize::from(process)].as_mut().expect("it is up")
    }

    /// Goes on until something holds.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Bed) -> bool) {
        let since = Instant::now();
        while !holds(self) {
            self.advance();
            assert!(since.elapsed() < Duration::from_secs(20), "still not: {what}");
        }
    }

    /// The events of a process that came by now.
    pub(crate) fn events(&mut self, process: u16) -> Vec<Event> {
        let fabric = self.at(process);
        std::iter::from_fn(|| fabric.next_event()).collect()
    }
}

impl Testbed for Bed {
    type F = RoceFabric;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut RoceFabric {
        self.fabrics[process.index()].as_mut().expect("it is up")
    }

    /// What NICs and the switch do while processes do something else.
    fn advance(&mut self) {
        if let Some(switch) = &mut self.switch {
            switch.round().unwrap();
        }
        for (n, fabric) in self.fabrics.iter_mut().enumerate() {
            if let Some(fabric) = fabric
                && !self.stopped.contains(&ProcessId(n as u16))
            {
                fabric.drive();
            }
        }
    }

    /// As far as that goes inside one process.
    fn crash(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        let mut config = RoceConfig::new("test", process, self.addresses.clone());
        config.key = KEY.to_vec();
        config.rnr_timeout = Duration::from_millis(60);
        config.seed = process.0.into();
        config.switch = Some(SwitchConfig::new(self.control));
        self.fabrics[process.index()] = Some(RoceFabric::start(config).unwrap_or_else(|error| panic!("{error}")));
    }

    fn repeats(&self) -> u64 {
        4
    }

    fn patience(&self) -> usize {
        4_000_000
    }
}
