//! Waiting instead of polling.

use std::time::Duration;

use super::Testbed;
use super::bed::{A, B, Bed, Outcome, Stop, called, same};
use stentor_fabric::{Access, Fabric, Opcode, Status, Wake};

/// Passes time at A, and leaves B alone.
fn pass_while<T: Testbed>(
    bed: &mut Bed<T>,
    goes_on: impl Fn(&mut Bed<T>) -> bool,
    fault: impl FnOnce() -> String,
) -> Outcome {
    for _ in 0..=bed.patience() {
        if !goes_on(bed) {
            return Ok(());
        }
        bed.collect(A);
        bed.pass();
    }
    Err(Stop::Fail(fault()))
}

pub(super) fn woken_by_a_write<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    for n in 1..10_u64 {
        bed.settle();
        bed.at(B).arm();
        bed.collect(B);
        bed.write(A, link.a, n, (remote, 0), &[n])?;
        pass_while(bed, |bed| bed.word(B, region, 0) != n, || format!("write {n} is not visible"))?;
        let woken = called("wait", bed.at(B).wait(Duration::from_secs(2)))?;
        same("wait after a write landed", &woken, &Wake::Notified)?;
        bed.expect(A, link.a, n, (Opcode::Write, Status::Success))?;
    }
    Ok(())
}

/// Whoever looks only when something of the writer was heard misses nothing.
pub(super) fn quiet_only_when_nothing_landed<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    let (region, link, remote) = bed.linked(8, Access::Write, 16)?;
    for n in 1..50_u64 {
        bed.write(A, link.a, n, (remote, 0), &[n])?;
        pass_while(
            bed,
            |bed| !bed.at(B).poll_hint().is_from(A) || bed.word(B, region, 0) != n,
            || format!("write {n} landed, and its writer was not heard"),
        )?;
        bed.expect(A, link.a, n, (Opcode::Write, Status::Success))?;
    }
    Ok(())
}

pub(super) fn times_out<T: Testbed>(bed: &mut Bed<T>) -> Outcome {
    bed.link(16, 4)?;
    bed.settle();
    // A wake-up without a reason is allowed now and then, not always.
    for _ in 0..20 {
        bed.at(B).arm();
        bed.collect(B);
        if called("wait", bed.at(B).wait(Duration::from_millis(2)))? == Wake::TimedOut {
            return Ok(());
        }
    }
    Err(Stop::Fail("20 waits on an idle fabric were all notified".to_string()))
}
