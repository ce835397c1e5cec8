//! The state machine that a user replicates, and the context in which it is called.

use std::fmt;
use std::io::{self, Read, Write};

use stentor_multicast::GroupId;

use crate::notes::Notes;
pub(crate) use crate::reply::Reply;
use crate::timers::SharedTimers;
use crate::{Group, Position};

/// A replicated value that changes only by commands.
///
/// All members of a group apply the same commands in the same order. Their values are therefore equal as long as
/// `apply` depends only on the value, the context and the command. It must not read a clock, random numbers or files,
/// and must not depend on the iteration order of a `HashMap`.
///
/// The methods run on the apply thread of the [`Node`](crate::Node), one after the other. Only the initial value is
/// frozen on the thread that starts the node. Commands wait in a bounded queue until they are applied. A slow method
/// delays the queue, and eventually the clients; meanwhile the member still votes and answers its peers. With
/// [`ApplyThread::Protocol`](crate::ApplyThread::Protocol) the methods run on the protocol's thread, between two of its
/// rounds. The member then answers neither peers nor clients while a method runs.
///
/// # Panics
/// A machine that panics is *poisoned*: it receives no more commands, is not frozen and cannot be inspected. Its node
/// continues to vote, and hands leadership over if it leads. If a majority of the group has applied the command without
/// a panic, the node restarts within its process, and the machine receives the state of another member by
/// [`restore`](StateMachine::restore). The same command causes at most one such restart. If the machines of a majority
/// panic, the group halts at that command: see [`Status::halted`](crate::Status::halted).
pub trait StateMachine: Send + 'static {
    /// Newest version of the state machine that this program knows, from 1 to 4096. A version covers the machine's
    /// behaviour and the format of the written value. Raise it when the behaviour of `apply`, `timer` or
    /// `session_ended` changes, or when the format changes.
    ///
    /// Programs are upgraded member by member, and meanwhile all members must behave alike. The machine therefore
    /// follows the version [in force](Context::version), which is the smallest among all members' programs. When all
    /// members run the new program, the group orders the change: it takes effect at one position in the order, the same
    /// at all members. The version in force never decreases. A node whose program has a `VERSION` below the version in
    /// force cannot restore the group's state, and ends with an error.
    ///
    /// The written value follows the same rule. [`freeze`](StateMachine::freeze), [`Frozen::write`] and
    /// [`restore`](StateMachine::restore) do not receive the version. The machine keeps the last
    /// [`at.version()`](Context::version) in its value, writes the old format until the new version is in force, and
    /// restores both formats. The bytes must identify their format.
    const VERSION: u32 = 1;

    /// The value at one moment, as [`freeze`](StateMachine::freeze) returns it.
    type Frozen: Frozen;

    /// Applies a command, in the global order. Each command is applied exactly once. The bytes written to `reply` are
    /// returned to the client that sent the command.
    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply);

    /// Answers a query without changing the value. [`Client::read`](crate::Client::read) sends queries. The default
    /// answer is empty.
    ///
    /// Each member answers only some of the queries, so the value must not depend on them, not even through a `Cell`.
    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        let _ = (at, query, reply);
    }

    /// Releases the locks, leases and other resources of a session that has ended or expired.
    ///
    /// `at` is the position at which the session ends, the same at all members of the group. It is the position of a
    /// message, often of another client, or of an entry that the group orders itself; the sender and the groups of `at`
    /// are those of that message or entry. [`Context::session`] of `at` is `None`. This method is called before that
    /// message is applied. It is not called for sessions that the group lost by a reset or by a start from nothing.
    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        let _ = (at, session);
    }

    /// Handles a timer that is due: see [`Context::set_timer`]. The timer is no longer set.
    ///
    /// `at` is the first position in the order whose time is not before the timer's time. The position is the same at
    /// all members of the group. It is the position of a message, often of another client, or of a time entry, which
    /// the group orders for this purpose if no client sends a message. At one position, expired sessions end first.
    /// Then the timers fire, in the order of their times and, for equal times, of their ids. The message is applied
    /// last. [`Context::session`] of `at` is `None`.
    ///
    /// A timer that this method sets for a time that has passed fires at the same position, after the other timers. At
    /// most 1000 such timers fire at one position. The rest fires at the next position.
    fn timer(&mut self, at: &Context<'_>, timer: u64) {
        let _ = (at, timer);
    }

    /// Returns a digest of the value, by which the group compares its members. The default is `None`: members are
    /// compared by their replies alone.
    ///
    /// Without a digest, the group still detects a member whose replies differ. A digest also detects a value that
    /// differs before any reply does. The node calls this method after each of the first 64 positions of the order, and
    /// then after every 64th, so keep the digest up to date or make it cheap to compute. It must be equal at all
    /// members with the same [`VERSION`](StateMachine::VERSION). See
    /// [`MemberStatus::differs_at`](crate::MemberStatus::differs_at).
    fn digest(&self) -> Option<u64> {
        None
    }

    /// Freezes the value after all commands applied so far, to transfer it to a member or an observer that lacks it.
    /// Make it cheap: clone an `Arc`, and let `apply` copy the parts that a frozen value still holds (`Arc::make_mut`).
    /// A separate thread writes the frozen value; only the initial value is written by the thread that starts the node.
    ///
    /// A machine without a value returns [`Stateless`].
    ///
    /// The written bytes have the format of the version in force, which the machine remembers: see
    /// [`VERSION`](StateMachine::VERSION).
    fn freeze(&self) -> Self::Frozen;

    /// Replaces the value by one that another member wrote, or by the one that this machine was started with. Keep no
    /// part of the old value: it may be inconsistent after a panic. The bytes may have the format of an older
    /// [`VERSION`](StateMachine::VERSION).
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid value. The node then ends: it never continues with part of a
    /// state.
    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()>;
}

/// A frozen value, which is written to another member or to an observer.
pub trait Frozen: Send + 'static {
    /// Writes the value, so that [`StateMachine::restore`] can read it. A transfer that makes no progress for half a
    /// minute is aborted and restarted.
    ///
    /// # Errors
    /// Returns the error of `out` if `out` accepts no more bytes, or another error if the value cannot be written.
    fn write(self, out: &mut dyn Write) -> io::Result<()>;

    /// Returns the number of bytes that [`write`](Frozen::write) will write, if it is known. A state that is larger
    /// than `snapshot_mib` allows is then refused before it is written.
    fn bytes_hint(&self) -> Option<u64> {
        None
    }
}

/// The frozen value of a machine without a value: zero bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Stateless;

impl Frozen for Stateless {
    fn write(self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

/// The circumstances in which a command is applied, a session ends or a timer fires. They are the same at every member
/// of the group.
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

/// The circumstances in which a query is answered.
#[derive(Debug)]
pub struct ReadContext<'a> {
    pub(crate) group: Group,
    pub(crate) position: Position,
    pub(crate) version: u32,
    pub(crate) sender: &'a str,
}

impl ReadContext<'_> {
    /// Returns the group that answers.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
    }

    /// Returns the position in the global order at which the query is answered. All commands up to this position are
    /// applied, and none after it.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the time at that position, as [`Context::time`] does.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.position.time
    }

    /// Returns the version in force at that position, as [`Context::version`] does.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the name of the client that sent the query.
    #[must_use]
    pub fn sender(&self) -> &str {
        self.sender
    }
}

/// A client's session, as state machines see it. It does not change when another process resumes the session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub(crate) stentor_session::SessionId);

impl SessionId {
    /// Returns the bytes of the id, for states that store sessions.
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
    /// Returns the group at whose member the command is applied.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
    }

    /// Returns all groups that apply the command, in the order of the configuration.
    pub fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        self.groups.iter().copied().map(Group)
    }

    /// Returns the session under which the command was sent. Returns `None` in
    /// [`session_ended`](StateMachine::session_ended) and [`timer`](StateMachine::timer), and for a command that a
    /// program sent through the protocol's own client, without a session; such a command gets no reply.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Returns the position of the command in the global order.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the time at which the command was ordered, in nanoseconds since 1970 if most members' clocks are right.
    /// It is equal in all groups that apply the command, and never decreases from one command to the next.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.position.time
    }

    /// Returns the version of the state machine in force at this position: see [`StateMachine::VERSION`]. It is at
    /// least 1 and at most the `VERSION` of this program, and never decreases.
    ///
    /// In a newly founded group, the smallest version of all its programs is already in force for the first command,
    /// provided that all members have exchanged their versions by then; they do so when they connect. Otherwise the
    /// first commands are applied in version 1, and the group's version follows shortly afterwards. For these first
    /// commands, a program that no longer supports version 1 behaves as in the oldest version that it supports.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the name of the client that sent the command: `c0`, `c1`, … Another process may hold that client id
    /// later. Time entries and version entries have no client; at their positions this is the name of the group.
    #[must_use]
    pub fn sender(&self) -> &str {
        self.sender
    }

    /// Schedules a call of [`StateMachine::timer`] at the first position in the order of this group whose
    /// [time](Context::time) is not before `at`. As long as a majority of the group is alive, that position follows the
    /// time `at` within a few milliseconds, whether clients send anything or not. A timer for a time that has passed is
    /// due at the next position, or at the present one if timers still fire there.
    ///
    /// `timer` is an id that the machine chooses. If a timer with this id is set, it moves to the new time. Timers are
    /// part of the group's state: a member that receives the value of another member also receives its timers, so
    /// [`StateMachine::restore`] need not set them. A state that starts from nothing has no timers.
    pub fn set_timer(&self, at: u64, timer: u64) {
        self.timers.set(at, timer);
    }

    /// Clears the timer with this id, if it is set.
    pub fn clear_timer(&self, timer: u64) {
        self.timers.clear(timer);
    }

    /// Sends a notification to a session: its client receives these bytes as a [`Notification`](crate::Notification),
    /// after the replies to commands that were applied earlier. Replies that are sent again after a change of the
    /// leader or of the connection may arrive after it. A command may notify any number of sessions.
    ///
    /// The leader sends each notification once, and no member stores it. The client detects a loss: it receives
    /// [`Notification::Missed`](crate::Notification::Missed), and should then read the value that it watches. A
    /// notification longer than `reply_bytes` in `[limits]` is lost. A session that is not open in this group receives
    /// nothing, not even `Missed`. Notifications go to the process that currently holds the session: a process that
    /// resumes a session receives only notifications that are sent afterwards.
    pub fn notify(&self, session: SessionId, bytes: &[u8]) {
        self.notes.push(session, bytes);
    }
}
