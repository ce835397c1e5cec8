//! A change of the members of a set by one control packet, beside new queue pairs for all hosts through the control
//! plane. Both are measured from their beginning to the first copy of the next message.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_soft_switch::{Attached, AttachedConfig, Heard, Member, Settings, SoftSwitch};
use stentor_support::Failure;
use stentor_support::live::random_key;
use stentor_switch::control::{Link, Operation};

use super::{MEMBERS, Running, Times, address, failed, in_time, switch_addresses};
use crate::report::{Bound, Row};
use crate::samples::median;

const HOSTS: u8 = 16;
const PORT: u16 = 7388;
const NUMBER: u16 = 1;
/// Pause, slightly longer than the shortest time between two generations of a set in the control plane.
const REST: Duration = Duration::from_millis(110);
/// Number of control packets in a round.
const CONTROLS: usize = 200;
/// Number of times in a round that all queue pairs are created again.
const ANEW: usize = 5;

struct Scene {
    members: Vec<Member>,
    _switch: Running,
    tag: u64,
    /// State of the generator that chooses the linked members.
    draw: u64,
}

impl Scene {
    fn new() -> Result<Scene, Failure> {
        let both @ [forward, backward] = switch_addresses();
        let settings = Settings::new("bench", forward, backward);
        let (control, key) = (SocketAddr::from((forward, PORT)), random_key().map_err(failed)?);
        let mut switch = SoftSwitch::open(&settings).map_err(failed)?;
        switch.listen(&settings, control, key.as_bytes()).map_err(failed)?;
        let member = |rank: u8| {
            let config = AttachedConfig::new(address(44, 1 + rank), rank, 0, both);
            let host = Attached::open(config).map_err(failed)?;
            Member::dial(host, (NUMBER, HOSTS), "bench", key.as_bytes(), control).map_err(failed)
        };
        let members = (0..HOSTS).map(member).collect::<Result<Vec<_>, Failure>>()?;
        let mut scene = Scene { members, _switch: Running::start(switch)?, tag: 0, draw: 1 };
        scene.until("the lines", |scene| scene.members.iter().all(Member::is_ready))?;
        scene.join()?;
        Ok(scene)
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Scene) -> bool) -> Result<(), Failure> {
        let since = Instant::now();
        while !holds(self) {
            for member in &mut self.members {
                member.hear().map_err(failed)?;
            }
            in_time(since, format_args!("not reached in time: {what}"))?;
        }
        Ok(())
    }

    /// Makes all members join, and waits for their generation.
    fn join(&mut self) -> Result<(), Failure> {
        for member in &mut self.members {
            member.join().map_err(failed)?;
        }
        let (since, mut ready) = (Instant::now(), 0);
        while ready < self.members.len() {
            for member in &mut self.members {
                match member.hear().map_err(failed)? {
                    Some(Heard::Ready(_)) => ready += 1,
                    Some(Heard::Refused(why)) => return Err(failed(why)),
                    // `hear` drops messages for former lives of the member. All members have just joined with their
                    // present lives, so no renewal is expected. If one came, the time limit below would report it.
                    Some(Heard::Renew) | None => {}
                }
            }
            in_time(since, "there is no generation")?;
        }
        Ok(())
    }

    /// Chooses half of the hosts, at random.
    fn half(&mut self) -> Vec<usize> {
        let mut ranks: Vec<usize> = (1..self.members.len()).collect();
        while ranks.len() > usize::from(HOSTS) / 2 {
            self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ranks.remove((self.draw >> 33) as usize % ranks.len());
        }
        ranks
    }

    /// Posts a control packet and then a message. Returns when the first of the linked members has the message.
    fn link_and_write(&mut self) -> Result<(), Failure> {
        let ranks = self.half();
        let links: Vec<Link> = ranks.iter().map(|rank| self.members[*rank].host.link(0)).collect();
        self.tag += 1;
        let (first, rest) = self.members.split_first_mut().ok_or_else(|| failed("nobody"))?;
        let (sender, seen) = (&mut first.host, &mut rest[ranks[0] - 1].host);
        let since = Instant::now();
        sender.control(Operation::Link, &links, self.tag).map_err(failed)?;
        loop {
            sender.drive().map_err(failed)?;
            if let Some((done, _)) = sender.poll() {
                if done.status != stentor_fabric::Status::Success {
                    return Err(failed(format_args!("the control packet ended with {:?}", done.status)));
                }
                break;
            }
            in_time(since, "the control packet is not acknowledged")?;
        }
        let data = self.tag.to_le_bytes();
        let request = Request::Write { data: Data::Inline(&data), remote: Remote { va: 0, rkey: 1 }, imm: None };
        sender.post(&Work::signalled(self.tag, request)).map_err(failed)?;
        while seen.bytes(0, 8) != data {
            sender.drive().map_err(failed)?;
            seen.drive().map_err(failed)?;
            in_time(since, "no copy arrives")?;
        }
        Ok(())
    }

    /// Drives all members until the message is acknowledged.
    fn rest(&mut self) -> Result<(), Failure> {
        let since = Instant::now();
        loop {
            for member in &mut self.members {
                member.host.drive().map_err(failed)?;
            }
            match self.members[0].host.poll() {
                Some((done, _)) if done.status == stentor_fabric::Status::Success => return Ok(()),
                Some((done, _)) => return Err(failed(format_args!("the message ended with {:?}", done.status))),
                None => in_time(since, "the message is not acknowledged")?,
            }
        }
    }

    fn by_control(&mut self) -> Result<f64, Failure> {
        let since = Instant::now();
        self.link_and_write()?;
        let time = since.elapsed().as_secs_f64() * 1e6;
        self.rest()?;
        Ok(time)
    }

    fn anew(&mut self) -> Result<f64, Failure> {
        std::thread::sleep(REST);
        let since = Instant::now();
        for member in &mut self.members {
            member.host.begin_anew().map_err(failed)?;
        }
        self.join()?;
        self.link_and_write()?;
        let time = since.elapsed().as_secs_f64() * 1e6;
        self.rest()?;
        Ok(time)
    }
}

pub(super) fn row(rounds: u32) -> Result<Row, Failure> {
    let mut scene = Scene::new()?;
    let (mut times, mut anew) = (Times::new(), Vec::new());
    for _ in 0..rounds {
        for _ in 0..ANEW {
            anew.push(scene.anew()?);
        }
        times.round(&(0..CONTROLS).map(|_| scene.by_control()).collect::<Result<Vec<_>, _>>()?);
    }
    let what = format!("the queue pairs of all {HOSTS} hosts made anew through the control plane, then the same");
    Ok(Row::latency(MEMBERS, 8, rounds, Bound::us(what, median(anew)), &times.0))
}
