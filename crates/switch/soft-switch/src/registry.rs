//! Who has joined which set, and which generation there is: the control plane without its sockets.
//!
//! # States of a set
//! *Gathering* → a *generation*, when everybody has joined, or two at least have and no more come for a while → *gathering* again,
//! as soon as one of its hosts leaves, joins anew or is gone, another one comes, or the data plane has poisoned it.
//!
//! # Invariants
//! 1. The data plane has exactly the generations that there are; each has a `gid` of its own, which the next generation does
//!    not have.
//! 2. What a host joined as is in at most one generation, and was told of it ([`ToHost::Ready`]) or that it is over
//!    ([`ToHost::Renew`]), in that order.
//! 3. Of a rank only the newest life counts.
//! 4. Generations of a set begin at least [`PAUSE`] apart.

use std::collections::BTreeMap;
use std::time::Duration;

use stentor_switch::enrol::{Join, Ready, Refusal, ToHost};
use stentor_switch::registers::{MOST, State};
use stentor_switch::{Host, Switch};

/// A connection with a host.
pub(crate) type SessionId = u64;

/// How long others are waited for, from the first one that has joined.
const SETTLE: Duration = Duration::from_millis(200);
/// How long those are waited for that were told to join anew.
const GRACE: Duration = Duration::from_secs(1);
/// Least time from one generation of a set to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// How often the data plane is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// What a rank joined as.
#[derive(Clone, Copy, Debug)]
struct Joined {
    session: SessionId,
    join: Join,
    /// It waits for a generation; otherwise it is in the one that there is.
    waits: bool,
}

/// A set.
#[derive(Clone, Debug)]
struct Group {
    size: u8,
    joined: [Option<Joined>; MOST],
    /// Lines of ranks that were told to join anew, and did not yet.
    awaited: [Option<SessionId>; MOST],
    gid: Option<u16>,
    /// When the last generation began, and when the first of those that wait joined.
    began: Option<u64>,
    since: Option<u64>,
}

/// What is said to whom.
pub(crate) type Said = Vec<(SessionId, ToHost)>;

/// All sets of a switch.
#[derive(Debug)]
pub(crate) struct Registry {
    groups: BTreeMap<u16, Group>,
    /// The upper half of all generations of this start, and how many there were.
    start: u32,
    count: u32,
    /// Where the search for a free set begins.
    next_gid: u16,
    /// Whether identifications of packets are seen.
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

    /// Ends the generation: those that are in it are told to come again.
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

    /// Whether the next generation is due.
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
        Registry { groups: BTreeMap::new(), start, count: 0, next_gid: 0, sees_identifications, looked: 0 }
    }

    /// A host joins.
    pub(crate) fn join(&mut self, session: SessionId, join: Join, now: u64, switch: &mut Switch, said: &mut Said) {
        let Join { number, size, rank, life, .. } = join;
        let mut refuse = |why| said.push((session, ToHost::Refused { number, life, why }));
        if join.identified && !self.sees_identifications {
            return refuse(Refusal::Identified);
        }
        // So that a set whose generation ended does not come again at once, as many are kept free as are used.
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
        // Its former life is over, and with it the generation that it was in.
        group.joined[at] = Some(Joined { session, join, waits: true });
        group.awaited[at] = None;
        group.since.get_or_insert(now);
        self.tick(now, switch, said);
    }

    /// A host's life is over.
    pub(crate) fn leave(&mut self, session: SessionId, number: u16, life: u32, switch: &mut Switch, said: &mut Said) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let is_it = |joined: &mut Joined| joined.session == session && joined.join.life == life;
        let left = group.joined.iter_mut().find_map(|place| place.take_if(is_it));
        if left.is_some_and(|left| !left.waits) {
            group.dissolve(number, switch, said);
        }
        self.forget(switch);
    }

    /// A session has ended, and with it all that came by it.
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

    /// Groups without hosts go, and with them a generation that all of its hosts had outgrown before it ended.
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

    /// Time passes: generations end that somebody has outgrown, and those begin that are due.
    pub(crate) fn tick(&mut self, now: u64, switch: &mut Switch, said: &mut Said) {
        let looks = now >= self.looked + ns(LOOK);
        if looks {
            self.looked = now;
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
        // Addresses were looked at when they came, and there is such a set.
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
    }

    /// The next set after the one that was taken last which nobody has.
    fn free_gid(&self, switch: &Switch) -> Option<u16> {
        let arrays = switch.arrays();
        let sets = arrays.sets();
        let free = |gid: &u16| arrays.view(*gid).is_some_and(|view| view.session.state == State::Silent);
        (0..sets).map(|n| ((usize::from(self.next_gid) + n) % sets) as u16).find(free)
    }
}

#[cfg(test)]
mod tests;
