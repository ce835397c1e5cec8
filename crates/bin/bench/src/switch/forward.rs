//! Number of copies per second by the switch, beside a plain copier between the same sockets. The copier receives
//! packets by recvmmsg, sends them to each receiver by sendmmsg, and does nothing else. Only the time in which the
//! switch or the copier works counts, not that of the sender and the receivers. When that time begins, packets are
//! already waiting.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Instant;

use stentor_soft_switch::{Settings, SoftSwitch};
use stentor_support::Failure;
use stentor_switch::Cause;
use stentor_wire::Psn;

use super::packets::{self, FIRST};
use super::{FORWARD, address, failed, switch_addresses};
use crate::report::{Bound, Row};
use crate::samples::median;

const UDP_PORT: u16 = 4791;
/// Number of packets that wait for the switch or the copier when its time begins.
const WAITING: usize = 128;
/// Number of turns that the switch and the copier have in each round.
const TURNS: usize = 20;

struct Scene {
    switch: SoftSwitch,
    sender: UdpSocket,
    own: Ipv4Addr,
    receivers: Vec<(Ipv4Addr, UdpSocket)>,
    psn: Psn,
    payload: Vec<u8>,
}

impl Scene {
    fn new(receivers: u8, size: usize) -> Result<Scene, Failure> {
        let [forward, backward] = switch_addresses();
        let mut switch = SoftSwitch::open(&Settings::new("bench", forward, backward)).map_err(failed)?;
        let own = address(41, 1);
        let sender = UdpSocket::bind((own, packets::PORT)).map_err(failed)?;
        let socket = |rank| -> Result<(Ipv4Addr, UdpSocket), Failure> {
            let place = address(42, 1 + rank);
            let socket = UdpSocket::bind((place, UDP_PORT)).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            Ok((place, socket))
        };
        let receivers = (0..receivers).map(socket).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<_> = receivers.iter().map(|(place, _)| *place).collect();
        packets::create(switch.switch_mut(), own, &all)?;
        let mut scene = Scene { switch, sender, own, receivers, psn: Psn::new(FIRST), payload: vec![7; size] };
        let (link, outer) = packets::link(own, forward, scene.receivers.len() as u8);
        scene.sender.send_to(&link[outer..], (forward, UDP_PORT)).map_err(failed)?;
        scene.switch.round().map_err(failed)?;
        if scene.switch.switch().counters().of(Cause::Began) != 1 {
            return Err(failed("the session did not begin"));
        }
        Ok(scene)
    }

    /// Sends the packets that wait for the switch or the copier.
    fn fill(&mut self) -> Result<(), Failure> {
        let [forward, _] = switch_addresses();
        for _ in 0..WAITING {
            self.psn = self.psn.next();
            let (bytes, outer) = packets::write(self.own, forward, self.psn, &self.payload);
            self.sender.send_to(&bytes[outer..], (forward, UDP_PORT)).map_err(failed)?;
        }
        Ok(())
    }

    /// Receives the copies that have arrived. Returns their number.
    fn drain(&self) -> Result<u64, Failure> {
        let (mut count, mut room) = (0, [0; 4096]);
        for (_, socket) in &self.receivers {
            loop {
                match socket.recv(&mut room) {
                    Ok(_) => count += 1,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(failed(error)),
                }
            }
        }
        Ok(count)
    }

    /// Returns the time per copy of the switch, in seconds.
    fn switched(&mut self) -> Result<f64, Failure> {
        self.fill()?;
        let since = Instant::now();
        while self.switch.round().map_err(failed)? {}
        self.per_copy(since)
    }

    /// Returns the time per copy of the copier, in seconds.
    fn copied(&mut self) -> Result<f64, Failure> {
        self.fill()?;
        let since = Instant::now();
        let (inlets, outlets) = self.switch.sockets_mut();
        let ([inlet, _], [_, outlet]) = (inlets, outlets);
        loop {
            let count = inlet.fill().map_err(failed)?;
            if count == 0 {
                break;
            }
            let receivers = &self.receivers;
            let datagrams = (0..count).flat_map(|n| {
                let bytes = inlet.packet(n).get(28..).unwrap_or(&[]);
                receivers.iter().map(move |(place, _)| (*place, bytes))
            });
            outlet.send_plain(datagrams);
        }
        // The switch has not seen these packets, so its next packet must follow the last one that it saw.
        let time = self.per_copy(since)?;
        self.psn = self.psn.minus(WAITING as u32);
        Ok(time)
    }

    fn per_copy(&self, since: Instant) -> Result<f64, Failure> {
        let seconds = since.elapsed().as_secs_f64();
        let (copies, expected) = (self.drain()?, (WAITING * self.receivers.len()) as u64);
        if copies == expected {
            Ok(seconds / copies as f64)
        } else {
            Err(failed(format_args!("{copies} of {expected} copies arrived")))
        }
    }
}

/// Returns the row: copies per second of the switch, beside those of the copier.
pub(super) fn row(receivers: u8, size: usize, rounds: u32) -> Result<Row, Failure> {
    let mut scene = Scene::new(receivers, size)?;
    let (mut switched, mut copied) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            theirs.push(scene.copied()?);
            ours.push(scene.switched()?);
        }
        switched.push(median(ours));
        copied.push(median(theirs));
    }
    let ours: Vec<f64> = switched.iter().map(|seconds| 1.0 / seconds).collect();
    let theirs = 1.0 / median(copied);
    let bound = Bound::rate("copies by a plain recvmmsg/sendmmsg copier on the same sockets", theirs);
    let iterations = (TURNS * WAITING) as u64 * u64::from(rounds) * u64::from(receivers);
    Ok(Row { iterations, ..Row::rate(format!("{FORWARD}{receivers}"), size, bound, &ours) })
}
