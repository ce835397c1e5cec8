//! Processes of the suite that every fabric passes, all on one device.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::time::Duration;

use stentor_fabric_conformance::Processes;
use stentor_fabric_verbs::{NetConfig, VerbsConfig, VerbsFabric};

use crate::processes::{addresses, start};

/// So many processes, all up.
pub fn bed(count: usize, change: fn(&mut NetConfig, &mut VerbsConfig)) -> Processes<VerbsFabric> {
    let addresses = addresses(count);
    let processes = Processes::start(count, move |process| start(process, &addresses, change));
    // The kernel works while this process does not. A round takes the guest most of a millisecond, and packets come while they
    // are sent.
    Processes { pause: Duration::from_micros(20), settling: 50, ..processes }
}
