//! A service as a user writes one: a counter and locks. It has mutants.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use stentor::sim::{Next, Seen, SimCluster, Turn};
use stentor::{Consistency, Context, Frozen, Position, ReadContext, Reply, SessionId, StateMachine};

/// A mutant of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plant {
    None,
    /// Some members occasionally count one too many, like a machine that draws random numbers.
    Instance,
    /// Reads are answered from a copy that is updated at every fourth command that this machine has applied.
    StaleRead,
    /// A restored value lacks its locks.
    ForgetsLocks,
    /// A restored value is added to the machine's own value.
    RestoresTwice,
    /// A value is written with its last command counted twice.
    WritesTwice,
    /// The locks of an ended session remain.
    KeepsLocks,
    /// A read raises the count in the written value.
    ReadCounts,
    /// Adding panics once the count is 20.
    Panics,
    /// Notifications contain a copy that is updated at every fourth command that this machine has applied.
    NotifiesStale,
    /// A restored machine sends no notifications.
    SilentOnceRestored,
    /// The first recipient is notified twice, after the machine has applied many commands.
    NotifiesTwice,
}

/// A counter, and the holders of locks.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    plant: Plant,
    count: u64,
    last: u64,
    locks: BTreeMap<u8, [u8; 16]>,
    /// Number of this machine among those of its cluster.
    instance: u64,
    applied: u64,
    copy: u64,
    restored: bool,
    reads: std::cell::Cell<u64>,
}

impl Shop {
    pub(crate) fn new(plant: Plant) -> Shop {
        Shop {
            plant,
            count: 0,
            last: 0,
            locks: BTreeMap::new(),
            instance: 1,
            applied: 0,
            copy: 0,
            restored: false,
            reads: std::cell::Cell::new(0),
        }
    }

    fn add(&mut self, amount: u64) {
        let more = self.plant == Plant::Instance && self.instance.is_multiple_of(3) && self.applied % 8 == 7;
        self.count += amount + u64::from(more);
        self.last = amount;
    }

    /// Runs `with` without notifications.
    pub(crate) fn silent(&mut self, with: impl FnOnce(&mut Shop)) {
        let (plant, restored) = (self.plant, self.restored);
        (self.plant, self.restored) = (Plant::SilentOnceRestored, true);
        with(self);
        (self.plant, self.restored) = (plant, restored);
    }

    /// Sends a notification with the count to every holder of a lock.
    fn notify(&self, at: &Context<'_>, why: &str) {
        let count = if self.plant == Plant::NotifiesStale { self.copy } else { self.count };
        let note = format!("{why}: {count}");
        if self.plant == Plant::SilentOnceRestored && self.restored {
            return;
        }
        for holder in self.locks.values() {
            at.notify(SessionId::from_bytes(*holder), note.as_bytes());
        }
        if self.plant == Plant::NotifiesTwice
            && self.applied > 20
            && let Some(holder) = self.locks.values().next()
        {
            at.notify(SessionId::from_bytes(*holder), note.as_bytes());
        }
    }
}

impl StateMachine for Shop {
    type Frozen = Written;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        self.applied += 1;
        let session = at.session().map(SessionId::to_bytes).unwrap_or_default();
        match command {
            [b'+', amount] => {
                assert!(self.plant != Plant::Panics || self.count < 20, "more than 20");
                self.add(u64::from(*amount));
                self.notify(at, "added");
                reply.extend(self.count.to_string().as_bytes());
            }
            [b'l', name] => {
                let holder = *self.locks.entry(*name).or_insert(session);
                reply.extend(if holder == session { b"held" } else { b"taken" });
            }
            [b'u', name] => {
                if self.locks.get(name) == Some(&session) {
                    self.locks.remove(name);
                    reply.extend(b"free");
                }
            }
            _ => reply.extend(b"no such command"),
        }
        if self.applied.is_multiple_of(4) {
            self.copy = self.count;
        }
    }

    fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
        self.reads.set(self.reads.get() + 1);
        let count = if self.plant == Plant::StaleRead { self.copy } else { self.count };
        reply.extend(format!("{count} and {} locks", self.locks.len()).as_bytes());
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        if self.plant != Plant::KeepsLocks {
            self.locks.retain(|_, holder| *holder != session.to_bytes());
        }
        self.notify(at, "ended");
    }

    fn freeze(&self) -> Written {
        let twice = if self.plant == Plant::WritesTwice { self.last } else { 0 };
        let reads = if self.plant == Plant::ReadCounts { self.reads.get() } else { 0 };
        let words = [self.count + twice + reads, self.last];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (name, holder) in &self.locks {
            bytes.push(*name);
            bytes.extend(holder);
        }
        Written(bytes)
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let (mut word, mut locks) = ([0; 8], Vec::new());
        from.read_exact(&mut word)?;
        self.restored = true;
        let more = if self.plant == Plant::RestoresTwice { self.count } else { 0 };
        self.count = u64::from_le_bytes(word) + more;
        from.read_exact(&mut word)?;
        self.last = u64::from_le_bytes(word);
        from.read_to_end(&mut locks)?;
        self.locks.clear();
        for lock in locks.chunks_exact(17).filter(|_| self.plant != Plant::ForgetsLocks) {
            self.locks.insert(lock[0], lock[1..].try_into().map_err(io::Error::other)?);
        }
        Ok(())
    }
}

/// A written value.
pub(crate) struct Written(Vec<u8>);

impl Frozen for Written {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.0)
    }
}

/// The script of a client that adds, locks, unlocks and reads, in one group or in several.
pub(crate) fn shopper(turn: &mut Turn<'_>) -> Next {
    let groups = turn.groups().to_vec();
    let all = turn.random().percent(20);
    let some = if all { groups } else { turn.random().pick(&groups).into_iter().copied().collect() };
    let (kind, amount, name) = (turn.random().below(10), turn.random().below(5) as u8, turn.random().below(2) as u8);
    match kind {
        0..=3 => Next::call(&some[..], [b'+', amount]),
        4..=5 => Next::call(&some[..], [b'l', name]),
        6 => Next::call(&some[..], [b'u', name]),
        _ => Next::read(&some[..], ""),
    }
}

/// Returns a cluster of two groups with this mutant, and three clients.
///
/// The cluster counts its own machines, so other tests of the process do not change what a seed finds.
pub(crate) fn shop(plant: Plant) -> SimCluster<Shop> {
    let made = AtomicU64::new(0);
    let make = move || Shop { instance: made.fetch_add(1, Ordering::Relaxed), ..Shop::new(plant) };
    SimCluster::new(make, |_| shopper).groups(2).clients(3)
}

/// The script of a client that reads in every way: it adds in one group or in all, locks in one, and reads in order, at
/// leaders, after positions and locally.
pub(crate) fn reader(turn: &mut Turn<'_>) -> Next {
    let groups = turn.groups().to_vec();
    let group = groups[turn.random().below(groups.len() as u64) as usize];
    let positions: Vec<Position> = turn.seen().iter().filter_map(Seen::position).collect();
    let (kind, amount, name) = (turn.random().below(12), turn.random().below(5) as u8, turn.random().below(2) as u8);
    match kind {
        0..=2 => Next::call(group, [b'+', amount]),
        3 => Next::call(&groups[..], [b'+', amount]),
        4 => Next::call(group, [b'l', name]),
        5 => Next::read(&groups[..], ""),
        6..=8 => Next::read_with(group, "", Consistency::Leader),
        9 => Next::read_with(group, "", Consistency::Local),
        _ => match turn.random().pick(&positions) {
            Some(position) => Next::read_with(group, "", Consistency::After(*position)),
            None => Next::read_with(group, "", Consistency::Local),
        },
    }
}

/// Returns a cluster like [`shop`], whose clients read in every way.
pub(crate) fn reading_shop(plant: Plant) -> SimCluster<Shop> {
    SimCluster::new(move || Shop::new(plant), |_| reader).groups(2).clients(3)
}
