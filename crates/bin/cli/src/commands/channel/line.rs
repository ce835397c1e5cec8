//! One connection, in a polling loop that also checks the clock and signals.

use std::time::{Duration, Instant};

use stentor::runtime::{FabricDiagnostics, WaitMode};
use stentor_channel::{ChannelError, Config, Endpoint, EndpointConfig, Handle, Notice, Scheme};
use stentor_fabric::{Backoff, ProcessId};
use stentor_support::live::{Interrupt, Refusals, Troubles, Waiting};
use stentor_support::{Failure, Output, TAGGED_PIECE_BYTES};

use super::words::{MESSAGE_BYTES, Words};

/// Number of turns between two calls that handle the fabric's events. They are also handled whenever there is nothing
/// else to do.
const HOUSEKEEP_TURNS: u32 = 64;
/// Longest sleep. It is short because data of a file does not wake a thread that waits for the fabric.
const LONGEST: Duration = Duration::from_millis(1);
/// Longest time in which a connection may close.
const FAREWELL: Duration = Duration::from_secs(2);
/// Longest time for which this side remains after the connection is closed, so that the other side learns that its last
/// message has arrived.
const LINGER: Duration = Duration::from_millis(100);
/// Longest piece of a message, in bytes.
const PIECE_BYTES: u32 = 64 << 10;
/// Description of the other process in messages.
const OTHER: &str = "the other side";

/// Returns the parameters of a connection on a fabric with or without tags.
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
    /// Time at which the two sides were connected.
    met: Instant,
    /// Time at which the transfer was complete and the connection began to close.
    parted: Instant,
}

impl<F: FabricDiagnostics> Line<F> {
    /// Opens one end of the connection. Later, the connection fails if it makes no progress for `patience`.
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

    /// Returns the scheme of the messages.
    pub(super) fn scheme(&self) -> &'static str {
        config(self.endpoint.fabric().capabilities().tagged).channel.scheme.name()
    }

    /// Returns the provider that carries the connection, if it is chosen at start.
    pub(super) fn carrier(&self) -> Option<String> {
        self.endpoint.fabric().carrier()
    }

    /// Returns the size of the registered or shared memory, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.endpoint.fabric().memory_bytes()
    }

    /// Handles events and messages. Returns whether there were any.
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

    /// Pauses after a round without work. Returns an error if the connection has failed, if it makes no progress, or
    /// after a signal.
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
        // Credits for messages that were read are sent in the next turn, and the other side may wait for them.
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

    /// Returns the time from the connection of the two sides to the end of the transfer.
    pub(super) fn time(&self) -> Duration {
        self.parted - self.met
    }

    fn nobody(&self, waited: Duration) -> Failure {
        let what = format!("the other side did not connect within {} s", waited.as_secs());
        let remedy =
            "start one side with --listen, and both with the same PLACE and --fabric (and --key); -w waits longer";
        Failure::run(what, &self.place, remedy)
    }

    fn stalled(&mut self) -> Failure {
        let what = format!("the transfer has made no progress for {} s", self.moved.elapsed().as_secs());
        self.give_up();
        Failure::run(
            what,
            &self.place,
            "look at the other side; -w waits longer; send it again, because nothing is resumed",
        )
    }

    /// Returns the failure of a connection, after the fabric has returned all memory that it used or [`FAREWELL`] has
    /// passed.
    fn lost(&mut self, error: &ChannelError) -> Failure {
        self.drain();
        let rest = if self.closed { "" } else { "; the fabric has not returned all memory" };
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

    /// Passes as much of a message to the channel as fits now. Returns whether that is all of it.
    pub(super) fn send(&mut self, message: &[u8]) -> bool {
        let begun = self.endpoint.left(self.handle).is_some();
        // The error of a closed connection is reported in the next round.
        if !begun && self.endpoint.begin(self.handle, message.len() as u64).is_err() {
            return false;
        }
        self.endpoint.hand_over(self.handle, message).expect("the message that was begun")
    }

    /// Returns the next message, if there is one.
    pub(super) fn receive(&mut self) -> Option<Vec<u8>> {
        self.endpoint.read(self.handle, &mut self.reading).then(|| std::mem::take(&mut self.reading))
    }

    /// Returns whether the other side has ended without a last message.
    pub(super) fn has_ended(&self) -> bool {
        self.failed.is_none() && self.endpoint.has_ended(self.handle)
    }

    /// Announces that nothing more will be sent.
    pub(super) fn finish(&mut self) {
        // This is refused only while a message is sent in part.
        let _ = self.endpoint.finish(self.handle);
    }

    /// Aborts the connection. Returns when the fabric has returned all memory, or after [`FAREWELL`].
    pub(super) fn give_up(&mut self) {
        self.endpoint.abort(self.handle);
        self.drain();
    }

    /// Sends the last message, and waits until the connection is closed, for at most [`FAREWELL`]. Errors do not matter
    /// any more.
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
                // Messages that still arrive are not read any more.
                let _ = self.endpoint.close(self.handle);
            }
            if self.failed.is_some() || self.pause(worked).is_err() {
                return;
            }
        }
        // The other side may not know yet that its last message has arrived.
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
