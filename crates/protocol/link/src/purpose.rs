//! Purposes of all regions. A region is identified by its owner, its writer and its purpose, so both processes must use
//! the same numbers, and none may change.
//!
//! One fabric carries one protocol, possibly with a channel in addition. Within each protocol all numbers differ; the
//! test checks this for 64 processes.

use stentor_fabric::{ProcessId, Purpose};

/// Multicast: credits and, between members, timestamps, acknowledgements and peer messages.
pub const MULTICAST_CONTROL: Purpose = Purpose(1);
/// Multicast: the leader's stream.
pub const MULTICAST_STREAM: Purpose = Purpose(2);
/// Multicast: a client's messages.
pub const MULTICAST_BODY: Purpose = Purpose(3);
/// Multicast: memory in which this process receives hellos.
pub const MULTICAST_INBOX: Purpose = Purpose(4);
/// Multicast: words that the other members of the group read.
pub const MULTICAST_HEARTBEAT: Purpose = Purpose(5);
/// Multicast: memory in which this process receives the words that it reads from other members.
pub const MULTICAST_HEARTBEATS_READ: Purpose = Purpose(6);
/// Multicast: at a client, the ring of a member's replies; at a member, the client's credit for that ring.
pub const MULTICAST_REPLY: Purpose = Purpose(7);
/// Multicast: at a member, the ring of a client's queries; at a client, the member's credit for that ring.
pub const MULTICAST_QUERY: Purpose = Purpose(8);
/// Neb: the buffer that a sender writes at a receiver.
pub const NEB_BROADCAST: Purpose = Purpose(32);
/// Neb: credits.
pub const NEB_CONTROL: Purpose = Purpose(33);
/// Neb: memory from which this process posts.
pub const NEB_STAGING: Purpose = Purpose(34);
/// Channel: first purpose, unless the configuration names another one. Each peer has two purposes.
pub const CHANNEL_FIRST: Purpose = Purpose(4000);

/// Multicast: memory from which this process posts records that are too long for inline data. `ring` distinguishes the
/// rings of one process.
#[must_use]
pub const fn multicast_staging(ring: u16) -> Purpose {
    Purpose(16 + ring)
}

/// Neb: the registers of a writer.
#[must_use]
pub const fn neb_registers(writer: ProcessId) -> Purpose {
    Purpose(0x200 + writer.0)
}

/// Neb: memory in which this process receives what it READs from a host.
#[must_use]
pub const fn neb_scratch(host: ProcessId) -> Purpose {
    Purpose(0x300 + host.0)
}

/// Channel: memory of this process for messages from a peer (`outgoing` is false) or to it.
#[must_use]
pub const fn channel(first: Purpose, peer: ProcessId, outgoing: bool) -> Purpose {
    Purpose(first.0 + 2 * peer.0 + outgoing as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of processes in the test.
    const PROCESSES: u16 = 64;

    #[test]
    fn purposes_of_a_protocol_are_distinct() {
        let each = |purpose: fn(ProcessId) -> Purpose| (0..PROCESSES).map(move |n| purpose(ProcessId(n)));
        let mut multicast = vec![
            MULTICAST_CONTROL,
            MULTICAST_STREAM,
            MULTICAST_BODY,
            MULTICAST_INBOX,
            MULTICAST_HEARTBEAT,
            MULTICAST_HEARTBEATS_READ,
            MULTICAST_REPLY,
            MULTICAST_QUERY,
        ];
        let mut neb = vec![NEB_BROADCAST, NEB_CONTROL, NEB_STAGING];
        multicast.extend(each(|process| multicast_staging(process.0)));
        neb.extend(each(neb_registers).chain(each(neb_scratch)));
        for purposes in [&mut multicast, &mut neb] {
            purposes.extend(each(|peer| channel(CHANNEL_FIRST, peer, false)));
            purposes.extend(each(|peer| channel(CHANNEL_FIRST, peer, true)));
            let count = purposes.len();
            purposes.sort_unstable();
            purposes.dedup();
            assert_eq!(purposes.len(), count);
        }
    }
}
