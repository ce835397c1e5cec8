//! Registry of the control plane, independent of sockets: the joins of each set, and its current generation.
//!
//! # States of a set
//! - *Gathering*: hosts join. A generation begins when all have joined, or when at least two have and the first of them
//!   has waited for [`SETTLE`] or, if hosts that were asked to join again are missing, for [`GRACE`].
//! - *Generation*: the data plane has the set. The set gathers again when one of its hosts leaves, joins again or
//!   disconnects, when another host joins, or when the registry sees that the data plane has poisoned the set. A join
//!   ends a generation only if the generation is at least [`PAUSE`] old.
//!
//! # Invariants
//! 1. The data plane has exactly the current generations and the configured sets. Each has its own `gid`. The next
//!    generation of a set has another `gid` if another one is free. A `gid` is free again [`REST`] after its generation
//!    has ended, because packets of that generation may arrive until then.
//! 2. Each join is in at most one generation. The switch notifies the host of the beginning of this generation
//!    ([`ToHost::Ready`]). It then notifies the host of its end ([`ToHost::Renew`]), unless the host has left, joined
//!    again or disconnected.
//! 3. Only the newest life of a rank counts.
//! 4. Generations of a set begin at least [`PAUSE`] apart, as long as some host is in the set.

use std::collections::BTreeMap;
use std::time::Duration;

use stentor_switch::enrol::{Join, Ready, Refusal, ToHost};
use stentor_switch::registers::{MOST, State};
use stentor_switch::{Host, Switch};

/// Number of a connection with a host.
pub(crate) type SessionId = u64;

/// Time to wait for other hosts after the first join.
const SETTLE: Duration = Duration::from_millis(200);
/// Time to wait for missing hosts that were requested to join again.
const GRACE: Duration = Duration::from_secs(1);
/// Minimum time from one generation of a set to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// Minimum time from the end of a generation to the next generation with the same `gid`. Only a switch with few sets
/// has to wait for it.
const REST: Duration = Duration::from_millis(100);
/// Interval between checks of the data plane.
const LOOK: Duration = Duration::from_millis(10);

/// The join of a rank.
#[derive(Clone, Copy, Debug)]
struct Joined {
    session: SessionId,
    join: Join,
    /// `true` if the host waits for a generation, `false` if it is in the current one.
    waits: bool,
}

/// A set and its joins.
#[derive(Clone, Debug)]
struct Group {
    size: u8,
    joined: [Option<Joined>; MOST],
    /// Sessions of the ranks that the switch has asked to join again and that have not joined yet.
    awaited: [Option<SessionId>; MOST],
    gid: Option<u16>,
    /// Time at which the last generation began.
    began: Option<u64>,
    /// Time of the first join that waits.
    since: Option<u64>,
}

/// Messages to send, with their sessions.
pub(crate) type Said = Vec<(SessionId, ToHost)>;

/// All sets of a switch.
#[derive(Debug)]
pub(crate) struct Registry {
    groups: BTreeMap<u16, Group>,
    /// Upper half of all generation ids of this start.
    start: u32,
    /// Number of generations since this start.
    count: u32,
    /// Number at which the search for a free set begins.
    next_gid: u16,
    /// Time at which each `gid` that was used lately is free again; `None` while it has a generation.
    rests: BTreeMap<u16, Option<u64>>,
    /// `true` if the sockets reveal the identifications of packets.
    sees_identifications: bool,
    looked: u64,
}

fn ns(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl Group {
    fn new(size: u8) -> Group {
        Group { size, joined: [None; MOST], awaited: [None; MOST], gid: None, began: None, since: None }
    }

    fn is_over(&self) -> bool {
        self.joined.iter().all(Option::is_none) && self.awaited.iter().all(Option::is_none)
    }

    fn waiting(&self) -> usize {
        self.joined.iter().flatten().filter(|joined| joined.waits).count()
    }

    /// Ends the generation and sends its hosts a renewal.
    fn dissolve(&mut self, number: u16, switch: &mut Switch, said: &mut Said) {
        if let Some(gid) = self.gid.take() {
            switch.remove(gid);
        }
        for (place, awaited) in self.joined.iter_mut().zip(&mut self.awaited) {
            if let Some(joined) = place.take_if(|joined| !joined.waits) {
                said.push((joined.session, ToHost::Renew { number, life: joined.join.life }));
                *awaited = Some(joined.session);
            }
        }
    }

    /// Returns whether the next generation is due.
    fn is_due(&self, now: u64) -> bool {
        let waiting = self.waiting();
        let Some(since) = self.since.filter(|_| waiting >= 2) else { return false };
        let rests = self.began.is_some_and(|began| now < began + ns(PAUSE));
        let others = self.awaited.iter().any(Option::is_some);
        let patience = ns(if others { GRACE } else { SETTLE });
        !rests && (waiting == usize::from(self.size) || now >= since + patience)
    }
}

impl Registry {
    pub(crate) fn new(sees_identifications: bool, start: u32) -> Registry {
        let (groups, rests) = (BTreeMap::new(), BTreeMap::new());
        Registry { groups, start, count: 0, next_gid: 0, rests, sees_identifications, looked: 0 }
    }

    /// Handles the join of a host.
    pub(crate) fn join(&mut self, session: SessionId, join: Join, now: u64, switch: &mut Switch, said: &mut Said) {
        let Join { number, size, rank, life, .. } = join;
        let mut refuse = |why| said.push((session, ToHost::Refused { number, life, why }));
        if join.identified && !self.sees_identifications {
            return refuse(Refusal::Identified);
        }
        // About half of the sets are kept free, so that a `gid` is not reused immediately after its generation has
        // ended.
        let room = switch.arrays().sets().div_ceil(2);
        if !self.groups.contains_key(&number) && self.groups.len() >= room {
            return refuse(Refusal::Full);
        }
        let group = self.groups.entry(number).or_insert_with(|| Group::new(size));
        let at = usize::from(rank) % MOST;
        if group.joined[at].is_some_and(|other| other.session != session) {
            return refuse(Refusal::Taken);
        }
        let others = (0..MOST).any(|n| n != at && (group.joined[n].is_some() || group.awaited[n].is_some()));
        if group.size != size && others {
            return refuse(Refusal::Size);
        }
        if group.joined[at].is_some_and(|old| life.wrapping_sub(old.join.life) as i32 <= 0) {
            return;
        }
        group.size = size;
        // The join ends the host's former life, and with it the generation that this life was in.
        group.joined[at] = Some(Joined { session, join, waits: true });
        group.awaited[at] = None;
        group.since.get_or_insert(now);
        self.tick(now, switch, said);
    }

    /// Handles the end of a host's life.
    pub(crate) fn leave(&mut self, session: SessionId, number: u16, life: u32, switch: &mut Switch, said: &mut Said) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let is_it = |joined: &mut Joined| joined.session == session && joined.join.life == life;
        let left = group.joined.iter_mut().find_map(|place| place.take_if(is_it));
        if left.is_some_and(|left| !left.waits) {
            group.dissolve(number, switch, said);
        }
        self.forget(switch);
    }

    /// Handles the end of a session, which ends all joins of the session.
    pub(crate) fn end(&mut self, session: SessionId, switch: &mut Switch, said: &mut Said) {
        for (number, group) in &mut self.groups {
            let mut broke = false;
            for place in &mut group.joined {
                broke |= place.take_if(|joined| joined.session == session).is_some_and(|left| !left.waits);
            }
            for awaited in group.awaited.iter_mut().filter(|awaited| **awaited == Some(session)) {
                *awaited = None;
            }
            if broke {
                group.dissolve(*number, switch, said);
            }
        }
        self.forget(switch);
        said.retain(|(to, _)| *to != session);
    }

    /// Removes sets without hosts. A removed set may still have a generation, if all its hosts had joined again and
    /// then left before that generation ended.
    fn forget(&mut self, switch: &mut Switch) {
        self.groups.retain(|_, group| {
            if group.waiting() == 0 {
                group.since = None;
            }
            let is_over = group.is_over();
            if let Some(gid) = group.gid.take_if(|_| is_over) {
                switch.remove(gid);
            }
            !is_over
        });
    }

    /// Advances the time: ends generations that are poisoned or whose set has hosts that wait, and begins those that
    /// are due.
    pub(crate) fn tick(&mut self, now: u64, switch: &mut Switch, said: &mut Said) {
        let looks = now >= self.looked + ns(LOOK);
        if looks {
            self.looked = now;
            self.let_rest(now, switch);
        }
        let numbers: Vec<u16> = self.groups.keys().copied().collect();
        for number in numbers {
            let Some(group) = self.groups.get_mut(&number) else { continue };
            let poisoned = |gid| switch.arrays().view(gid).is_some_and(|view| view.session.state == State::Poisoned);
            let outgrown = group.waiting() > 0 && group.began.is_none_or(|began| now >= began + ns(PAUSE));
            if group.gid.is_some_and(|gid| outgrown || looks && poisoned(gid)) {
                group.dissolve(number, switch, said);
            }
            if group.gid.is_none() && group.is_due(now) {
                self.begin(number, now, switch, said);
            }
        }
    }

    fn begin(&mut self, number: u16, now: u64, switch: &mut Switch, said: &mut Said) {
        self.let_rest(now, switch);
        let Some(gid) = self.free_gid(switch) else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        let waiting = group.joined.iter().flatten().filter(|joined| joined.waits);
        let lease = waiting.clone().map(|joined| joined.join.lease).max().unwrap_or_default();
        let mtu = waiting.clone().map(|joined| joined.join.mtu).min().unwrap_or_default();
        let identified = waiting.clone().any(|joined| joined.join.identified);
        let mut who = 0;
        let hosts: Vec<_> = (0..usize::from(group.size))
            .map(|rank| {
                let join = group.joined[rank].filter(|joined| joined.waits)?.join;
                who |= 1 << rank;
                Some(Host { sends: join.sends, receives: join.receives })
            })
            .collect();
        // The addresses were validated on arrival and the `gid` exists, so this does not fail.
        if switch.create_some(gid, lease, &hosts).is_err() {
            return;
        }
        self.count = self.count.wrapping_add(1);
        let generation = u64::from(self.start) << 32 | u64::from(self.count);
        let (forward, backward) = (switch.config.forward, switch.config.backward);
        for joined in group.joined.iter_mut().flatten() {
            joined.waits = false;
            let life = joined.join.life;
            let ready = Ready { number, life, generation, gid, forward, backward, mtu, identified, who };
            said.push((joined.session, ToHost::Ready(ready)));
        }
        (group.gid, group.began, group.since) = (Some(gid), Some(now), None);
        self.next_gid = gid.wrapping_add(1);
        self.rests.insert(gid, None);
    }

    /// Begins the rest of each `gid` whose generation has ended, and ends the rests that are over.
    fn let_rest(&mut self, now: u64, switch: &Switch) {
        let is_silent = |gid| switch.arrays().view(gid).is_some_and(|view| view.session.state == State::Silent);
        self.rests.retain(|gid, until| {
            if until.is_none() && is_silent(*gid) {
                *until = Some(now + ns(REST));
            }
            until.is_none_or(|until| now < until)
        });
    }

    /// Returns the next free set after the last one that was used.
    fn free_gid(&self, switch: &Switch) -> Option<u16> {
        let arrays = switch.arrays();
        let sets = arrays.sets();
        let free = |gid: &u16| arrays.view(*gid).is_some_and(|view| view.session.state == State::Silent);
        let mut gids = (0..sets).map(|n| ((usize::from(self.next_gid) + n) % sets) as u16);
        gids.find(|gid| free(gid) && !self.rests.contains_key(gid))
    }
}

#[cfg(test)]
mod tests;
