//! Snapshots of a table: restored as a whole, or not at all.

use stentor_multicast::{GroupId, StateReader};
use stentor_session::{Mutant, SessionLimits, Sessions, SnapshotError};

use crate::script::{LIMITS, opened, settle};
use crate::world::World;

/// Creates a world with a table that holds a session and the reply to one command.
fn used() -> World {
    let mut world = opened(Mutant::None, &[0]);
    world.begin(0, &[0]);
    settle(&mut world);
    world
}

/// Returns the table of the first group, and its snapshot.
fn written(world: &World) -> (&Sessions, Vec<u8>) {
    let sessions = &world.groups[0].sessions;
    let mut bytes = Vec::new();
    sessions.write(&mut bytes);
    (sessions, bytes)
}

#[test]
fn damaged_snapshot_is_refused_as_a_whole() {
    let world = used();
    let (sessions, mut bytes) = written(&world);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert!(Sessions::read(GroupId(0), LIMITS, &damaged).is_err(), "byte {at}");
        assert!(Sessions::read(GroupId(0), LIMITS, &bytes[..at]).is_err(), "cut at {at}");
    }
    assert!(Sessions::read(GroupId(1), LIMITS, &bytes).is_err(), "another group");
    let narrow = SessionLimits { window: 3, ..LIMITS };
    assert!(Sessions::read(GroupId(0), narrow, &bytes).is_err(), "another window");
    bytes.push(9);
    let (read, rest) = Sessions::read(GroupId(0), LIMITS, &bytes).expect("the snapshot is complete");
    assert_eq!((&read, rest), (sessions, &[9][..]), "the bytes that follow are left to the next reader");
}

/// The table is read from chunks of any length. The reader leaves the machine's value, which follows the table, unread.
#[test]
fn table_is_read_from_the_beginning_of_a_state() {
    let world = used();
    let (sessions, mut bytes) = written(&world);
    let table = bytes.len();
    bytes.extend(*b"value");
    for length in [1, 7, table, bytes.len()] {
        let mut chunks = bytes.chunks(length).map(<[u8]>::to_vec).collect();
        let mut state = StateReader::new(&mut chunks);
        assert_eq!(Sessions::read_from(GroupId(0), LIMITS, &mut state).as_ref(), Ok(sessions), "{length}");
        let mut rest = Vec::new();
        while let Some(chunk) = state.next_chunk() {
            rest.extend(chunk);
        }
        assert_eq!(rest, b"value", "{length}");
    }
    let mut huge = bytes[..20].to_vec();
    huge[8..16].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    let cuts = (0..table).map(|cut| bytes[..cut].to_vec());
    for short in cuts.chain([huge]) {
        let (length, mut chunks) = (short.len(), [short].into());
        let read = Sessions::read_from(GroupId(0), LIMITS, &mut StateReader::new(&mut chunks));
        assert!(matches!(read, Err(SnapshotError::Short { bytes, .. }) if bytes == length), "{length}: {read:?}");
    }
}
