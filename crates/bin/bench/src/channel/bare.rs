//! The bound on libfabric: tagged sends of the provider itself, without the fabric.

use std::collections::VecDeque;
use std::net::IpAddr;

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric_ofi::Bare;
use stentor_support::Failure;

use super::super::shared_area::{RESULTS, SharedArea};
use super::LARGE;
use super::line::{Line, WINDOW, window};
use super::talk::refused;

/// Word of a process's results that holds the phase and the length of its address. The address follows it.
const ADDRESS: usize = 3;
/// Distance between two message buffers, in bytes. It is not a multiple of a large power of two, because buffers at
/// such distances would compete for the same cache lines.
const PLACE_BYTES: usize = LARGE + 4096 + 64;

/// One end of the connection.
pub(super) struct Provider {
    /// The provider's endpoint. Its registered memory is a window of send buffers, followed by a window of receive
    /// buffers.
    bare: Bare,
    /// Buffers of posted receives in posting order, which is the order of the messages.
    posted: VecDeque<usize>,
    /// Stack of free buffers.
    free: Vec<usize>,
    /// Number of received messages whose buffers are free again.
    seen: u64,
    /// Number of messages that were consumed.
    taken: u64,
}

impl Provider {
    /// Opens this end and waits for the address of the other one.
    pub(super) fn new(provider: &str, ip: IpAddr, area: &SharedArea, me: usize, phase: u64) -> Result<Self, Failure> {
        let bare = Bare::open(provider, (ip, me), 2 * WINDOW as usize, PLACE_BYTES).map_err(refused)?;
        let free = (WINDOW as usize..2 * WINDOW as usize).rev().collect();
        let mut end = Provider { bare, posted: VecDeque::with_capacity(WINDOW as usize), free, seen: 0, taken: 0 };
        end.receive_ahead(0)?;
        publish(area.results(me), phase, &end.bare.address().map_err(refused)?)?;
        let theirs = loop {
            if let Some(theirs) = published(area.results(1 - me), phase) {
                break theirs;
            }
            std::thread::yield_now();
        };
        end.bare.know(&theirs).map_err(refused)?;
        Ok(end)
    }

    /// Frees the buffers of messages that have arrived, and posts receives for the next messages. Messages arrive in
    /// the order of the receives.
    #[inline]
    fn receive_ahead(&mut self, bytes: usize) -> Result<(), Failure> {
        let (received, _) = self.bare.counts();
        while self.seen < received {
            self.free.extend(self.posted.pop_front());
            self.seen += 1;
        }
        while (self.posted.len() as u64) < window(bytes)
            && let Some(place) = self.free.last().copied()
            && self.bare.receive(place, LARGE).map_err(refused)?
        {
            self.free.pop();
            self.posted.push_back(place);
        }
        Ok(())
    }

    /// Lets the provider make progress.
    #[inline]
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        self.bare.progress().map_err(|failure| Failure::run(failure, "bench channel", "run `stentor doctor`"))?;
        Ok(true)
    }
}

impl Line for Provider {
    #[inline]
    fn send(&mut self, bytes: usize, number: u64) -> Result<(), Failure> {
        while !self.bare.send((number % window(bytes)) as usize, bytes).map_err(refused)? {
            self.turn()?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, bytes: usize) -> Result<(), Failure> {
        self.receive_ahead(bytes)?;
        while self.bare.counts().0 == self.taken {
            self.turn()?;
        }
        self.taken += 1;
        Ok(())
    }
}

/// Publishes the address of this process.
fn publish(results: &[Word], phase: u64, address: &[u8]) -> Result<(), Failure> {
    if address.len() > (RESULTS - ADDRESS - 1) * WORD {
        let what = format!("an address of {} bytes", address.len());
        return Err(Failure::run(what, "bench channel", "report this as a bug"));
    }
    for (word, bytes) in results[ADDRESS + 1..].iter().zip(address.chunks(WORD)) {
        let mut value = [0; WORD];
        value[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_le_bytes(value), Ordering::Relaxed);
    }
    results[ADDRESS].store(phase << 16 | address.len() as u64, Ordering::Release);
    Ok(())
}

/// Returns the address that the other process has published in this phase, if it has.
fn published(results: &[Word], phase: u64) -> Option<Vec<u8>> {
    let said = results[ADDRESS].load(Ordering::Acquire);
    let mut address: Vec<u8> =
        results[ADDRESS + 1..].iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    address.truncate(said as usize & 0xffff);
    (said >> 16 == phase).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_published_only_in_its_phase() {
        let results: Vec<Word> = (0..RESULTS).map(|_| Word::new(0)).collect();
        let address: Vec<u8> = (1..30).collect();
        publish(&results, 7, &address).unwrap();
        assert_eq!((published(&results, 7), published(&results, 8)), (Some(address), None));
        assert!(publish(&results, 7, &[1; 97]).is_err());
    }
}
