//! The state machine, which a user replicates.

use std::fmt;
use std::io::{self, Read, Write};

use stentor_multicast::GroupId;

use crate::notes::Notes;
pub(crate) use crate::reply::Reply;
use crate::timers::SharedTimers;
use crate::{Group, Position};

/// A replicated value, which changes by commands alone.
///
/// All members of a group apply the same commands in the same order, so their values are equal as long as `apply` depends on nothing but
/// the value, the context and the command. It must not look at a clock, at random numbers, at files, or at the order in which a `HashMap`
/// iterates.
///
/// All methods run on the apply thread of the [`Node`](crate::Node), one after the other, behind a bounded queue. A method that takes long
/// delays what waits in the queue, and in the end the clients: the member goes on to vote and to answer others. With
/// [`ApplyThread::Protocol`](crate::ApplyThread::Protocol) they run on the thread of the protocol, between two of its rounds; then the
/// member answers nobody while one of them runs.
///
/// # Panics
/// A machine that panics is *poisoned*: it gets no command, is not frozen and cannot be inspected. Its node goes on to vote, and hands
/// over if it leads. If a majority of the group has applied the command without it, the node starts over in its process, and the machine
/// gets the state of the others by [`restore`](StateMachine::restore). If not, the group is halted at that command: see
/// [`Status::halted`](crate::Status::halted).
pub trait StateMachine: Send + 'static {
    /// The newest version of what the machine does, and of what `freeze` writes, that this program knows: 1 to 4096. Raise it when `apply`,
    /// `timer`, `session_ended` or the written value changes.
    ///
    /// A new program takes the place of an old one member by member, and meanwhile all members must do the same. So the machine does what
    /// the version [in force](Context::version) says, which is the smallest of all members' programs. When the last of them is new, the
    /// group orders the change: it comes at one place in the order, the same at all members. It is never taken back: a program with a
    /// smaller version than that in force is refused the state, and ends.
    ///
    /// The written value follows the same rule. [`freeze`](StateMachine::freeze), [`Frozen::write`] and [`restore`](StateMachine::restore) are
    /// not told the version: the machine keeps the last [`at.version()`](Context::version) in its value, writes the old form until the new
    /// version is in force, and restores both. The bytes say which form they are.
    const VERSION: u32 = 1;

    /// The value at one moment, as [`freeze`](StateMachine::freeze) gives it.
    type Frozen: Frozen;

    /// Applies a command, in the global order. A command comes once. What is written to `reply` is for the client that sent the command.
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply);

    /// Answers a query, which changes nothing. [`Client::read`](crate::Client::read) asks. Without this method the answer is empty.
    ///
    /// Members may answer different numbers of queries, so nothing may depend on that, not even behind a `Cell`.
    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        let _ = (at, query, reply);
    }

    /// Releases what a session holds that has ended, or whose time is over: its locks, its leases. `at` is the place in the order at which
    /// that is so, and the same at all members of the group: that of a message, often of another client, which the sender and the groups of
    /// `at` belong to, or that of a time entry. Its [`session`](Context::session) is `None`. The machine is told before it applies that
    /// message. Sessions that a reset of the group or its beginning from nothing has forgotten are not told.
    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        let _ = (at, session);
    }

    /// Does what a timer is for that has come due: see [`Context::set_timer`]. It is not set any more.
    ///
    /// `at` is the first place in the order whose time is not before the timer's, and the same at all members of the group. It is that of a
    /// message, often of another client, or of a time entry, which the group orders for this if nobody sends anything. The machine is told
    /// of sessions that ran out by then first, then of the timers, in the order of their times and then of their ids, and applies the message
    /// last. [`Context::session`] is `None`. Timers that this method sets for a time that has come are due at the same place, behind the
    /// others. After 1000 of them the rest is left to the next place.
    fn timer(&mut self, at: &Context<'_>, timer: u64) {
        let _ = (at, timer);
    }

    /// Returns a digest of the value, by which members are compared. `None`, which is what a machine without this method says: they are compared
    /// by their replies alone.
    ///
    /// Members of which one replies otherwise than another are found without this. A digest also finds a value that differs before any reply
    /// does. It is asked for after each of the first 64 places of the order, and then after each 64th, so it should be kept at hand, or be
    /// cheap to compute. It must be the same at all members with the same [`VERSION`](StateMachine::VERSION). See
    /// [`MemberStatus::differs_at`](crate::MemberStatus::differs_at).
    fn digest(&self) -> Option<u64> {
        None
    }

    /// Freezes the value after all commands that were applied so far, for a member that lacks it. Make it cheap: clone an `Arc`, and let
    /// `apply` copy what a frozen value still holds (`Arc::make_mut`). The frozen value is written on a thread of its own.
    ///
    /// A machine that has nothing to keep returns [`Stateless`].
    ///
    /// The form of what is written is that of the version in force, as the machine has kept it: see [`VERSION`](StateMachine::VERSION).
    fn freeze(&self) -> Self::Frozen;

    /// Replaces the value by one that another member has written, or by the one that this machine was started with. After a panic the
    /// value may be broken: nothing of it may be kept. The bytes may have the form of an older [`VERSION`](StateMachine::VERSION).
    ///
    /// # Errors
    /// If the bytes are no value. The node stops then: it never goes on with half of a state.
    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()>;
}

/// A frozen value.
pub trait Frozen: Send + 'static {
    /// Writes the value, so that [`StateMachine::restore`] can read it. The transfer is given up and begun again if nothing is written for
    /// half a minute.
    ///
    /// # Errors
    /// The error of `out`, which takes no more bytes then; or why the value cannot be written.
    fn write(self, out: &mut dyn Write) -> io::Result<()>;

    /// Returns how many bytes [`write`](Frozen::write) will write, if that is known. A state that is larger than `snapshot_mib` allows is
    /// then refused before it is written.
    fn bytes_hint(&self) -> Option<u64> {
        None
    }
}

/// The frozen value of a machine that has nothing to keep: no byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stateless;

impl Frozen for Stateless {
    fn write(self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// The circumstances of a command that is applied. They are the same at every member of the group.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) group: Group,
    pub(crate) position: Position,
    pub(crate) groups: &'a [GroupId],
    pub(crate) session: Option<SessionId>,
    pub(crate) sender: &'a str,
    pub(crate) version: u32,
    pub(crate) notes: &'a Notes,
    pub(crate) timers: &'a SharedTimers,
}

/// The circumstances of a query.
#[derive(Debug)]
pub struct ReadContext<'a> {
    pub(crate) group: Group,
    pub(crate) position: Position,
    pub(crate) version: u32,
    pub(crate) sender: &'a str,
}

impl ReadContext<'_> {
    /// Returns the group that answers here.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
    }

    /// Returns the place in the global order at which the query is answered: all commands before it are applied, and none behind it.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the time there, as [`Context::time`] does.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.position.time
    }

    /// Returns the version in force there, as [`Context::version`] does.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the name of the client that asks.
    #[must_use]
    pub fn sender(&self) -> &str {
        self.sender
    }
}

/// A session of a client, as state machines see it. It stays the same when another process takes the session up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub(crate) stentor_session::SessionId);

impl SessionId {
    /// Returns the bytes of the id, for a state that names sessions.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.0.to_le_bytes()
    }

    /// Returns the id with these [bytes](SessionId::to_bytes).
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> SessionId {
        SessionId(stentor_session::SessionId(u128::from_le_bytes(bytes)))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Context<'_> {
    /// Returns the group that applies the command here.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
    }

    /// Returns all groups that apply the command, in the order of the configuration.
    pub fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        self.groups.iter().copied().map(Group)
    }

    /// Returns the session under which the command was sent. `None`: it was sent without one, by a program that uses the protocol's client
    /// itself, and nobody is answered.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns the place of the command in the global order.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the time at which the command was ordered, nanoseconds since 1970 where the clocks of most members are right. It is equal in
    /// all groups that apply the command, and never falls from one command to the next.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.position.time
    }

    /// Returns the version of the state machine that is in force at this place: see [`StateMachine::VERSION`]. It is at most the `VERSION` of
    /// this program, at least 1, and never falls.
    ///
    /// In a group that is founded, the version of all its programs is in force from the first command on, if all members have told each other
    /// theirs by then; they do when they connect. Otherwise the first commands are applied in version 1, and a moment later that version is in
    /// force. A program that no longer knows the first versions does there what the oldest does that it knows.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the name of the client that sent the command: `c0`, `c1`, … Another process may have that place later. The place of a time
    /// entry has no client: there it is the name of the group, as it is where a version entry stands.
    #[must_use]
    pub fn sender(&self) -> &str {
        self.sender
    }

    /// Has [`StateMachine::timer`] called at the first place in the order of this group whose [time](Context::time) is not before `at`. That
    /// place comes within a few milliseconds of the time `at`, whether clients send anything or not, as long as a majority of the group is
    /// there. A timer for a time that has come is due at the next place.
    ///
    /// `timer` is an id that the machine chooses. If a timer of this id is set, it is moved. The group remembers timers as part of its state:
    /// a member that takes over the value of another one has its timers, too, and [`StateMachine::restore`] need not set them. A state
    /// that begins from nothing has none.
    pub fn set_timer(&self, at: u64, timer: u64) {
        self.timers.set(at, timer);
    }

    /// Clears the timer of this id, if it is set.
    pub fn clear_timer(&self, timer: u64) {
        self.timers.clear(timer);
    }

    /// Notifies a session: its client gets these bytes as a [`Notification`](crate::Notification), behind the replies to commands that were
    /// applied before; but replies that are said again, after a change of the leader or the connection, may come behind it. A command may
    /// notify any number of sessions.
    ///
    /// The leader sends a notification once, and nobody keeps it. Whether one was lost is known: the client gets
    /// [`Notification::Missed`](crate::Notification::Missed), and reads what it watches. One that is longer than `reply_bytes` in `[limits]`
    /// is lost. A session that is not open in this group gets nothing, and is not told. Notifications go to the process that has the
    /// session now: whoever takes a session up gets those that are sent from then on.
    pub fn notify(&self, session: SessionId, bytes: &[u8]) {
        self.notes.push(session, bytes);
    }
}
