//! Tests that a correct run violates no property, and that small changes to it violate the expected ones.

use super::*;

const FIRST: u32 = 0xff_fffe;

fn linked(rank: u8) -> Linked {
    Linked { rank, base: 0x1000 * u64::from(rank), rkey: u32::from(rank) }
}

fn registers(last: u32, sent: u32) -> Registers {
    let member = |rank: u32| MemberView {
        out_psn: if rank == 0 { 50 } else { 50 + sent },
        in_psn: (FIRST + 1 + sent) & 0xff_ffff,
        msn_offset: 0xff_ffff,
        version: if rank == 0 { 0 } else { 1 },
    };
    let members = (0..3).map(member).collect();
    Registers { active: true, holder: 0, epoch: 1, control: FIRST, mask: 0b110, last, members }
}

fn copy(to: u8) -> Copied {
    Copied { to, out_psn: 50, from: 0, psn: FIRST + 1, reth: Some((0x1000 * u64::from(to) + 8, u32::from(to))) }
}

/// Returns a run in which rank 0 links ranks 1 and 2 and writes one message of two packets. The first packet is copied
/// to both ranks, and rank 1 has executed it.
fn begun() -> SetWatch {
    let mut watch = SetWatch::new(&[(FIRST, 50); 3]);
    watch.posted(0, &Posted { packets: 1, what: What::Link(vec![linked(1), linked(2)]) });
    watch.posted(0, &Posted { packets: 2, what: What::Message(Some(8)) });
    watch.registers(&registers(FIRST, 0), false);
    watch.told(&Told { rank: 0, up_to: FIRST, msn: 1 });
    watch.registers(&registers(FIRST, 1), false);
    watch.copied(&copy(1));
    watch.copied(&copy(2));
    watch.executed(1, 51);
    watch.left(true, true);
    watch.looped(2, 2, 2, false);
    watch
}

fn broken(change: impl FnOnce(&mut SetWatch)) -> Vec<&'static str> {
    let mut watch = begun();
    assert_eq!(watch.findings(), []);
    change(&mut watch);
    watch.findings().iter().map(|finding| finding.property).collect()
}

#[test]
fn a_correct_run_has_no_findings() {
    let found = broken(|watch| {
        watch.executed(2, 51);
        watch.told(&Told { rank: 0, up_to: FIRST + 1, msn: 1 });
        watch.registers(&registers(FIRST + 1, 1), false);
        watch.copied(&copy(2));
        watch.left(false, false);
        watch.looped(3, 0, 2, false);
        watch.end(None, 0, false);
        watch.end(None, 5, true);
        assert!(watch.report(true, false).ok());
    });
    assert_eq!(found, [""; 0]);
}

#[test]
fn the_smallest_changes_break_one_property_each() {
    let told = |up_to: u32, msn| move |watch: &mut SetWatch| watch.told(&Told { rank: 0, up_to, msn });
    assert_eq!(broken(told(FIRST + 1, 1)), ["S1"], "rank 2 does not have it");
    assert_eq!(broken(told(FIRST + 7, 1)), ["S1"], "never posted");
    assert_eq!(broken(told(FIRST, 2)), ["S9"]);
    assert_eq!(broken(|watch| watch.executed(1, 52)), ["S2"], "never sent");
    assert_eq!(broken(|watch| watch.copied(&Copied { psn: FIRST + 2, reth: None, ..copy(1) })), ["S2"]);
    assert_eq!(broken(|watch| watch.copied(&Copied { out_psn: 52, ..copy(1) })), ["S3"]);
    assert_eq!(broken(|watch| watch.copied(&Copied { reth: Some((0x1009, 1)), ..copy(1) })), ["S7"]);
    assert_eq!(broken(|watch| watch.registers(&registers(FIRST - 1, 1), false)), ["S4"]);
    assert_eq!(broken(|watch| watch.registers(&registers(FIRST + 1, 1), true)), ["S4"], "by a foreign answer");
    assert_eq!(broken(|watch| watch.left(true, false)), ["S10"]);
    assert_eq!(broken(|watch| watch.left(false, true)), ["S10"]);
    assert_eq!(broken(|watch| watch.looped(4, 2, 2, false)), ["S11"]);
    assert_eq!(broken(|watch| watch.looped(2, 3, 2, false)), ["S11"]);
    assert_eq!(broken(|watch| watch.end(Some("stuck".to_owned()), 0, true)), ["SL1"]);
    assert_eq!(broken(|watch| watch.end(None, 1, false)), ["SL2"]);
}

#[test]
fn reason_why_liveness_is_not_checked_is_that_of_the_run() {
    let reasons = |ended, disturbed| {
        let report = begun().report(ended, disturbed);
        ["SL1", "SL2"].map(|name| match &report.properties[name] {
            Verdict::NotChecked(why) => *why,
            _ => "",
        })
    };
    let (running, disturbed) = ("the run did not end", "a packet was lost, delayed or reordered");
    assert_eq!(reasons(true, false), ["", ""]);
    assert_eq!(reasons(true, true), ["", disturbed]);
    assert_eq!(reasons(false, false), [running, running]);
    assert_eq!(reasons(false, true), [running, running]);
}

#[test]
fn wrong_registers_are_found() {
    let with = |change: fn(&mut Registers)| {
        broken(|watch| {
            let mut now = registers(FIRST, 1);
            change(&mut now);
            watch.registers(&now, false);
        })
    };
    assert_eq!(with(|now| now.members[1].out_psn = 50), ["S3", "S5"], "rank 1 has executed one");
    assert_eq!(with(|now| now.members[2].in_psn = 7), ["S5"]);
    assert_eq!(with(|now| now.members[2].msn_offset = 7), ["S5"]);
    assert_eq!(with(|now| now.holder = 1), ["S6"]);
    assert_eq!(with(|now| now.epoch = 2), ["S8"], "members are of the old version");
}

#[test]
fn wrong_order_at_a_receiver_is_found() {
    // The receiver executes the second packet before the first.
    let mut watch = SetWatch::new(&[(FIRST, 50); 2]);
    watch.posted(0, &Posted { packets: 1, what: What::Link(vec![linked(1)]) });
    watch.posted(0, &Posted { packets: 2, what: What::Message(None) });
    watch.copied(&Copied { to: 1, out_psn: 50, from: 0, psn: FIRST + 2, reth: None });
    watch.executed(1, 51);
    assert_eq!(watch.findings()[0].property, "S2");
    // The receiver executes a packet of another sender inside a message.
    let mut watch = SetWatch::new(&[(FIRST, 50); 2]);
    watch.posted(0, &Posted { packets: 1, what: What::Link(vec![linked(1)]) });
    watch.posted(0, &Posted { packets: 2, what: What::Message(None) });
    watch.posted(1, &Posted { packets: 1, what: What::Link(vec![linked(1)]) });
    watch.posted(1, &Posted { packets: 1, what: What::Message(None) });
    watch.copied(&Copied { to: 1, out_psn: 50, from: 0, psn: FIRST + 1, reth: None });
    watch.copied(&Copied { to: 1, out_psn: 51, from: 1, psn: FIRST + 1, reth: None });
    watch.executed(1, 52);
    assert_eq!(watch.findings()[0].property, "S2");
    // A copy from a sender that does not hold the set, and a copy to a rank that is not a receiver of the packet.
    let mut watch = begun();
    watch.posted(1, &Posted { packets: 1, what: What::Link(vec![linked(2)]) });
    watch.posted(1, &Posted { packets: 1, what: What::Message(None) });
    watch.copied(&Copied { to: 2, out_psn: 51, from: 1, psn: FIRST + 1, reth: None });
    assert_eq!(watch.findings()[0].property, "S6");
    let mut watch = begun();
    watch.copied(&Copied { to: 0, reth: None, ..copy(1) });
    assert_eq!(watch.findings()[0].property, "S8");
}
