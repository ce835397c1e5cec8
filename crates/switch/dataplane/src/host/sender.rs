//! The requests for a set's sending queue pair, and the handling of their completions.

use std::collections::VecDeque;

use stentor_wire::Psn;

use super::held::Held;
use crate::control::{self, CONTROL_RKEY, CONTROL_VA, Head, Link, MAX_CONTROL_BYTES, Operation};
use crate::registers::MOST;

/// Maximum number of member list changes that wait at the same time.
const CHANGES: usize = 64;
/// Key of writes. The switch replaces it by each receiver's key.
const ANY_RKEY: u32 = 0;
/// Number of writes after a LINK that are all signalled. If another change follows soon, its LINK waits for their
/// completion. Otherwise the switch would refuse the LINK until they are done.
const SOON: u32 = 4;
/// Interval of signalled writes after the first [`SOON`] ones.
const LATER: u32 = 16;

/// The destination of one copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Target {
    /// Rank of the receiver.
    pub rank: u8,
    /// Key of the receiver's region.
    pub rkey: u32,
    /// Address of the receiver's region.
    pub base: u64,
    /// Offset in the region, in bytes.
    pub offset: u64,
}

/// Parameters of a new queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Session {
    /// Number of this queue pair among all queue pairs of this sender. Tokens contain the number.
    pub life: u32,
    /// Number of the queue pair.
    pub sqpn: u32,
    /// First PSN of the queue pair.
    pub first_psn: Psn,
    /// Largest payload of a packet, in bytes.
    pub mtu: u16,
    /// Number that identifies the session to the switch.
    pub lock_id: u32,
}

/// Result of [`Sender::write`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Written {
    /// The caller has to post the write now.
    Now {
        /// Token that identifies the write in its completion.
        token: u64,
        /// Address to write to, in the switch's address space.
        va: u64,
        /// Key to write with.
        rkey: u32,
        /// `true` if the request must be signalled.
        signalled: bool,
    },
    /// The sender has queued the write. [`Sender::next_write`] returns it later.
    Later,
    /// There is no room, and nothing has changed.
    Full,
}

/// The next request to post: an inline WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next<'a> {
    /// Token that identifies the request in its completion.
    pub token: u64,
    /// Address to write to.
    pub va: u64,
    /// Key to write with.
    pub rkey: u32,
    /// Data to write.
    pub data: &'a [u8],
    /// `true` if the request must be signalled.
    pub signalled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Link,
    /// A write. `id` is the caller's id of the write; `told` is `true` if the caller wants its completion.
    Data {
        id: u64,
        told: bool,
        va: u64,
        /// Offset of the data in the buffer, while the write waits.
        at: usize,
        bytes: usize,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    kind: Kind,
    /// `true` if the request is signalled. The value is set when the request is posted.
    signalled: bool,
}

/// A member list, as in a LINK.
#[derive(Clone, Copy, Debug)]
struct List {
    n: usize,
    links: [Link; MOST],
}

impl List {
    const fn new() -> List {
        List { n: 0, links: [Link { rank: 0, rkey: 0, base: 0 }; MOST] }
    }

    /// Returns the address at which a single write reaches all these targets while the switch uses this list. Returns
    /// `None` if there is no such address.
    fn va(&self, targets: &[Target]) -> Option<u64> {
        if targets.len() != self.n {
            return None;
        }
        let mut va = None;
        for (place, target) in targets.iter().enumerate() {
            let links = &self.links[..self.n];
            let same = |link: &&Link| link.rank == target.rank;
            // Targets mostly have the order of the list.
            let link = links.get(place).filter(same).or_else(|| links.iter().find(same))?;
            let needed = target.base.wrapping_add(target.offset).wrapping_sub(link.base);
            if link.rkey != target.rkey || *va.get_or_insert(needed) != needed {
                return None;
            }
        }
        va
    }

    /// Replaces the list by one through which a single write reaches all these targets. Returns the address of that
    /// write, which is the offset of the first target.
    fn of(&mut self, targets: &[Target]) -> u64 {
        let va = targets.first().map_or(0, |first| first.offset);
        self.n = targets.len().min(MOST);
        for (link, target) in self.links.iter_mut().zip(targets) {
            let base = target.base.wrapping_add(target.offset).wrapping_sub(va);
            *link = Link { rank: target.rank, rkey: target.rkey, base };
        }
        va
    }
}

/// The sending side of a set. It allocates only in [`Sender::new`].
#[derive(Debug)]
pub struct Sender {
    session: Session,
    depth: usize,
    /// Requests that are not done, the oldest first: posted requests, then waiting ones.
    entries: VecDeque<Entry>,
    posted: usize,
    /// Sequence number of the oldest entry.
    first: u32,
    /// Number of writes among the entries.
    writes: usize,
    /// Member list that is in force after all entries are done.
    list: List,
    /// Member lists whose LINK is not posted yet.
    changes: VecDeque<List>,
    held: Held,
    /// `true` while a LINK is in flight.
    linking: bool,
    /// Number of writes posted since the last LINK.
    since_link: u32,
    psn: Psn,
    /// Number of messages posted.
    messages: u32,
    payload: [u8; MAX_CONTROL_BYTES],
    links_posted: u64,
}

impl Sender {
    /// Creates a sender for up to `depth` outstanding writes, of which up to `held_bytes` bytes can wait. One write of
    /// that length always fits into an empty buffer.
    #[must_use]
    pub fn new(depth: u32, held_bytes: usize) -> Sender {
        let depth = depth as usize;
        Sender {
            session: Session { life: 0, sqpn: 0, first_psn: Psn::new(0), mtu: 1024, lock_id: 0 },
            depth,
            entries: VecDeque::with_capacity(depth + CHANGES + 1),
            posted: 0,
            first: 0,
            writes: 0,
            list: List::new(),
            changes: VecDeque::with_capacity(CHANGES),
            held: Held::new(held_bytes),
            linking: false,
            since_link: 0,
            psn: Psn::new(0),
            messages: 0,
            payload: [0; MAX_CONTROL_BYTES],
            links_posted: 0,
        }
    }

    /// Starts with a new queue pair. Drops all earlier requests, posted or waiting.
    pub fn begin(&mut self, session: Session) {
        self.entries.clear();
        self.changes.clear();
        self.held.clear();
        (self.session, self.posted, self.first, self.writes) = (session, 0, 0, 0);
        (self.list.n, self.linking, self.since_link) = (0, false, 0);
        (self.psn, self.messages) = (session.first_psn, 0);
    }

    /// Returns the number of writes that are not done.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.writes
    }

    /// Returns the number of LINKs posted since the sender was created.
    #[must_use]
    pub fn links(&self) -> u64 {
        self.links_posted
    }

    /// Adds a write. `targets` holds 1 to 32 targets with different ranks.
    pub fn write(&mut self, (id, told): (u64, bool), targets: &[Target], data: &[u8]) -> Written {
        if self.writes >= self.depth {
            return Written::Full;
        }
        let fits = self.list.va(targets);
        let bytes = data.len();
        if let Some(va) = fits.filter(|_| self.posted == self.entries.len() && !self.linking) {
            let signalled = self.is_signalled(told);
            let token = self.token(self.entries.len());
            self.entries.push_back(Entry { kind: Kind::Data { id, told, va, at: 0, bytes }, signalled });
            self.writes += 1;
            self.was_posted(bytes);
            return Written::Now { token, va, rkey: ANY_RKEY, signalled };
        }
        if fits.is_none() && self.changes.len() == CHANGES {
            return Written::Full;
        }
        // A write without data needs no room. As a piece of zero length it would make the buffer look full.
        let at = if data.is_empty() { Some(0) } else { self.held.put(data) };
        let Some(at) = at else { return Written::Full };
        let va = fits.unwrap_or_else(|| {
            let va = self.list.of(targets);
            self.changes.push_back(self.list);
            self.entries.push_back(Entry { kind: Kind::Link, signalled: true });
            va
        });
        self.entries.push_back(Entry { kind: Kind::Data { id, told, va, at, bytes }, signalled: false });
        self.writes += 1;
        Written::Later
    }

    /// Returns the next request to post now, if any. The caller must call this until it returns `None`, after each
    /// [`Written::Later`] and after each completion.
    pub fn next_write(&mut self) -> Option<Next<'_>> {
        if self.linking {
            return None;
        }
        let token = self.token(self.posted);
        let signalled = match self.entries.get(self.posted)?.kind {
            Kind::Link => {
                // The previous request is signalled, so its completion will trigger the next call.
                let before = self.posted.checked_sub(1).and_then(|before| self.entries.get(before));
                if before.is_some_and(|before| before.signalled) {
                    return None;
                }
                true
            }
            Kind::Data { told, .. } => self.is_signalled(told),
        };
        let entry = self.entries.get_mut(self.posted)?;
        entry.signalled = signalled;
        match entry.kind {
            Kind::Link => {
                let bytes = self.link()?;
                Some(Next { token, va: CONTROL_VA, rkey: CONTROL_RKEY, data: &self.payload[..bytes], signalled })
            }
            Kind::Data { va, at, bytes, .. } => {
                self.was_posted(bytes);
                if bytes > 0 {
                    let behind = self.entries.range(self.posted..).find_map(|entry| match entry.kind {
                        Kind::Data { at, bytes: 1.., .. } => Some(at),
                        _ => None,
                    });
                    // The freed bytes stay intact until the next piece is added. The caller uses them only until then.
                    self.held.free(behind);
                }
                Some(Next { token, va, rkey: ANY_RKEY, data: self.held.get(at, bytes), signalled })
            }
        }
    }

    /// Builds the payload of the next LINK.
    fn link(&mut self) -> Option<usize> {
        let list = self.changes.pop_front()?;
        let Session { sqpn, lock_id, .. } = self.session;
        let head =
            Head { operation: Operation::Link, lock_id, epoch: 0, sqpn, psn: self.psn, msn: self.messages & 0xff_ffff };
        let bytes = control::emit(&head, &[], &list.links[..list.n], &mut self.payload).ok()?;
        self.was_posted(bytes);
        (self.linking, self.since_link) = (true, 0);
        self.links_posted += 1;
        Some(bytes)
    }

    fn is_signalled(&self, told: bool) -> bool {
        told || self.since_link < SOON || self.since_link.is_multiple_of(LATER)
    }

    fn token(&self, place: usize) -> u64 {
        u64::from(self.session.life) << 32 | u64::from(self.first.wrapping_add(place as u32))
    }

    fn was_posted(&mut self, bytes: usize) {
        let packets = bytes.div_ceil(self.session.mtu.max(1).into()).max(1);
        self.psn = self.psn.plus(packets as u32);
        self.messages = self.messages.wrapping_add(1);
        self.posted += 1;
        self.since_link = self.since_link.saturating_add(1);
    }

    /// Handles a successful completion. Returns the id of the write if its caller wants the completion. Completions of
    /// earlier queue pairs are ignored.
    pub fn completed(&mut self, token: u64) -> Option<u64> {
        let (life, number) = ((token >> 32) as u32, token as u32);
        let count = number.wrapping_sub(self.first) as usize;
        if life != self.session.life || count >= self.posted {
            return None;
        }
        let mut tell = None;
        for entry in self.entries.drain(..=count) {
            tell = match entry.kind {
                Kind::Link => {
                    self.linking = false;
                    None
                }
                Kind::Data { id, told, .. } => {
                    self.writes -= 1;
                    Some(id).filter(|_| told)
                }
            };
        }
        self.posted -= count + 1;
        self.first = number.wrapping_add(1);
        tell
    }

    /// Handles a failed completion: all requests posted before the failed one are done.
    pub fn completed_before(&mut self, token: u64) {
        if token as u32 != self.first {
            self.completed((token & !u64::from(u32::MAX)) | u64::from((token as u32).wrapping_sub(1)));
        }
    }

    /// Returns whether a change of the member list is in flight.
    #[must_use]
    pub fn is_linking(&self) -> bool {
        self.linking
    }

    /// Returns whether a completion belongs to the current queue pair.
    #[must_use]
    pub fn is_current(&self, token: u64) -> bool {
        (token >> 32) as u32 == self.session.life
    }

    /// Returns the id of the oldest write that is not done, and removes it. After the queue pair has broken, the caller
    /// repeats this until it returns `None`.
    pub fn next_failed(&mut self) -> Option<u64> {
        while let Some(entry) = self.entries.pop_front() {
            self.posted = self.posted.saturating_sub(1);
            self.first = self.first.wrapping_add(1);
            if let Kind::Data { id, .. } = entry.kind {
                self.writes -= 1;
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::control::Control;

    const DEPTH: u32 = 8;
    const MTU: u16 = 256;

    fn session(life: u32) -> Session {
        Session { life, sqpn: 0x1234, first_psn: Psn::new(0xff_fff0), mtu: MTU, lock_id: 9 }
    }

    fn sender() -> Sender {
        let mut sender = Sender::new(DEPTH, 2048);
        sender.begin(session(3));
        sender
    }

    fn target(rank: u8, offset: u64) -> Target {
        Target { rank, rkey: 100 + u32::from(rank), base: u64::from(rank) << 40, offset }
    }

    /// A queue pair that is connected to a switch. It executes posted requests in order, and completes them on demand.
    #[derive(Default)]
    struct Network {
        psn: u32,
        messages: u32,
        list: BTreeMap<u8, (u32, u64)>,
        /// Requests in flight: token, whether signalled, whether a LINK.
        open: VecDeque<(u64, bool, bool)>,
        /// Copies that landed: rank, key, address, data.
        landed: Vec<(u8, u32, u64, Vec<u8>)>,
    }

    impl Network {
        fn new() -> Network {
            Network { psn: 0xff_fff0, ..Network::default() }
        }

        fn post(&mut self, token: u64, va: u64, rkey: u32, data: &[u8], signalled: bool) {
            assert!(!self.open.iter().any(|(_, _, link)| *link), "nothing is posted after a LINK");
            let is_link = (va, rkey) == (CONTROL_VA, CONTROL_RKEY);
            if is_link {
                let last = self.open.back();
                assert!(last.is_none_or(|(_, signalled, _)| !signalled), "the LINK could have waited");
                let control = Control::parse_payload(data).unwrap();
                let said = (control.head.psn.get(), control.head.msn, control.head.sqpn, control.head.lock_id);
                assert_eq!(said, (self.psn, self.messages, 0x1234, 9));
                let links = (0..control.len()).filter_map(|slot| control.link(slot));
                self.list = links.map(|link| (link.rank, (link.rkey, link.base))).collect();
            } else {
                for (rank, (rkey, base)) in &self.list {
                    self.landed.push((*rank, *rkey, base.wrapping_add(va), data.to_vec()));
                }
            }
            self.psn = (self.psn + (data.len().div_ceil(MTU.into()).max(1)) as u32) & 0xff_ffff;
            self.messages += 1;
            self.open.push_back((token, signalled, is_link));
        }

        fn pull(&mut self, sender: &mut Sender) {
            while let Some(Next { token, va, rkey, data, signalled }) = sender.next_write() {
                self.post(token, va, rkey, data, signalled);
            }
        }

        /// Completes the oldest signalled request and all before it.
        fn complete(&mut self, sender: &mut Sender) -> Option<Option<u64>> {
            let last = self.open.iter().position(|(_, signalled, _)| *signalled)?;
            let (token, ..) = self.open[last];
            self.open.drain(..=last);
            let told = sender.completed(token);
            self.pull(sender);
            Some(told)
        }
    }

    fn write(sender: &mut Sender, network: &mut Network, id: (u64, bool), targets: &[Target], data: &[u8]) -> bool {
        match sender.write(id, targets, data) {
            Written::Now { token, va, rkey, signalled } => network.post(token, va, rkey, data, signalled),
            Written::Later => network.pull(sender),
            Written::Full => return false,
        }
        true
    }

    #[test]
    fn failure_completes_earlier_posts_only() {
        let (mut sender, mut network) = (sender(), Network::new());
        assert!(write(&mut sender, &mut network, (1, true), &[target(1, 0)], &[1; 8]));
        network.complete(&mut sender);
        assert!(write(&mut sender, &mut network, (2, true), &[target(1, 0)], &[2; 8]));
        let (token, ..) = *network.open.back().unwrap();
        assert_eq!(token >> 32, 3, "the token contains the life");
        sender.completed_before(token);
        assert_eq!(sender.completed(token - 1), None, "the earlier request is done already");
        assert_eq!(sender.posted, 1);
        sender.completed_before(token);
        assert_eq!((sender.posted, sender.completed(token)), (1, Some(2)), "no request was before it");
    }

    #[test]
    fn write_to_the_same_members_needs_no_link() {
        let (mut sender, mut network) = (sender(), Network::new());
        let both = |offset| [target(1, offset), target(5, offset + 64)];
        assert!(write(&mut sender, &mut network, (1, true), &both(0), &[1; 8]));
        assert_eq!((network.open.len(), network.landed.len()), (1, 0), "only the LINK");
        assert_eq!(network.complete(&mut sender), Some(None), "the completion of a LINK is not reported");
        assert_eq!(network.landed.len(), 2);
        // Other offsets in another order use the same list.
        let [one, other] = both(0x100);
        assert!(write(&mut sender, &mut network, (2, true), &[other, one], &[2; 8]));
        assert_eq!((network.landed[2].clone(), sender.links()), ((1, 101, (1 << 40) + 0x100, vec![2; 8]), 1));
        assert_eq!((network.complete(&mut sender), network.complete(&mut sender)), (Some(Some(1)), Some(Some(2))));
        // A subset, other distances between the offsets, or another key need another list.
        for (n, targets) in
            [vec![one], both(0).to_vec(), vec![one, Target { offset: 0x108, ..other }]].iter().enumerate()
        {
            assert!(write(&mut sender, &mut network, (7, false), targets, &[3; 8]));
            while network.complete(&mut sender).is_some() {}
            assert_eq!(sender.links(), n as u64 + 2);
        }
        let key = Target { rkey: 7, ..one };
        assert!(write(&mut sender, &mut network, (8, true), &[key, other], &[4; 8]));
        while network.complete(&mut sender).is_some() {}
        assert_eq!((sender.links(), sender.outstanding(), network.landed.len()), (5, 0, 11));
    }

    #[test]
    fn write_beyond_the_depth_is_refused_until_a_completion() {
        let (mut sender, mut network) = (sender(), Network::new());
        for id in 0..u64::from(DEPTH) {
            assert!(write(&mut sender, &mut network, (id, id == 7), &[target(1, 0)], &[0; 8]));
        }
        assert_eq!(sender.write((9, true), &[target(1, 0)], &[0; 8]), Written::Full);
        assert_eq!(network.complete(&mut sender), Some(None));
        // The first writes after a LINK are signalled even if the caller wants no completion; later ones are not.
        let asked: Vec<bool> = network.open.iter().map(|(_, signalled, _)| *signalled).collect();
        assert_eq!(asked, [true, true, true, true, false, false, false, true]);
        let told: Vec<_> = std::iter::from_fn(|| network.complete(&mut sender)).collect();
        assert_eq!(told, [None, None, None, None, Some(7)]);
        assert_eq!(sender.outstanding(), 0);
        // Up to 2048 bytes can wait, and one write of that length always fits.
        assert!(write(&mut sender, &mut network, (1, false), &[target(1, 0), target(2, 0)], &[1; 2048]));
        assert_eq!(sender.write((2, false), &[target(2, 0)], &[2; 8]), Written::Full);
        while network.complete(&mut sender).is_some() {}
        assert_eq!(network.landed.last().unwrap().3, vec![1; 2048]);
    }

    /// A write without data needs no room, so it leaves the whole buffer to others while it waits.
    #[test]
    fn waiting_write_without_data_occupies_no_room() {
        let (mut sender, mut network) = (sender(), Network::new());
        assert!(write(&mut sender, &mut network, (1, true), &[target(1, 0)], &[]));
        assert!(write(&mut sender, &mut network, (2, true), &[target(1, 0)], &[2; 2000]));
        assert!(write(&mut sender, &mut network, (3, true), &[target(1, 0)], &[]));
        assert!(write(&mut sender, &mut network, (4, true), &[target(1, 0)], &[4; 48]));
        let told: Vec<_> = std::iter::from_fn(|| network.complete(&mut sender)).collect();
        assert_eq!(told, [None, Some(1), Some(2), Some(3), Some(4)]);
        let landed: Vec<_> = network.landed.iter().map(|(.., data)| data.clone()).collect();
        assert_eq!(landed, [vec![], vec![2; 2000], vec![], vec![4; 48]]);
    }

    #[test]
    fn broken_queue_pair_returns_its_writes_in_order() {
        let (mut sender, mut network) = (sender(), Network::new());
        for id in 0..4 {
            write(&mut sender, &mut network, (id, false), &[target(id as u8 % 2, 0)], &[0; 8]);
        }
        let old = network.open[0].0;
        assert_eq!(std::iter::from_fn(|| sender.next_failed()).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(sender.outstanding(), 0);
        sender.begin(session(4));
        assert_eq!((sender.completed(old), sender.is_current(old)), (None, false));
        let mut network = Network::new();
        write(&mut sender, &mut network, (5, true), &[target(1, 0)], &[0; 8]);
        assert_eq!((network.open.len(), network.open[0].2), (1, true), "the switch knows no list yet");
        network.complete(&mut sender);
        assert_eq!(network.complete(&mut sender), Some(Some(5)));
    }

    proptest! {
        #[test]
        fn every_write_lands_once_where_it_should_and_in_order(
            steps in proptest::collection::vec((any::<u8>(), 1_u32..8, 0_u64..4, 0_usize..600, any::<bool>()), 1..200),
        ) {
            let (mut sender, mut network) = (sender(), Network::new());
            let (mut expected, mut told, mut heard) = (Vec::new(), Vec::new(), Vec::new());
            for (n, (what, mask, offset, bytes, tell)) in steps.into_iter().enumerate() {
                if what % 3 == 0 {
                    heard.extend(network.complete(&mut sender).flatten());
                    continue;
                }
                let skew = u64::from(what % 5 == 0);
                let ranks = (0..3_u8).filter(|rank| mask >> rank & 1 == 1);
                let targets: Vec<_> =
                    ranks.map(|rank| target(rank, 64 * offset + 8 * skew * u64::from(rank))).collect();
                let data = vec![n as u8; bytes];
                if write(&mut sender, &mut network, (n as u64, tell), &targets, &data) {
                    let at = |t: &Target| (t.rank, t.rkey, t.base + t.offset, data.clone());
                    expected.extend(targets.iter().map(at));
                    told.extend(tell.then_some(n as u64));
                } else {
                    // A write is refused only while other writes are outstanding.
                    prop_assert!(sender.outstanding() > 0);
                }
            }
            while let Some(completed) = network.complete(&mut sender) {
                heard.extend(completed);
            }
            prop_assert_eq!(network.landed, expected);
            prop_assert_eq!(heard, told);
        }
    }
}
