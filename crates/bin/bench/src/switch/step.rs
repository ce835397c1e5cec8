//! The data plane alone: all passes of a packet, without sockets.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use stentor_support::Failure;
use stentor_switch::{Arrival, Cause, Config, Switch};
use stentor_wire::Psn;

use super::packets::{self, BACKWARD, FIRST, FORWARD, SENDER};
use super::{STEP, Times, failed};
use crate::report::{Bound, Row};

/// Number of passes in a sample. Samples are short, so that few are interrupted.
const PASSES: u32 = 1920;
/// Number of samples in a round.
const SAMPLES: u32 = 101;
const RECEIVERS: [u8; 4] = [1, 2, 8, 32];

/// A switch with a session of some receivers, and its next packet.
struct Scene {
    switch: Switch,
    bytes: Vec<u8>,
    psn: Psn,
    receivers: u8,
}

impl Scene {
    fn new(receivers: u8, size: usize) -> Result<Scene, Failure> {
        let mut switch = Switch::new(Config::new(FORWARD, BACKWARD), 4);
        let all: Vec<_> = (0..receivers).map(|rank| Ipv4Addr::new(10, 0, 1, 1 + rank)).collect();
        packets::create(&mut switch, SENDER, &all)?;
        let (link, _) = packets::link(SENDER, FORWARD, receivers);
        carry(&mut switch, &link);
        if switch.counters().of(Cause::Began) != 1 {
            return Err(failed("the session did not begin"));
        }
        let (bytes, _) = packets::write(SENDER, FORWARD, Psn::new(FIRST), &vec![7; size]);
        Ok(Scene { switch, bytes, psn: Psn::new(FIRST), receivers })
    }

    /// Returns the mean time that all passes of a packet take, in microseconds.
    fn sample(&mut self) -> f64 {
        let packets = PASSES / u32::from(self.receivers);
        let since = Instant::now();
        for _ in 0..packets {
            self.psn = self.psn.next();
            // The PSN in the base transport header. The ICRC of data is not checked here.
            self.bytes[37..40].copy_from_slice(&self.psn.to_bytes());
            carry(&mut self.switch, &self.bytes);
        }
        since.elapsed().as_secs_f64() * 1e6 / f64::from(packets)
    }
}

fn carry(switch: &mut Switch, bytes: &[u8]) {
    let mut bridge = None;
    loop {
        let departure = switch.step(&Arrival { bytes: black_box(bytes), bridge, now_ns: 1 });
        black_box(&departure.emission);
        bridge = departure.mirror;
        if bridge.is_none() {
            return;
        }
    }
}

/// Returns a row for each number of receivers. The bound for several receivers is a multiple of the time for one; the
/// row for one receiver has no bound.
pub(super) fn rows(size: usize, rounds: u32) -> Result<Vec<Row>, Failure> {
    let mut scenes = RECEIVERS.iter().map(|n| Scene::new(*n, size)).collect::<Result<Vec<_>, _>>()?;
    let mut times: Vec<Times> = scenes.iter().map(|_| Times::new()).collect();
    for _ in 0..rounds {
        let mut round = vec![Vec::new(); scenes.len()];
        // The scenes alternate, so that changes of the machine's speed affect all of them.
        for _ in 0..SAMPLES {
            for (scene, round) in scenes.iter_mut().zip(&mut round) {
                round.push(scene.sample());
            }
        }
        times.iter_mut().zip(&round).for_each(|(times, round)| times.round(round));
    }
    for scene in &scenes {
        let copies = scene.switch.counters().of(Cause::Copied);
        let packets = u64::from(rounds * SAMPLES) * u64::from(PASSES / u32::from(scene.receivers));
        if copies != packets * u64::from(scene.receivers) {
            return Err(failed(format_args!("{copies} copies of {packets} packets for {}", scene.receivers)));
        }
    }
    let one = times[0].typical();
    let row = |n: usize| {
        let (receivers, found) = (f64::from(RECEIVERS[n]), &times[n].0);
        let name = format!("{STEP}{}", RECEIVERS[n]);
        if n == 0 {
            return Row::alone(name, size, rounds).with_samples(found);
        }
        let what = format!("{receivers} times a packet to one receiver");
        Row::latency(name, size, rounds, Bound::us(what, receivers * one), found)
    };
    Ok((0..RECEIVERS.len()).map(row).collect())
}
