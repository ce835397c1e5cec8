//! Time from the post to the last of 32 receivers, through the switch and by 32 consecutive WRITEs. The receivers are
//! queue pairs of one host, so that polling all of them costs one system call.

use std::time::{Duration, Instant};

use stentor_fabric_roce::driver::{Mode, Port, Pump};

use stentor_soft_switch::{Settings, SoftSwitch};
use stentor_support::Failure;
use stentor_switch::Switch;
use stentor_wire::Psn;

use super::ends::{Ends, hosts};
use super::{LAST_OF, Running, Times, address, failed, in_time, switch_addresses};
use crate::report::{Bound, Row};

const N: usize = 32;
const GID: u16 = 2;

/// A host and its sockets.
struct Side {
    ends: Ends,
    pump: Pump,
}

impl Side {
    fn open(last: u8, pairs: usize) -> Result<Side, Failure> {
        let place = address(43, last);
        let port = Port::open(place.into(), Mode::Plain, last.into()).map_err(failed)?;
        Ok(Side { ends: Ends::new(place, pairs)?, pump: Pump::new(port) })
    }

    fn connect(&mut self, n: usize, to: std::net::Ipv4Addr, other: (u32, Psn)) -> Result<(), Failure> {
        let port = self.pump.port().envelope(to.into()).map_err(failed)?.source_port;
        self.ends.connect(n, port, to, other)
    }

    #[inline]
    fn drive(&mut self) -> Result<(), Failure> {
        self.pump.send(&mut self.ends.endpoint);
        self.pump.receive(&mut self.ends.endpoint).map_err(failed)?;
        Ok(())
    }
}

struct Scene {
    sender: Side,
    receiver: Side,
    _switch: Running,
    tag: u64,
    payload: Vec<u8>,
}

impl Scene {
    fn new(size: usize) -> Result<Scene, Failure> {
        let [forward, backward] = switch_addresses();
        let (mut sender, mut receiver) = (Side::open(1, 1 + N)?, Side::open(2, 2 * N)?);
        let mut switch = SoftSwitch::open(&Settings::new("bench", forward, backward)).map_err(failed)?;
        let (from, to) = (sender.ends.address, receiver.ends.address);
        let hosts = hosts(&sender.ends, &receiver.ends, N);
        switch.switch_mut().create(GID, Duration::from_secs(3600), &hosts).map_err(failed)?;
        sender.connect(0, forward, (Switch::vrqpn(GID, 0), Psn::new(0)))?;
        for k in 0..N {
            receiver.connect(k, backward, (Switch::vsqpn(GID, k as u8), Psn::new(7)))?;
            let (there, here) = (receiver.ends.pairs[N + k], sender.ends.pairs[1 + k]);
            sender.connect(1 + k, to, (there.number, there.psn))?;
            receiver.connect(N + k, from, (here.number, here.psn))?;
        }
        let payload = vec![0; size.max(8).next_multiple_of(8)];
        let mut scene = Scene { sender, receiver, _switch: Running::start(switch)?, tag: 0, payload };
        scene.sender.ends.link(&scene.receiver.ends, N)?;
        scene.complete(1)?;
        Ok(scene)
    }

    /// Drives both sides until `count` requests have completed.
    fn complete(&mut self, mut count: usize) -> Result<(), Failure> {
        let since = Instant::now();
        while count > 0 {
            self.sender.drive()?;
            self.receiver.drive()?;
            while let Some(done) = self.sender.ends.endpoint.poll() {
                if done.status != stentor_fabric::Status::Success {
                    return Err(failed(format_args!("a request ended with {:?}", done.status)));
                }
                count -= 1;
            }
            in_time(since, "nothing is acknowledged")?;
        }
        Ok(())
    }

    /// Returns the time until the last receiver has the message, in microseconds.
    fn once(&mut self, switched: bool) -> Result<f64, Failure> {
        self.tag += 1;
        let end = self.payload.len() - 8;
        self.payload[end..].copy_from_slice(&self.tag.to_le_bytes());
        let since = Instant::now();
        let count = self.sender.ends.post(&self.receiver.ends, N, switched, self.tag, &self.payload)?;
        let (words, mut next) = (self.payload.len() / 8, 0);
        while next < N {
            self.sender.drive()?;
            self.receiver.drive()?;
            while next < N && self.receiver.ends.last(next, words) == self.tag {
                next += 1;
            }
            in_time(since, format_args!("receiver {next} does not get it"))?;
        }
        let time = since.elapsed().as_secs_f64() * 1e6;
        self.complete(count)?;
        Ok(time)
    }
}

pub(super) fn row(size: usize, rounds: u32, iterations: u64) -> Result<Row, Failure> {
    let mut scene = Scene::new(size)?;
    let each = (iterations / u64::from(rounds)).max(10);
    let (mut unicast, mut switched) = (Times::new(), Times::new());
    for _ in 0..rounds {
        for (times, by_switch) in [(&mut unicast, false), (&mut switched, true)] {
            (0..each / 10).try_for_each(|_| scene.once(by_switch).map(|_| ()))?;
            times.round(&(0..each).map(|_| scene.once(by_switch)).collect::<Result<Vec<_>, _>>()?);
        }
    }
    let what = format!("{N} WRITEs one after the other, to the last receiver");
    let bound = Bound::us(what, unicast.typical());
    Ok(Row::latency(LAST_OF, size, rounds, bound, &switched.0))
}
