//! Tests a network whose faults change at run time. While a path is cut, packets do not arrive; after the cut, they do.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RemoteSpan, Service,
};
use stentor_fabric_roce::driver::Faults;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};

const PATIENCE: Duration = Duration::from_secs(20);
/// Time that is much longer than the delivery of a packet on loopback, and much shorter than the retries of a queue
/// pair.
const MOMENT: Duration = Duration::from_millis(30);
const WRITER: ProcessId = ProcessId(0);
const OWNER: ProcessId = ProcessId(1);
const PURPOSE: Purpose = Purpose(1);

/// Two processes, of which the first writes into a region of the second.
struct Bed {
    both: [RoceFabric; 2],
    qp: QpId,
    region: RegionId,
    addresses: [Ipv4Addr; 2],
}

impl Bed {
    fn new(net: u8, faults: bool) -> Bed {
        let second = 64 + (std::process::id() % 128) as u8;
        let addresses = [1, 2].map(|last| Ipv4Addr::new(127, second, net, last));
        let mut both = [WRITER, OWNER].map(|me| {
            let at = addresses.map(|ip| Some(SocketAddr::new(ip.into(), 4791))).to_vec();
            let net = NetConfig::new("faults", me, at).key(*b"a key of this test");
            RoceFabric::start(net, RoceConfig { faults, ..RoceConfig::default() }).expect("the fabric starts")
        });
        let region = RegionSpec { purpose: PURPOSE, writer: WRITER, bytes: 64 };
        let region = both[1].register(region).expect("memory for the region is available");
        both[1].grant(region, WRITER, Access::Write).expect("the region can be granted");
        let config = QpConfig::reliable(64, 0);
        let qp = both[0].connect(OWNER, Service(7), config).expect("the queue pair is created");
        let other = both[1].connect(WRITER, Service(7), config).expect("the queue pair is created");
        let mut bed = Bed { both, qp, region, addresses };
        let since = Instant::now();
        while bed.both[0].state(qp) != QpState::Ready || bed.both[1].state(other) != QpState::Ready {
            assert!(since.elapsed() < PATIENCE, "the processes have not connected");
            bed.drive();
        }
        bed
    }

    fn drive(&mut self) {
        for fabric in &mut self.both {
            fabric.drive();
            while fabric.next_event().is_some() {}
        }
    }

    fn write(&mut self, value: u64) {
        let region = self.both[0].resolve(OWNER, PURPOSE).expect("the owner has granted the region");
        let target = RemoteSpan { region, offset: 0 };
        self.both[0].write_inline(self.qp, value, &value.to_le_bytes(), target, false).expect("the request is posted");
    }

    /// Returns whether the value `value` arrives in the region within `patience`.
    fn arrives(&mut self, value: u64, patience: Duration) -> bool {
        let since = Instant::now();
        while since.elapsed() < patience {
            self.drive();
            if self.both[1].memory(self.region)[0].load(Ordering::Acquire) == value {
                return true;
            }
        }
        false
    }
}

#[test]
fn write_that_is_cut_off_arrives_after_the_cut() {
    let mut bed = Bed::new(41, true);
    bed.write(1);
    assert!(bed.arrives(1, PATIENCE), "writes arrive before the cut");
    let [writer, owner] = bed.addresses.map(Into::into);
    let deaf = (1, Faults { from: vec![writer], ..Faults::default() });
    let mute = (0, Faults { to: vec![owner], ..Faults::default() });
    let lossy = (0, Faults { drop: 1.0, ..Faults::default() });
    for (value, (process, faults)) in (2..).zip([deaf, mute, lossy]) {
        assert!(bed.both[process].device_mut().set_faults(&faults));
        let before = bed.both[process].device().injected()[0];
        bed.write(value);
        assert!(!bed.arrives(value, MOMENT), "{faults:?}");
        assert!(bed.both[process].device().injected()[0] > before, "{faults:?}");
        assert!(bed.both[process].device_mut().set_faults(&Faults::default()));
        assert!(bed.arrives(value, PATIENCE), "{faults:?}");
    }
    // A cut of another direction or address does not affect the writes.
    assert!(bed.both[1].device_mut().set_faults(&Faults { from: vec![owner], ..Faults::default() }));
    bed.write(9);
    assert!(bed.arrives(9, PATIENCE));
}

#[test]
fn faults_are_refused_unless_enabled() {
    let mut bed = Bed::new(42, false);
    assert!(!bed.both[0].device_mut().set_faults(&Faults { drop: 1.0, ..Faults::default() }));
    bed.write(1);
    assert!(bed.arrives(1, PATIENCE));
}
