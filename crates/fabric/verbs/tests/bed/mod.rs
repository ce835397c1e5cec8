//! Processes for the conformance suite of all fabrics, all on one device.
#![allow(dead_code, unreachable_pub, reason = "each test uses only a part of this module")]

use std::time::Duration;

use stentor_fabric_conformance::Processes;
use stentor_fabric_verbs::{NetConfig, VerbsConfig, VerbsFabric};

use crate::processes::{addresses, start};

/// Starts `count` processes.
pub fn bed(count: usize, change: fn(&mut NetConfig, &mut VerbsConfig)) -> Processes<VerbsFabric> {
    let addresses = addresses(count);
    let processes = Processes::start(count, move |process| start(process, &addresses, change));
    // The kernel processes packets while this process pauses. A round takes almost a millisecond in the guest, and
    // packets arrive while the sender is still sending.
    Processes { pause: Duration::from_micros(20), settling: 50, ..processes }
}
