//! Processors and their clock.

use std::fs;
use std::time::Instant;

use super::Finding;

pub(super) fn count() -> Finding {
    let what = "processors";
    match std::thread::available_parallelism() {
        Ok(n) if n.get() >= 2 => Finding::ok(what, format!("{n} for this process")),
        Ok(n) => Finding::limited(
            what,
            format!("{n} for this process: processes that wait for each other take turns on it"),
            "give the process two processors or more (taskset, container limits)",
        ),
        Err(error) => Finding::limited(what, format!("unknown: {error}"), "make /sys and /proc readable"),
    }
}

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Checks the clock. It is read for every latency, so reading it must not need a system call.
pub(super) fn clock() -> Finding {
    let what = "clock source";
    let cost = clock_read_ns();
    match fs::read_to_string(CLOCK_SOURCE).as_deref().map(str::trim) {
        // These sources are read in user space: x86-64 and its paravirtual forms, and aarch64.
        Ok(name @ ("tsc" | "kvm-clock" | "hyperv_clocksource_tsc_page" | "arch_sys_counter")) => {
            Finding::ok(what, format!("{name}, {cost} ns to read"))
        }
        Ok(name) => Finding::limited(
            what,
            format!("{name}, {cost} ns to read: latencies are measured too large"),
            "boot with clocksource=tsc if the processor's counter is stable",
        ),
        Err(error) => Finding::limited(
            what,
            format!("unknown ({error}), {cost} ns to read"),
            format!("make {CLOCK_SOURCE} readable"),
        ),
    }
}

fn clock_read_ns() -> u128 {
    const READS: u32 = 1000;
    let start = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(Instant::now());
    }
    start.elapsed().as_nanos() / u128::from(READS)
}
