//! What a user replicates.

use std::io::{self, Read, Write};

use crate::{Group, Position};

/// What is replicated: a value that changes by commands alone.
///
/// All members of a group apply the same commands in the same order, so their values are equal as long as `apply` depends on nothing but
/// the value, the context and the command. It must not look at a clock, at random numbers, at files, or at the order in which a `HashMap`
/// iterates.
///
/// All methods run on the thread of the [`Node`](crate::Node), between two rounds of the protocol. While one of them runs, the member
/// answers nobody. A call that takes longer than the shortest time-out of the election (one second by default) makes a leader suspected.
pub trait StateMachine: Send + 'static {
    /// The value at one moment, as [`freeze`](StateMachine::freeze) gives it.
    type Frozen: Frozen;

    /// Applies a command, in the global order. A command comes once.
    fn apply(&mut self, at: &Context<'_>, command: &[u8]);

    /// Freezes the value after all commands that were applied so far, for a member that lacks it. Make it cheap: clone an `Arc`, and let
    /// `apply` copy what a frozen value still holds (`Arc::make_mut`). The frozen value is written on a thread of its own.
    ///
    /// A machine that has nothing to keep returns [`Stateless`].
    fn freeze(&self) -> Self::Frozen;

    /// Replaces the value by one that another member has written, or by the one that this machine was started with.
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
    /// What `out` says, which has no more use for the rest then; or why the value cannot be written.
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

/// What is known of a command where it is applied. It is the same at every member of the group.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) group: Group,
    pub(crate) position: Position,
    pub(crate) sender: &'a str,
}

impl Context<'_> {
    /// Returns the group that applies the command here.
    #[must_use]
    pub fn group(&self) -> Group {
        self.group
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

    /// Returns the name of the client that sent the command: `c0`, `c1`, … Another process may have that place later.
    #[must_use]
    pub fn sender(&self) -> &str {
        self.sender
    }
}
