//! The properties of multicast by a switch. A simulation reports each event at the switch's ports and registers to a
//! [`SetWatch`], which judges it at once.
//!
//! There are no history files, because the events are packets, and captures record those. Each property has a file of
//! its own:
//!
//! | property | meaning | file |
//! |---|---|---|
//! | S1 ack soundness | an acknowledged PSN was executed by every member that it was for | `s1_ack_soundness.rs` |
//! | S2 order | receivers execute the senders' streams in order, once, without interleaving messages | `s2_order.rs` |
//! | S3 windows | the switch's send count is at least the receiver's executions; PSNs are dense | `s3_windows.rs` |
//! | S4 progress | the aggregate never decreases within an epoch; foreign answers change nothing | `s4_progress.rs` |
//! | S5 offsets | a member's offset is constant between control packets | `s5_offsets.rs` |
//! | S6 one holder | at most one holder per epoch; only the holder's data is replicated | `s6_one_holder.rs` |
//! | S7 addresses | address and key are those of the sender's previous control packet | `s7_addresses.rs` |
//! | S8 atomic control | no replication with mixed versions, or to members that were not linked | `s8_atomic_control.rs` |
//! | S9 message numbers | the message number in an answer matches its PSN | `s9_message_numbers.rs` |
//! | S10 integrity | an outgoing packet has a correct ICRC exactly if the incoming one had | `s10_integrity.rs` |
//! | S11 conservation | at most n copies of a packet, and every loop ends | `s11_conservation.rs` |
//! | SL1 liveness | posted work requests complete if losses are finite | `sl1_liveness.rs` |
//! | SL2 no timeouts | on ordered links without losses, no timeout is needed | `sl2_no_timeouts.rs` |

use std::collections::BTreeMap;

use crate::report::{CounterExample, Counts, Report, Verdict};

mod plan;
mod s10_integrity;
mod s11_conservation;
mod s1_ack_soundness;
mod s2_order;
mod s3_windows;
mod s4_progress;
mod s5_offsets;
mod s6_one_holder;
mod s7_addresses;
mod s8_atomic_control;
mod s9_message_numbers;
mod sl1_liveness;
mod sl2_no_timeouts;

use plan::Stream;
pub use plan::{Linked, Posted, What};

/// Names of the properties, in order.
pub const PROPERTIES: [&str; 13] = ["S1", "S2", "S3", "S4", "S5", "S6", "S7", "S8", "S9", "S10", "S11", "SL1", "SL2"];

/// Maximum number of hosts in a set.
const MOST: usize = 32;

/// A copy of a packet that left for a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Rank of the receiver.
    pub to: u8,
    /// PSN of the copy in the receiver's connection.
    pub out_psn: u32,
    /// Rank of the sender.
    pub from: u8,
    /// PSN of the packet in the sender's connection.
    pub psn: u32,
    /// Address and key, if the packet has them.
    pub reth: Option<(u64, u32)>,
}

/// An answer that left for a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Rank of the sender.
    pub rank: u8,
    /// The last PSN that is acknowledged, either explicitly or because the next one is refused.
    pub up_to: u32,
    /// Message number.
    pub msn: u32,
}

/// The registers of a member of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MemberView {
    /// Next PSN for the receiver.
    pub out_psn: u32,
    /// Next PSN of the sender.
    pub in_psn: u32,
    /// Next message number for the receiver minus that of the sender, modulo 2^24.
    pub msn_offset: u32,
    /// The epoch for which the member was linked.
    pub version: u32,
}

/// The registers of a set after a pass.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Registers {
    /// `true` if messages of the holder are replicated.
    pub active: bool,
    /// Rank of the holder.
    pub holder: u8,
    /// The epoch.
    pub epoch: u32,
    /// PSN of the last control packet.
    pub control: u32,
    /// The members, as a bit mask of ranks.
    pub mask: u32,
    /// The last PSN that all members acknowledged.
    pub last: u32,
    /// The members' registers, indexed by rank.
    pub members: Vec<MemberView>,
}

/// The packets of each sender's stream that a receiver has executed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Receiver {
    first: u32,
    /// The sender's packet that each of the receiver's PSNs carried: rank of the sender, index in its stream.
    carried: Vec<(u8, u32)>,
    /// Number of executed packets.
    executed: u32,
    /// For each rank of a sender: the index in its stream up to which all packets for this receiver were executed.
    reached: Vec<u32>,
    /// The sender of a partially executed message.
    inside: Option<u8>,
}

/// A violation of a property.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Finding {
    /// The name of the property.
    pub property: &'static str,
    /// A description of the violation.
    pub summary: String,
}

/// A judge of one set. It is a value, so it can be part of a state in a state-space search.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SetWatch {
    streams: Vec<Stream>,
    receivers: Vec<Receiver>,
    registers: Option<Registers>,
    /// The last two epochs, each with its holder.
    holders: [(u32, u8); 2],
    findings: Vec<Finding>,
    executions: u64,
    posted: u64,
}

impl SetWatch {
    /// Creates a judge of a set. `firsts` contains for each host the first PSN that it sends, and the first that it
    /// expects.
    #[must_use]
    pub fn new(firsts: &[(u32, u32)]) -> SetWatch {
        let hosts = firsts.len().min(MOST);
        let receiver =
            |(_, first): &(u32, u32)| Receiver { first: *first, reached: vec![0; hosts], ..Receiver::default() };
        SetWatch {
            streams: firsts.iter().take(MOST).map(|(first, _)| Stream::new(*first)).collect(),
            receivers: firsts.iter().take(MOST).map(receiver).collect(),
            registers: None,
            holders: [(0, u8::MAX); 2],
            findings: Vec::new(),
            executions: 0,
            posted: 0,
        }
    }

    /// Returns the violations found so far: the first one of each violated property.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    fn look(&mut self, property: &'static str, verdict: impl FnOnce(&mut SetWatch) -> Result<(), String>) {
        let verdict = verdict(self);
        self.find(property, verdict);
    }

    fn find(&mut self, property: &'static str, verdict: Result<(), String>) {
        if let Err(summary) = verdict
            && !self.findings.iter().any(|finding| finding.property == property)
        {
            self.findings.push(Finding { property, summary });
        }
    }

    /// Records a work request that a sender posted.
    pub fn posted(&mut self, rank: u8, posted: &Posted) {
        self.posted += 1;
        if let Some(stream) = self.streams.get_mut(usize::from(rank)) {
            stream.post(posted);
        }
    }

    /// Judges a copy that left. [`registers`](Self::registers) must have been called with the registers of the same
    /// pass.
    pub fn copied(&mut self, copy: &Copied) {
        self.look("S3", |watch| s3_windows::copied(watch, copy));
        self.look("S6", |watch| s6_one_holder::copied(watch, copy));
        self.look("S7", |watch| s7_addresses::copied(watch, copy));
        self.look("S8", |watch| s8_atomic_control::copied(watch, copy));
        self.look("S2", |watch| s2_order::copied(watch, copy));
    }

    /// Judges the packets that a receiver has executed. It now expects the PSN `expects`, so it has executed all PSNs
    /// before that.
    pub fn executed(&mut self, rank: u8, expects: u32) {
        let Some(receiver) = self.receivers.get(usize::from(rank)) else { return };
        let now = expects.wrapping_sub(receiver.first) & 0xff_ffff;
        for place in receiver.executed..now {
            self.executions += 1;
            self.look("S2", |watch| s2_order::executed(watch, rank, place));
        }
        self.receivers[usize::from(rank)].executed = now;
    }

    /// Judges an answer that left for a sender.
    pub fn told(&mut self, told: &Told) {
        self.look("S1", |watch| s1_ack_soundness::told(watch, told));
        self.look("S9", |watch| s9_message_numbers::told(watch, told));
    }

    /// Judges the registers after a pass. `foreign_answer` is `true` if the pass processed an answer that must not
    /// count.
    pub fn registers(&mut self, registers: &Registers, foreign_answer: bool) {
        self.look("S3", |watch| s3_windows::registers(watch, registers));
        self.look("S4", |watch| s4_progress::registers(watch, registers, foreign_answer));
        self.look("S5", |watch| s5_offsets::registers(watch, registers));
        self.look("S6", |watch| s6_one_holder::registers(watch, registers));
        self.look("S8", |watch| s8_atomic_control::registers(watch, registers));
        self.registers = Some(registers.clone());
    }

    /// Forgets the registers, because the control plane recreated the set. The next registers are not compared with
    /// earlier ones.
    pub fn forget_registers(&mut self) {
        self.registers = None;
        self.holders = [(0, u8::MAX); 2];
    }

    /// Judges the ICRC of a packet that left. `came_intact` is `true` if the incoming packet had a correct ICRC, and
    /// `is_intact` if the outgoing packet has one.
    pub fn left(&mut self, came_intact: bool, is_intact: bool) {
        self.find("S10", s10_integrity::left(came_intact, is_intact));
    }

    /// Judges a packet that has passed the loop for the last time: by the number of its passes and of its copies, the
    /// number of members of the set or of the packet's list, and whether it was a control packet.
    pub fn looped(&mut self, passes: u32, copies: u32, members: u32, control: bool) {
        self.find("S11", s11_conservation::looped(passes, copies, members, control));
    }

    /// Judges the end of the run. `unfinished` describes work that is unfinished although losses were finite.
    /// `timeouts` is the number of timeouts. `disturbed` is `true` if any packet was lost, delayed or reordered.
    pub fn end(&mut self, unfinished: Option<String>, timeouts: u64, disturbed: bool) {
        self.find("SL1", sl1_liveness::end(unfinished));
        self.find("SL2", sl2_no_timeouts::end(timeouts, disturbed));
    }

    /// Returns the number of packets that receivers executed.
    #[must_use]
    pub fn executions(&self) -> u64 {
        self.executions
    }

    /// Returns the verdicts. SL1 and SL2 are not checked if the run did not end, nor is SL2 if the run was `disturbed`.
    #[must_use]
    pub fn report(&self, ended: bool, disturbed: bool) -> Report {
        let verdict = |property: &&'static str| {
            let found = self.findings.iter().find(|finding| finding.property == *property);
            let verdict = match found {
                Some(finding) => {
                    Verdict::Violated(CounterExample { summary: finding.summary.clone(), lines: Vec::new() })
                }
                None if ["SL1", "SL2"].contains(property) && !ended => Verdict::NotChecked("the run did not end"),
                None if *property == "SL2" && disturbed => {
                    Verdict::NotChecked("a packet was lost, delayed or reordered")
                }
                None => Verdict::Ok,
            };
            (*property, verdict)
        };
        let properties: BTreeMap<&'static str, Verdict> = PROPERTIES.iter().map(verdict).collect();
        let counts = Counts { messages: self.posted, deliveries: self.executions, ..Counts::default() };
        Report::new(properties, counts, ended)
    }

    /// Returns the index of a sender's PSN in its stream, and the packet there.
    fn planned(&self, rank: u8, psn: u32) -> Option<(u32, &plan::Packet)> {
        let stream = self.streams.get(usize::from(rank))?;
        let place = stream.place(psn);
        Some((place, stream.packet(place)?))
    }
}

#[cfg(test)]
mod tests;
