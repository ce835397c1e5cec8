//! Multicast by a switch: what happens at its ports and registers is told step by step, and judged at once.
//!
//! There are no histories in files: what matters are packets, and captures are for those. One property per file:
//!
//! | property | in words | file |
//! |---|---|---|
//! | S1 ack soundness | what is acknowledged to a sender, or implied by a refusal, was executed by every member it was for | `s1_ack_soundness.rs` |
//! | S2 order | every receiver executes the senders' streams in order, once, messages never interleaved | `s2_order.rs` |
//! | S3 windows | the switch never claims less to have sent to a receiver than that has executed, and numbers are dense | `s3_windows.rs` |
//! | S4 progress | the aggregate never goes back in an epoch; foreign answers change nothing | `s4_progress.rs` |
//! | S5 offsets | a member's offset is constant between control packets | `s5_offsets.rs` |
//! | S6 one holder | at most one holder per epoch; nobody else's data is replicated | `s6_one_holder.rs` |
//! | S7 addresses | address and key are those of the control packet before it in the sender's order | `s7_addresses.rs` |
//! | S8 atomic control | nothing is replicated with mixed versions, or to others than were linked | `s8_atomic_control.rs` |
//! | S9 message numbers | the message number told to a sender fits the PSN told | `s9_message_numbers.rs` |
//! | S10 integrity | a packet that leaves has a right ICRC exactly if the one that came in had | `s10_integrity.rs` |
//! | S11 conservation | at most n copies of a packet, and every loop ends | `s11_conservation.rs` |
//! | SL1 liveness | what senders posted completes when losses are finite | `sl1_liveness.rs` |
//! | SL2 no timeouts | without losses, on links in order, no timeout is needed | `sl2_no_timeouts.rs` |

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

/// Hosts of a set at most.
const MOST: usize = 32;

/// A copy that left for a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Rank of the receiver.
    pub to: u8,
    /// PSN for the receiver.
    pub out_psn: u32,
    /// Rank of the sender.
    pub from: u8,
    /// PSN of the sender.
    pub psn: u32,
    /// Address and key, if the packet has some.
    pub reth: Option<(u64, u32)>,
}

/// An answer that left for a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Told {
    /// Its rank.
    pub rank: u8,
    /// The last PSN that is acknowledged, explicitly or by a refusal of the next.
    pub up_to: u32,
    /// Message number.
    pub msn: u32,
}

/// The registers of a member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MemberView {
    /// Next PSN for the receiver.
    pub out_psn: u32,
    /// Next PSN of the sender.
    pub in_psn: u32,
    /// Next message number for the receiver, less that of the sender; 24 bits.
    pub msn_offset: u32,
    /// Epoch that it was linked for.
    pub version: u32,
}

/// The registers of a set, after a pass.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Registers {
    /// Whether messages of the holder go through.
    pub active: bool,
    /// Rank of the holder.
    pub holder: u8,
    /// Epoch.
    pub epoch: u32,
    /// PSN of the last control packet.
    pub control: u32,
    /// Members, as a mask of ranks.
    pub mask: u32,
    /// What all members acknowledged.
    pub last: u32,
    /// By rank, of the hosts that there are.
    pub members: Vec<MemberView>,
}

/// What a receiver has executed of each sender's stream.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Receiver {
    first: u32,
    /// Which sender's packet each of its PSNs carried.
    carried: Vec<(u8, u32)>,
    /// Packets executed.
    executed: u32,
    /// By rank of the sender: places in its stream up to which everything for this receiver was executed.
    reached: Vec<u32>,
    /// The sender whose message is not complete.
    inside: Option<u8>,
}

/// A property that does not hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Finding {
    /// Its name.
    pub property: &'static str,
    /// What happened.
    pub summary: String,
}

/// A judge of one set. As a value it can be part of the state of a search.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SetWatch {
    streams: Vec<Stream>,
    receivers: Vec<Receiver>,
    registers: Option<Registers>,
    /// Epochs and their holders, the last two.
    holders: [(u32, u8); 2],
    findings: Vec<Finding>,
    executions: u64,
    posted: u64,
}

impl SetWatch {
    /// A set of hosts, given the first PSN that each sends and the first that each expects.
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

    /// What was found so far.
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

    /// A sender posted something.
    pub fn posted(&mut self, rank: u8, posted: &Posted) {
        self.posted += 1;
        if let Some(stream) = self.streams.get_mut(usize::from(rank)) {
            stream.post(posted);
        }
    }

    /// A copy left. Tell of the registers first.
    pub fn copied(&mut self, copy: &Copied) {
        self.look("S3", |watch| s3_windows::copied(watch, copy));
        self.look("S6", |watch| s6_one_holder::copied(watch, copy));
        self.look("S7", |watch| s7_addresses::copied(watch, copy));
        self.look("S8", |watch| s8_atomic_control::copied(watch, copy));
        self.look("S2", |watch| s2_order::copied(watch, copy));
    }

    /// A receiver expects this PSN now: everything before it was executed.
    pub fn executed(&mut self, rank: u8, expects: u32) {
        let Some(receiver) = self.receivers.get(usize::from(rank)) else { return };
        let now = expects.wrapping_sub(receiver.first) & 0xff_ffff;
        for place in receiver.executed..now {
            self.executions += 1;
            self.look("S2", |watch| s2_order::executed(watch, rank, place));
        }
        self.receivers[usize::from(rank)].executed = now;
    }

    /// An answer left for a sender.
    pub fn told(&mut self, told: &Told) {
        self.look("S1", |watch| s1_ack_soundness::told(watch, told));
        self.look("S9", |watch| s9_message_numbers::told(watch, told));
    }

    /// What the registers are after a pass; whether that pass was an answer that must not count.
    pub fn registers(&mut self, registers: &Registers, foreign_answer: bool) {
        self.look("S3", |watch| s3_windows::registers(watch, registers));
        self.look("S4", |watch| s4_progress::registers(watch, registers, foreign_answer));
        self.look("S5", |watch| s5_offsets::registers(watch, registers));
        self.look("S6", |watch| s6_one_holder::registers(watch, registers));
        self.look("S8", |watch| s8_atomic_control::registers(watch, registers));
        self.registers = Some(registers.clone());
    }

    /// The control plane created the set anew: nothing is compared with what was before.
    pub fn forget_registers(&mut self) {
        self.registers = None;
        self.holders = [(0, u8::MAX); 2];
    }

    /// A packet left: whether its ICRC is right, and whether that of the packet that came in was.
    pub fn left(&mut self, came_intact: bool, is_intact: bool) {
        self.find("S10", s10_integrity::left(came_intact, is_intact));
    }

    /// A packet has gone through the loop for the last time: passes and copies, members of the set or of its list, and
    /// whether it was a control packet.
    pub fn looped(&mut self, passes: u32, copies: u32, members: u32, control: bool) {
        self.find("S11", s11_conservation::looped(passes, copies, members, control));
    }

    /// The end: what is missing though losses were finite; how often somebody waited for a timeout, and whether anything was
    /// lost, delayed or out of order.
    pub fn end(&mut self, unfinished: Option<String>, timeouts: u64, disturbed: bool) {
        self.find("SL1", sl1_liveness::end(unfinished));
        self.find("SL2", sl2_no_timeouts::end(timeouts, disturbed));
    }

    /// Packets executed by receivers.
    #[must_use]
    pub fn executions(&self) -> u64 {
        self.executions
    }

    /// The verdicts. Without an end to the run there is none on SL1 and SL2.
    #[must_use]
    pub fn report(&self, ended: bool, disturbed: bool) -> Report {
        let verdict = |property: &&'static str| {
            let found = self.findings.iter().find(|finding| finding.property == *property);
            let verdict = match found {
                Some(finding) => {
                    Verdict::Violated(CounterExample { summary: finding.summary.clone(), lines: Vec::new() })
                }
                None if *property == "SL1" && !ended => Verdict::NotChecked("the run was not led to its end"),
                None if *property == "SL2" && (!ended || disturbed) => {
                    Verdict::NotChecked("something was lost or out of order")
                }
                None => Verdict::Ok,
            };
            (*property, verdict)
        };
        let properties: BTreeMap<&'static str, Verdict> = PROPERTIES.iter().map(verdict).collect();
        let counts = Counts { messages: self.posted, deliveries: self.executions, ..Counts::default() };
        Report::new(properties, counts, ended)
    }

    /// The place of a sender's PSN in its stream, and what is there.
    fn planned(&self, rank: u8, psn: u32) -> Option<(u32, &plan::Packet)> {
        let stream = self.streams.get(usize::from(rank))?;
        let place = stream.place(psn);
        Some((place, stream.packet(place)?))
    }
}

#[cfg(test)]
mod tests;
