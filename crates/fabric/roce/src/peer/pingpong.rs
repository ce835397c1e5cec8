//! A ping-pong of SENDs that is compatible with `ibv_rc_pingpong`.

use std::path::Path;
use std::time::{Duration, Instant};

use stentor_fabric::{Opcode, Span};

use super::{Meeting, Peer, PeerConfig, PeerError};
use crate::driver::Mode;
use crate::endpoint::{Data, Request, Work};

/// Maximum time to wait for a completion.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of posted receives; the same as in the stock example.
const RECEIVES: u32 = 500;
/// Time for which this side continues to answer at the end, because the other side may not have received the last
/// acknowledgement.
const LINGER: Duration = Duration::from_millis(300);

/// Parameters of a ping-pong.
#[derive(Clone, Debug)]
pub struct Pingpong {
    /// Number of round trips.
    pub iterations: u32,
    /// Length of a message, in bytes.
    pub bytes: u32,
    /// Configuration of the peer.
    pub peer: PeerConfig,
}

/// The outcome of a ping-pong.
#[derive(Clone, Debug)]
pub struct PingpongOutcome {
    /// Time from the first to the last message.
    pub time: Duration,
    /// The kind of receiving socket.
    pub mode: Mode,
    /// Counters that are not 0.
    pub counters: String,
    /// Numbers of packets that the injectors lost, duplicated, reordered and corrupted.
    pub injected: [u64; 4],
}

/// Runs the ping-pong as client, which sends first, or as server. `meet` connects to the other side or accepts its
/// connection. It is called only once this side is ready, so that local errors are reported at once. `told` gets the
/// parameters of this side and of the other one.
///
/// # Errors
/// Returns a [`PeerError`].
pub fn pingpong(
    what: &Pingpong,
    client: bool,
    meet: impl FnOnce() -> Result<Meeting, PeerError>,
    told: impl FnOnce(&super::Destination, &super::Destination),
) -> Result<PingpongOutcome, PeerError> {
    let mut peer = Peer::open(what.peer.clone(), RECEIVES + 1)?;
    let words = (what.bytes as usize).div_ceil(64).max(1) * 8;
    let inbox = peer.endpoint.memory_mut().register(words, 0);
    let outbox = peer.endpoint.memory_mut().register(words, 0);
    let (inbox, outbox) =
        (Span { region: inbox, offset: 0, bytes: what.bytes }, Span { region: outbox, offset: 0, bytes: what.bytes });
    for id in 0..RECEIVES {
        peer.endpoint.post_receive(peer.qp, inbox, id.into())?;
    }
    let own = peer.destination();
    let mut meeting = meet().inspect_err(|_| forget(what.peer.pcap.as_deref()))?;
    let other = meeting.exchange(&own, |other| peer.connect(other))?;
    told(&own, &other);
    let begin = Instant::now();
    let mut game = Game { sent: 0, done: 0, received: 0, outstanding: false };
    if client {
        game.send(&mut peer, outbox)?;
    }
    while game.received < what.iterations || game.done < what.iterations {
        let completion = peer.completion(PATIENCE)?;
        match completion.opcode {
            Opcode::Recv => {
                game.received += 1;
                peer.endpoint.post_receive(peer.qp, inbox, completion.id)?;
                // The server answers, and the client starts the next round trip. Both wait until their last message is
                // acknowledged.
                game.outstanding = true;
            }
            _ => game.done += 1,
        }
        if game.outstanding && game.done == game.sent && game.sent < what.iterations {
            game.send(&mut peer, outbox)?;
        }
    }
    let time = begin.elapsed();
    peer.linger(LINGER)?;
    if let Some(pcap) = peer.pump.pcap_mut() {
        let path = what.peer.pcap.clone().unwrap_or_default();
        pcap.finish().map_err(|source| PeerError::Capture { path, source })?;
    }
    Ok(PingpongOutcome { time, mode: peer.mode, counters: peer.counters(), injected: peer.pump.injected() })
}

/// Removes an empty capture after a failed connection, so that the next attempt can use its name again.
fn forget(capture: Option<&Path>) {
    if let Some(path) = capture.filter(|path| path.is_file()) {
        // An error is ignored here, because the next attempt reports that the file exists.
        let _ = std::fs::remove_file(path);
    }
}

struct Game {
    sent: u32,
    done: u32,
    received: u32,
    /// `true` if a message has arrived that is not answered yet.
    outstanding: bool,
}

impl Game {
    fn send(&mut self, peer: &mut Peer, outbox: Span) -> Result<(), PeerError> {
        let request = Request::Send { data: Data::Region(outbox), imm: None };
        peer.endpoint.post_send(peer.qp, &Work::signalled(self.sent.into(), request))?;
        self.sent += 1;
        self.outstanding = false;
        Ok(())
    }
}
