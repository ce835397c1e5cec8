//! Resources that the data plane needs. Memory follows from the declarations of the registers; passes and loop
//! bandwidth follow from how replication works. The report compares them with groups that are set up one by one.

use std::fmt;

use crate::registers::{Acked, MOST, Member, Notice, Progress, Rank, Session};
use crate::step::Bridge;

/// Ethernet's preamble, gap, header and check sequence, in bytes.
const ETHERNET_BYTES: u64 = 8 + 12 + 14 + 4;
/// IPv4, UDP, BTH and ICRC, in bytes.
const PACKET_BYTES: u64 = 20 + 8 + 12 + 4;
/// Number of stages with register arrays; the bank of acknowledgements counts as one.
pub const STAGES: usize = 6;

/// Memory of a set with a given number of hosts, in bits, by purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetBits {
    /// VRQP: the session, the aggregate and the time of the last notification.
    pub vrqp: u64,
    /// VSQPs: translation and acknowledgement of each member.
    pub vsqps: u64,
    /// Done PSN and address of each rank.
    pub ranks: u64,
}

impl SetBits {
    /// Returns the sum.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.vrqp + self.vsqps + self.ranks
    }
}

/// A register array: its stage, its name, the bits of a cell, and the cells of a set.
pub type Row = (usize, &'static str, u64, u64);

/// Returns the arrays of a set with this number of hosts, in the order of the stages.
#[must_use]
pub fn arrays(hosts: u64) -> [Row; STAGES] {
    [
        (0, "ranks", Rank::BITS.into(), hosts),
        (1, "sessions", Session::BITS.into(), 1),
        (2, "members", Member::BITS.into(), hosts),
        (3, "acked", Acked::BITS.into(), hosts),
        (4, "progress", Progress::BITS.into(), 1),
        (5, "notices", Notice::BITS.into(), 1),
    ]
}

/// Returns the memory of a set with this number of hosts.
#[must_use]
pub fn set_bits(hosts: u64) -> SetBits {
    let bits = |names: &[&str]| {
        arrays(hosts).iter().filter(|row| names.contains(&row.1)).map(|(_, _, bits, cells)| bits * cells).sum()
    };
    SetBits {
        vrqp: bits(&["sessions", "progress", "notices"]),
        vsqps: bits(&["members", "acked"]),
        ranks: bits(&["ranks"]),
    }
}

/// Returns the number of sets with this number of hosts that fit into `sram_bytes` bytes of memory.
#[must_use]
pub fn sets_in(sram_bytes: u64, hosts: u64) -> u64 {
    8 * sram_bytes / set_bits(hosts).total()
}

/// Returns the number of groups that must be set up one by one to cover every sender with every non-empty subset of the
/// other hosts as its receivers: n·(2^(n−1)−1).
#[must_use]
pub fn static_groups(hosts: u32) -> u128 {
    let subsets = 1_u128.checked_shl(hosts.saturating_sub(1)).unwrap_or(u128::MAX);
    u128::from(hosts).saturating_mul(subsets - 1)
}

/// Returns the number of passes of a data packet: one for each receiver.
#[must_use]
pub const fn data_passes(receivers: u64) -> u64 {
    receivers
}

/// Returns the number of passes of a control packet that links `receivers` members: one that only reads, then one for
/// each. A take-over adds one.
#[must_use]
pub const fn control_passes(receivers: u64) -> u64 {
    1 + receivers
}

/// Returns the bytes that a packet with `payload` bytes takes in the loop port, for all its receivers, with framing.
#[must_use]
pub const fn loop_bytes(payload: u64, receivers: u64) -> u64 {
    (receivers - 1) * (payload + PACKET_BYTES + ETHERNET_BYTES + (Bridge::BITS as u64).div_ceil(8))
}

/// Returns the goodput of a set, in bit/s of payload, if its loop ports carry `loop_bits_per_s`. Returns `None` for one
/// receiver, which needs no loop.
#[must_use]
pub fn loop_goodput(loop_bits_per_s: f64, payload: u64, receivers: u64) -> Option<f64> {
    let bytes = loop_bytes(payload, receivers.max(1));
    (bytes > 0).then(|| loop_bits_per_s * payload as f64 / bytes as f64)
}

/// A report on resources, which is displayed as a text table.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Report {
    /// Number of hosts of each set, 1 to 32.
    pub hosts: u32,
    /// Memory for registers, in bytes.
    pub sram_bytes: u64,
    /// Total rate of the loop ports, in bit/s.
    pub loop_bits_per_s: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = u64::from(self.hosts);
        writeln!(f, "stage  array        bits/cell  cells  bits")?;
        for (stage, name, bits, cells) in arrays(hosts) {
            writeln!(f, "{stage:<5}  {name:<11}  {bits:>9}  {cells:>5}  {:>5}", bits * cells)?;
        }
        let bits = set_bits(hosts);
        let (vsqp, total) = (Member::BITS + Acked::BITS, bits.total());
        writeln!(f, "a set of {hosts}: {total} bits: VRQP {}, VSQP {vsqp} each, rank {} each", bits.vrqp, Rank::BITS)?;
        let (bytes, sets, groups) = (self.sram_bytes, sets_in(self.sram_bytes, hosts), static_groups(self.hosts));
        writeln!(f, "in {bytes} bytes: {sets} sets; one takes the place of {groups} groups set up one by one")?;
        writeln!(f, "a pass's header in the loop: {} bits", Bridge::BITS)?;
        writeln!(f, "receivers  passes  control  loop copies  loop bytes (4096 B)  goodput Gbit/s")?;
        for n in [1, 2, 4, 8, 16, 32].into_iter().filter(|n| *n <= hosts.min(MOST as u64)) {
            let goodput = loop_goodput(self.loop_bits_per_s, 4096, n);
            let goodput = goodput.map_or("no loop".to_owned(), |bits| format!("{:.1}", bits / 1e9));
            let (data, control, copies, bytes) = (data_passes(n), control_passes(n), n - 1, loop_bytes(4096, n));
            writeln!(f, "{n:>9}  {data:>6}  {control:>7}  {copies:>11}  {bytes:>19}  {goodput:>14}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_counts_follow_from_the_register_declarations() {
        let fields = |fields: &[(&str, u32)]| fields.iter().map(|(_, bits)| *bits).sum::<u32>();
        assert_eq!(fields(Member::FIELDS), Member::BITS);
        assert_eq!(Member::BITS + Acked::BITS, 32 + 24 + 64 + 32 + 4 * 24 + 32 + 2 * 24);
        assert_eq!(Rank::BITS, 104);
        let (one, two) = (set_bits(1), set_bits(2));
        assert_eq!(two.total() - one.total(), u64::from(Member::BITS + Acked::BITS + Rank::BITS));
        assert_eq!(one.vrqp, two.vrqp, "the memory does not depend on the number of used subsets");
        assert_eq!(sets_in(set_bits(32).total(), 32), 8);
    }

    #[test]
    fn static_groups_cover_each_sender_and_subset() {
        assert_eq!([1, 2, 3, 8].map(static_groups), [0, 2, 9, 1016]);
        assert_eq!(static_groups(32), 68_719_476_704);
    }

    #[test]
    fn loop_bandwidth_limits_goodput() {
        assert_eq!(loop_goodput(1e11, 4096, 1), None);
        let two = loop_goodput(1e11, 4096, 2).unwrap();
        assert!((9.6e10..9.9e10).contains(&two), "{two}");
        let ratio = two / loop_goodput(1e11, 4096, 32).unwrap();
        assert!((ratio - 31.0).abs() < 1e-9, "{ratio}");
        assert_eq!((data_passes(32), control_passes(32)), (32, 33));
        let text = Report { hosts: 32, sram_bytes: 12 << 20, loop_bits_per_s: 1e11 }.to_string();
        println!("{text}");
        assert!(text.contains("68719476704") && text.lines().count() == 6 + 5 + 6, "{text}");
    }
}
