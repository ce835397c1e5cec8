//! One connection, in a polling loop that also looks at the clock and at signals.

use std::time::{Duration, Instant};

use stentor::runtime::{FabricDiagnostics, WaitMode};
use stentor_channel::{ChannelError, Config, Endpoint, EndpointConfig, Handle, Notice, Scheme};
use stentor_fabric::{Backoff, ProcessId};
use stentor_support::live::{Interrupt, Refusals, Troubles, Waiting};
use stentor_support::{Failure, Output, TAGGED_PIECE_BYTES};

use super::words::{MESSAGE_BYTES, Words};

/// The fabric is asked for events once in so many turns, and whenever there is nothing else to do.
const HOUSEKEEP_TURNS: u32 = 64;
/// The longest sleep: files are not among what wakes the fabric.
const LONGEST: Duration = Duration::from_millis(1);
/// How long the end of a connection may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long what was said last may be on its way, if nobody says that it has arrived.
const LINGER: Duration = Duration::from_millis(100);
/// Longest pieces of a message, bytes.
const PIECE_BYTES: u32 = 64 << 10;
/// The other process, as a person calls it.
const OTHER: &str = "the other side";

/// What a connection of this command is like on a fabric with tags, or without.
pub(super) fn config(tagged: bool) -> EndpointConfig {
    let (scheme, piece_bytes) =
        if tagged { (Scheme::Eager, TAGGED_PIECE_BYTES) } else { (Scheme::Counted, PIECE_BYTES) };
    let channel = Config { message_bytes: MESSAGE_BYTES as u64, piece_bytes, lengths: 8, ..Config::with(scheme) };
    EndpointConfig { connections: 1, ..EndpointConfig::new(channel) }
}

/// The connection between the two sides.
pub(super) struct Line<F: FabricDiagnostics> {
    endpoint: Endpoint<F>,
    handle: Handle,
    place: String,
    backoff: Backoff,
    turns: u32,
    interrupt: Interrupt,
    output: Output,
    reading: Vec<u8>,
    opened: bool,
    failed: Option<ChannelError>,
    closed: bool,
    refusals: Refusals,
    troubles: Troubles,
    patience: Option<Duration>,
    moved: Instant,
    /// When the two met, and when there was nothing more to say but farewell.
    met: Instant,
    parted: Instant,
}

impl<F: FabricDiagnostics> Line<F> {
    /// Opens one end. `patience`: how long nothing may move before that is an error.
    pub(super) fn new(
        fabric: F,
        place: &str,
        patience: Option<Duration>,
        interrupt: Interrupt,
        output: Output,
    ) -> Result<Self, Failure> {
        let peer = ProcessId(1 - fabric.me().0);
        let failed = |error: &(dyn std::error::Error + 'static)| Failure::refused(error, place, "report this as a bug");
        let config = config(fabric.capabilities().tagged);
        let mut endpoint = Endpoint::new(fabric, config, &[peer]).map_err(|error| failed(&error))?;
        let handle = endpoint.open(peer, 0).map_err(|error| failed(&error))?;
        Ok(Line {
            endpoint,
            handle,
            place: place.to_owned(),
            backoff: Backoff::new(WaitMode::ADAPTIVE),
            turns: 0,
            interrupt,
            output,
            reading: Vec::new(),
            opened: false,
            failed: None,
            closed: false,
            refusals: Refusals::default(),
            troubles: Troubles::default(),
            patience,
            moved: Instant::now(),
            met: Instant::now(),
            parted: Instant::now(),
        })
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// The scheme by which messages go.
    pub(super) fn scheme(&self) -> &'static str {
        config(self.endpoint.fabric().capabilities().tagged).channel.scheme.name()
    }

    /// What really carries it, where that is chosen at start.
    pub(super) fn carrier(&self) -> Option<String> {
        self.endpoint.fabric().carrier()
    }

    /// Bytes that are registered or shared.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.endpoint.fabric().memory_bytes()
    }

    /// Takes in what happened. Whether anything did.
    pub(super) fn turn(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let mut worked = self.endpoint.step();
        if !worked || self.turns.is_multiple_of(HOUSEKEEP_TURNS) {
            worked |= self.endpoint.housekeep();
            let output = self.output;
            self.refusals.take(self.endpoint.fabric_mut(), |_| OTHER.to_owned(), |text| output.note(text));
            self.troubles.report(self.endpoint.fabric_mut(), |text| output.note(text));
        }
        while let Some((_, notice)) = self.endpoint.next_notice() {
            worked = true;
            match notice {
                Notice::Opened => self.opened = true,
                Notice::Written(_) => {}
                Notice::Failed(error) => self.failed = Some(error),
                Notice::Closed => self.closed = true,
            }
        }
        if worked {
            self.moved = Instant::now();
        }
        worked
    }

    /// Waits a little after a round without work; fails when the connection has, when nothing moves, or on a signal.
    pub(super) fn rest(&mut self, worked: bool) -> Result<(), Failure> {
        if let Some(error) = self.failed {
            return Err(self.lost(&error));
        }
        if !worked {
            self.interrupt.check()?;
            if self.patience.is_some_and(|patience| self.moved.elapsed() > patience) {
                return Err(self.stalled());
            }
        }
        self.pause(worked)
    }

    fn pause(&mut self, worked: bool) -> Result<(), Failure> {
        // What was read is given back in the next turn: the other side may wait for that.
        let worked = worked || self.endpoint.is_due();
        let paused = self.backoff.pause(self.endpoint.fabric_mut(), worked, LONGEST);
        paused.map(|_| ()).map_err(|error| Failure::run(error, &self.place, "report this as a bug"))
    }

    /// Waits for the other side.
    pub(super) fn meet(&mut self, patience: Option<Duration>) -> Result<(), Failure> {
        let (since, mut waiting) = (Instant::now(), Waiting::default());
        while !self.opened {
            let worked = self.turn();
            let whom = || vec![format!("{OTHER} at {}", self.place)];
            waiting.look(Instant::now(), whom).iter().for_each(|text| self.output.note(text));
            if let Some(error) = self.failed {
                return Err(self.lost(&error));
            }
            self.interrupt.check()?;
            if let Some(failure) = self.refusals.final_word(1, |_| true, &self.place) {
                return Err(failure);
            }
            if patience.is_some_and(|patience| since.elapsed() > patience) {
                return Err(self.nobody(since.elapsed()));
            }
            self.pause(worked)?;
        }
        self.met = Instant::now();
        Ok(())
    }

    /// How long they talked.
    pub(super) fn time(&self) -> Duration {
        self.parted - self.met
    }

    fn nobody(&self, waited: Duration) -> Failure {
        let what = format!("the other side was not there for {} s", waited.as_secs());
        let remedy = "one side needs --listen, and both the same PLACE and --fabric (and --key); -w waits longer";
        Failure::run(what, &self.place, remedy)
    }

    fn stalled(&mut self) -> Failure {
        let what = format!("nothing has moved for {} s", self.moved.elapsed().as_secs());
        self.give_up();
        Failure::run(what, &self.place, "look at the other side; -w waits longer, and nothing is resumed")
    }

    /// The connection failed: everything that was lent to the fabric comes back before that is told.
    fn lost(&mut self, error: &ChannelError) -> Failure {
        self.drain();
        let rest = if self.closed { "" } else { "; the fabric has not given everything back" };
        Failure::run(format!("{error}{rest}"), &self.place, "start both sides again; nothing is resumed")
    }

    fn drain(&mut self) {
        let since = Instant::now();
        while !self.closed && since.elapsed() < FAREWELL {
            let worked = self.turn();
            if self.pause(worked).is_err() {
                return;
            }
        }
    }

    /// Hands over as much of a message as goes now. Whether all of it is.
    pub(super) fn send(&mut self, message: &[u8]) -> bool {
        let begun = self.endpoint.left(self.handle).is_some();
        // One that is closed says why in the next round.
        if !begun && self.endpoint.begin(self.handle, message.len() as u64).is_err() {
            return false;
        }
        self.endpoint.hand_over(self.handle, message).expect("the message that was begun")
    }

    /// The next message, if it is there.
    pub(super) fn receive(&mut self) -> Option<Vec<u8>> {
        self.endpoint.read(self.handle, &mut self.reading).then(|| std::mem::take(&mut self.reading))
    }

    /// Whether the other side has ended before it said so.
    pub(super) fn has_ended(&self) -> bool {
        self.failed.is_none() && self.endpoint.has_ended(self.handle)
    }

    /// Nothing more will be sent.
    pub(super) fn finish(&mut self) {
        // It is refused only while a message is handed over in part.
        let _ = self.endpoint.finish(self.handle);
    }

    /// The connection is given up; returns when everything is given back.
    pub(super) fn give_up(&mut self) {
        self.endpoint.abort(self.handle);
        self.drain();
    }

    /// Says the last words, and waits until the connection is over; what goes wrong then changes nothing any more.
    pub(super) fn part(&mut self, last: Option<&Words>) {
        let (message, since) = (last.map(Words::message), Instant::now());
        self.parted = since;
        let mut to_say = message.as_deref();
        while !self.closed && since.elapsed() < FAREWELL {
            let mut worked = self.turn();
            if to_say.is_some_and(|message| self.send(message)) {
                to_say = None;
                worked = true;
            }
            if to_say.is_none() {
                // What still comes is not read any more.
                let _ = self.endpoint.close(self.handle);
            }
            if self.failed.is_some() || self.pause(worked).is_err() {
                return;
            }
        }
        // The other side may not have heard yet that its last words have come.
        let closed = Instant::now();
        while closed.elapsed() < LINGER && self.endpoint.fabric().sees(ProcessId(1 - self.endpoint.fabric().me().0)) {
            let worked = self.turn();
            if self.pause(worked).is_err() {
                return;
            }
        }
        for trouble in self.endpoint.fabric_mut().last_troubles() {
            self.output.note(&trouble);
        }
    }
}
