//! Processes on `roce` and a switch, all in one thread, on loopback addresses that no other test uses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric::{
    Access, Completion, Event, Fabric, PostError, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec,
    RemoteSpan, Service, SetSpec, SetTarget, SetWrite, Status,
};
use stentor_fabric_conformance::Testbed;
use stentor_fabric_net::Sets;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric, SwitchConfig};
use stentor_soft_switch::{Faults, Settings, SoftSwitch};

/// TCP port of the connection managers.
const TCP_PORT: u16 = 4791;
const KEY: &[u8] = b"a key of this test";

/// Options of a bed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setup {
    /// Faults of the switch.
    pub(crate) faults: Faults,
    /// `true` if the bed begins without a switch.
    pub(crate) no_switch: bool,
}

pub(crate) struct Bed {
    pub(crate) fabrics: Vec<Option<RoceFabric>>,
    pub(crate) switch: Option<SoftSwitch>,
    /// Processes that are suspended.
    pub(crate) stopped: Vec<ProcessId>,
    /// Completed writes of process 0 to its set: id and status.
    pub(crate) done: Vec<(u64, Status)>,
    /// Number of times that a set broke, counted at each of its processes. A broken set is reset at once.
    pub(crate) breaks: usize,
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
            done: Vec::new(),
            breaks: 0,
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

    /// Starts a switch that knows nothing of its predecessor's state.
    pub(crate) fn start_switch(&mut self) {
        self.switch = None;
        let mut switch = SoftSwitch::open(&self.settings).unwrap_or_else(|error| panic!("{error}"));
        switch.listen(&self.settings, self.control, KEY).unwrap_or_else(|error| panic!("{error}"));
        self.switch = Some(switch);
    }

    pub(crate) fn at(&mut self, process: u16) -> &mut RoceFabric {
        self.fabrics[usize::from(process)].as_mut().expect("the process runs")
    }

    /// Runs until `holds` returns `true`.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Bed) -> bool) {
        let since = Instant::now();
        while !holds(self) {
            self.run();
            assert!(since.elapsed() < Duration::from_secs(20), "still not: {what}");
        }
    }

    /// Runs a round of all processes: they poll, and reset broken queue pairs.
    pub(crate) fn run(&mut self) {
        self.advance();
        for (n, fabric) in self.fabrics.iter_mut().enumerate() {
            let Some(fabric) = fabric else { continue };
            if self.stopped.contains(&ProcessId(n as u16)) {
                continue;
            }
            take(fabric, n, &mut self.done);
            while let Some(event) = fabric.next_event() {
                if let Event::Disconnected { qp, peer } = event {
                    self.breaks += usize::from(peer == ProcessId(n as u16));
                    take(fabric, n, &mut self.done);
                    fabric.reset(qp).unwrap();
                }
            }
        }
    }

    /// Returns the notes of a process about the switch.
    pub(crate) fn notes(&mut self, process: u16) -> Vec<String> {
        let fabric = self.at(process);
        std::iter::from_fn(|| fabric.cm_mut().sets.next_note()).collect()
    }

    pub(crate) fn words(&mut self, process: u16, group: &Group) -> Vec<u64> {
        let region = group.regions[usize::from(process)];
        self.at(process).memory(region).iter().map(|word| word.load(Ordering::Acquire)).collect()
    }
}

/// Polls completions, and records those of process 0's writes to its set.
fn take(fabric: &mut RoceFabric, process: usize, done: &mut Vec<(u64, Status)>) {
    let mut out = [Completion::BLANK; 16];
    loop {
        let count = fabric.poll(&mut out);
        let of_set = out[..count].iter().filter(|done| process == 0 && done.id < ALONE);
        done.extend(of_set.map(|done| (done.id, done.status)));
        if count == 0 {
            return;
        }
    }
}

/// First id of writes that do not belong to the set.
const ALONE: u64 = 1 << 32;
/// A set with process 0 as its sender. The sender may write memory of each other member, and has a queue pair to each.
pub(crate) struct Group {
    pub(crate) set: QpId,
    members: Vec<ProcessId>,
    /// Regions, by process.
    regions: Vec<RegionId>,
    links: Vec<QpId>,
}

impl Group {
    /// Size of each region, in words.
    pub(crate) const WORDS: usize = 512;

    /// Creates a set whose members are all present.
    pub(crate) fn new(count: u16, setup: Setup) -> (Bed, Group) {
        let all: Vec<u16> = (0..count).collect();
        let no_switch = setup.no_switch;
        let (mut bed, group) = Group::of(&all, count, setup);
        let reached = |bed: &mut Bed| {
            let fabric = bed.at(0);
            let links = group.links.iter().all(|link| fabric.state(*link) == QpState::Ready);
            links && (no_switch || (1..count).all(|peer| fabric.set_reaches(group.set, ProcessId(peer))))
        };
        bed.until("the set", reached);
        bed.breaks = 0;
        (bed, group)
    }

    /// Creates a set of `count` members of which only some are present.
    pub(crate) fn of(there: &[u16], count: u16, setup: Setup) -> (Bed, Group) {
        let mut bed = Bed::new(usize::from(count), setup);
        let absent = (0..count).filter(|process| !there.contains(process));
        absent.for_each(|process| bed.crash(ProcessId(process)));
        let members: Vec<ProcessId> = (0..count).map(ProcessId).collect();
        let (regions, links) = (vec![RegionId(0); usize::from(count)], Vec::new());
        let mut group = Group { set: QpId(0), members, regions, links };
        for process in there {
            group.join(&mut bed, *process);
        }
        for peer in 1..count {
            let config = QpConfig::reliable(8, 0);
            group.links.push(bed.at(0).connect(ProcessId(peer), Service(1), config).unwrap());
        }
        (bed, group)
    }

    pub(crate) fn join(&self, bed: &mut Bed, process: u16) -> QpId {
        let fabric = bed.at(process);
        if process > 0 {
            let bytes = 8 * Group::WORDS as u64;
            let spec = RegionSpec { purpose: Purpose(1), writer: ProcessId(0), bytes };
            let region = fabric.register(spec).unwrap();
            assert_eq!(region, self.regions[usize::from(process)]);
            fabric.grant(region, ProcessId(0), Access::Write).unwrap();
        }
        let spec = SetSpec { number: 0, members: &self.members };
        let set = fabric.join_set(spec, QpConfig::reliable(32, 0)).unwrap();
        if process > 0 {
            fabric.connect(ProcessId(0), Service(1), QpConfig::reliable(8, 0)).unwrap();
        } else {
            assert_eq!(set, self.set);
        }
        set
    }

    /// Writes to these peers through the set, at the same word of each region.
    pub(crate) fn post(
        &self,
        bed: &mut Bed,
        id: u64,
        values: &[u64],
        to: &[u16],
        word: usize,
    ) -> Result<(), PostError> {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let target = |bed: &mut Bed, peer: u16| {
            let region = bed.at(0).resolve(ProcessId(peer), Purpose(1)).expect("a granted region");
            SetTarget { peer: ProcessId(peer), to: RemoteSpan { region, offset: 8 * word as u64 } }
        };
        let targets: Vec<_> = to.iter().map(|peer| target(bed, *peer)).collect();
        bed.at(0).post_set(self.set, SetWrite { id, data: &data, targets: &targets, signalled: true })
    }

    /// Writes to one peer through its own queue pair.
    pub(crate) fn write_alone(&self, bed: &mut Bed, peer: u16, word: usize, value: u64) {
        let region = bed.at(0).resolve(ProcessId(peer), Purpose(1)).expect("a granted region");
        let target = RemoteSpan { region, offset: 8 * word as u64 };
        let link = self.links[usize::from(peer) - 1];
        bed.at(0).write_inline(link, ALONE, &value.to_ne_bytes(), target, true).unwrap();
    }
}

impl Testbed for Bed {
    type F = RoceFabric;

    fn processes(&self) -> usize {
        self.fabrics.len()
    }

    fn fabric(&mut self, process: ProcessId) -> &mut RoceFabric {
        self.fabrics[process.index()].as_mut().expect("the process runs")
    }

    /// Advances the NICs and the switch, but not the processes.
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

    /// Drops the fabric, which is the closest to a crash that is possible inside one process.
    fn crash(&mut self, process: ProcessId) {
        self.fabrics[process.index()] = None;
    }

    fn restart(&mut self, process: ProcessId) {
        let switch = Some(SwitchConfig::new(self.control));
        let net = NetConfig::new("test", process, self.addresses.clone()).key(KEY);
        let rnr_timeout = Duration::from_millis(60);
        let config = RoceConfig { rnr_timeout, seed: process.0.into(), switch, ..RoceConfig::default() };
        self.fabrics[process.index()] = Some(RoceFabric::start(net, config).unwrap_or_else(|error| panic!("{error}")));
    }

    fn repeats(&self) -> u64 {
        4
    }

    fn patience(&self) -> usize {
        4_000_000
    }
}
