//! `ibv_rc_pingpong`: a SEND there, a SEND back.

use std::path::Path;
use std::time::{Duration, Instant};

use stentor_fabric::{Opcode, Span};

use super::{Meeting, Peer, PeerConfig, PeerError};
use crate::driver::Mode;
use crate::endpoint::{Data, Request, Work};

/// How long nothing may come.
const PATIENCE: Duration = Duration::from_secs(20);
/// Receives that are posted, as the stock example's.
const RECEIVES: u32 = 500;
/// How long the last acknowledgement is repeated for whoever asks.
const LINGER: Duration = Duration::from_millis(300);

/// What to do.
#[derive(Clone, Debug)]
pub struct Pingpong {
    /// Round trips.
    pub iterations: u32,
    /// Bytes of a message.
    pub bytes: u32,
    /// How to be a peer.
    pub peer: PeerConfig,
}

/// The outcome of a ping-pong.
#[derive(Clone, Debug)]
pub struct PingpongOutcome {
    /// From the first to the last message.
    pub time: Duration,
    /// How packets were taken in.
    pub mode: Mode,
    /// Counters that are not 0.
    pub counters: String,
    /// Packets that the injectors lost, repeated, reordered and damaged.
    pub injected: [u64; 4],
}

/// Plays it, as client (who sends first) or as server; which of the two `meet` says. That begins when everything on this side
/// is ready, so that what is wrong here is said at once.
///
/// # Errors
/// See [`PeerError`].
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
                // The server answers, the client begins anew; neither before its own message was acknowledged.
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

/// Takes away a capture in which nothing is, because nobody came: whoever tries again may name it again.
fn forget(capture: Option<&Path>) {
    if let Some(path) = capture.filter(|path| path.is_file()) {
        // If it stays, the next one is told so.
        let _ = std::fs::remove_file(path);
    }
}

struct Game {
    sent: u32,
    done: u32,
    received: u32,
    /// A message came that was not answered.
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
