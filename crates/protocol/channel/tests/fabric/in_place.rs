//! Messages that are sent from registered memory, and read in the slots in which they arrived.

use stentor_channel::{Endpoint, Handle, Notice, Scheme, WriteError};
use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Fabric, ProcessId, Purpose, RegionId, RegionSpec};
use stentor_fabric_conformance::{FaultInjector, Faults};
use stentor_fabric_sim::{NetworkModel, SimConfig, SimFabric, World};

use crate::bed::{message, small};

const LENGTHS: [usize; 11] = [0, 1, 8, 63, 64, 65, 256, 257, 512, 1000, 4096];
/// Bytes of registered memory per message.
const ROOM: u64 = 4096;

struct Side {
    endpoint: Endpoint<FaultInjector<SimFabric>>,
    handle: Handle,
    written: u64,
    closed: bool,
}

impl Side {
    fn new(world: &World, me: u16, scheme: Scheme, seed: u64) -> Self {
        let own = seed + u64::from(me);
        // Odd seeds have EFA's restrictions.
        let disorders = match seed % 2 {
            0 => Faults::completions(own),
            _ => Faults::efa(own, 100, scheme != Scheme::Counted),
        };
        let fabric = FaultInjector::new(world.fabric(ProcessId(me)), disorders);
        let mut endpoint = Endpoint::new(fabric, small(scheme), &[ProcessId(1 - me)]).unwrap();
        let handle = endpoint.open(ProcessId(1 - me), 0).unwrap();
        Side { endpoint, handle, written: 0, closed: false }
    }

    fn turn(&mut self) {
        self.endpoint.step();
        self.endpoint.housekeep();
        while let Some((_, notice)) = self.endpoint.next_notice() {
            match notice {
                Notice::Opened => {}
                Notice::Written(number) => self.written = number + 1,
                Notice::Failed(error) => panic!("{error}"),
                Notice::Closed => self.closed = true,
            }
        }
    }

    /// Registers memory that holds all messages, each at its own offset.
    fn region(&mut self) -> RegionId {
        let (me, bytes) = (self.endpoint.fabric().me(), ROOM * LENGTHS.len() as u64);
        let spec = RegionSpec { purpose: Purpose(9), writer: me, bytes };
        let region = self.endpoint.fabric_mut().register(spec).unwrap();
        let memory = self.endpoint.fabric().memory(region);
        for (number, bytes) in LENGTHS.iter().enumerate() {
            let first = number * ROOM as usize / WORD;
            for (word, bytes) in memory[first..].iter().zip(message(me, 0, number as u64, *bytes).chunks(WORD)) {
                let mut whole = [0; WORD];
                whole[..bytes.len()].copy_from_slice(bytes);
                word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
            }
        }
        region
    }
}

fn run(scheme: Scheme, seed: u64) {
    let model = NetworkModel { tagged: scheme != Scheme::Counted, ..NetworkModel::adversarial() };
    let world = World::new(SimConfig::new(2, seed, model));
    let [mut writer, mut reader] = [0, 1].map(|me| Side::new(&world, me, scheme, seed));
    let region = writer.region();
    let (mut begun, mut finished, mut read, mut reading) = (0, false, 0, Vec::new());
    for _ in 0..400_000 {
        world.advance(300);
        writer.turn();
        reader.turn();
        while begun < LENGTHS.len() {
            let Side { endpoint, handle, .. } = &mut writer;
            if endpoint.left(*handle).is_none() && endpoint.begin(*handle, LENGTHS[begun] as u64).is_err() {
                break;
            }
            let (offset, bytes) = (begun as u64 * ROOM, LENGTHS[begun] as u32);
            if !endpoint.hand_over_registered(*handle, region, offset, bytes).unwrap() {
                break;
            }
            begun += 1;
        }
        if begun == LENGTHS.len() && !std::mem::replace(&mut finished, true) {
            writer.endpoint.finish(writer.handle).unwrap();
            reader.endpoint.finish(reader.handle).unwrap();
        }
        let whole = reader.endpoint.read_in_place(reader.handle, |memory, bytes| {
            let words = memory.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
            reading.extend(words.take(bytes as usize));
        });
        if whole {
            assert_eq!(reading, message(ProcessId(0), 0, read as u64, LENGTHS[read]), "{scheme:?}, message {read}");
            reading.clear();
            read += 1;
        }
        if writer.closed && reader.closed {
            break;
        }
    }
    assert!(writer.closed && reader.closed, "{scheme:?}, seed {seed}: {begun} begun, {read} read");
    assert_eq!((read, writer.written), (LENGTHS.len(), LENGTHS.len() as u64));
}

#[test]
fn messages_in_registered_memory_arrive_unchanged() {
    for scheme in Scheme::ALL {
        (0..10).for_each(|seed| run(scheme, seed));
    }
}

#[test]
fn message_outside_its_region_is_refused() {
    let world = World::new(SimConfig::new(2, 1, NetworkModel { tagged: true, ..NetworkModel::adversarial() }));
    let mut side = Side::new(&world, 0, Scheme::Eager, 1);
    let region = side.region();
    side.endpoint.begin(side.handle, 4096).unwrap();
    let region_bytes = ROOM * LENGTHS.len() as u64;
    for offset in [region_bytes - 8, region_bytes, 4, u64::MAX - 7, u64::MAX] {
        let refused = side.endpoint.hand_over_registered(side.handle, region, offset, 4096);
        assert_eq!(refused, Err(WriteError::OutOfRegion { bytes: 4096, offset, region_bytes }));
    }
    let refused = side.endpoint.hand_over_registered(side.handle, region, 0, 4088);
    assert_eq!(refused, Err(WriteError::OtherLength { begun: 4096, given: 4088 }));
    assert_eq!(side.endpoint.hand_over_registered(side.handle, region, 0, 4096), Ok(false));
}
