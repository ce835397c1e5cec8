//! This crate's endpoint on plain UDP sockets.

use std::sync::atomic::Ordering;

use stentor_fabric::{Access, RegionId, Span, Status};
use stentor_fabric_roce::driver::Mode;
use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_fabric_roce::peer::{DOMAIN, Destination, Peer, PeerConfig};

use crate::{Outcome, Side};

pub(crate) struct Ours {
    peer: Peer,
    memory: RegionId,
    key: u32,
    there: u32,
}

impl Ours {
    pub(crate) fn open(address: &str, bytes: u64) -> Outcome<Ours> {
        let mut config = PeerConfig::new(address.parse()?);
        (config.mtu, config.window, config.mode) = (4096, 48, Some(Mode::Plain));
        let mut peer = Peer::open(config, 128)?;
        let memory = peer.endpoint.memory_mut().register(bytes as usize / 8, 0);
        let key = peer.endpoint.memory_mut().grant(memory, DOMAIN, Access::Write, 1).ok_or("no key")?;
        Ok(Ours { peer, memory, key, there: 0 })
    }
}

impl Side for Ours {
    fn here(&self) -> String {
        let own = self.peer.destination();
        format!("{} {} {} {}", own.number, own.psn, own.address, self.key)
    }

    fn connect(&mut self, there: &str) -> Outcome<()> {
        let [number, psn, address, key] = there.split(' ').collect::<Vec<_>>()[..] else { return Err(there.into()) };
        let other = Destination { lid: 0, number: number.parse()?, psn: psn.parse()?, address: address.parse()? };
        self.there = key.parse()?;
        Ok(self.peer.connect(&other)?)
    }

    fn write(&mut self, from: u64, to: u64, bytes: u32, signalled: bool) -> Outcome<()> {
        let word = self.load(from).to_ne_bytes();
        let data = match bytes {
            8 => Data::Inline(&word),
            _ => Data::Region(Span { region: self.memory, offset: from, bytes }),
        };
        let request = Request::Write { data, remote: Remote { va: to, rkey: self.there }, imm: None };
        self.peer.endpoint.post_send(self.peer.qp, &Work { id: 0, request, signalled, solicited: false })?;
        self.peer.pump.send(&mut self.peer.endpoint);
        Ok(())
    }

    fn poll(&mut self) -> Outcome<u64> {
        self.peer.drive()?;
        let mut done = 0;
        while let Some(completion) = self.peer.endpoint.poll() {
            if completion.status != Status::Success {
                return Err(format!("{:?}; {}", completion.status, self.peer.counters()).into());
            }
            done += 1;
        }
        Ok(done)
    }

    /// Polls, because no other thread receives packets.
    fn rest(&mut self) -> Outcome<()> {
        if !self.peer.drive()? {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn load(&self, at: u64) -> u64 {
        self.peer.endpoint.memory().words(self.memory)[at as usize / 8].load(Ordering::Acquire)
    }

    fn store(&self, at: u64, value: u64) {
        self.peer.endpoint.memory().words(self.memory)[at as usize / 8].store(value, Ordering::Relaxed);
    }
}
