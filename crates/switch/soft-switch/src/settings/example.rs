//! A commented example configuration.

use std::net::{Ipv4Addr, SocketAddr};

/// Returns a configuration of a switch at these addresses. Hosts join sets at `control`; `key` is the location of the
/// cluster's key (`file:PATH` or `env:NAME`).
#[must_use]
pub fn example(cluster: &str, forward: Ipv4Addr, backward: Ipv4Addr, control: SocketAddr, key: &str) -> String {
    format!(
        r#"# A software switch: reliable multicast for RoCEv2. Start it with `stentor switch --config FILE`.

# Name of the cluster.
cluster = "{cluster}"

# The switch's addresses, UDP port 4791 each: senders write to the first, receivers answer to the second. No other
# process may use them.
forward = "{forward}"
backward = "{backward}"

# plain: UDP sockets, without privileges, for hosts on fabric `roce`. raw: raw sockets (CAP_NET_RAW), also for kernels
# and network cards, which number their packets.
mode = "plain"

# TCP address where hosts join sets, and the location of the cluster's key: "file:PATH" or "env:NAME".
control = "{control}"
key = "{key}"

# Number of sets that the switch has room for. Each takes some kilobytes.
sets = 256

# exact-min keeps the acknowledgement of each receiver, and the minimum counts. round-bitmap can stall; it exists for
# comparison.
aggregation = "exact-min"

# Set to true to check the ICRC of data, too. Receivers check it in any case.
check_data = false

# Fault injection: probabilities from 0 to 1.
#[faults]
#drop_chance = 0.01
#duplicate_chance = 0.01
#reorder_chance = 0.01
#corrupt_chance = 0.01
#loop_drop_chance = 0.01
#delay_us = 0
#seed = 1

# A set whose queue pairs are created by other software and connected to queue pair `gid * 256 + rank` at each of the
# two addresses.
#[[set]]
#gid = 0
#lease_ms = 1000
#host = [
#  {{ rank = 0, address = "127.0.0.2", sends_qpn = 17, sends_psn = 0, receives_qpn = 18, receives_psn = 0 }},
#]
"#
    )
}
