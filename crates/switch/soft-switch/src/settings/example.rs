//! A commented configuration to begin with.

use std::net::{Ipv4Addr, SocketAddr};

/// A configuration of a switch at these addresses, whose hosts ask for sets at `control` and have the key that `key` says
/// where it is (`file:PATH` or `env:NAME`).
#[must_use]
pub fn example(cluster: &str, forward: Ipv4Addr, backward: Ipv4Addr, control: SocketAddr, key: &str) -> String {
    format!(
        r#"# A software switch: reliable multicast for RoCEv2. Start it with `stentor switch --config FILE`.

# The cluster that it is for.
cluster = "{cluster}"

# Its two addresses, UDP port 4791 each: senders write to the first, receivers answer to the second. They belong to this
# process alone.
forward = "{forward}"
backward = "{backward}"

# plain: UDP sockets, without privileges, for hosts on fabric `roce`. raw: raw sockets (CAP_NET_RAW), for kernels and network
# cards, too, which number their packets.
mode = "plain"

# Where hosts ask for sets (TCP), and where the cluster's key is: "file:PATH" or "env:NAME".
control = "{control}"
key = "{key}"

# Sets that there is room for. Each takes some kilobytes.
sets = 256

# exact-min: what each receiver acknowledged is kept, and the least counts. round-bitmap stalls, and is there to be compared.
aggregation = "exact-min"

# Whether the ICRC of data is checked, too; receivers check it in any case.
check_data = false

# A bad network on purpose: chances from 0 to 1.
#[faults]
#drop_chance = 0.01
#duplicate_chance = 0.01
#reorder_chance = 0.01
#corrupt_chance = 0.01
#loop_drop_chance = 0.01
#delay_us = 0
#seed = 1

# A set whose queue pairs somebody else makes and connects: to the queue pair `gid * 256 + rank` at each of the two addresses.
#[[set]]
#gid = 0
#lease_ms = 1000
#host = [
#  {{ rank = 0, address = "127.0.0.2", sends_qpn = 17, sends_psn = 0, receives_qpn = 18, receives_psn = 0 }},
#]
"#
    )
}
