//! One end of a channel on its fabric, without the type erasure of [`Channel`](super::Channel).

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use stentor_channel::{ChannelError as Failure, Endpoint, EndpointConfig, Handle, Notice, WriteError};
use stentor_fabric::{Idle, ProcessId, WaitMode};

use super::Received;
use super::error::Problem;
use crate::pace::Pace;
use crate::runtime::{FabricDiagnostics, ForeignPeers};

/// Time for which a closed end stays connected, so that the other end can read the close.
const LINGER: Duration = Duration::from_millis(100);
/// Time for which refusals must last before they are final, because one of the two ends may be restarting.
const SETTLED: Duration = Duration::from_secs(1);

/// The progress of a message that is being sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    New,
    /// The message with this number was begun. A part of it may remain to be sent.
    Begun(u64),
    Done,
}

/// The action that follows a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The round did some work. Run another round.
    Worked,
    /// The round found no work. Run another round soon.
    Spin,
    /// Sleep on the descriptor, for at most this time.
    Sleep(Duration),
}

/// One end of a channel.
///
/// # Invariants
/// - `written ≤ begun`. `begun` counts the messages that are handed to the fabric, or whose rest the endpoint hands
///   over by itself. `written` counts those that the fabric has carried.
/// - `reading` contains the received parts of one message. They are kept when a call ends early.
pub(super) struct Core<F: FabricDiagnostics> {
    endpoint: Endpoint<F>,
    handle: Handle,
    peer: ProcessId,
    names: [String; 2],
    pace: Pace,
    begun: u64,
    written: u64,
    reading: Vec<u8>,
    /// `true` if the other end's hello has arrived.
    is_open: bool,
    /// `true` if, in addition, this end's hello is certain to arrive.
    has_met: bool,
    is_finished: bool,
    failure: Option<Failure>,
    /// Time at which the connection ended.
    over: Option<Instant>,
    /// The other end, while it refuses this one for a reason that waiting does not resolve.
    foreign: ForeignPeers,
    /// The last refusal of any kind.
    heard: Option<String>,
}

impl<F: FabricDiagnostics> Core<F> {
    /// Opens this end. `names` are the names of the two processes.
    pub(super) fn new(
        fabric: F,
        config: EndpointConfig,
        names: [String; 2],
        wait: WaitMode,
    ) -> Result<Core<F>, Problem> {
        let peer = ProcessId(1 - fabric.me().0);
        fabric.carrier().iter().for_each(|line| log::info!("{}: {line}", names[fabric.me().index()]));
        let mut endpoint = Endpoint::new(fabric, config, &[peer]).map_err(Problem::Endpoint)?;
        let handle = endpoint.open(peer, 0).map_err(Problem::Open)?;
        Ok(Core {
            endpoint,
            handle,
            peer,
            names,
            pace: Pace::new(wait),
            begun: 0,
            written: 0,
            reading: Vec::new(),
            is_open: false,
            has_met: false,
            is_finished: false,
            failure: None,
            over: None,
            foreign: ForeignPeers::default(),
            heard: None,
        })
    }

    // ------------------------------------------------------------------------------------------------------- turning

    /// Processes pending events. Returns whether there were any.
    #[inline]
    pub(super) fn round(&mut self) -> bool {
        self.pace.begin_round();
        let mut worked = self.endpoint.step();
        if !worked || self.pace.is_rare() {
            worked |= self.endpoint.housekeep();
            if !self.is_open {
                self.hear_refusals();
            }
        }
        while let Some((_, notice)) = self.endpoint.next_notice() {
            worked = true;
            match notice {
                Notice::Opened => self.is_open = true,
                Notice::Written(number) => self.written = number + 1,
                Notice::Failed(failure) => self.failure = Some(failure),
                Notice::Closed => self.over = Some(Instant::now()),
            }
        }
        self.pace.note(worked);
        worked
    }

    #[cold]
    fn hear_refusals(&mut self) {
        let Core { endpoint, names, foreign, heard, .. } = self;
        let fabric = endpoint.fabric_mut();
        let own = &names[fabric.me().index()];
        while let Some(trouble) = fabric.next_trouble() {
            log::warn!("{own}: {trouble}");
        }
        while let Some(refusal) = fabric.next_refusal() {
            let told = refusal.tell(|process| names.get(process.index()).map_or("?", String::as_str).to_owned());
            log::warn!("{own}: {told}");
            foreign.note(&refusal, &told, Instant::now());
            *heard = Some(told);
        }
        foreign.update(fabric);
    }

    /// Runs rounds until the next action is decided. Arms the fabric before it returns `Sleep`.
    #[inline]
    pub(super) fn step(&mut self) -> Step {
        loop {
            let worked = self.round() || self.endpoint.is_due();
            match self.pace.after(worked) {
                Idle::Poll => return if worked { Step::Worked } else { Step::Spin },
                Idle::Arm => self.endpoint.fabric_mut().arm(),
                Idle::Sleep => return Step::Sleep(self.longest_sleep()),
            }
        }
    }

    fn longest_sleep(&self) -> Duration {
        let longest = Pace::longest_sleep(self.descriptor().is_some());
        self.over.map_or(longest, |over| longest.min(LINGER.saturating_sub(over.elapsed())))
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.fabric().descriptor()
    }

    /// Makes the fabric process the events that made its descriptor readable, after a sleep on it.
    pub(super) fn woken(&mut self) -> Result<(), Problem> {
        self.endpoint.fabric_mut().wait(Duration::ZERO).map(|_| ()).map_err(Problem::Wait)
    }

    /// Repeats `attempt` until it succeeds, and sleeps between attempts. Returns `None` if `until` passes before an
    /// attempt succeeds.
    pub(super) fn block<T>(
        &mut self,
        until: Option<Instant>,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<T>, Problem>,
    ) -> Result<Option<T>, Problem> {
        loop {
            if let Some(value) = attempt(self)? {
                return Ok(Some(value));
            }
            match self.step() {
                Step::Worked if !self.pace.is_rare() => {}
                Step::Worked | Step::Spin => {
                    if until.is_some_and(|until| Instant::now() >= until) {
                        return attempt(self);
                    }
                }
                Step::Sleep(longest) => {
                    let left = until.map_or(longest, |until| until.saturating_duration_since(Instant::now()));
                    self.endpoint.fabric_mut().wait(longest.min(left)).map_err(Problem::Wait)?;
                    if left.is_zero() {
                        return attempt(self);
                    }
                }
            }
        }
    }

    // --------------------------------------------------------------------------------------------------------- calls

    /// Returns `Some` once each end knows that the other one is open and compatible.
    pub(super) fn opened(&mut self) -> Result<Option<()>, Problem> {
        if self.has_met {
            return Ok(Some(()));
        }
        if self.is_open && self.failure.is_none() {
            // It may take long until the caller drives this end again, and the other end must be able to open without
            // that.
            self.has_met |= self.over.is_some() || self.endpoint.has_met(self.handle);
            return Ok(self.has_met.then_some(()));
        }
        if self.foreign.age(Instant::now()).is_some_and(|age| age >= SETTLED)
            && let Some(why) = self.foreign.verdict(1, |_| true)
        {
            return Err(Problem::NotLetIn(why));
        }
        self.failure.map_or(Ok(None), |failure| Err(Problem::Failed(failure)))
    }

    /// Returns why the other end was not open in time.
    pub(super) fn absent(&mut self, waited: Duration) -> Problem {
        match self.heard.take() {
            Some(why) => Problem::Unmet { waited, why },
            None => Problem::Absent(waited),
        }
    }

    /// Begins or continues to send a message. Returns whether all of it is handed over.
    #[inline]
    pub(super) fn push(&mut self, message: &[u8], progress: &mut Progress) -> Result<bool, Problem> {
        if let Some(failure) = self.failure {
            return Err(Problem::Failed(failure));
        }
        let number = match *progress {
            Progress::Begun(number) => number,
            Progress::Done => return Ok(true),
            Progress::New => match self.endpoint.begin(self.handle, message.len() as u64) {
                Ok(number) => number,
                Err(WriteError::Busy { .. }) if self.endpoint.is_detached(self.handle) => return Ok(false),
                Err(error) => return Err(refused(error)),
            },
        };
        *progress = Progress::Begun(number);
        let is_whole = self.endpoint.hand_over(self.handle, message).map_err(refused)?;
        // It may take long until the caller drives this end again.
        self.endpoint.fabric_mut().flush();
        if is_whole {
            *progress = Progress::Done;
            self.begun = number + 1;
        }
        Ok(is_whole)
    }

    /// Stops sending a message. If a part of it has left, the endpoint sends the rest from a copy. Returns whether the
    /// message is sent.
    pub(super) fn let_go(&mut self, message: &[u8], progress: &mut Progress) -> bool {
        if let Progress::Begun(number) = std::mem::replace(progress, Progress::Done) {
            // This cannot fail, because the message is the one that was begun.
            let is_sent = self.endpoint.detach(self.handle, message) == Ok(true);
            if is_sent {
                self.begun = number + 1;
            }
            return is_sent;
        }
        false
    }

    /// Sends a message if there is room for it or for its beginning. Returns whether it is sent.
    #[inline]
    pub(super) fn try_send(&mut self, message: &[u8]) -> Result<bool, Problem> {
        let mut progress = Progress::New;
        Ok(self.push(message, &mut progress)? || self.let_go(message, &mut progress))
    }

    /// Receives the next message if it has arrived completely, and replaces the content of `message`.
    #[inline]
    pub(super) fn read(&mut self, message: &mut Vec<u8>) -> Result<Received, Problem> {
        if self.endpoint.read(self.handle, &mut self.reading) {
            std::mem::swap(&mut self.reading, message);
            self.reading.clear();
            return Ok(Received::Message);
        }
        if let Some(failure) = self.failure {
            return Err(Problem::Failed(failure));
        }
        Ok(if self.endpoint.has_ended(self.handle) { Received::End } else { Received::Nothing })
    }

    /// Returns the number of messages that are handed over, or whose rest the endpoint hands over by itself.
    pub(super) fn sent(&self) -> u64 {
        self.begun
    }

    /// Returns `Some` once the fabric has carried all sent messages.
    pub(super) fn flushed(&self) -> Result<Option<()>, Problem> {
        match self.failure {
            Some(failure) => Err(Problem::Failed(failure)),
            None => Ok((self.written >= self.begun).then_some(())),
        }
    }

    /// Ends sending.
    pub(super) fn finish(&mut self) -> Result<(), Problem> {
        if self.is_finished {
            return Ok(());
        }
        match self.endpoint.finish(self.handle) {
            Ok(()) | Err(WriteError::Closed) => {
                self.endpoint.fabric_mut().flush();
                self.is_finished = true;
                Ok(())
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// Ends sending and receiving. Returns `Some` once the connection has ended and the other end has had the time to
    /// read the close.
    pub(super) fn close(&mut self) -> Result<Option<()>, Problem> {
        match (self.over, self.failure) {
            (Some(_), Some(failure)) => return Err(Problem::Failed(failure)),
            (Some(over), None) => {
                let is_heard = over.elapsed() >= LINGER || !self.endpoint.fabric().sees(self.peer);
                return Ok(is_heard.then_some(()));
            }
            (None, Some(_)) => return Ok(None),
            (None, None) => {}
        }
        self.finish()?;
        match self.endpoint.close(self.handle) {
            Ok(()) | Err(WriteError::Closed) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Aborts the connection, and notifies the other end as far as that is possible without waiting.
    pub(super) fn give_up(&mut self) {
        if self.over.is_none() {
            self.endpoint.abort(self.handle);
            self.round();
            self.endpoint.fabric_mut().flush();
        }
    }
}

fn refused(error: WriteError) -> Problem {
    match error {
        WriteError::TooLong { bytes, limit } => Problem::TooLong { bytes, limit },
        WriteError::Closed => Problem::Finished,
        WriteError::Busy { .. } | WriteError::OtherLength { .. } | WriteError::OutOfRegion { .. } => Problem::Leaked,
    }
}
