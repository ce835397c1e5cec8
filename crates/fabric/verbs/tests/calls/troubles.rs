//! Steps in which the device refuses calls or sends asynchronous events.

use stentor_fabric::{Access, QpConfig, Verb};
use stentor_fabric_verbs::{Trouble, VerbsFabric};

use super::calls::log::{say, step};
use super::calls::pair::{at, inline, span};
use super::calls::script::Script;
use super::{library, sys};

/// Makes a call of a process fail once.
fn fault(process: usize, call: &'static str, errno: i32) {
    library::with(|device| device.faults.push((process, call, errno)));
}

fn troubles(script: &mut Script<VerbsFabric>, process: usize) {
    while let Some(trouble) = script.pair.fabric(process).device_mut().next_trouble() {
        let what = match trouble {
            Trouble::PortDown { .. } => "port down",
            Trouble::PortUp { .. } => "port up",
            Trouble::DeviceLost { .. } => "device lost",
            Trouble::QueuePair { .. } => "queue pair",
            Trouble::NotRegistered { .. } => "not registered",
            Trouble::NotPosted { .. } => "not posted",
            Trouble::Work { .. } => "work",
            _ => "other",
        };
        say(process, format!("< trouble: {what}"));
    }
}

/// Runs the steps of this test that follow the steps for all fabrics.
pub(crate) fn run(script: &mut Script<VerbsFabric>) {
    (0..2).for_each(|process| troubles(script, process));
    unregistered(script);
    not_taken_back(script);
    not_posted(script);
    not_made(script);
    port(script);
    lost(script);
}

fn reconnect(script: &mut Script<VerbsFabric>) {
    step("connect again");
    let qps = script.qps;
    (0..2).for_each(|process| script.pair.reset(process, qps[process]));
    script.pair.events([1, 1]);
}

/// Service of the connections that this test opens in addition to those of the script.
const SERVICE: u16 = 20;

fn unregistered(script: &mut Script<VerbsFabric>) {
    step("memory that cannot be registered for a request");
    let remote = script.remotes[0].expect("the region was granted");
    let region = script.pair.register(0, SERVICE, 1, 256);
    let verb = Verb::Read { local: span(region, 0, 64), remote: at(remote, 0) };
    for id in 200..202 {
        fault(0, "reg_mr", libc::ENOMEM);
        script.pair.post(0, script.qps[0], id, verb);
    }
    script.pair.post(0, script.qps[0], 202, verb);
    script.pair.completions(0, 1);
    fault(0, "reg_mr", libc::EPERM);
    script.pair.grant(0, region, 1, Access::Write);
    troubles(script, 0);
}

fn not_taken_back(script: &mut Script<VerbsFabric>) {
    step("a key that is not taken back before queue pairs break");
    let old = script.remotes[0];
    fault(1, "dereg_mr", libc::EBUSY);
    script.pair.revoke(1, script.regions[1], 0);
    // The unreliable queue pair breaks, too.
    script.pair.events([2, 3]);
    step("a key that is not taken back after queue pairs break");
    script.pair.grant(1, script.regions[1], 0, Access::Atomic);
    script.remotes[0] = Some(script.pair.granted(0, 2, old));
    fault(1, "dereg_mr", libc::EBUSY);
    fault(1, "dereg_mr", libc::EBUSY);
    script.pair.revoke(1, script.regions[1], 0);
    (0..2).for_each(|process| troubles(script, process));
    reconnect(script);
}

fn not_posted(script: &mut Script<VerbsFabric>) {
    let (qps, remote) = (script.qps, script.remotes[0].expect("the region was granted"));
    for call in ["post_send", "post_recv"] {
        step(&format!("a device that refuses {call}"));
        script.pair.receive(0, qps[0], 210, span(script.regions[0], 0, 64));
        script.pair.post_silent(0, qps[0], 211, Verb::Write { source: inline(&[9; 8]), target: at(remote, 0) });
        fault(0, call, libc::ENOMEM);
        if call == "post_send" {
            script.pair.post(0, qps[0], 212, Verb::Write { source: inline(&[9; 8]), target: at(remote, 0) });
        } else {
            script.pair.receive(0, qps[0], 213, span(script.regions[0], 0, 64));
        }
        script.pair.completions(0, 2);
        script.pair.events([1, 1]);
        (0..2).for_each(|process| troubles(script, process));
        reconnect(script);
    }
}

fn not_made(script: &mut Script<VerbsFabric>) {
    step("queue pairs that cannot be made");
    let depths = QpConfig::reliable(4, 4);
    for errno in [libc::ENOMEM; 9] {
        fault(0, "create_qp", errno);
    }
    script.pair.connect(0, 1, SERVICE, depths);
    fault(0, "modify_qp", libc::EINVAL);
    script.pair.connect(0, 1, SERVICE, depths);
    library::with(|device| device.faults.clear());
    let qps = [script.pair.connect(0, 1, SERVICE, depths), script.pair.connect(1, 0, SERVICE, depths)];
    script.pair.events([1, 1]);
    step("a queue pair that the device breaks");
    library::with(|device| {
        let own = device.pairs.values().rev().find(|own| own.pd != 0).map(|own| own.raw as u64);
        device.event(1, sys::IBV_EVENT_QP_FATAL, own.expect("the queue pair exists"));
    });
    script.pair.events([1, 1]);
    (0..2).for_each(|process| troubles(script, process));
    say(0, format!("  q{} and q{}", qps[0].0, qps[1].0));
}

fn port(script: &mut Script<VerbsFabric>) {
    step("a port that goes down and up");
    for (event, down) in [(sys::IBV_EVENT_PORT_ERR, true), (sys::IBV_EVENT_PORT_ACTIVE, false)] {
        library::with(|device| {
            device.port_down = down;
            device.event(0, event, 1);
        });
        script.pair.events([0, 0]);
        troubles(script, 0);
    }
}

fn lost(script: &mut Script<VerbsFabric>) {
    step("a device that is lost");
    let qps = script.qps;
    script.pair.receive(0, qps[0], 220, span(script.regions[0], 0, 64));
    library::with(|device| device.event(0, sys::IBV_EVENT_DEVICE_FATAL, 0));
    // Process 0 loses the queue pair to the peer and the one to itself. The peer notices the loss of the former.
    script.pair.events([2, 1]);
    script.pair.completions(0, 1);
    troubles(script, 0);
    script.pair.reset(0, qps[0]);
}
